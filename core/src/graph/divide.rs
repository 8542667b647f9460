//! Any range of nodes becomes a stage; what crosses its borders is computed, not declared.
//!
//! After Takisawa et al. 2022, section 3.1 (`Divisible.divide(start, end)`), extended from chains
//! to graphs: a value that a later stage reads travels straight from its producer's stage to each
//! reader's stage, however many stages lie between them.

use super::Graph;
use crate::ids::{NodeId, StageId};
use std::ops::Range;

/// A graph split into consecutive ranges of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The nodes of each stage.
    pub stages: Vec<Range<u32>>,
    /// Every value that a stage hands to another one, once per receiving stage; ordered by
    /// producing node, then receiving stage.
    pub crossings: Vec<Crossing>,
}

/// A value that travels between two stages in the forward pass; its gradient travels back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crossing {
    /// The node whose value it is.
    pub node: NodeId,
    /// Where it is computed.
    pub from: StageId,
    /// Where it is read.
    pub to: StageId,
}

/// Some layers as a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its nodes.
    pub nodes: Range<u32>,
    /// Nodes before it whose values it reads, ascending.
    pub reads: Vec<NodeId>,
    /// Its nodes whose values are read after it, ascending.
    pub read_later: Vec<NodeId>,
}

impl Division {
    /// The stage of a node.
    pub fn stage_of(&self, node: NodeId) -> StageId {
        StageId(self.stages.partition_point(|range| range.end <= node.0) as u32)
    }

    /// What stage `stage` receives.
    pub fn received_by(&self, stage: StageId) -> impl Iterator<Item = &Crossing> {
        self.crossings.iter().filter(move |c| c.to == stage)
    }

    /// What stage `stage` sends.
    pub fn sent_by(&self, stage: StageId) -> impl Iterator<Item = &Crossing> {
        self.crossings.iter().filter(move |c| c.from == stage)
    }
}

impl Graph {
    /// Makes the layers `start..end` a stage of their own and finds what crosses its borders, like
    /// Takisawa's `divide(start, end)`. `None` when there are no such layers. O(nodes²) at worst.
    pub fn divide(&self, start: usize, end: usize) -> Option<Section> {
        if start >= end || end > self.layers().len() {
            return None;
        }
        let nodes = self.layer_nodes(start).start..self.layer_nodes(end - 1).end;
        let within = |id: &NodeId| nodes.contains(&id.0);
        let inputs = |range: Range<u32>| {
            range.flat_map(|node| self.nodes()[node as usize].inputs.iter().copied())
        };
        let mut reads: Vec<NodeId> = inputs(nodes.clone()).filter(|id| !within(id)).collect();
        let after = nodes.end..self.nodes().len() as u32;
        let mut read_later: Vec<NodeId> = inputs(after).filter(within).collect();
        for crossing in [&mut reads, &mut read_later] {
            crossing.sort_unstable();
            crossing.dedup();
        }
        Some(Section { nodes, reads, read_later })
    }

    /// Splits the nodes at `cuts` (first nodes of the stages after the first one, ascending) and
    /// finds what crosses. Sources are loaded from the data set where they are first placed.
    pub fn division(&self, cuts: &[u32]) -> Division {
        let mut starts = vec![0];
        starts.extend_from_slice(cuts);
        let ends = cuts.iter().copied().chain([self.nodes().len() as u32]);
        let stages: Vec<Range<u32>> = starts.into_iter().zip(ends).map(|(a, b)| a..b).collect();
        let mut division = Division { stages, crossings: vec![] };
        for (i, node) in self.nodes().iter().enumerate() {
            let to = division.stage_of(NodeId(i as u32));
            for &input in &node.inputs {
                let from = division.stage_of(input);
                let crossing = Crossing { node: input, from, to };
                if from != to && !division.crossings.contains(&crossing) {
                    division.crossings.push(crossing);
                }
            }
        }
        division.crossings.sort_unstable();
        division
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphBuilder, Op};

    /// x -> a -> b -> c -> add(a, c)
    fn skip() -> Graph {
        let mut g = GraphBuilder::new("skip");
        g.layer("all");
        let x = g.input(vec![8]);
        let a = g.linear("a", x, 8);
        let b = g.linear("b", a, 8);
        let c = g.linear("c", b, 8);
        g.add("add", Op::Add, &[a, c]);
        g.finish().unwrap()
    }

    #[test]
    fn a_skip_goes_straight_to_its_reader() {
        let division = skip().division(&[2, 3, 4]);
        let edges: Vec<_> =
            division.crossings.iter().map(|c| (c.node.0, c.from.0, c.to.0)).collect();
        assert_eq!(edges, [(1, 0, 1), (1, 0, 3), (2, 1, 2), (3, 2, 3)]);
    }

    #[test]
    fn one_value_read_twice_by_a_stage_crosses_once() {
        let division = skip().division(&[2]);
        assert_eq!(division.crossings.len(), 1);
    }

    #[test]
    fn any_range_of_layers_is_the_stage_that_cuts_around_it_make() {
        for preset in crate::graph::presets::PRESETS {
            let graph = preset.graph().unwrap();
            let layers = graph.layers().len();
            for start in 0..layers {
                for end in start + 1..=layers {
                    let section = graph.divide(start, end).unwrap();
                    let ends = [section.nodes.start, section.nodes.end];
                    let inner = 1..graph.nodes().len() as u32;
                    let cuts: Vec<u32> = ends.into_iter().filter(|c| inner.contains(c)).collect();
                    let division = graph.division(&cuts);
                    let stage = division.stage_of(NodeId(section.nodes.start));
                    let mut reads: Vec<NodeId> =
                        division.received_by(stage).map(|c| c.node).collect();
                    let mut later: Vec<NodeId> = division.sent_by(stage).map(|c| c.node).collect();
                    reads.dedup();
                    later.dedup();
                    assert_eq!((section.reads, section.read_later), (reads, later), "{preset}");
                }
            }
            assert_eq!(graph.divide(1, 1), None);
            assert_eq!(graph.divide(0, layers + 1), None);
        }
    }
}
