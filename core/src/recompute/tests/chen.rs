//! Segments are valid, and cost what the paper says on chains.

use super::exact::chain;
use super::problem;
use crate::recompute::{Answer, Problem, chen, without_recomputation};
use proptest::prelude::*;

#[test]
fn a_chain_needs_the_root_of_its_memory() {
    let (problem, forward) = chain(64);
    let without = Answer::new(&problem, without_recomputation(&problem)).cost;
    assert_eq!((without.peak, without.time), (65, 128.0));
    assert_eq!(Answer::new(&problem, chen::segments(&problem, &forward, 1)).cost, without);
    let root = Answer::new(&problem, chen::segments(&problem, &forward, 8));
    // The last value of 7 segments, the 8 of one, and two gradients.
    assert_eq!(root.cost.peak, 7 + 8 + 1);
    // 7 of 8 segments run again, but for their last value, which is kept.
    assert_eq!(root.cost.time, 128.0 + 7.0 * 7.0);
    let sweep = chen::sweep(&problem, &forward);
    assert_eq!(sweep.last().unwrap().cost, without);
    assert!(sweep[0].cost.peak <= root.cost.peak);
    for pair in sweep.windows(2) {
        assert!(pair[0].cost.peak < pair[1].cost.peak && pair[0].cost.time > pair[1].cost.time);
    }
}

#[test]
fn what_is_computed_once_is_kept() {
    let (chain, forward) = chain(8);
    let mut nodes = chain.nodes().to_vec();
    nodes[1].once = true;
    let problem = Problem::new(nodes).unwrap();
    let sequence = chen::segments(&problem, &forward, 2);
    assert_eq!(problem.check(&sequence), Ok(()));
    assert_eq!(sequence.iter().filter(|node| **node == 1).count(), 1);
    assert_eq!(sequence.iter().filter(|node| **node == 2).count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_can_be_cut(
        problem in problem(1..=12),
        forward in any::<u16>(),
        timeless in any::<bool>(),
        k in 1..6u32,
    ) {
        let mut nodes = problem.nodes().to_vec();
        nodes.iter_mut().filter(|_| timeless).for_each(|node| node.time = 0.0);
        let problem = Problem::new(nodes).unwrap();
        // Also forward nodes that read backward nodes, which is nonsense, but not refused.
        let forward: Vec<bool> = (0..problem.len()).map(|node| forward >> node & 1 == 1).collect();
        let sequence = chen::segments(&problem, &forward, k);
        prop_assert_eq!(problem.check(&sequence), Ok(()));
        let times = |node: u32| sequence.iter().filter(|other| **other == node).count();
        for (node, forward) in (0..).zip(forward) {
            let most = if forward { 2 } else { 1 };
            prop_assert!(times(node) <= most);
        }
    }
}
