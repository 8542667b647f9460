//! A stage as a problem of recomputation: what to keep and what to compute again within a number of
//! bytes.
//!
//! ```text
//! received, loaded | forward .. ends | mark | received gradients | backward ..                     fused
//! received, loaded | forward .. ends | mark | received gradients | I .. ends | mark | W ..          split
//! ```
//! A node is a computation with what it writes, and what is received is a node that is computed once.
//! So are small values that a computation writes beside a large one (statistics of a normalisation):
//! they are kept, instead of making the large one live as long. Values that are sent are read by the
//! mark, so that they live across it. Nodes without a size order the rest: an *end* follows a
//! computation of a pass that nothing in the pass reads, the mark follows all ends, and what comes
//! after a mark reads it.
//!
//! What lives across a mark lies in a slot and counts once for each micro-batch in flight; the rest
//! shares the transient area, as does what a computation needs while it runs: its workspace, and
//! packed values unpacked. Known limits: outputs of one computation live and die together here, a
//! received value counts from its first reader on, and the gaps of a layout are left out. So whoever
//! has a byte limit lays the answer out and asks again for less where need be.

use super::Sequence;
use crate::cost::Costs;
use crate::graph::autodiff::{Computation, ComputationKind, TrainingGraph};
use crate::ids::ValueId;
use crate::plan::Inputs;
use crate::plan::layout::aligned;
use crate::plan::lower::{InPlace, held, in_place, stored, working_bytes};
use crate::recompute::{Node, Problem, ProblemError};

/// A value is small when it has at most this part of the bytes of all that its computation writes.
const SMALL: u64 = 8;

/// What a stage computes for one micro-batch: the problem, and which nodes are computations.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProblem {
    /// Its copies are the micro-batches in flight.
    pub problem: Problem,
    /// By node: the computation, where it is one.
    computations: Vec<Option<u32>>,
}

impl StageProblem {
    /// The problem of `graph`, a stage without recomputation of which `copies` micro-batches are in
    /// flight. Linear in what computations read and write.
    ///
    /// # Errors
    /// For sizes beyond those of any machine.
    pub fn new(
        inputs: &Inputs,
        graph: &TrainingGraph,
        costs: &Costs,
        copies: u32,
    ) -> Result<Self, ProblemError> {
        let mut building = Building {
            inputs,
            graph,
            costs,
            scratch: working_bytes(inputs, graph),
            in_place: in_place(inputs, graph),
            held: held(inputs, graph),
            writer: vec![None; graph.values.len()],
            nodes: vec![],
            marks: vec![],
            computations: vec![],
        };
        building.all();
        let Building { nodes, marks, computations, .. } = building;
        Ok(Self { problem: Problem::with_marks(nodes, marks, copies)?, computations })
    }

    /// The same, with at least so many bytes besides what crosses the marks: transient memory that
    /// other stages of the lane need anyway, so that this one may use it as well.
    ///
    /// # Errors
    /// For sizes beyond those of any machine.
    pub fn beside(&self, transient: u64) -> Result<Self, ProblemError> {
        let mut nodes = self.problem.nodes().to_vec();
        nodes.push(Node { scratch: transient, output: true, once: true, ..Node::default() });
        let marks = self.problem.marks().to_vec();
        let problem = Problem::with_marks(nodes, marks, self.problem.copies())?;
        let computations = self.computations.iter().copied().chain([None]).collect();
        Ok(Self { problem, computations })
    }

    /// The computation that a node is, where it is one.
    pub fn computation(&self, node: u32) -> Option<u32> {
        self.computations[node as usize]
    }

    /// The stage's sequence that a sequence of nodes says.
    pub fn sequence(&self, nodes: &[u32]) -> Sequence {
        Sequence(nodes.iter().filter_map(|node| self.computations[*node as usize]).collect())
    }
}

struct Building<'a> {
    inputs: &'a Inputs<'a>,
    graph: &'a TrainingGraph,
    costs: &'a Costs,
    /// By computation: bytes that it alone uses.
    scratch: Vec<u64>,
    /// Logits, and the gradient that is written over them: it takes no bytes, but its readers need theirs.
    in_place: Option<InPlace>,
    /// By computation: values that must not end before.
    held: Vec<(usize, ValueId)>,
    /// By value: the node that writes it.
    writer: Vec<Option<u32>>,
    nodes: Vec<Node>,
    marks: Vec<u32>,
    computations: Vec<Option<u32>>,
}

