//! Anatomy of a network for the Model screen: each layer's size, what it keeps, what a cut after it
//! would send, and how long its passes take.

pub mod arcs;
pub mod chain;
pub mod edit;
pub mod fold;

use arcs::Skip;
use pipewright_core::cost::Costs;
use pipewright_core::graph::autodiff::{BackwardStyle, ComputationKind, Role, training_graph};
use pipewright_core::graph::{Graph, Node, Op};
use pipewright_core::ids::StageId;
use pipewright_core::units::{Bytes, Nanos};
use std::ops::Range;

/// A layer, whatever it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub name: String,
    pub nodes: Range<u32>,
    /// Kinds of operations in the order in which they first come: `conv2d ×3, relu ×2, add`.
    pub ops: String,
    /// Trained values; a tied parameter counts where it stands first.
    pub params: u64,
    /// Floating-point operations of one sample's forward pass.
    pub flops: u64,
    /// Kept between the passes: bytes of a sample, and bytes whatever the number of samples.
    pub kept: [Bytes; 2],
    /// Bytes of one sample that a cut after it would send.
    pub sends: Bytes,
}

/// How long a layer's passes take for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    pub forward: Nanos,
    pub backward: Nanos,
}

impl Passes {
    pub fn both(self) -> Nanos {
        self.forward + self.backward
    }

    /// The sum of several layers'.
    pub fn sum(passes: &[Self]) -> Self {
        passes.iter().fold(Self::default(), |sum, p| Self {
            forward: sum.forward + p.forward,
            backward: sum.backward + p.backward,
        })
    }
}

/// A network taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Anatomy {
    pub layers: Vec<Layer>,
    /// Values that are read further on than in the next layer.
    pub skips: Vec<Skip>,
    /// What a training step computes of each layer: node and kind.
    pub work: Vec<Vec<(usize, ComputationKind)>>,
}

impl Anatomy {
    pub fn new(graph: &Graph) -> Self {
        let of =
            |node: usize| graph.layers().partition_point(|l| l.first_node.0 <= node as u32) - 1;
        let count = graph.layers().len();
        let mut layers: Vec<Layer> = (0..count).map(|index| layer(graph, index)).collect();
        let whole = graph.division(&[]);
        let training = training_graph(graph, &whole, StageId(0), BackwardStyle::Fused);
        let mut work = vec![vec![]; count];
        let mut kept = vec![false; training.values.len()];
        for (at, computation) in (0..).zip(&training.computations) {
            let node = computation.node.index();
            work[of(node)].push((node, computation.kind));
            if at >= training.forward_end {
                computation.reads.iter().for_each(|value| kept[value.index()] = true);
            }
        }
        for (value, _) in training.values.iter().zip(kept).filter(|(_, kept)| *kept) {
            if matches!(value.role, Role::Activation | Role::Saved) {
                let [each, fixed] = &mut layers[of(value.node.index())].kept;
                *each += value.extent.per_sample;
                *fixed += value.extent.fixed;
            }
        }
        let last_reads = last_reads(graph, of);
        send(graph, &last_reads, of, &mut layers);
        let skips = arcs::skips(graph, of);
        Self { layers, skips, work }
    }

    /// The times of all layers.
    pub fn times(&self, costs: &Costs) -> Vec<Passes> {
        let layer = |work: &Vec<(usize, ComputationKind)>| {
            let mut passes = Passes::default();
            for (node, kind) in work {
                let pass = match kind {
                    ComputationKind::Forward => &mut passes.forward,
                    _ => &mut passes.backward,
                };
                *pass += costs.nodes[*node].of(*kind);
            }
            passes
        };
        self.work.iter().map(layer).collect()
    }

    /// What some layers keep of one micro-batch between the passes.
    pub fn kept(&self, layers: Range<usize>, samples: u64) -> Bytes {
        self.layers[layers].iter().map(|l| l.kept[0] * samples + l.kept[1]).sum()
    }
}

