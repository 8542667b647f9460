//! Lower bounds on the time and memory of every sequence.

mod ellipsoid;
mod first;
mod joint;

use super::state::Ticks;
use super::{Problem, memory, without_recomputation};
use crate::order::{descending, sort_by_numbers};
pub(super) use ellipsoid::{Effort, Slope, largest};
pub(super) use first::First;
use first::{Priced, Sides};
pub(super) use joint::Joint;

/// Nodes and edges that [`least_time`] looks at, at most, each as often as a node is looked at.
const WORK: usize = 40_000_000;

/// Nodes that are looked at in any case.
const FEWEST: usize = 64;

/// Share of the best bound below which a node's is not looked at closely.
const NEAR: f64 = 0.8;

/// Moments that are looked at together.
const TOGETHER: usize = 4;

/// They lie further from each other than this part of the nodes.
const APART: usize = 128;

/// For their best prices.
const EFFORT: Effort = Effort { steps: 200, close: 1e-4 };

/// A lower bound on the peak of every sequence: the largest computation, its value, inputs and
/// scratch, and what every micro-batch in flight has to keep. O(nodes + edges).
pub fn least_peak(problem: &Problem) -> u64 {
    let across = kept_across(problem);
    let bytes = |node: u32| problem.node(node).bytes * u64::from(!across[node as usize]);
    let inputs = |node: u32| problem.inputs(node).iter().map(|i| bytes(*i)).sum::<u64>();
    let at = |node: u32| bytes(node) + problem.node(node).scratch + inputs(node);
    let needed = problem.needed();
    let needed = (0..problem.len() as u32).filter(|node| needed[*node as usize]);
    let held: u64 = (0..problem.len() as u32)
        .filter(|node| across[*node as usize])
        .map(|node| problem.node(node).bytes)
        .sum();
    held * u64::from(problem.copies()) + needed.map(at).max().unwrap_or(0)
}

/// Values that live across a mark in every sequence: what a mark reads, and what is computed once,
/// before a mark, and read by something that comes after it.
fn kept_across(problem: &Problem) -> Vec<bool> {
    let mut across = vec![false; problem.len()];
    for &mark in problem.marks() {
        let sides = Sides::new(problem, mark);
        problem.inputs(mark).iter().for_each(|input| across[*input as usize] = true);
        for node in 0..problem.len() as u32 {
            if problem.node(node).once && sides.before[node as usize] {
                let later = problem.readers(node).iter().any(|r| sides.after[*r as usize]);
                across[node as usize] |= later && node != mark;
            }
        }
    }
    across
}

/// A lower bound on the time of every sequence whose peak is at most `limit` bytes; `None` where no
/// sequence has such a peak.
///
/// When a node is computed first, all it follows from was computed, and nothing that follows from it.
/// What the latter read is there at that moment or computed later. The least cost of that, with room
/// for `limit` less the node and its inputs, is a least cut with the best price of a byte (Lagrange).
/// The bound is the largest over nodes, and over a few nodes together, where what is given up at one
/// moment and at another is paid for at least once. It holds for every order of computation. Some ten
/// cuts for each node that is looked at, each O(nodes + edges) in practice; up to [`WORK`] nodes and
/// edges are looked at in all, or [`FEWEST`] nodes.
pub fn least_time(problem: &Problem, limit: u64) -> Option<f64> {
    if least_peak(problem) > limit {
        return None;
    }
    let ticks = Ticks::new(problem);
    let needed = problem.needed();
    let nodes = problem.nodes().iter().zip(&needed);
    let least: f64 = nodes.filter(|(_, needed)| **needed).map(|(node, _)| node.time).sum();
    // Marks count values several times, which this bound knows nothing of: it stays true.
    let mut joint = Joint::new(problem, &ticks);
    let mut guess = ticks.base as f64 / limit.max(1) as f64;
    let mut best = 0.0f64;
    let mut looks: Vec<(Priced, u32)> = vec![];
    for node in promising(problem, &needed) {
        if let Some(first) = First::new(problem, &ticks, &needed, node, limit) {
            let found = first.best(&mut joint, guess, best * NEAR);
            if found.ticks > best {
                (best, guess) = (found.ticks, found.price);
            }
            looks.push((found, node));
        }
    }
    let peaks = peaks(looks, problem.len());
    let first = |node: u32| First::new(problem, &ticks, &needed, node, limit);
    let firsts: Vec<First> = peaks.iter().filter_map(|(_, node)| first(*node)).collect();
    let prices: Vec<f64> = peaks.iter().map(|(found, _)| found.price).collect();
    best = together(&mut joint, &firsts, &prices, best);
    Some(least + best / ticks.base as f64 * problem.time())
}

/// The needed nodes to look at, those first at which most memory is in use without recomputation;
/// where there are too many for all, half of them from anywhere.
fn promising(problem: &Problem, needed: &[bool]) -> Vec<u32> {
    let order = without_recomputation(problem);
    let edges: usize = order.iter().map(|node| problem.inputs(*node).len()).sum();
    let looks = (WORK / (order.len() + edges)).max(FEWEST);
    let places = memory(problem, &order).into_iter().zip(order);
    let mut places: Vec<(u64, u32)> = places.filter(|place| needed[place.1 as usize]).collect();
    let mut anywhere: Vec<(u64, u32)> = vec![];
    if places.len() > looks {
        anywhere.extend(places.iter().step_by(places.len().div_ceil(looks / 2)));
    }
    sort_by_numbers(&mut places, |(bytes, node)| [descending(*bytes), (*node).into()]);
    places.truncate(looks - anywhere.len());
    places.iter().chain(&anywhere).map(|place| place.1).collect()
}

/// The best looks that are not near each other, the best first.
fn peaks(mut looks: Vec<(Priced, u32)>, nodes: usize) -> Vec<(Priced, u32)> {
    let apart = (nodes / APART) as u32;
    looks.sort_by(|a, b| b.0.ticks.total_cmp(&a.0.ticks).then(a.1.cmp(&b.1)));
    let mut peaks: Vec<(Priced, u32)> = vec![];
    for look in looks {
        if peaks.len() < TOGETHER && peaks.iter().all(|peak| peak.1.abs_diff(look.1) > apart) {
            peaks.push(look);
        }
    }
    peaks
}

/// The best bound of several moments together, or `best`; `prices` are those that are best for each
/// moment alone.
fn together(joint: &mut Joint, firsts: &[First], prices: &[f64], best: f64) -> f64 {
    if firsts.len() < 2 || best <= 0.0 {
        return best;
    }
    let firsts: Vec<&First> = firsts.iter().collect();
    // Together the moments share what one pays alone.
    let at = |shares: &[f64]| {
        let now: Vec<f64> = shares.iter().zip(prices).map(|(s, p)| s * p).collect();
        let decision = joint.cut(&firsts, &now);
        let value = decision.at(&now);
        let rise = decision.excess.iter().zip(prices).map(|(e, p)| e * p).collect();
        Slope { value, rise }
    };
    largest(firsts.len(), EFFORT, best, at)
}
