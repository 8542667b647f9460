//! Contraction: orders of groups against all subsets, contracted sequences against what they stand
//! for.

use pipewright_core::recompute::{Node, Problem, cost, memory, without_recomputation};
use pipewright_yardsticks::contract::{
    Contraction, Group, Growth, Order, STATES, best_order, by_size, fused, refined,
};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Groups of up to `most` values; the last reads something wherever it can.
fn groups(most: usize) -> impl Strategy<Value = Group> {
    let value = (0u64..30, 1u64..9, prop::collection::vec(any::<prop::sample::Index>(), 0..4));
    prop::collection::vec(value, 1..=most).prop_map(|values| {
        let inputs = |(i, own): (usize, &Vec<prop::sample::Index>)| {
            let mut list: Vec<u32> =
                own.iter().filter(|_| i > 0).map(|at| at.index(i) as u32).collect();
            list.sort_unstable();
            list.dedup();
            list
        };
        Group {
            bytes: values.iter().map(|value| value.0).collect(),
            ticks: values.iter().map(|value| value.1).collect(),
            inputs: values.iter().map(|value| &value.2).enumerate().map(inputs).collect(),
        }
    })
}

/// The least peak: forwards, over all sets of values.
fn forwards(group: &Group) -> u64 {
    let count = group.bytes.len();
    let inputs: Vec<u32> = group
        .inputs
        .iter()
        .map(|list| list.iter().fold(0, |set, value| set | 1 << value))
        .collect();
    let bytes =
        |set: u32| (0..count).filter(|v| set >> v & 1 == 1).map(|v| group.bytes[v]).sum::<u64>();
    let mut reached = BTreeMap::from([(0u32, 0u64)]);
    let mut queue = BinaryHeap::from([Reverse((0u64, 0u32))]);
    while let Some(Reverse((peak, set))) = queue.pop() {
        if set >> (count - 1) & 1 == 1 {
            return peak;
        }
        if reached[&set] < peak {
            continue;
        }
        for (value, needs) in inputs.iter().enumerate() {
            let there = set >> value & 1 == 1;
            if !there && needs & !set != 0 {
                continue;
            }
            let next = set ^ 1 << value;
            let peak = if there { peak } else { peak.max(bytes(next)) };
            let known = reached.entry(next).or_insert(u64::MAX);
            if peak < *known {
                *known = peak;
                queue.push(Reverse((peak, next)));
            }
        }
    }
    unreachable!("everything can be computed in the given order")
}

/// The group as a problem of its own.
fn alone(group: &Group) -> Problem {
    let last = group.bytes.len() - 1;
    let node = |i: usize| Node {
        bytes: group.bytes[i],
        time: 1.0,
        inputs: group.inputs[i].clone(),
        output: i == last,
        ..Node::default()
    };
    Problem::new((0..=last).map(node).collect()).unwrap()
}

/// An order can be run, and needs what it says.
fn order_holds(group: &Group, order: &Order) -> Result<(), TestCaseError> {
    let problem = alone(group);
    prop_assert_eq!(problem.check(&order.items), Ok(()));
    prop_assert_eq!(order.items.last(), Some(&(group.bytes.len() as u32 - 1)));
    prop_assert!(cost(&problem, &order.items).peak <= order.peak);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn backwards_finds_the_least_peak(group in groups(12)) {
        let order = best_order(&group, usize::MAX);
        prop_assert!(order.exact);
        order_holds(&group, &order)?;
        prop_assert_eq!(order.peak, forwards(&group));
        prop_assert_eq!(order.peak, cost(&alone(&group), &order.items).peak);
    }

    #[test]
    fn guesses_can_be_run(group in groups(40)) {
        let guess = best_order(&group, 0);
        order_holds(&group, &guess)?;
        prop_assert!(best_order(&group, 50).peak <= guess.peak);
    }
}

/// Graphs of up to 24 nodes, sometimes with a mark.
fn problems() -> impl Strategy<Value = Problem> {
    let node =
        (0u64..30, 0u32..9, prop::collection::vec(any::<prop::sample::Index>(), 0..4), 0u8..6);
    let mark = prop::option::of(any::<prop::sample::Index>());
    (prop::collection::vec(node, 2..25), mark, 1u32..4).prop_map(|(drawn, mark, copies)| {
        let count = drawn.len();
        let mark = mark.map(|mark| mark.index(count));
        let node = |(i, (bytes, time, inputs, kind)): (
            usize,
            (u64, u32, Vec<prop::sample::Index>, u8),
        )| Node {
            bytes,
            time: f64::from(time),
            inputs: inputs.iter().filter(|_| i > 0).map(|at| at.index(i) as u32).collect(),
            output: kind == 0 || i + 1 == count || mark == Some(i),
            once: kind == 1 || mark == Some(i),
            ..Node::default()
        };
        let nodes = drawn.into_iter().enumerate().map(node).collect();
        Problem::with_marks(nodes, mark.map(|mark| mark as u32).into_iter().collect(), copies)
            .unwrap()
    })
}

