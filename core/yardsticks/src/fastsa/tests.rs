//! The slots' account of a move, against sequences evaluated from the beginning.

use super::slots::{Move, NONE, Slots};
use super::{Annealing, Settings};
use pipewright_core::recompute::{Node, Problem, cost, memory, without_recomputation};
use proptest::prelude::*;

/// Graphs of up to 14 nodes; what each node needs besides; whether a node divides the sequence.
fn problems() -> impl Strategy<Value = (Problem, Vec<u64>)> {
    let node = (0u64..20, 0u32..9, prop::collection::vec(any::<prop::sample::Index>(), 0..4));
    let nodes = prop::collection::vec((node, any::<bool>(), 0u64..9), 2..15);
    (nodes, prop::option::of(any::<prop::sample::Index>()), 1u32..4).prop_map(
        |(drawn, mark, copies)| {
            let count = drawn.len();
            let extra = drawn.iter().map(|node| node.2).collect();
            let mut nodes: Vec<Node> = drawn
                .into_iter()
                .enumerate()
                .map(|(i, ((bytes, time, inputs), output, _))| Node {
                    bytes,
                    time: f64::from(time),
                    inputs: inputs.iter().filter(|_| i > 0).map(|at| at.index(i) as u32).collect(),
                    output: output || i + 1 == count,
                    ..Node::default()
                })
                .collect();
            let mark = mark.map(|mark| mark.index(count));
            if let Some(mark) = &mark {
                (nodes[*mark].output, nodes[*mark].once) = (true, true);
            }
            let marks = mark.into_iter().map(|mark| mark as u32).collect();
            (Problem::with_marks(nodes, marks, copies).unwrap(), extra)
        },
    )
}

/// Peak of a sequence, with what each item needs besides.
fn peak(problem: &Problem, extra: &[u64], sequence: &[u32]) -> i64 {
    let held = memory(problem, sequence);
    held.iter().zip(sequence).map(|(bytes, node)| bytes + extra[*node as usize]).max().unwrap_or(0)
        as i64
}

/// The sequence after a move.
fn moved(slots: &Slots<'_>, what: Move) -> Vec<u32> {
    let mut items = slots.items().to_vec();
    match what {
        Move::Add { node, to } => items[to as usize] = node,
        Move::Remove { from } => items[from as usize] = NONE,
        Move::Swap { from, to } => items.swap(from as usize, to as usize),
    }
    items.retain(|node| *node != NONE);
    items
}

