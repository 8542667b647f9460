//! Graph contraction: groups of computations that are one computation for a while.
//!
//! After Kadono, "graph contraction preprocessing" (2023). Some nodes are *marked*. A marked node
//! stands for its group: itself and all unmarked nodes that it needs from marked ones. The
//! contracted graph has the marked nodes only, so that one move of a search moves or repeats a group.
//!
//! ```text
//!     a ---> b ---> d ---> e            a, e, f marked:    a ---> e = b c d e
//!      \---> c -----^                                       \---> f = c f
//!             \---> f
//! ```
//!
//! An unmarked node is computed in each group that needs it (c above), so that its value need not be
//! kept: large values are better left unmarked. Each group is computed in the order of least peak
//! ([`best_order`]); what that takes beyond the marked values is the group's `extra`.

mod marks;
mod order;

pub use marks::{Growth, by_size, fused, refined, unmarked};
pub use order::{Group, MOST_MEMBERS, Order, best_order};

use pipewright_core::recompute::{Node, Problem, ProblemError};

/// States that are searched for the order of a group.
pub const STATES: usize = 2_000;

/// No node.
const NONE: u32 = u32::MAX;

/// A contracted graph, and what its nodes stand for.
///
/// A sequence of the contracted graph has the same time as what it stands for, and at least its
/// peak: inputs and result of a group count from its first computation to its last.
#[derive(Clone, Debug, PartialEq)]
pub struct Contraction {
    problem: Problem,
    extra: Vec<u64>,
    /// Nodes of each group in the order of their computation, the marked one last.
    groups: Vec<Vec<u32>>,
    /// The group of each marked node that is needed.
    group_of: Vec<u32>,
    exact: usize,
}

impl Contraction {
    /// Contracts a graph to the nodes that are `marked` and needed. Besides are marked: outputs,
    /// nodes that are computed once, and what nodes read whose computation divides the sequence
    /// (their values live across it, alone). Looks at up to `states` states of each group.
    ///
    /// # Errors
    /// The contracted graph has more edges than a problem may have: mark more.
    pub fn new(problem: &Problem, marked: &[bool], states: usize) -> Result<Self, ProblemError> {
        let marked = with_fixed(problem, marked);
        let needed = problem.needed();
        let kept: Vec<u32> = (0..problem.len() as u32)
            .filter(|node| marked[*node as usize] && needed[*node as usize])
            .collect();
        let mut group_of = vec![NONE; problem.len()];
        kept.iter().zip(0..).for_each(|(node, group)| group_of[*node as usize] = group);
        let mut finder = Finder::new(problem, &marked);
        let (mut nodes, mut extra, mut groups, mut exact) = (vec![], vec![], vec![], 0);
        for &node in &kept {
            let (members, inputs) = finder.group(node);
            let (order, more) = put_in_order(problem, &members, states);
            let items: Vec<u32> = order.items.iter().map(|at| members[*at as usize]).collect();
            let own = problem.node(node);
            nodes.push(Node {
                bytes: own.bytes,
                // At most: the group's peak may be while another of its nodes runs.
                scratch: items.iter().map(|i| problem.node(*i).scratch).max().unwrap_or(0),
                time: items.iter().map(|item| problem.node(*item).time).sum(),
                inputs: inputs.iter().map(|input| group_of[*input as usize]).collect(),
                output: own.output,
                once: own.once,
            });
            extra.push(more);
            groups.push(items);
            exact += usize::from(order.exact);
        }
        let marks = problem.marks().iter().map(|mark| group_of[*mark as usize]).collect();
        let problem = Problem::with_marks(nodes, marks, problem.copies())?;
        Ok(Self { problem, extra, groups, group_of, exact })
    }

    /// The contracted graph.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Bytes that each of its nodes needs while it is computed, besides its inputs and itself.
    pub fn extra(&self) -> &[u64] {
        &self.extra
    }

    /// What a node of it stands for, in the order of computation.
    pub fn group(&self, node: u32) -> &[u32] {
        &self.groups[node as usize]
    }

    /// Groups whose order is known to be the best.
    pub fn exact(&self) -> usize {
        self.exact
    }

    /// What a sequence of the contracted graph stands for.
    pub fn expand(&self, sequence: &[u32]) -> Vec<u32> {
        sequence.iter().flat_map(|node| self.group(*node)).copied().collect()
    }

    /// The marked nodes of a sequence of the whole graph, as a sequence of the contracted one. If
    /// the one can be run, so can the other.
    pub fn contract(&self, sequence: &[u32]) -> Vec<u32> {
        let groups = sequence.iter().map(|node| self.group_of[*node as usize]);
        groups.filter(|group| *group != NONE).collect()
    }
}

/// `marked` and all that is always marked.
fn with_fixed(problem: &Problem, marked: &[bool]) -> Vec<bool> {
    let mut marked = marked.to_vec();
    for (node, own) in problem.nodes().iter().enumerate() {
        marked[node] |= own.output || own.once;
    }
    for mark in problem.marks() {
        problem.inputs(*mark).iter().for_each(|input| marked[*input as usize] = true);
    }
    marked
}

/// Finds groups; has scratch of its own.
struct Finder<'p> {
    problem: &'p Problem,
    marked: &'p [bool],
    /// For which group a node was seen last.
    seen: Vec<u32>,
}

impl<'p> Finder<'p> {
    fn new(problem: &'p Problem, marked: &'p [bool]) -> Self {
        Self { problem, marked, seen: vec![NONE; problem.len()] }
    }

    /// The group of a marked node, ascending, and its inputs.
    fn group(&mut self, node: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut members, mut inputs) = (vec![node], vec![]);
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            next += 1;
            for &input in self.problem.inputs(member) {
                if std::mem::replace(&mut self.seen[input as usize], node) == node {
                    continue;
                }
                let list = if self.marked[input as usize] { &mut inputs } else { &mut members };
                list.push(input);
            }
        }
        members.sort_unstable();
        (members, inputs)
    }
}

/// The order of a group, and what it takes besides inputs and result.
fn put_in_order(problem: &Problem, members: &[u32], states: usize) -> (Order, u64) {
    let bytes = |node: &u32| problem.node(*node).bytes;
    let mut group = Group { bytes: members.iter().map(bytes).collect(), ..Group::default() };
    let result = group.bytes.last_mut().expect("a group has a result");
    if !problem.marks().is_empty() {
        // A result that lives across a mark counts before it is there, so that its room is not free
        // until then.
        *result = 0;
    }
    let result = *result;
    if members.len() == 1 {
        return (Order { items: vec![0], peak: result, exact: true }, 0);
    }
    let place = |node: &u32| members.binary_search(node).ok().map(|at| at as u32);
    let most = members.iter().map(|node| problem.node(*node).time).fold(0.0, f64::max);
    let ticks = |time: f64| (time / most.max(f64::MIN_POSITIVE) * f64::from(1 << 20)) as u64;
    for node in members {
        group.ticks.push(ticks(problem.node(*node).time));
        group.inputs.push(problem.inputs(*node).iter().filter_map(place).collect());
    }
    let order = best_order(&group, states);
    let extra = order.peak - result;
    (order, extra)
}
