//! The least cut at one moment of a sequence: values to keep, and values to compute again later.
//!
//! With a price for every byte kept at the moment, the least of `price x bytes kept + time of what
//! is computed again` is a closure problem, hence a least cut (Picard 1976): for each value `v` two
//! decisions, whether it is there after the moment (`a`) and whether it is computed again (`r`);
//! `r` demands `a` of `v` itself and of all its inputs. PyTorch's min-cut partitioner is the case of
//! one moment, between forward and backward pass, without times.

use super::Problem;
use super::flow::{Network, UNBOUNDED};
use super::sequence::{append, last_uses};
use super::state::Ticks;

/// What is to be there after a moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// By node: read later, from a computation before the moment.
    pub wanted: Vec<bool>,
    /// By node: there at the moment whatever is decided.
    pub there: Vec<bool>,
    /// By node: how many times it counts.
    pub copies: Vec<u32>,
}

impl Moment {
    /// While item `at` of a sequence runs.
    pub fn new(problem: &Problem, sequence: &[u32], at: usize) -> Self {
        let n = problem.len();
        let last = last_uses(problem, sequence);
        let marks: Vec<usize> =
            (0..sequence.len()).filter(|i| problem.marks().contains(&sequence[*i])).collect();
        let mut moment = Self { wanted: vec![false; n], there: vec![false; n], copies: vec![1; n] };
        for (i, &node) in sequence[..at].iter().enumerate() {
            let end = last[i] as usize;
            moment.wanted[node as usize] = end > at;
            let across = marks.iter().any(|mark| i < *mark && *mark <= end.max(at));
            moment.copies[node as usize] = if across { problem.copies() } else { 1 };
        }
        let running = sequence[at];
        moment.wanted[running as usize] = false;
        moment.there[running as usize] = true;
        for &input in problem.inputs(running) {
            moment.there[input as usize] = true;
        }
        moment
    }
}

/// A decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// Nodes kept although they are not needed at the moment itself.
    pub nodes: Vec<u32>,
    /// Their bytes, with copies.
    pub bytes: i64,
    /// Ticks of what is computed again.
    pub ticks: u64,
}

/// Finds least cuts.
pub(super) struct Cutter<'p> {
    problem: &'p Problem,
    ticks: Ticks,
    network: Network,
    /// Vertex of `a` of each node; `r` is the next. 0: none.
    vertex: Vec<u32>,
    /// Nodes with a vertex.
    nodes: Vec<u32>,
    stack: Vec<u32>,
}

const SOURCE: u32 = 0;
const SINK: u32 = 1;

impl<'p> Cutter<'p> {
    pub fn new(problem: &'p Problem, ticks: Ticks) -> Self {
        Self {
            problem,
            ticks,
            network: Network::default(),
            vertex: vec![0; problem.len()],
            nodes: vec![],
            stack: vec![],
        }
    }

    /// The decision of least cost when a byte costs `price` ticks, times the node's `factors` if
    /// there are some.
    pub fn cut(&mut self, moment: &Moment, price: f64, factors: Option<&[f64]>) -> Kept {
        self.gather(moment);
        self.network.reset(2 + 2 * self.nodes.len());
        for i in 0..self.nodes.len() {
            let node = self.nodes[i];
            let factor = factors.map_or(1.0, |f| f[node as usize]);
            let bytes = self.kept_bytes(moment, node) as f64;
            // A bit more than nothing, so that nothing is kept for no reason.
            let keep = ((price * factor * bytes) as u64).min(UNBOUNDED / 4) + 1;
            self.add(moment, node, keep);
        }
        self.network.flow(SOURCE, SINK);
        let mut kept = Kept::default();
        for &node in &self.nodes {
            let vertex = self.vertex[node as usize];
            if self.network.on_source_side(vertex + 1) {
                kept.ticks += self.ticks.of(node);
            } else if moment.wanted[node as usize] || self.network.on_source_side(vertex) {
                kept.nodes.push(node);
                kept.bytes += self.kept_bytes(moment, node);
            }
        }
        kept
    }

    fn kept_bytes(&self, moment: &Moment, node: u32) -> i64 {
        self.problem.node(node).bytes as i64 * i64::from(moment.copies[node as usize])
    }

    /// Vertices for all nodes that may have to be there.
    fn gather(&mut self, moment: &Moment) {
        for &node in &self.nodes {
            self.vertex[node as usize] = 0;
        }
        self.nodes.clear();
        let wanted = moment.wanted.iter().zip(&moment.there);
        let wanted = (0..).zip(wanted).filter(|(_, (wanted, there))| **wanted && !**there);
        self.stack.extend(wanted.map(|(node, _)| node as u32));
        while let Some(node) = self.stack.pop() {
            if self.vertex[node as usize] != 0 {
                continue;
            }
            self.vertex[node as usize] = 2 + 2 * self.nodes.len() as u32;
            self.nodes.push(node);
            if self.problem.node(node).once {
                continue;
            }
            let inputs = self.problem.inputs(node).iter();
            self.stack.extend(inputs.filter(|i| !moment.there[**i as usize]));
        }
    }

    /// The edges of a node whose value costs `keep` to keep.
    fn add(&mut self, moment: &Moment, node: u32, keep: u64) {
        let (a, r) = (self.vertex[node as usize], self.vertex[node as usize] + 1);
        // What is wanted is there in any case and needs no vertex.
        let free = |node: u32| moment.wanted[node as usize] || moment.there[node as usize];
        if !free(node) {
            self.network.edge(a, SINK, keep);
        }
        let ticks = self.ticks.of(node);
        if ticks >= keep || self.problem.node(node).once {
            return;
        }
        self.network.edge(SOURCE, r, keep - ticks);
        for &needed in self.problem.inputs(node).iter().chain([&node]) {
            if !free(needed) {
                self.network.edge(r, self.vertex[needed as usize], UNBOUNDED);
            }
        }
    }
}

/// The sequence whose rest, after item `at`, computes again what is not there: each value right
/// before its first use, kept to its last one.
pub(super) fn rebuild(
    problem: &Problem,
    sequence: &[u32],
    at: usize,
    moment: &Moment,
    kept: &Kept,
) -> Vec<u32> {
    let mut there = moment.there.clone();
    kept.nodes.iter().for_each(|node| there[*node as usize] = true);
    let mut rebuilt = sequence[..=at].to_vec();
    for &item in &sequence[at + 1..] {
        for &input in problem.inputs(item) {
            append(problem, input, &mut there, &mut rebuilt);
        }
        rebuilt.push(item);
        there[item as usize] = true;
    }
    without_waste(problem, &rebuilt)
}

/// The sequence without computations that nobody reads. O(items x their inputs).
pub(super) fn without_waste(problem: &Problem, sequence: &[u32]) -> Vec<u32> {
    let mut read = vec![false; problem.len()];
    // Outputs that are not computed in what was looked at so far.
    let mut missing: Vec<bool> = problem.nodes().iter().map(|n| n.output).collect();
    let mut kept = Vec::with_capacity(sequence.len());
    for &node in sequence.iter().rev() {
        let i = node as usize;
        if std::mem::take(&mut read[i]) || missing[i] {
            missing[i] = false;
            kept.push(node);
            problem.inputs(node).iter().for_each(|input| read[*input as usize] = true);
        }
    }
    kept.reverse();
    kept
}
