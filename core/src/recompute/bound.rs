//! Lower bounds on the time and memory of every sequence.

use super::Problem;
use super::cut::{Cutter, Moment};
use super::state::Ticks;

/// Nodes at which [`least_time`] looks, at most.
const LOOKS: usize = 400;

/// Prices at which a node is looked at first: all time for so many times the limit.
const GLANCES: [f64; 4] = [0.1, 0.3, 1.0, 3.0];

/// Nodes for which the best price is searched.
const CLOSE_LOOKS: usize = 12;

/// Steps of that search.
const STEPS: u32 = 16;

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

/// Nodes that are computed before, and first after, the first computation of a node.
struct Sides {
    before: Vec<bool>,
    after: Vec<bool>,
}

impl Sides {
    fn new(problem: &Problem, node: u32) -> Self {
        let n = problem.len();
        let (mut before, mut after) = (vec![false; n], vec![false; n]);
        before[node as usize] = true;
        for v in (0..=node).rev() {
            if before[v as usize] {
                problem.inputs(v).iter().for_each(|input| before[*input as usize] = true);
            }
        }
        after[node as usize] = true;
        for v in node + 1..n as u32 {
            after[v as usize] = problem.inputs(v).iter().any(|input| after[*input as usize]);
        }
        before[node as usize] = false;
        after[node as usize] = false;
        Self { before, after }
    }
}

/// A lower bound on the time of every sequence whose peak is at most `limit` bytes; `None` where no
/// sequence has such a peak.
///
/// When a node is computed first, all it follows from was computed, and all that follows from it
/// was not. What the latter read of the former is there at that moment, or computed again later. The
/// least cost of that, with room for `limit` less the node and its inputs, is a least cut with the
/// best price of a byte (Lagrange). The bound is the largest over nodes. It holds for every order of
/// computation. Some 100 cuts, each O(nodes + edges) in practice.
pub fn least_time(problem: &Problem, limit: u64) -> Option<f64> {
    if least_peak(problem) > limit {
        return None;
    }
    let ticks = Ticks::new(problem);
    let needed = problem.needed();
    let least: f64 =
        problem.nodes().iter().zip(&needed).filter(|(_, n)| **n).map(|(n, _)| n.time).sum();
    // Marks count values several times, which this bound knows nothing of: it stays true.
    let mut cutter = Cutter::new(problem, ticks.clone());
    let scale = ticks.base as f64 / limit.max(1) as f64;
    let mut value = |moment: &Moment, room: f64, price: f64| {
        let kept = cutter.cut(moment, price, None);
        // Prices were rounded to whole ticks, up to one a node.
        let rounding = 2.0 * problem.len() as f64;
        kept.ticks as f64 + price * (kept.bytes as f64 - room) - rounding
    };
    let stride = problem.len().div_ceil(LOOKS);
    let mut looks: Vec<(f64, u32)> = vec![];
    for node in (0..problem.len() as u32).step_by(stride).filter(|n| needed[*n as usize]) {
        let (moment, room) = (first_time(problem, node, &needed), room(problem, node, limit));
        let at = |factor: f64| value(&moment, room, scale * factor);
        looks.push((GLANCES.into_iter().map(at).fold(f64::MIN, f64::max), node));
    }
    // The most promising first; nodes of equal promise in their order.
    looks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut best = 0.0f64;
    for &(_, node) in looks.iter().take(CLOSE_LOOKS) {
        let (moment, room) = (first_time(problem, node, &needed), room(problem, node, limit));
        best = best.max(largest(|price| value(&moment, room, price), scale));
    }
    Some(least + best / ticks.base as f64 * problem.time())
}

/// The moment of a node's first computation.
fn first_time(problem: &Problem, node: u32, needed: &[bool]) -> Moment {
    let n = problem.len();
    let sides = Sides::new(problem, node);
    let mut moment = Moment { wanted: vec![false; n], there: vec![false; n], copies: vec![1; n] };
    for reader in (0..n).filter(|v| sides.after[*v] && needed[*v]) {
        for &input in problem.inputs(reader as u32) {
            moment.wanted[input as usize] |= sides.before[input as usize];
        }
    }
    moment.there[node as usize] = true;
    problem.inputs(node).iter().for_each(|input| moment.there[*input as usize] = true);
    moment
}

/// Bytes for everything else while a node is computed.
fn room(problem: &Problem, node: u32, limit: u64) -> f64 {
    let working = problem.inputs(node).iter().chain([&node]);
    let working: u64 = working.map(|n| problem.node(*n).bytes).sum();
    limit as f64 - (working + problem.node(node).scratch) as f64
}

/// The largest value of a concave function of a positive number around `middle`: golden-section
/// search on the logarithm.
fn largest(mut value: impl FnMut(f64) -> f64, middle: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let (mut low, mut high) = (libm::log(middle) - 6.0, libm::log(middle) + 6.0);
    let inner = |low: f64, high: f64| [high - GOLDEN * (high - low), low + GOLDEN * (high - low)];
    let [mut a, mut b] = inner(low, high);
    let (mut at_a, mut at_b) = (value(libm::exp(a)), value(libm::exp(b)));
    for _ in 0..STEPS {
        if at_a > at_b {
            (high, b, at_b) = (b, a, at_a);
            a = inner(low, high)[0];
            at_a = value(libm::exp(a));
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = inner(low, high)[1];
            at_b = value(libm::exp(b));
        }
    }
    at_a.max(at_b)
}
