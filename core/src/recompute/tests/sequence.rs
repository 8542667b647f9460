//! Valid sequences, and their costs.

use super::{node, output, problem, sequence};
use crate::recompute::{
    Cost, Node, Problem, SequenceError, cost, last_uses, memory, without_recomputation,
};
use proptest::prelude::*;

/// Position of the last reader of what is computed at `at`, by looking.
fn end(problem: &Problem, sequence: &[u32], at: usize) -> usize {
    let node = sequence[at];
    let later = sequence.iter().enumerate().skip(at + 1);
    let until_again = later.take_while(|(_, other)| **other != node);
    let readers = until_again.filter(|(_, other)| problem.inputs(**other).contains(&node));
    readers.map(|(position, _)| position).last().unwrap_or(at)
}

/// Bytes at each position, value by value.
fn naive(problem: &Problem, sequence: &[u32]) -> Vec<u64> {
    let is_mark = |at: usize| problem.marks().contains(&sequence[at]);
    let bytes = |now: usize| {
        (0..sequence.len()).map(move |at| {
            let bytes = problem.node(sequence[at]).bytes;
            let end = end(problem, sequence, at);
            if (at + 1..=end).any(is_mark) {
                bytes * u64::from(problem.copies())
            } else if (at..=end).contains(&now) {
                bytes
            } else {
                0
            }
        })
    };
    let scratch = |now: usize| problem.node(sequence[now]).scratch;
    (0..sequence.len()).map(|now| bytes(now).sum::<u64>() + scratch(now)).collect()
}

/// The chain of the checker's own test: forward a, b, c, the loss d, and backwards e, f, g.
fn chain() -> Problem {
    let nodes = vec![
        node(10, 1.0, &[]),
        node(10, 1.0, &[0]),
        node(10, 1.0, &[1]),
        output(1, 1.0, &[2]),
        node(10, 1.0, &[2, 3]),
        node(10, 1.0, &[1, 4]),
        output(10, 1.0, &[0, 5]),
    ];
    Problem::new(nodes).unwrap()
}

#[test]
fn a_chain_costs_what_the_checker_says() {
    let chain = chain();
    let order = without_recomputation(&chain);
    assert_eq!(cost(&chain, &order), Cost { peak: 41, time: 7.0 });
    let again = [0, 1, 2, 3, 4, 1, 5, 6];
    assert_eq!(chain.check(&again), Ok(()));
    assert_eq!(cost(&chain, &again), Cost { peak: 40, time: 8.0 });
    assert_eq!(last_uses(&chain, &again), [7, 2, 4, 4, 6, 6, 7, 7]);
    assert_eq!(memory(&chain, &again), [10, 20, 30, 21, 31, 30, 40, 30]);
}

#[test]
fn values_across_a_mark_count_for_all_micro_batches() {
    let mut nodes = chain().nodes().to_vec();
    nodes[3].once = true;
    let problem = Problem::with_marks(nodes, vec![3], 3).unwrap();
    // a, b and c wait for the backward pass: three times 30, and what e, f, g make.
    assert_eq!(memory(&problem, &[0, 1, 2, 3, 4, 5, 6]), [90, 90, 90, 91, 101, 110, 110]);
    // b is made again: 60 all the time, and b where it is there.
    let again = [0, 1, 2, 3, 4, 1, 5, 6];
    assert_eq!(memory(&problem, &again), [60, 70, 70, 61, 71, 80, 90, 80]);
    assert_eq!(naive(&problem, &again), memory(&problem, &again));
}

#[test]
fn bad_sequences_are_refused_with_the_position() {
    let chain = chain();
    let missing = SequenceError::Missing { at: 1, node: 2, input: 1 };
    assert_eq!(chain.check(&[0, 2]), Err(missing));
    let unknown = SequenceError::Unknown { at: 1, node: 7, count: 7 };
    assert_eq!(chain.check(&[0, 7]), Err(unknown));
    assert_eq!(chain.check(&[0, 1, 2]), Err(SequenceError::NoOutput { node: 3 }));
    assert_eq!(chain.check(&[]), Err(SequenceError::NoOutput { node: 3 }));
    let mut nodes = chain.nodes().to_vec();
    nodes[1].once = true;
    let once = Problem::new(nodes).unwrap();
    assert_eq!(once.check(&[0, 1, 2, 3, 4, 1]), Err(SequenceError::Again { at: 5, node: 1 }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn costs_are_those_of_a_naive_simulation(
        problem in problem(1..=9),
        draws in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
        marks in any::<u16>(),
        copies in 1..4u32,
    ) {
        let mut nodes = problem.nodes().to_vec();
        let marks: Vec<u32> = (0..nodes.len() as u32).filter(|at| marks >> at & 3 == 3).collect();
        for mark in &marks {
            let marked = &mut nodes[*mark as usize];
            *marked = Node { once: true, output: true, ..marked.clone() };
        }
        let problem = Problem::with_marks(nodes, marks, copies).unwrap();
        let sequence = sequence(&problem, &draws);
        prop_assert_eq!(problem.check(&sequence), Ok(()));
        let expected = naive(&problem, &sequence);
        prop_assert_eq!(&memory(&problem, &sequence), &expected);
        let time: f64 = sequence.iter().map(|node| problem.node(*node).time).sum();
        let peak = expected.into_iter().max().unwrap_or(0);
        prop_assert_eq!(cost(&problem, &sequence), Cost { peak, time });
        let last = last_uses(&problem, &sequence);
        prop_assert!((0..sequence.len()).all(|at| last[at] as usize == end(&problem, &sequence, at)));
    }

    #[test]
    fn a_sequence_without_one_of_its_items_fails_where_that_is_missing(
        problem in problem(2..=9),
        at in any::<prop::sample::Index>(),
    ) {
        let mut sequence = without_recomputation(&problem);
        let lost = sequence.remove(at.index(sequence.len()));
        match problem.check(&sequence) {
            Ok(()) => prop_assert!(false, "everything there was needed"),
            Err(SequenceError::Missing { at, node, input }) => {
                prop_assert_eq!((input, sequence[at]), (lost, node));
                prop_assert!(problem.inputs(node).contains(&lost));
            }
            Err(SequenceError::NoOutput { node }) => prop_assert_eq!(node, lost),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