fn layer(graph: &Graph, index: usize) -> Layer {
    let range = graph.layer_nodes(index);
    let nodes = &graph.nodes()[range.start as usize..range.end as usize];
    let own = nodes.iter().filter(|n| !matches!(n.op, Op::TiedLinear { .. }));
    let params = own.flat_map(|n| &n.params).map(|id| graph.param(*id));
    Layer {
        name: graph.layers()[index].name.clone(),
        nodes: range,
        ops: kinds(nodes),
        params: params.filter(|p| p.trainable).map(|p| p.elements()).sum(),
        flops: graph.flops_of(nodes),
        kept: [Bytes::ZERO; 2],
        sends: Bytes::ZERO,
    }
}

fn kinds(nodes: &[Node]) -> String {
    let mut counts: Vec<(&str, u32)> = vec![];
    for name in nodes.iter().map(|n| n.op.name()) {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let text = |(name, count): (&str, u32)| match count {
        1 => name.to_owned(),
        n => format!("{name} ×{n}"),
    };
    counts.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The last layer that reads each node's value; its own where nobody else does.
fn last_reads(graph: &Graph, of: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut last: Vec<usize> = (0..graph.nodes().len()).map(&of).collect();
    for (reader, node) in graph.nodes().iter().enumerate() {
        for input in &node.inputs {
            let known = &mut last[input.index()];
            *known = (*known).max(of(reader));
        }
    }
    last
}

/// Adds up what crosses each border between layers. Samples and targets do not: they are loaded
/// where they are read.
fn send(graph: &Graph, last: &[usize], of: impl Fn(usize) -> usize, layers: &mut [Layer]) {
    let mut begins = vec![0u64; layers.len()];
    let mut ends = vec![0u64; layers.len()];
    for (node, from) in graph.nodes().iter().enumerate().filter(|(_, n)| !n.op.is_source()) {
        begins[of(node)] += from.output.bytes().0;
        ends[last[node]] += from.output.bytes().0;
    }
    let mut alive = 0;
    for (layer, (begins, ends)) in layers.iter_mut().zip(begins.into_iter().zip(ends)) {
        alive = alive + begins - ends;
        layer.sends = Bytes(alive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine;
    use crate::planner::presets::EXAMPLES;
    use pipewright_core::graph::presets::Preset;

    #[test]
    fn layers_take_what_the_split_weighs_and_keep_what_a_stage_does() {
        for example in &EXAMPLES {
            let mut inputs = example.inputs();
            engine::split(&mut inputs, 1);
            let ground = engine::Ground::of(&inputs);
            let anatomy = Anatomy::new(&ground.graph);
            let times = anatomy.times(&ground.costs);
            let weighed = engine::layer_times(&ground.graph, &ground.costs);
            for (passes, weighed) in times.iter().zip(&weighed) {
                assert_eq!(passes.both(), weighed.time, "{}: {}", example.title, weighed.name);
            }
            let solved = engine::solve(&inputs, &ground).unwrap();
            let kept = anatomy.kept(0..anatomy.layers.len(), ground.costs.samples);
            // Rounding of places in the arena, and the loss, are not the layers'.
            let share = kept.0 as f64 / solved.stash[0].0 as f64;
            assert!((0.98..1.02).contains(&share), "{}: {share}", example.title);
            let params: u64 = anatomy.layers.iter().map(|l| l.params).sum();
            assert_eq!(params, ground.graph.trainable_elements());
        }
    }

    #[test]
    fn a_cut_sends_what_crosses_it() {
        for preset in [Preset::Unet { blocks: 2, channels: 8 }, Preset::Resnet50, Preset::Gpt2] {
            let graph = preset.graph().unwrap();
            let anatomy = Anatomy::new(&graph);
            for (index, layer) in anatomy.layers.iter().enumerate().take(anatomy.layers.len() - 1) {
                let division = graph.division(&[graph.layers()[index + 1].first_node.0]);
                let crossing = division.crossings.iter().map(|c| graph.node(c.node));
                let bytes = crossing.filter(|n| !n.op.is_source()).map(|n| n.output.bytes()).sum();
                assert_eq!(layer.sends, bytes, "{preset}: {}", layer.name);
            }
        }
    }

    #[test]
    fn operations_are_counted_by_kind() {
        let anatomy = Anatomy::new(&Preset::Resnet50.graph().unwrap());
        let block = &anatomy.layers[2];
        assert_eq!(block.name, "layer1.1");
        assert_eq!(block.ops, "conv2d ×3, batch_norm2d ×3, relu ×3, add");
    }
}