impl Building<'_> {
    fn all(&mut self) {
        let graph = self.graph;
        let (forward, input) = (graph.forward_end, graph.input_gradient_end);
        let count = graph.computations.len() as u32;
        for value in graph.loads.iter().chain(graph.receives.iter().map(|port| &port.value)) {
            self.received(*value, None);
        }
        let mut before = self.pass(0..forward, None);
        before.extend(graph.sends.iter().filter_map(|port| self.writer[port.value.index()]));
        let mark = self.mark(before);
        let mut before = vec![];
        for port in &graph.gradient_receives {
            let node = self.received(port.value, Some(mark));
            before.push(self.order(vec![node]));
        }
        before.extend(self.pass(forward..input, Some(mark)));
        if input < count {
            let mark = self.mark(before);
            self.pass(input..count, Some(mark));
        }
    }

    fn push(&mut self, node: Node, computation: Option<u32>) -> u32 {
        self.nodes.push(node);
        self.computations.push(computation);
        self.nodes.len() as u32 - 1
    }

    /// Something that happens after `inputs`, takes no time and keeps nothing.
    fn order(&mut self, inputs: Vec<u32>) -> u32 {
        self.push(Node { inputs, output: true, once: true, ..Node::default() }, None)
    }

    fn mark(&mut self, inputs: Vec<u32>) -> u32 {
        let mark = self.order(inputs);
        self.marks.push(mark);
        mark
    }

    fn received(&mut self, value: ValueId, after: Option<u32>) -> u32 {
        let (bytes, inputs) = (self.bytes(value), Vec::from_iter(after));
        let node = self.push(Node { bytes, inputs, once: true, ..Node::default() }, None);
        self.writer[value.index()] = Some(node);
        node
    }

    /// The computations of a pass, after a mark; returns their ends.
    fn pass(&mut self, range: std::ops::Range<u32>, after: Option<u32>) -> Vec<u32> {
        let graph = self.graph;
        let mut read = vec![false; graph.values.len()];
        let computations = &graph.computations[range.start as usize..range.end as usize];
        for value in computations.iter().flat_map(|computation| &computation.reads) {
            read[value.index()] = true;
        }
        let mut ends = vec![];
        for (at, computation) in range.zip(computations) {
            let all: u64 = computation.writes.iter().map(|value| self.bytes(*value)).sum();
            let is_small = |value: &ValueId| self.bytes(*value) <= all / SMALL;
            let (small, large): (Vec<ValueId>, Vec<ValueId>) =
                computation.writes.iter().partition(|value| is_small(value));
            let written = large.iter().filter(|value| !self.in_outbox(**value));
            let bytes = written.map(|value| self.bytes(*value)).sum();
            let places =
                computation.reads.iter().flat_map(|value| [Some(*value), self.below(*value)]);
            let held = self.held.iter().filter(|(held, _)| *held == at as usize);
            let places = places.flatten().chain(held.map(|(_, value)| *value));
            let reads = places.filter_map(|value| self.writer[value.index()]);
            let inputs = after.into_iter().chain(reads).collect();
            let once =
                computation.kind == ComputationKind::WeightGradient || self.is_fixed(computation);
            let time = self.costs.time(computation).0 as f64;
            let scratch = self.scratch[at as usize];
            let node = Node { bytes, scratch, time, inputs, output: true, once };
            let node = self.push(node, Some(at));
            large.iter().for_each(|value| self.writer[value.index()] = Some(node));
            for value in small {
                self.received(value, Some(node));
            }
            let is_read = computation.writes.iter().any(|value| read[value.index()]);
            if !is_read && !computation.writes.is_empty() {
                ends.push(self.order(vec![node]));
            }
        }
        ends
    }

    /// What a value is written over.
    fn below(&self, value: ValueId) -> Option<ValueId> {
        self.in_place.filter(|own| own.gradient == value).map(|own| own.logits)
    }

    /// Whether a computation is done once because a gradient is written over logits: those of the loss; and what makes
    /// the logits, where the gradient waits in their place for the weight part.
    fn is_fixed(&self, computation: &Computation) -> bool {
        let (graph, Some(own)) = (self.graph, self.in_place) else { return false };
        let is_split = (graph.input_gradient_end as usize) < graph.computations.len();
        computation.node == graph.computations[own.at].node
            || is_split && computation.writes.contains(&own.logits)
    }

    fn bytes(&self, value: ValueId) -> u64 {
        if self.below(value).is_some() {
            return 0;
        }
        aligned(stored(self.inputs, &self.graph.values[value.index()])).0
    }

    /// Whether a value has a place of its own, whatever else lives: a gradient that is sent. What
    /// weight gradients read of it after it was sent lies in the slot.
    fn in_outbox(&self, value: ValueId) -> bool {
        let graph = self.graph;
        let after = &graph.computations[graph.input_gradient_end as usize..];
        graph.gradient_sends.iter().any(|port| port.value == value)
            && !after.iter().any(|computation| computation.reads.contains(&value))
    }
}
