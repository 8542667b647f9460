//! The backward half of a stage's training graph.

use super::flow::inputs;
use super::{BackwardStyle, Computation, ComputationKind, Context, Extent, Port, Role, workspace};
use crate::graph::{Kept, Op};
use crate::ids::{NodeId, StageId, ValueId};

/// Where the contributions of one stage to a gradient of another stage go.
struct Route {
    /// Use indexes in that stage, ascending.
    uses: Vec<u32>,
    /// Whether that stage sums them before it sends: it holds the last readers.
    summed: bool,
}

impl Context<'_> {
    pub(super) fn backward(&mut self, style: BackwardStyle) {
        self.receive_gradients();
        let mut weights = vec![];
        for id in self.division.stages[self.stage.index()].clone().rev().map(NodeId) {
            self.backward_node(id, style, &mut weights);
        }
        self.send_gradients();
        self.out.input_gradient_end = self.out.computations.len() as u32;
        self.out.computations.extend(weights);
    }

    fn receive_gradients(&mut self) {
        for i in 0..self.out.sends.len() {
            let Port { node, peer, .. } = self.out.sends[i];
            let Some(route) = self.route(node, peer) else { continue };
            let kept: Vec<u32> = match route.summed {
                true => route.uses.last().copied().into_iter().collect(),
                false => route.uses,
            };
            for use_index in kept {
                let extent = self.activation_extent(node);
                let value = self.value(node, Role::Gradient, extent);
                self.out.gradient_receives.push(Port { value, node, use_index, peer });
                self.contributions[node.index()].push((use_index, value));
            }
        }
    }

    fn send_gradients(&mut self) {
        for i in 0..self.out.receives.len() {
            let Port { node, peer, .. } = self.out.receives[i];
            let Some(route) = self.route(node, self.stage) else { continue };
            if route.summed {
                let Some(value) = self.gradient(node) else { continue };
                let use_index = *route.uses.last().expect("a route has uses");
                self.out.gradient_sends.push(Port { value, node, use_index, peer });
            } else {
                self.reduce(node, false);
                let mut ports = std::mem::take(&mut self.contributions[node.index()]);
                ports.sort_unstable();
                for (use_index, value) in ports {
                    self.out.gradient_sends.push(Port { value, node, use_index, peer });
                }
            }
        }
    }

    /// How the readers on stage `to` contribute to the gradient of `node`; none when no gradient
    /// flows there.
    fn route(&self, node: NodeId, to: StageId) -> Option<Route> {
        if !self.flow.differentiable[node.index()] {
            return None;
        }
        let mut uses = vec![];
        let mut last = None;
        for (i, (reader, _)) in self.flow.uses(node).iter().enumerate() {
            if !self.flow.differentiable[reader.index()] {
                continue;
            }
            let stage = self.division.stage_of(*reader);
            last = last.max(Some(stage));
            if stage == to {
                uses.push(i as u32);
            }
        }
        (!uses.is_empty()).then_some(Route { uses, summed: last == Some(to) })
    }

    /// The gradient of a node's output: its readers' contributions, summed from the last reader.
    fn gradient(&mut self, node: NodeId) -> Option<ValueId> {
        self.reduce(node, true);
        let mut parts = std::mem::take(&mut self.contributions[node.index()]);
        parts.sort_unstable();
        parts.reverse();
        if parts.len() <= 1 {
            return parts.first().map(|(_, value)| *value);
        }
        Some(self.sum(node, parts))
    }

    /// The sum of contributions, in their order.
    fn sum(&mut self, node: NodeId, parts: Vec<(u32, ValueId)>) -> ValueId {
        let first = self.out.values[parts[0].1.index()];
        let sum = self.value(node, first.role, first.extent);
        self.out.computations.push(Computation {
            node,
            kind: ComputationKind::SumGradients,
            reads: parts.into_iter().map(|(_, value)| value).collect(),
            writes: vec![sum],
            wanted: 0,
            workspace: Extent::default(),
            reduces: false,
            again: false,
        });
        sum
    }

    /// The contributions of this stage's readers that have some columns, or experts, each are partial sums. One is added
    /// up where it was made; of several, where `together`, their sum. In place, or in place of the last one.
    fn reduce(&mut self, node: NodeId, together: bool) {
        let is_partial = |(use_index, _): &(u32, ValueId)| {
            let (reader, slot) = self.flow.uses(node)[*use_index as usize];
            self.graph.is_partial(reader, slot) && self.division.stage_of(reader) == self.stage
        };
        let parts = std::mem::take(&mut self.contributions[node.index()]);
        let (mut partial, mut whole): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_partial);
        partial.sort_unstable();
        partial.reverse();
        if partial.len() > 1 && together {
            let use_index = partial[0].0;
            let sum = self.sum(node, partial);
            partial = vec![(use_index, sum)];
        }
        let scatters = self.graph.is_sliced(node);
        for (_, value) in partial.iter_mut() {
            if scatters {
                let extent = self.activation_extent(node);
                let slice = self.value(node, Role::Gradient, extent);
                let sum = self.exchange(node, ComputationKind::ReduceScatter, [*value, slice]);
                self.out.computations.push(sum);
                *value = slice;
                continue;
            }
            let mut made = self.out.computations.iter_mut().rev();
            if let Some(computation) = made.find(|c| c.writes.first() == Some(&*value)) {
                computation.reduces = true;
            }
        }
        whole.extend(partial);
        self.contributions[node.index()] = whole;
    }

    /// Adds what one node does in the backward pass; the weight part to `weights` where it comes later.
    fn backward_node(&mut self, id: NodeId, style: BackwardStyle, weights: &mut Vec<Computation>) {
        if !self.flow.differentiable[id.index()] {
            return;
        }
        let graph = self.graph;
        let node = graph.node(id);
        let own = if node.op.is_loss() { None } else { self.gradient(id) };
        if own.is_none() && !node.op.is_loss() {
            return;
        }
        let late = style == BackwardStyle::Split;
        let exchange = self.exchange_behind(id);
        // What is gathered is not kept for the weight gradients, but gathered again: it is larger than what is.
        let again = exchange.filter(|kind| late && !kind.is_all_to_all());
        let wanted = inputs(node).any(|input| self.flow.differentiable[input.index()]);
        let mut incoming = own;
        if let (Some(own), Some(kind)) = (own, exchange.filter(|_| wanted || again.is_none())) {
            let (before, made) = self.gradient_before(id, kind, own);
            self.out.computations.push(made);
            incoming = Some(before);
        }
        self.input_gradient(id, incoming);
        let trained = node.params.iter().any(|p| graph.param(*p).trainable);
        let (Some(mut incoming), Some(own)) = (incoming.filter(|_| trained), own) else { return };
        let mut made = vec![];
        if let Some(kind) = again {
            let (before, again) = self.gradient_before(id, kind, own);
            made.push(again);
            incoming = before;
        }
        let reads = match &node.op {
            Op::Opaque { kept: Some(kept), .. } => self.kept(id, kept, Some(incoming)),
            _ => {
                let first = node.inputs.first().map(|x| self.operand_in(id, *x, late));
                let first = first.map(|(value, gathered)| {
                    made.extend(gathered);
                    value
                });
                first.into_iter().chain([incoming]).chain(self.saved[id.index()]).collect()
            }
        };
        let weight = Computation {
            node: id,
            kind: ComputationKind::WeightGradient,
            reads,
            writes: vec![],
            wanted: 0,
            workspace: workspace(graph, node),
            reduces: graph.computes_slice(id),
            again: false,
        };
        let into = if late { weights } else { &mut self.out.computations };
        into.extend(made);
        into.push(weight);
    }

    fn input_gradient(&mut self, id: NodeId, incoming: Option<ValueId>) {
        let node = self.graph.node(id);
        let wanted: Vec<(u32, NodeId)> = (0u32..)
            .zip(node.inputs.iter().copied())
            .filter(|(slot, _)| node.op.differentiates(*slot))
            .filter(|(_, input)| self.flow.differentiable[input.index()])
            .collect();
        if wanted.is_empty() {
            return;
        }
        let mut mask = 0;
        let (mut written, mut contributed) = (vec![], vec![]);
        for (slot, input) in wanted {
            let extent = Extent::per_sample(self.graph.operand(id, input).bytes());
            let same = extent == self.activation_extent(id);
            let value = match incoming.filter(|_| same && node.op.passes_gradient(slot)) {
                Some(value) => value,
                None => {
                    let value = self.value(input, self.contribution(id, slot, input), extent);
                    written.push(value);
                    mask |= 1 << slot;
                    value
                }
            };
            let use_index = self.flow.uses(input).iter().position(|u| *u == (id, slot));
            let use_index = use_index.expect("every input is a use") as u32;
            contributed.push((input, (use_index, slot), value));
        }
        if mask != 0 {
            let reads = self.input_gradient_reads(id, incoming);
            self.out.computations.push(Computation {
                node: id,
                kind: ComputationKind::InputGradient,
                reads,
                writes: written,
                wanted: mask,
                workspace: workspace(self.graph, node),
                reduces: false,
                again: false,
            });
        }
        for (input, (use_index, slot), value) in contributed {
            let value = self.returned([id, input], slot, value);
            self.contributions[input.index()].push((use_index, value));
        }
    }

    /// What a reader's share of a gradient is.
    fn contribution(&self, reader: NodeId, slot: u32, input: NodeId) -> Role {
        let is_partial = self.graph.is_partial(reader, slot);
        match is_partial && self.graph.is_sliced(input) {
            true => Role::Partial,
            false => Role::Gradient,
        }
    }

    /// What the gradients of an opaque node read.
    fn kept(&self, id: NodeId, kept: &Kept, incoming: Option<ValueId>) -> Vec<ValueId> {
        let inputs = &self.graph.node(id).inputs;
        let read = kept.inputs.iter().filter_map(|slot| inputs.get(*slot as usize));
        let output = self.activation[id.index()].filter(|_| kept.output);
        let saved = self.saved[id.index()];
        read.map(|x| self.input(*x)).chain(output).chain(incoming).chain(saved).collect()
    }

    /// What the table at [`Computation`] says.
    fn input_gradient_reads(&mut self, id: NodeId, incoming: Option<ValueId>) -> Vec<ValueId> {
        let node = self.graph.node(id);
        let (output, saved) = (self.activation[id.index()], self.saved[id.index()]);
        let all = 0..node.inputs.len();
        let slots = match &node.op {
            Op::Activation { function } if function.gradient_from_output() => 0..0,
            Op::Opaque { kept: Some(_), .. } => 0..0,
            Op::TokenPosition { .. } | Op::Dispatch { .. } => 1..all.end,
            Op::BatchNorm2d { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::InstanceNorm2d { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Attention { .. }
            | Op::ScaledDotProduct { .. }
            | Op::Activation { .. }
            | Op::Clip { .. }
            | Op::Multiply
            | Op::Divide
            | Op::MatMul { .. }
            | Op::SwiGlu
            | Op::TopKSoftmax { .. }
            | Op::Combine
            | Op::SoftmaxCrossEntropy { .. }
            | Op::SigmoidCrossEntropy
            | Op::MeanSquaredError
            | Op::Opaque { .. } => all,
            _ => 0..0,
        };
        let inputs: Vec<ValueId> =
            node.inputs[slots].iter().map(|input| self.operand(id, *input)).collect();
        let inputs = inputs.into_iter();
        match &node.op {
            Op::MaxPool2d { .. } => [saved, incoming].into_iter().flatten().collect(),
            Op::Opaque { kept: Some(kept), .. } => self.kept(id, kept, incoming),
            Op::BatchNorm2d { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::InstanceNorm2d { .. }
            | Op::LocalResponseNorm { .. }
            | Op::SoftmaxCrossEntropy { .. } => inputs.chain(incoming).chain(saved).collect(),
            Op::Relu | Op::Softmax | Op::LogSoftmax => output.into_iter().chain(incoming).collect(),
            Op::Activation { function } if function.gradient_from_output() => {
                output.into_iter().chain(incoming).collect()
            }
            Op::Attention { .. } | Op::ScaledDotProduct { .. } | Op::TopKSoftmax { .. } => {
                inputs.chain(output).chain(incoming).chain(saved).collect()
            }
            _ => inputs.chain(incoming).collect(),
        }
    }
}