/// A move made of random numbers; none where it would move a mark, or repeat what works only once.
fn chosen(slots: &Slots<'_>, kind: u8, a: usize, b: usize) -> Option<Move> {
    let taken: Vec<u32> =
        (0..slots.items().len() as u32).filter(|at| slots.items()[*at as usize] != NONE).collect();
    let from = taken[a % taken.len()];
    let to = (b % (slots.items().len() - 1)) as u32;
    let node = (a % slots.problem.len()) as u32;
    match kind {
        0 => (!slots.problem.node(node).once).then_some(Move::Add { node, to }),
        1 => Some(Move::Remove { from }),
        _ => (!slots.marks().contains(&from)).then_some(Move::Swap { from, to }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_move_costs_what_its_sequence_costs(
        (problem, extra) in problems(),
        moves in prop::collection::vec((0u8..4, any::<usize>(), any::<usize>(), 0u8..4), 1..80),
    ) {
        let mut slots = Slots::new(&problem, &extra, &without_recomputation(&problem));
        for (kind, a, b, luck) in moves {
            let Some(what) = chosen(&slots, kind, a, b) else { continue };
            let then = moved(&slots, what);
            if !slots.plan(what) {
                if matches!(what, Move::Remove { .. }) {
                    prop_assert!(problem.check(&then).is_err(), "{what:?} of {:?}", slots.sequence());
                }
                continue;
            }
            prop_assert_eq!(problem.check(&then), Ok(()), "{:?} of {:?}", what, slots.sequence());
            let (peak_before, time_then) = (slots.peak(), slots.time_then());
            let least = slots.least_peak();
            let peak_then = slots.try_out();
            prop_assert_eq!(peak_then, peak(&problem, &extra, &then), "{:?} of {:?}", what, slots.sequence());
            prop_assert!(least <= peak_then);
            if luck == 0 {
                slots.take_back();
                prop_assert_eq!(slots.peak(), peak_before);
                continue;
            }
            slots.keep();
            prop_assert_eq!(&slots.sequence(), &then);
            prop_assert_eq!((slots.peak(), slots.time()), (peak_then, time_then));
            prop_assert_eq!(slots.time(), Slots::new(&problem, &extra, &then).time());
            let ends: Vec<u32> = slots.again().to_vec();
            prop_assert!(ends.iter().all(|node| slots.places(*node).len() > 1));
        }
    }

    /// Also cut into pieces, and the best is at no time worse than before.
    #[test]
    fn annealing_keeps_the_best((problem, extra) in problems(), seed in 0u64..9, share in 0.3f64..1.0) {
        let start = without_recomputation(&problem);
        let limit = (peak(&problem, &extra, &start) as f64 * share) as u64;
        let settings = Settings { limit, moves: 400, seed, hot: 0.1, ..Settings::default() };
        let mut whole = Annealing::new(&problem, &extra, &start, settings);
        whole.advance(400);
        let mut pieces = Annealing::new(&problem, &extra, &start, settings);
        let mut last = (peak(&problem, &extra, &start) as u64 > limit, f64::INFINITY);
        while pieces.advance(7) {
            let best = pieces.best();
            prop_assert_eq!(problem.check(&best), Ok(()));
            let over = peak(&problem, &extra, &best) as u64 > limit;
            // Above the limit memory counts too, so that time may grow.
            let rank = (over, if over { f64::INFINITY } else { cost(&problem, &best).time });
            prop_assert!(rank <= last);
            last = rank;
        }
        prop_assert_eq!(pieces.best(), whole.best());
        prop_assert_eq!(pieces.counts(), whole.counts());
    }
}

/// A chain forward and back, in which keeping every fourth value is best: annealing meets half of
/// the memory for less than every value twice.
#[test]
fn a_chain_is_annealed_to_half_of_its_memory() {
    let layers = 24;
    let mut nodes: Vec<Node> = (0..layers)
        .map(|i: u32| Node {
            bytes: 8,
            time: 1.0,
            inputs: i.checked_sub(1).into_iter().collect(),
            ..Node::default()
        })
        .collect();
    for i in 0..layers {
        let own = layers - 1 - i;
        let inputs = if i == 0 { vec![own] } else { vec![own, layers + i - 1] };
        nodes.push(Node {
            bytes: 1,
            time: 1.0,
            inputs,
            output: i + 1 == layers,
            ..Node::default()
        });
    }
    let problem = Problem::new(nodes).unwrap();
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 2;
    let settings = Settings { limit, moves: 200_000, ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    assert!(!annealing.advance(u64::MAX));
    let best = annealing.best();
    problem.check(&best).unwrap();
    let reached = cost(&problem, &best);
    assert!(reached.peak <= limit, "{reached:?}");
    assert!(reached.time <= problem.time() + 16.0, "{reached:?}");
}

/// Marks stay, and there is nothing else.
#[test]
fn a_graph_of_marks_stays_as_it_is() {
    let mark = Node { bytes: 1, time: 1.0, output: true, once: true, ..Node::default() };
    let problem = Problem::with_marks(vec![mark.clone(), mark], vec![0, 1], 2).unwrap();
    let settings = Settings { limit: 1, moves: 100, ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &[0, 1], settings);
    assert!(!annealing.advance(100));
    assert_eq!(annealing.best(), [0, 1]);
}
