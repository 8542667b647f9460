//! The optimum beside a twin that relaxes all sets of values until nothing changes.

use super::{node, output, problem};
use crate::recompute::exact::{ExactError, MOST, front, least_memory, least_time};
use crate::recompute::{Answer, Node, Problem, chen, without_recomputation};
use proptest::prelude::*;

/// What a sequence of single steps (compute a node, drop a value) costs, by set of values and set
/// of nodes that were ever computed: the best there is, found by trying every step from everywhere
/// until none helps.
fn relaxed<T: Copy + PartialOrd>(
    problem: &Problem,
    start: T,
    never: T,
    compute: impl Fn(T, u32, u64) -> Option<T>,
) -> T {
    let sets = 1usize << problem.len();
    let set = |of: &[u32]| of.iter().fold(0, |set, node| set | 1usize << node);
    let bytes = |there: usize| -> u64 {
        (0..problem.len()).filter(|i| there >> i & 1 == 1).map(|i| problem.nodes()[i].bytes).sum()
    };
    let working = |there: usize, node: usize| bytes(there) + problem.nodes()[node].scratch;
    let mut best = vec![never; sets * sets];
    best[0] = start;
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for (at, node) in (0..sets * sets).flat_map(|at| (0..problem.len()).map(move |n| (at, n))) {
            let (ever, there) = (at / sets, at % sets);
            let here = best[at];
            if here == never {
                continue;
            }
            let bit = 1 << node;
            let mut reach = |to: usize, value: T| {
                if value < best[to] {
                    best[to] = value;
                    changed = true;
                }
            };
            if there & bit != 0 {
                reach(ever * sets + (there & !bit), here);
            } else if set(problem.inputs(node as u32)) & !there == 0
                && !(problem.node(node as u32).once && ever & bit != 0)
            {
                let to = (ever | bit) * sets + (there | bit);
                if let Some(value) = compute(here, node as u32, working(there | bit, node)) {
                    reach(to, value);
                }
            }
        }
    }
    let outputs: Vec<u32> =
        (0..problem.len() as u32).filter(|node| problem.node(*node).output).collect();
    let done = (0..sets * sets).filter(|at| set(&outputs) & !(at / sets) == 0);
    done.map(|at| best[at]).fold(never, |a, b| if b < a { b } else { a })
}

fn twin_time(problem: &Problem, limit: u64) -> Option<f64> {
    let step =
        |time: f64, node: u32, bytes: u64| (bytes <= limit).then(|| time + problem.node(node).time);
    Some(relaxed(problem, 0.0, f64::INFINITY, step)).filter(|time| time.is_finite())
}

fn twin_memory(problem: &Problem) -> u64 {
    relaxed(problem, 0, u64::MAX, |peak: u64, _, bytes| Some(peak.max(bytes)))
}

fn valid(problem: &Problem, answer: &Answer) {
    assert_eq!(problem.check(&answer.sequence), Ok(()));
    assert_eq!(*answer, Answer::new(problem, answer.sequence.clone()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_optimum_is_that_of_the_twin(problem in problem(1..=6)) {
        let least = least_memory(&problem).unwrap();
        valid(&problem, &least);
        prop_assert_eq!(least.cost.peak, twin_memory(&problem));
        prop_assert_eq!(Some(least.cost.time), twin_time(&problem, least.cost.peak));
        let front = front(&problem).unwrap();
        prop_assert_eq!(front[0].cost, least.cost);
        for answer in &front {
            valid(&problem, answer);
        }
        let highest = problem.nodes().iter().map(|n| n.bytes + n.scratch).sum::<u64>() + 1;
        for limit in (0..=highest).chain([u64::MAX]) {
            let time = twin_time(&problem, limit);
            let within = front.iter().rev().find(|answer| answer.cost.peak <= limit);
            prop_assert_eq!(within.map(|answer| answer.cost.time), time, "limit {}", limit);
            let found = least_time(&problem, limit).unwrap();
            prop_assert_eq!(found.as_ref().map(|answer| answer.cost.time), time);
            prop_assert!(found.is_none_or(|answer| answer.cost.peak <= limit));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn larger_graphs_are_not_beaten_by_segments(problem in problem(12..=16), forward in 6..16usize) {
        let forward: Vec<bool> = (0..problem.len()).map(|node| node < forward).collect();
        let front = front(&problem);
        prop_assume!(front != Err(ExactError::TooHard));
        let front = front.unwrap();
        for answer in chen::sweep(&problem, &forward) {
            let best = front.iter().rev().find(|best| best.cost.peak <= answer.cost.peak);
            prop_assert!(best.is_some_and(|best| best.cost.time <= answer.cost.time));
        }
    }
}

/// Forward and backward passes of equal layers: each backward node reads its layer's input.
pub(super) fn chain(layers: u32) -> (Problem, Vec<bool>) {
    let mut nodes: Vec<Node> =
        (0..layers).map(|layer| node(1, 1.0, &Vec::from_iter(layer.checked_sub(1)))).collect();
    for layer in (0..layers).rev() {
        let before = nodes.len() as u32 - 1;
        let mut inputs = vec![before];
        inputs.extend((layer != before).then_some(layer));
        nodes.push(output(1, 1.0, &inputs));
    }
    let forward = (0..2 * layers).map(|node| node < layers).collect();
    (Problem::new(nodes).unwrap(), forward)
}

#[test]
fn chains_of_the_largest_size_are_solved() {
    let (problem, forward) = chain(MOST as u32 / 2);
    let front = front(&problem).unwrap();
    assert!(front.len() >= 4, "{front:?}");
    for pair in front.windows(2) {
        assert!(pair[0].cost.peak < pair[1].cost.peak && pair[0].cost.time > pair[1].cost.time);
    }
    let without = Answer::new(&problem, without_recomputation(&problem)).cost;
    assert_eq!(front.last().unwrap().cost, without, "the order is good, nothing is in vain");
    // An input, the gradient and the next one are there at a time, and nothing else need be.
    assert_eq!(front[0].cost.peak, 3);
    for answer in chen::sweep(&problem, &forward) {
        let best = front.iter().rev().find(|best| best.cost.peak <= answer.cost.peak).unwrap();
        assert!(best.cost.time <= answer.cost.time, "the optimum is not beaten");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let (large, _) = chain(MOST as u32 / 2 + 1);
    assert_eq!(least_time(&large, 9).unwrap_err(), ExactError::TooLarge { nodes: MOST + 2 });
    let mark = Node { once: true, ..output(1, 1.0, &[]) };
    let copies = Problem::with_marks(vec![mark], vec![0], 2).unwrap();
    assert_eq!(front(&copies).unwrap_err(), ExactError::Copies { copies: 2 });
    // Nineteen values that all are needed at once, with room for all but one: no order helps, and
    // there are many.
    let mut nodes = vec![node(1, 1.0, &[]); MOST - 1];
    nodes.push(output(0, 1.0, &Vec::from_iter(0..MOST as u32 - 1)));
    let hard = Problem::new(nodes).unwrap();
    assert_eq!(least_time(&hard, MOST as u64 - 2), Err(ExactError::TooHard));
    assert_eq!(least_time(&hard, MOST as u64 - 1).unwrap().unwrap().cost.time, MOST as f64);
}
