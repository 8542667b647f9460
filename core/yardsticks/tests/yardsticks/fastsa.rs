//! Annealing in phases on a graph like those of training: within the limit, the same every time,
//! stopped when asked.

use pipewright_core::recompute::{Cost, Node, Problem, cost, without_recomputation};
use pipewright_yardsticks::fastsa::{Preparation, Settings, anneal};

const PREPARATIONS: [Preparation; 3] =
    [Preparation::Nothing, Preparation::Grouping, Preparation::CONTRACTION];

/// Layers of a product, a shortcut and an activation, forward and backward.
fn training(layers: u32) -> Problem {
    let mut nodes: Vec<Node> = vec![];
    let mut add = |bytes, time, inputs: Vec<u32>, output| {
        nodes.push(Node { bytes, time, inputs, output, ..Node::default() });
        nodes.len() as u32 - 1
    };
    let mut x = add(64, 1.0, vec![], false);
    let mut kept = vec![];
    for _ in 0..layers {
        let product = add(256, 8.0, vec![x], false);
        let active = add(256, 1.0, vec![product], false);
        let narrow = add(64, 8.0, vec![active], false);
        let sum = add(64, 1.0, vec![narrow, x], false);
        kept.push((x, product, active));
        x = sum;
    }
    let mut gradient = add(64, 1.0, vec![x], false);
    for (x, product, active) in kept.into_iter().rev() {
        let wide = add(256, 8.0, vec![gradient], false);
        add(1, 8.0, vec![gradient, active], true);
        let inner = add(256, 1.0, vec![wide, product], false);
        add(1, 8.0, vec![inner, x], true);
        let back = add(64, 8.0, vec![inner], false);
        gradient = add(64, 1.0, vec![back, gradient], false);
    }
    add(1, 1.0, vec![gradient], true);
    Problem::new(nodes).unwrap()
}

fn half(problem: &Problem, moves: u64) -> Settings {
    let limit = cost(problem, &without_recomputation(problem)).peak / 2;
    Settings { limit, moves, seed: 3, ..Settings::default() }
}

#[test]
fn half_of_the_memory_costs_little_time_however_prepared() {
    let problem = training(12);
    let settings = half(&problem, 300_000);
    for preparation in PREPARATIONS {
        let mut reports: Vec<Cost> = vec![];
        let best = anneal(&problem, preparation, settings, |sequence, found| {
            problem.check(sequence).unwrap();
            assert_eq!(cost(&problem, sequence), found);
            reports.push(found);
            true
        })
        .unwrap();
        problem.check(&best).unwrap();
        let reached = cost(&problem, &best);
        assert!(reached.peak <= settings.limit, "{preparation:?} needs {reached:?}");
        // All activations again take 12 and some products 8 each, of 627; groups double more.
        assert!(reached.time <= problem.time() * 1.12, "{preparation:?} needs {reached:?}");
        let rank = |cost: &Cost| (cost.peak.max(settings.limit), cost.time);
        assert!(reports.is_sorted_by(|a, b| rank(a) >= rank(b)), "{reports:?}");
        let again = anneal(&problem, preparation, settings, |_, _| true).unwrap();
        assert_eq!(best, again);
    }
}

#[test]
fn a_stopped_search_answers_with_what_it_has() {
    let problem = training(6);
    for preparation in PREPARATIONS {
        let mut asked = 0;
        let best = anneal(&problem, preparation, half(&problem, 3_000_000), |_, _| {
            asked += 1;
            false
        })
        .unwrap();
        assert_eq!(asked, 1);
        problem.check(&best).unwrap();
    }
}

/// No limit below what some computation needs is worth any time: the search stays sensible.
#[test]
fn a_limit_out_of_reach_ends_near_the_least_memory() {
    let problem = training(8);
    let most = cost(&problem, &without_recomputation(&problem)).peak;
    let settings = Settings { limit: 1, moves: 400_000, ..Settings::default() };
    for preparation in PREPARATIONS {
        let best = anneal(&problem, preparation, settings, |_, _| true).unwrap();
        problem.check(&best).unwrap();
        let reached = cost(&problem, &best);
        assert!(reached.peak < most / 2, "{preparation:?} needs {reached:?} of {most}");
        assert!(reached.time < 3.0 * problem.time(), "{preparation:?} needs {reached:?}");
    }
}
