//! Bounds beside optima, and least cuts of several moments beside all decisions.

use super::{node, output, problem};
use crate::recompute::bound::{Effort, First, Joint, Slope, largest};
use crate::recompute::state::Ticks;
use crate::recompute::{Problem, cost, exact, least_time, without_recomputation};
use proptest::prelude::*;

/// What is computed later from values that are there, or nothing where that cannot be.
fn later(problem: &Problem, first: &First, kept: u32) -> Option<Vec<u32>> {
    let value = |v: u32| first.places[v as usize].checked_sub(1).map(|p| first.values[p as usize]);
    let mut open: Vec<u32> = first.values.iter().filter(|v| v.wanted).map(|v| v.node).collect();
    let mut again = vec![];
    while let Some(v) = open.pop() {
        // What has no place is there.
        let Some(value) = value(v).filter(|_| kept >> v & 1 == 0 && !again.contains(&v)) else {
            continue;
        };
        value.again?;
        again.push(v);
        open.extend(problem.inputs(v));
    }
    Some(again)
}

/// The least cost over all sets of values to keep at each moment.
fn twin(problem: &Problem, ticks: &Ticks, firsts: &[&First], prices: &[f64]) -> f64 {
    let ways = |first: &First, price: f64| -> Vec<(u32, f64)> {
        let bytes = |kept: u32| -> u64 {
            let kept = (0..problem.len() as u32).filter(|v| kept >> v & 1 == 1);
            kept.map(|v| problem.node(v).bytes).sum()
        };
        let way = |kept: u32| {
            let again = later(problem, first, kept)?;
            let before = |v: &&u32| {
                let place = first.places[**v as usize] - 1;
                first.values[place as usize].again.is_some_and(|ticks| ticks > 0)
            };
            let paid = again.iter().filter(before).fold(0, |paid, v| paid | 1 << v);
            Some((paid, price * (bytes(kept) as f64 - first.room)))
        };
        (0..1u32 << problem.len()).filter_map(way).collect()
    };
    let time = |nodes: u32| -> u64 {
        let nodes = (0..problem.len() as u32).filter(|v| nodes >> v & 1 == 1);
        nodes.map(|v| ticks.of(v)).sum()
    };
    let mut all = vec![(0u32, 0.0)];
    for (first, price) in firsts.iter().zip(prices) {
        let ways = ways(first, *price);
        let both = |done: &(u32, f64)| {
            let with = |way: &(u32, f64)| (done.0 | way.0, done.1 + way.1);
            ways.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(both).collect();
    }
    all.into_iter().map(|(nodes, price)| time(nodes) as f64 + price).fold(f64::INFINITY, f64::min)
}

/// A training step of `layers`: forward values with their sizes, gradients, and those of weights, which
/// may be computed at any time afterwards.
fn training(layers: &[(u64, u32)]) -> Problem {
    let count = layers.len() as u32;
    let mut nodes = vec![];
    for (i, &(bytes, time)) in (0..count).zip(layers) {
        let inputs: Vec<u32> = i.checked_sub(1).into_iter().collect();
        nodes.push(node(bytes, f64::from(time), &inputs));
    }
    for (i, &(bytes, time)) in (0..count).zip(layers).rev() {
        let gradient = nodes.len() as u32;
        let above = if i + 1 == count { i } else { gradient - 2 };
        nodes.push(node(bytes, f64::from(time), &[above, i]));
        nodes.push(output(1, f64::from(time), &[gradient, i.saturating_sub(1)]));
    }
    Problem::new(nodes).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_at_several_moments_costs_less(
        problem in problem(3..=6),
        room in 0..12u64,
        prices in prop::collection::vec(0..40u32, 2),
    ) {
        let ticks = Ticks::new(&problem);
        let needed = problem.needed();
        let all = (0..problem.len() as u32).filter(|v| needed[*v as usize]);
        let firsts: Vec<First> =
            all.filter_map(|v| First::new(&problem, &ticks, &needed, v, room)).collect();
        let prices: Vec<f64> =
            prices.iter().map(|p| f64::from(*p) * 0.02 * ticks.base as f64).collect();
        for a in &firsts {
            for b in &firsts {
                for firsts in [&[a][..], &[a, b]] {
                    let prices = &prices[..firsts.len()];
                    let cut = Joint::new(&problem, &ticks).cut(firsts, prices).at(prices);
                    let least = twin(&problem, &ticks, firsts, prices);
                    // A bound, and not further below than what is taken off for rounding.
                    prop_assert!(cut <= least, "{cut} is above {least}");
                    prop_assert!(cut >= least - 100.0, "{cut} is far below {least}");
                }
            }
        }
    }

    #[test]
    fn bounds_hold(problem in problem(2..=11)) {
        for optimum in exact::front(&problem).unwrap() {
            let bound = least_time(&problem, optimum.cost.peak).unwrap();
            prop_assert!(bound <= optimum.cost.time + 1e-9, "{bound} of {:?}", optimum.cost);
        }
    }

    #[test]
    fn bounds_of_training_hold(
        layers in prop::collection::vec((1..9u64, 1..6u32), 2..=5),
    ) {
        let problem = training(&layers);
        for optimum in exact::front(&problem).unwrap() {
            let bound = least_time(&problem, optimum.cost.peak).unwrap();
            prop_assert!(bound <= optimum.cost.time + 1e-9, "{bound} of {:?}", optimum.cost);
        }
    }

    #[test]
    fn the_largest_value_is_found(
        planes in prop::collection::vec((-5..5i32, -9..9i32, -9..9i32, -9..9i32), 1..8),
    ) {
        let value = |x: &[f64]| {
            let plane = |p: &(i32, i32, i32, i32)| {
                let rise = [p.1, p.2, p.3].map(f64::from);
                let along: f64 = rise.iter().zip(x).map(|(r, x)| r * x).sum();
                Slope { value: 20.0 + f64::from(p.0) + along, rise: rise.to_vec() }
            };
            planes.iter().map(plane).min_by(|a, b| a.value.total_cmp(&b.value)).unwrap()
        };
        let found = largest(3, Effort { steps: 1000, close: 1e-6 }, 0.0, value);
        let grid = (0..9 * 9 * 9).map(|i| [i % 9, i / 9 % 9, i / 81].map(|x| f64::from(x) / 8.0));
        let best = grid.map(|x| value(&x).value).fold(f64::MIN, f64::max);
        prop_assert!(found >= best - 1e-3, "{found} instead of {best}");
    }
}

/// How near bounds are to optima, over all budgets of a few hundred training steps.
#[test]
fn bounds_of_training_are_near() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let layers = prop::collection::vec((1..9u64, 1..6u32), 3..=5);
    let (mut bounds, mut optima) = (0.0, 0.0);
    for _ in 0..200 {
        let problem = training(&layers.new_tree(&mut runner).unwrap().current());
        let base = cost(&problem, &without_recomputation(&problem)).time;
        for optimum in exact::front(&problem).unwrap() {
            bounds += least_time(&problem, optimum.cost.peak).unwrap() - base;
            optima += optimum.cost.time - base;
        }
    }
    assert!(bounds >= 0.7 * optima, "{bounds} of {optima}");
}
