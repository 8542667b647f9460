//! The search beside the optimum, its bounds, and repetition.

use super::{node, output, problem};
use crate::recompute::repeat::Repeats;
use crate::recompute::{
    Goal, Node, Problem, Search, cost, exact, least_peak, least_time, without_recomputation,
};
use proptest::prelude::*;

/// A chain of layers with their backward passes: each layer has a small value that is passed on, and
/// large ones that its backward pass reads.
pub(super) fn layers(count: u32) -> Problem {
    let mut nodes: Vec<Node> = vec![node(2, 1.0, &[])];
    let add = |nodes: &mut Vec<Node>, node: Node| {
        nodes.push(node);
        nodes.len() as u32 - 1
    };
    let mut passed = 0;
    let mut kept = vec![];
    for _ in 0..count {
        let wide = add(&mut nodes, node(10, 3.0, &[passed]));
        let act = add(&mut nodes, node(10, 1.0, &[wide]));
        let next = add(&mut nodes, node(2, 3.0, &[act, passed]));
        kept.push((passed, wide, act));
        passed = next;
    }
    let mut gradient = add(&mut nodes, output(2, 1.0, &[passed]));
    for (input, wide, act) in kept.into_iter().rev() {
        let of_act = add(&mut nodes, node(10, 3.0, &[gradient]));
        add(&mut nodes, output(1, 3.0, &[gradient, act]));
        let of_wide = add(&mut nodes, node(10, 1.0, &[of_act, wide]));
        add(&mut nodes, output(1, 3.0, &[of_wide, input]));
        gradient = add(&mut nodes, node(2, 3.0, &[of_wide, gradient]));
    }
    add(&mut nodes, output(1, 1.0, &[gradient]));
    Problem::new(nodes).unwrap()
}

fn found(problem: &Problem, goal: Goal, seed: u64, moves: u64) -> Search<'_> {
    let mut search = Search::new(problem, goal, seed);
    while search.moves() < moves && search.advance(1000) {}
    search
}

#[test]
fn every_answer_is_valid_none_beats_another_and_seeds_repeat() {
    let problem = layers(6);
    let search = found(&problem, Goal::Front, 3, 30_000);
    let front = search.front();
    assert!(front.len() > 10);
    for answer in front {
        assert_eq!(problem.check(&answer.sequence), Ok(()));
        assert_eq!(cost(&problem, &answer.sequence), answer.cost);
    }
    for pair in front.windows(2) {
        assert!(pair[0].cost.peak < pair[1].cost.peak && pair[0].cost.time > pair[1].cost.time);
    }
    let last = front.last().unwrap().cost;
    assert!(last.peak <= search.base().peak && last.time == search.base().time);
    assert_eq!(front, found(&problem, Goal::Front, 3, 30_000).front());
}

#[test]
fn more_moves_never_make_it_worse() {
    let problem = layers(8);
    let limit = search_limit(&problem);
    let mut search = Search::new(&problem, Goal::Budget(limit), 1);
    let mut last = f64::INFINITY;
    while search.moves() < 40_000 && search.advance(500) {
        if search.best().cost.peak <= limit {
            assert!(search.best().cost.time <= last);
            last = search.best().cost.time;
        }
    }
    assert!(last.is_finite());
}

/// A budget of two fifths.
fn search_limit(problem: &Problem) -> u64 {
    cost(problem, &without_recomputation(problem)).peak * 2 / 5
}

#[test]
fn layers_are_recognised_and_answers_spread() {
    let problem = layers(20);
    let repeats = Repeats::find(&problem);
    assert!(repeats.runs() >= 2);
    assert!((0..repeats.runs()).any(|run| repeats.blocks(run) >= 18));
    let search = found(&problem, Goal::Budget(search_limit(&problem)), 1, 5_000);
    let sequence = &search.best().sequence;
    let mut spread = 0;
    for run in 0..repeats.runs() {
        for source in 0..repeats.blocks(run) {
            for width in 1..3 {
                let Some(next) = repeats.spread(&problem, sequence, run, source, width) else {
                    continue;
                };
                assert_eq!(problem.check(&next), Ok(()));
                spread += 1;
            }
        }
    }
    assert!(spread > 50, "{spread} of {repeats:?}");
}

