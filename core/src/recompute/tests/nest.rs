//! Blocks solved alone and put together.

use super::search::layers;
use super::{node, output, problem};
use crate::recompute::front::Front;
use crate::recompute::nest::Nest;
use crate::recompute::{Goal, Problem, cost, exact, least_time, without_recomputation};
use proptest::prelude::*;

/// All that is found with blocks of so many nodes.
fn nested(problem: &Problem, size: usize) -> Option<Front> {
    let mut front = Front::default();
    let mut nest = Nest::new(problem, Goal::Front, size)?;
    while nest.step(problem, &mut front, 0.0).is_some() {}
    Some(front)
}

#[test]
fn equal_layers_are_solved_once_and_chained() {
    // Both passes of a layer are eight nodes.
    let [few, many] = [12, 48].map(layers);
    let [in_few, in_many] = [&few, &many].map(|p| Nest::new(p, Goal::Front, 8).unwrap());
    assert!(in_many.blocks() > 40 && in_many.blocks() > 3 * in_few.blocks());
    assert_eq!(in_many.kinds(), in_few.kinds(), "no layer is solved again");
    for problem in [few, many] {
        let front = nested(&problem, 8).unwrap();
        let base = cost(&problem, &without_recomputation(&problem));
        for answer in front.answers() {
            assert_eq!(problem.check(&answer.sequence), Ok(()));
            let bound = least_time(&problem, answer.cost.peak).unwrap();
            assert!(bound <= answer.cost.time + 1e-9);
        }
        // One more forward pass, which is two fifths of the time, and nothing but what is passed on.
        let once = front.answers().iter().find(|a| a.cost.time <= 1.4 * base.time).unwrap();
        assert!(once.cost.peak * 4 <= base.peak, "{} of {}", once.cost.peak, base.peak);
        assert!(front.answers()[0].cost.peak < once.cost.peak, "and parts of it twice");
    }
}

#[test]
fn a_problem_whose_results_have_no_size_has_an_end() {
    let mut nodes: Vec<_> = (1..12u32).map(|i| node(4, 1.0, &[i - 1])).collect();
    nodes.insert(0, node(4, 1.0, &[]));
    nodes.push(output(0, 1.0, &[]));
    let problem = Problem::new(nodes).unwrap();
    assert_eq!(crate::recompute::least_peak(&problem), 0);
    let nest = |size| nested(&problem, size);
    assert!((2..6).any(|size| nest(size).is_some()), "it is cut");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_cut_can_be_run_and_beats_no_optimum(
        problem in problem(8..=12),
        size in 2usize..6,
    ) {
        let optima = exact::front(&problem).unwrap();
        let Some(front) = nested(&problem, size) else { return Ok(()) };
        for answer in front.answers() {
            prop_assert_eq!(problem.check(&answer.sequence), Ok(()));
            let best = optima.iter().rfind(|o| o.cost.peak <= answer.cost.peak);
            let best = best.expect("no less memory than the optimum");
            prop_assert!(best.cost.time <= answer.cost.time + 1e-9);
        }
    }
}
