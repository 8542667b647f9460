//! The state under change, beside the cost of its sequence computed anew.

use super::{problem, sequence};
use crate::recompute::edit::Editor;
use crate::recompute::state::{NONE, State, Ticks};
use crate::recompute::tree::Tree;
use crate::recompute::{Problem, cost, last_uses, memory};
use proptest::prelude::*;

/// The state's figures are those of its sequence.
fn agrees(problem: &Problem, state: &State) {
    let sequence = state.sequence();
    assert_eq!(problem.check(&sequence), Ok(()));
    let slots: Vec<u32> = (0..state.slots()).filter(|s| state.item(*s) != NONE).collect();
    assert_eq!(state.peak() as u64, cost(problem, &sequence).peak);
    let memory = memory(problem, &sequence);
    let first = memory.iter().position(|m| *m as i64 == state.peak());
    // Where all is the same, as with nothing but what lives across marks, any place is a peak.
    if memory.iter().any(|m| *m != memory[0]) {
        assert_eq!(state.peak_at(), slots[first.unwrap()]);
    }
    let ticks: u64 = sequence.iter().map(|node| state.ticks.of(*node)).sum();
    assert_eq!(state.time(), ticks);
    for (at, end) in last_uses(problem, &sequence).into_iter().enumerate() {
        assert_eq!(state.end(slots[at]), slots[end as usize]);
    }
    for (at, slot) in slots.iter().enumerate() {
        assert_eq!(state.most(*slot, *slot + 1) as u64, memory[at]);
        let mut living = vec![];
        state.living(*slot, |other| living.push(other));
        let lives = |other: &u32| other < slot && state.end(*other) >= *slot;
        let expected: Vec<u32> = slots.iter().copied().filter(lives).collect();
        assert_eq!(living, expected);
    }
}

/// A change of an editor by two random numbers; changes that are not allowed do nothing.
fn change(problem: &Problem, editor: &mut Editor, what: u8, a: u32, b: u32) {
    let state = editor.state();
    let items: Vec<u32> = (0..state.slots()).filter(|s| state.item(*s) != NONE).collect();
    let slot = items[a as usize % items.len()];
    let node = state.item(slot);
    let again = state.places(node)[0] < slot;
    match what {
        0 if again => editor.remove_with_causes(slot),
        1 => {
            // Compute inputs of a random item again right before it.
            let inputs = problem.inputs(node).iter().copied();
            let inputs: Vec<u32> = inputs.filter(|i| !problem.node(*i).once).collect();
            let Some(&input) = inputs.get(b as usize % inputs.len().max(1)) else { return };
            if let Some(slot) = editor.insert_before(slot, &[input]) {
                editor.merge(slot, &[input], i64::from(b % 40));
            }
        }
        2 => {
            let born = |input: &u32| state.before(*input, slot).map_or(0, |born| born + 1);
            let low = problem.inputs(node).iter().map(born).max().unwrap_or(0);
            let high = state.first_use(node, slot).unwrap_or(state.slots() - 1);
            let to = low + b % (high - low);
            if state.item(to) == NONE && !state.marks().contains(&slot) && !problem.node(node).once
            {
                editor.shift(slot, to);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changing_state_costs_what_its_sequence_costs(
        problem in problem(1..=10),
        draws in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        changes in prop::collection::vec((0..4u8, any::<u32>(), any::<u32>()), 0..30),
    ) {
        // The same with a mark in the middle.
        let mut nodes = problem.nodes().to_vec();
        let middle = nodes.len() / 2;
        (nodes[middle].once, nodes[middle].output) = (true, true);
        let marked = Problem::with_marks(nodes, vec![middle as u32], 3).unwrap();
        for problem in [problem, marked] {
            let start = sequence(&problem, &draws);
            let state = State::new(&problem, Ticks::new(&problem), &start);
            agrees(&problem, &state);
            let mut editor = Editor::new(state);
            for (what, a, b) in &changes {
                let before = editor.state().sequence();
                change(&problem, &mut editor, *what, *a, *b);
                agrees(&problem, editor.state());
                if b % 3 == 0 {
                    editor.rollback();
                    prop_assert_eq!(editor.state().sequence(), before);
                    agrees(&problem, editor.state());
                } else {
                    editor.commit();
                }
            }
        }
    }

    #[test]
    fn the_tree_has_the_largest_prefix_sum(
        changes in prop::collection::vec((0..37usize, 0..37usize, -50..50i64), 1..40)
    ) {
        let mut tree = Tree::new(37);
        let mut plain = [0i64; 64];
        for (from, to, bytes) in changes {
            tree.add(from, to, bytes);
            plain[from] += bytes;
            plain[to] -= bytes;
            let sums: Vec<i64> = plain.iter().scan(0, |sum, x| { *sum += x; Some(*sum) }).collect();
            let most = *sums.iter().max().unwrap();
            prop_assert_eq!(tree.peak(), most);
            prop_assert_eq!(Some(tree.peak_at()), sums.iter().position(|s| *s == most));
            let (low, high) = (from.min(to), from.max(to) + 1);
            prop_assert_eq!(tree.most(low, high), *sums[low..high].iter().max().unwrap());
        }
    }
}

#[test]
fn crowded_places_get_room() {
    // One value computed again before each of many readers, all at one place.
    let mut nodes = vec![super::node(1, 1.0, &[])];
    nodes.extend((1..200).map(|_| super::output(1, 1.0, &[0])));
    let problem = Problem::new(nodes).unwrap();
    let start = crate::recompute::without_recomputation(&problem);
    let mut editor = Editor::new(State::new(&problem, Ticks::new(&problem), &start));
    let mut inserted = 0;
    while inserted < 3 {
        let last = editor.state().places(199)[0];
        let many = vec![0; 1];
        for _ in 0..10_000 {
            if editor.insert_before(last, &many).is_none() {
                break;
            }
        }
        editor.commit();
        agrees(&problem, editor.state());
        inserted += 1;
    }
}