#[test]
fn marks_make_every_copy_count() {
    // Forward: 4 values, the last is sent at the mark; backward reads all of them.
    let mut nodes = vec![
        Node { once: true, ..node(3, 0.0, &[]) },
        node(8, 2.0, &[0]),
        node(8, 2.0, &[1]),
        node(3, 2.0, &[2]),
    ];
    nodes.push(Node { once: true, ..output(0, 0.0, &[3]) });
    nodes.push(Node { once: true, ..node(3, 0.0, &[4]) });
    nodes.push(output(8, 2.0, &[5, 2]));
    nodes.push(output(8, 2.0, &[6, 1]));
    nodes.push(output(3, 2.0, &[7, 0]));
    let problem = Problem::with_marks(nodes, vec![4], 4).unwrap();
    let base = cost(&problem, &without_recomputation(&problem));
    // Input, both wide values and the output, four times; and the gradients.
    assert_eq!(base.peak, 4 * (3 + 8 + 8 + 3) + 16);
    let search = found(&problem, Goal::Front, 1, 5_000);
    let least = search.front()[0].cost;
    // Only input and output are kept, and the wide ones made again: one at a time, the first twice.
    assert_eq!((least.peak, least.time), (4 * (3 + 3) + 24, base.time + 6.0));
    // Both at a time, with the gradient received.
    let next = search.front()[1].cost;
    assert_eq!((next.peak, next.time), (4 * (3 + 3) + 27, base.time + 4.0));
    assert!(least_peak(&problem) <= least.peak);
    for answer in search.front() {
        assert_eq!(problem.check(&answer.sequence), Ok(()));
        assert!(least_time(&problem, answer.cost.peak).unwrap() <= answer.cost.time + 1e-9);
    }
}

#[test]
fn impossible_and_needless_budgets_end_at_once() {
    let problem = layers(4);
    let mut search = Search::new(&problem, Goal::Budget(least_peak(&problem) - 1), 1);
    assert!(!search.advance(1_000_000) && search.moves() == 0);
    let base = cost(&problem, &without_recomputation(&problem));
    let mut search = Search::new(&problem, Goal::Budget(base.peak), 1);
    assert!(!search.advance(1_000_000) && search.moves() == 0);
    assert_eq!(search.best().cost, base);
    assert_eq!(least_time(&problem, least_peak(&problem) - 1), None);
    assert!((least_time(&problem, base.peak).unwrap() - base.time).abs() < 1e-6);
}

/// The optimum is found on nearly all small problems: of 200, all budgets of each.
#[test]
fn small_problems_are_solved() {
    let (best, budgets) = optima(|node| Node { scratch: 0, ..node.clone() });
    assert!(best * 100 >= budgets * 95, "{best} of {budgets} budgets");
}

/// Workspaces make it a bit harder.
#[test]
fn small_problems_with_workspaces_are_solved() {
    let (best, budgets) = optima(Node::clone);
    assert!(best * 100 >= budgets * 94, "{best} of {budgets} budgets");
}

/// How many budgets of how many get their optimum, on problems whose nodes are `changed`.
fn optima(changed: impl Fn(&Node) -> Node) -> (u32, u32) {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut budgets, mut best) = (0, 0);
    for _ in 0..200 {
        let drawn = problem(6..=9).new_tree(&mut runner).unwrap().current();
        let nodes = drawn.nodes().iter().map(&changed).collect();
        let problem = Problem::with_marks(nodes, drawn.marks().to_vec(), drawn.copies()).unwrap();
        let search = found(&problem, Goal::Front, 1, 20_000);
        for optimum in exact::front(&problem).unwrap() {
            let at = search.front().iter().rfind(|a| a.cost.peak <= optimum.cost.peak);
            budgets += 1;
            if let Some(answer) = at {
                assert!(answer.cost.time >= optimum.cost.time, "nothing beats the optimum");
                best += u32::from(answer.cost.time == optimum.cost.time);
            }
            let bound = least_time(&problem, optimum.cost.peak).unwrap();
            assert!(bound <= optimum.cost.time + 1e-9, "{bound} is no bound");
            assert!(least_peak(&problem) <= optimum.cost.peak);
        }
    }
    (best, budgets)
}