/// Bytes of a contracted sequence at its worst moment.
fn peak(contraction: &Contraction, sequence: &[u32]) -> u64 {
    let held = memory(contraction.problem(), sequence);
    let with = |(bytes, node): (&u64, &u32)| bytes + contraction.extra()[*node as usize];
    held.iter().zip(sequence).map(with).max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_contracted_sequence_is_what_it_stands_for(
        problem in problems(),
        marked in prop::collection::vec(any::<bool>(), 24),
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let contraction = Contraction::new(&problem, &marked[..problem.len()], STATES).unwrap();
        let small = contraction.problem();
        let mut sequence = without_recomputation(small);
        for at in again {
            // A computation once more at the end of the sequence can always be run.
            let node = sequence[at.index(sequence.len())];
            if !small.node(node).once {
                sequence.push(node);
            }
        }
        let whole = contraction.expand(&sequence);
        prop_assert_eq!(small.check(&sequence), Ok(()));
        prop_assert_eq!(problem.check(&whole), Ok(()));
        let (contracted, expanded) = (cost(small, &sequence), cost(&problem, &whole));
        prop_assert!((contracted.time - expanded.time).abs() < 1e-9);
        prop_assert!(expanded.peak <= peak(&contraction, &sequence));
        prop_assert_eq!(contraction.contract(&whole), sequence);
        let plain = contraction.contract(&without_recomputation(&problem));
        prop_assert_eq!(small.check(&plain), Ok(()));
    }

    #[test]
    fn groups_grow_as_far_as_allowed(
        problem in problems(), members in 1usize..9, time in 1.0f64..3.0, share in 0.5f64..2.0,
    ) {
        let all = vec![true; problem.len()];
        let single = Contraction::new(&problem, &all, 0).unwrap();
        prop_assert!(single.extra().iter().all(|extra| *extra == 0));
        let needs = |contraction: &Contraction, node: u32| {
            let small = contraction.problem();
            let inputs: u64 = small.inputs(node).iter().map(|input| small.node(*input).bytes).sum();
            inputs + small.node(node).bytes + contraction.extra()[node as usize]
        };
        let bytes = (cost(&problem, &without_recomputation(&problem)).peak as f64 * share) as u64;
        let lost = by_size(&problem, Growth { members, time, bytes });
        let steps = refined(&problem, &lost, 3);
        let marked = &steps[0];
        let contraction = Contraction::new(&problem, marked, 0).unwrap();
        let small = contraction.problem();
        prop_assert!(small.time() <= time * problem.time() + 1e-9);
        for node in 0..small.len() as u32 {
            let group = contraction.group(node);
            prop_assert!(group.len() <= members || group.len() == 1);
            prop_assert!(group.len() == 1 || needs(&contraction, node) <= bytes);
        }
        prop_assert!(lost.iter().all(|node| !marked[*node as usize]));
        prop_assert_eq!(steps.len(), 4);
        prop_assert_eq!(&steps[3], &all);
    }
}

/// The picture in the module's documentation.
#[test]
fn the_picture_is_contracted_as_drawn() {
    let node = |inputs: &[u32], output| Node {
        bytes: 1,
        time: 1.0,
        inputs: inputs.to_vec(),
        output,
        ..Node::default()
    };
    let graph = vec![
        node(&[], false),
        node(&[0], false),
        node(&[0], false),
        node(&[1, 2], false),
        node(&[3], true),
        node(&[2], true),
    ];
    let problem = Problem::new(graph).unwrap();
    let marked = [true, false, false, false, false, false];
    let contraction = Contraction::new(&problem, &marked, STATES).unwrap();
    assert_eq!(contraction.problem().len(), 3);
    let groups: Vec<usize> = (0..3).map(|node| contraction.group(node).len()).collect();
    assert_eq!(groups, [1, 4, 2]);
    assert_eq!(contraction.expand(&[0, 2])[1..], [2, 5]);
    assert_eq!(contraction.extra(), [0, 2, 1]);
    assert_eq!(contraction.problem().time(), 7.0);
}

/// A mask that is made from nothing goes to its readers; what joins two larger values stays.
#[test]
fn grouping_fuses_what_is_cheaper_to_need_than_to_keep() {
    let node = |bytes, inputs: &[u32], output| Node {
        bytes,
        time: 1.0,
        inputs: inputs.to_vec(),
        output,
        ..Node::default()
    };
    let problem = Problem::new(vec![
        node(4, &[], false),
        node(9, &[], true),
        node(9, &[1], false),
        node(9, &[1, 2], false),
        node(3, &[3, 0], false),
        node(1, &[4, 2], true),
    ])
    .unwrap();
    assert_eq!(fused(&problem), [false, true, false, false, true, true]);
}

/// Groups as they grow on training graphs, 60 values with branches, are put in order exactly within
/// the states that a contraction allows.
#[test]
fn sixty_values_with_branches_are_searched() {
    let mut group = Group { bytes: vec![], ticks: vec![], inputs: vec![] };
    for block in 0..20u32 {
        let first = 3 * block;
        let before: Vec<u32> = first.checked_sub(1).into_iter().collect();
        let branch = 5 + u64::from(block % 4);
        for (bytes, inputs) in
            [(branch, before.clone()), (9 - branch / 2, before), (4, vec![first, first + 1])]
        {
            group.bytes.push(bytes);
            group.ticks.push(1);
            group.inputs.push(inputs);
        }
    }
    let order = best_order(&group, STATES);
    assert!(order.exact);
    assert_eq!(order.items.len(), 60);
}
