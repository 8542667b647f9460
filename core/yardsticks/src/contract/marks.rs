//! The choice of nodes to mark.

use super::{MOST_MEMBERS, put_in_order, with_fixed};
use pipewright_core::recompute::Problem;

/// How far groups may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Most nodes of a group, at most [`MOST_MEMBERS`].
    pub members: usize,
    /// Most time of the contracted graph, as a multiple of the whole one's: unmarked nodes are
    /// computed in each group that needs them.
    pub time: f64,
    /// Most bytes that a group may need, its inputs and result among them: the limit that is to be
    /// met. Checked with a quick order, not with the best one.
    pub bytes: u64,
}

/// The marks of FastSA's node grouping (Algorithm 1): a node is fused into all its readers if what
/// it needs is together no larger than its value. Groups have any size.
pub fn fused(problem: &Problem) -> Vec<bool> {
    let mut marked = with_fixed(problem, &vec![false; problem.len()]);
    // Marked nodes that the group of each unmarked node reads, ascending.
    let mut inputs: Vec<Vec<u32>> = vec![vec![]; problem.len()];
    for node in 0..problem.len() {
        if marked[node] {
            continue;
        }
        let mut own = vec![];
        for &input in problem.inputs(node as u32) {
            match marked[input as usize] {
                true => own.push(input),
                false => own.extend_from_slice(&inputs[input as usize]),
            }
        }
        own.sort_unstable();
        own.dedup();
        let bytes: u64 = own.iter().map(|input| problem.node(*input).bytes).sum();
        // Many inputs of no size would make this quadratic.
        if bytes <= problem.node(node as u32).bytes && own.len() <= MOST_MEMBERS {
            inputs[node] = own;
        } else {
            marked[node] = true;
        }
    }
    marked
}

/// The choice of marks after Kadono: nodes lose their mark, those with the largest values first, as
/// long as no group grows beyond what is allowed. Returns the nodes that lost theirs, in this order.
pub fn by_size(problem: &Problem, growth: Growth) -> Vec<u32> {
    let most = growth.members.min(MOST_MEMBERS);
    let mut marked = vec![true; problem.len()];
    let fixed = with_fixed(problem, &vec![false; problem.len()]);
    let mut order: Vec<u32> = (0..problem.len() as u32).filter(|n| !fixed[*n as usize]).collect();
    order.sort_by_key(|node| (std::cmp::Reverse(problem.node(*node).bytes), *node));
    let mut groups = Groups::new(problem);
    let mut spare = (growth.time - 1.0).max(0.0) * problem.time();
    order.retain(|&node| {
        let Some(grown) = groups.grown(&marked, node, most) else { return false };
        if grown.time > spare {
            return false;
        }
        marked[node as usize] = false;
        let fits = |(reader, members): &(u32, Vec<u32>)| {
            !marked[*reader as usize] || needs(problem, &marked, members) <= growth.bytes
        };
        if !grown.groups.iter().all(fits) {
            marked[node as usize] = true;
            return false;
        }
        spare -= grown.time;
        groups.join(grown);
        true
    });
    order
}

/// Marks of all nodes but some.
pub fn unmarked(problem: &Problem, nodes: &[u32]) -> Vec<bool> {
    let mut marked = vec![true; problem.len()];
    nodes.iter().for_each(|node| marked[*node as usize] = false);
    marked
}

/// Marks of a gradual decomposition: first `lost` are unmarked, after `steps` steps none is. Nodes
/// get their marks back in the reverse order of losing them, the smallest values first.
pub fn refined(problem: &Problem, lost: &[u32], steps: usize) -> Vec<Vec<bool>> {
    let left = (0..=steps).map(|step| lost.len() * (steps - step) / steps.max(1));
    left.map(|left| unmarked(problem, &lost[..left])).collect()
}

/// The group of each node, as if it were marked.
struct Groups<'p> {
    problem: &'p Problem,
    /// Members of each, ascending.
    members: Vec<Vec<u32>>,
    /// For which node a reader was met last.
    met: Vec<u32>,
}

/// What a node that loses its mark does to the groups.
struct Grown {
    /// Groups that it joins, and their members then.
    groups: Vec<(u32, Vec<u32>)>,
    /// Time of the contracted graph that it adds.
    time: f64,
}

impl<'p> Groups<'p> {
    fn new(problem: &'p Problem) -> Self {
        let members = (0..problem.len() as u32).map(|node| vec![node]).collect();
        Self { problem, members, met: vec![super::NONE; problem.len()] }
    }

    /// What happens if `node` loses its mark; none if a group would have more than `most` members.
    fn grown(&mut self, marked: &[bool], node: u32, most: usize) -> Option<Grown> {
        let mut readers = vec![];
        let mut next = 0;
        let mut from = node;
        loop {
            for &reader in self.problem.readers(from) {
                if std::mem::replace(&mut self.met[reader as usize], node) != node {
                    readers.push(reader);
                }
            }
            // Who reads an unmarked node needs what that one needs.
            let Some(&reader) = readers[next..].iter().find(|r| !marked[**r as usize]) else {
                break;
            };
            next =
                readers[next..].iter().position(|r| *r == reader).map_or(next, |at| next + at) + 1;
            from = reader;
        }
        let own = &self.members[node as usize];
        let time =
            |members: &[u32]| members.iter().map(|m| self.problem.node(*m).time).sum::<f64>();
        let mut grown = Grown { groups: vec![], time: -time(own) };
        for reader in readers {
            let before = &self.members[reader as usize];
            let after = union(before, own);
            if after.len() > most {
                return None;
            }
            if marked[reader as usize] {
                grown.time += time(&after) - time(before);
            }
            grown.groups.push((reader, after));
        }
        Some(grown)
    }

    fn join(&mut self, grown: Grown) {
        for (group, members) in grown.groups {
            self.members[group as usize] = members;
        }
    }
}

/// Bytes that a group needs in a quick order, with all that is there meanwhile.
fn needs(problem: &Problem, marked: &[bool], members: &[u32]) -> u64 {
    let mut inputs: Vec<u32> = vec![];
    for member in members {
        inputs.extend(problem.inputs(*member).iter().filter(|input| marked[**input as usize]));
    }
    inputs.sort_unstable();
    inputs.dedup();
    let held: u64 = inputs.iter().map(|input| problem.node(*input).bytes).sum();
    let result = members.last().map_or(0, |result| problem.node(*result).bytes);
    held + result + put_in_order(problem, members, 0).1
}

/// Both lists, ascending.
fn union(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut both = [a, b].concat();
    both.sort_unstable();
    both.dedup();
    both
}
