//! Exchanges of a group between computations: slices of the sequence, parts of a loss, rows of experts.

use super::{Computation, ComputationKind, Context, Extent, Role, positions};
use crate::graph::Graph;
use crate::ids::{NodeId, ValueId};
use crate::units::Bytes;

/// Numbers of a position that each rank gives of a loss: its largest logit, the sum of exponentials less that, the
/// target's logit, where the largest stands, and the sum of logits less that.
pub const PARTIAL_LOSS_WORDS: u64 = 5;

/// Bytes of what all ranks of a tensor group tell each other of a sample's loss; none where each has all logits.
pub(crate) fn partial_loss(graph: &Graph, loss: NodeId) -> Option<Bytes> {
    let node = graph.node(loss);
    graph.vocabulary(loss).filter(|_| node.op.is_loss())?;
    let words = PARTIAL_LOSS_WORDS * positions(&graph.node(node.inputs[0]).output);
    Some(Bytes(4) * words * u64::from(graph.parts(loss)))
}

impl Context<'_> {
    /// The numbers that ranks tell each other of a loss over some logits each.
    pub(super) fn partial_loss(&mut self, id: NodeId, reads: &[ValueId]) -> Option<ValueId> {
        let extent = Extent::per_sample(partial_loss(self.graph, id)?);
        let numbers = self.value(id, Role::Saved, extent);
        let kind = ComputationKind::PartialLoss;
        let mut partial = self.between(id, kind, reads.to_vec(), numbers);
        partial.reduces = true;
        self.out.computations.push(partial);
        Some(numbers)
    }

    /// A partial sum of what a node gives.
    pub(super) fn partial(&mut self, id: NodeId) -> ValueId {
        let extent = Extent::per_sample(self.graph.result(id).bytes());
        self.value(id, Role::Partial, extent)
    }

    /// A value becomes another one among the ranks; scratch is for slices on their way.
    pub(super) fn exchange(
        &self,
        node: NodeId,
        kind: ComputationKind,
        [from, to]: [ValueId; 2],
    ) -> Computation {
        let [from_extent, to_extent] =
            [from, to].map(|value| self.out.values[value.index()].extent);
        let scratch = match kind {
            ComputationKind::AllGather => from_extent.per_sample,
            ComputationKind::ReduceScatter => to_extent.per_sample * 2,
            kind if kind.is_all_to_all() => {
                let degree = self.graph.expert_groups().map_or(1, |experts| experts.degree);
                Bytes(2 * from_extent.per_sample.0 / u64::from(degree))
            }
            _ => Bytes::ZERO,
        };
        let mut exchange = self.between(node, kind, vec![from], to);
        exchange.workspace = Extent::per_sample(scratch);
        exchange
    }

    fn between(
        &self,
        node: NodeId,
        kind: ComputationKind,
        reads: Vec<ValueId>,
        write: ValueId,
    ) -> Computation {
        let (workspace, reduces, again) = (Extent::default(), false, false);
        Computation { node, kind, reads, writes: vec![write], wanted: 0, workspace, reduces, again }
    }

    /// The value that a reader reads of `input`, in the pass that is being built: made there where nobody has
    /// read it so before. What is gathered is not kept from pass to pass.
    pub(super) fn operand(&mut self, reader: NodeId, input: NodeId) -> ValueId {
        let (value, made) = self.operand_in(reader, input, false);
        self.out.computations.extend(made);
        value
    }

    /// The same with what makes it, in the weight-gradient part where that comes `late`.
    pub(super) fn operand_in(
        &mut self,
        reader: NodeId,
        input: NodeId,
        late: bool,
    ) -> (ValueId, Option<Computation>) {
        let own = self.input(input);
        let computes_slice = self.graph.computes_slice(reader);
        if self.graph.is_sliced(input) == computes_slice {
            return (own, None);
        }
        let extent = Extent::per_sample(self.graph.operand(reader, input).bytes());
        let known = if late { &self.exchanged_late } else { &self.exchanged };
        if let Some(value) = known[input.index()] {
            return (value, None);
        }
        let kind =
            if computes_slice { ComputationKind::Scatter } else { ComputationKind::AllGather };
        let value = self.value(input, Role::Activation, extent);
        let known = if late { &mut self.exchanged_late } else { &mut self.exchanged };
        known[input.index()] = Some(value);
        (value, Some(self.exchange(input, kind, [own, value])))
    }

    /// The next pass gathers what it reads.
    pub(super) fn forget_exchanged(&mut self) {
        self.exchanged.fill(None);
        self.exchanged_late.fill(None);
    }

    /// What is done behind a node with what it gives, in a pass of a group.
    pub(super) fn exchange_behind(&self, id: NodeId) -> Option<ComputationKind> {
        let scatters = self.graph.is_sliced(id) && !self.graph.computes_slice(id);
        let scatter = scatters.then_some(ComputationKind::ReduceScatter);
        self.graph.sends_rows(id).or(scatter)
    }

    /// The gradient of what a node gives, from that of what it has of it behind the exchange: all of partial sums; rows.
    pub(super) fn gradient_before(
        &mut self,
        id: NodeId,
        exchange: ComputationKind,
        own: ValueId,
    ) -> (ValueId, Computation) {
        let extent = Extent::per_sample(self.graph.result(id).bytes());
        let before = self.value(id, Role::Gradient, extent);
        (before, self.exchange(id, exchange.back(), [own, before]))
    }

    /// What a reader contributes to the gradient of `input`, its input `slot`, as the input is: partial sums are left to
    /// [`Self::reduce`].
    pub(super) fn returned(
        &mut self,
        [reader, input]: [NodeId; 2],
        slot: u32,
        value: ValueId,
    ) -> ValueId {
        let (sliced, computes_slice) =
            (self.graph.is_sliced(input), self.graph.computes_slice(reader));
        let is_partial = self.graph.is_partial(reader, slot);
        if sliced == computes_slice || is_partial {
            return value;
        }
        let extent = self.activation_extent(input);
        let kind = if sliced { ComputationKind::Scatter } else { ComputationKind::AllGather };
        let own = self.value(input, Role::Gradient, extent);
        let exchange = self.exchange(input, kind, [value, own]);
        self.out.computations.push(exchange);
        own
    }
}
