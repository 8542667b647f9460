//! Least cuts beside all decisions, and what is rebuilt from them.

use super::{problem, sequence};
use crate::recompute::cut::{Cutter, Kept, Moment, rebuild, without_waste};
use crate::recompute::flow::Network;
use crate::recompute::state::Ticks;
use crate::recompute::{Problem, cost, memory};
use proptest::prelude::*;

/// The least cost over all sets of values to keep, or nothing where none works.
fn twin(problem: &Problem, ticks: &Ticks, moment: &Moment, price: f64) -> u64 {
    let n = problem.len();
    let price = |v: usize| {
        (price * (problem.nodes()[v].bytes * u64::from(moment.copies[v])) as f64) as u64 + 1
    };
    let sets = (0..1u32 << n).filter_map(|kept| {
        let kept = |v: usize| kept >> v & 1 == 1;
        let mut cost: u64 = (0..n).filter(|v| kept(*v)).map(price).sum();
        // What is wanted and not there is computed again, from inputs that are there or computed.
        let mut again = vec![false; n];
        let mut open: Vec<usize> = (0..n).filter(|v| moment.wanted[*v]).collect();
        while let Some(v) = open.pop() {
            if moment.there[v] || kept(v) || std::mem::replace(&mut again[v], true) {
                continue;
            }
            if problem.nodes()[v].once {
                return None;
            }
            cost += ticks.of(v as u32);
            open.extend(problem.inputs(v as u32).iter().map(|input| *input as usize));
        }
        Some(cost)
    });
    sets.min().expect("keeping everything works")
}

fn priced(problem: &Problem, moment: &Moment, kept: &Kept, price: f64) -> u64 {
    let bytes = |v: &u32| problem.node(*v).bytes * u64::from(moment.copies[*v as usize]);
    kept.ticks + kept.nodes.iter().map(|v| (price * bytes(v) as f64) as u64 + 1).sum::<u64>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_costs_less(
        problem in problem(2..=9),
        draws in prop::collection::vec(any::<prop::sample::Index>(), 0..14),
        at in any::<prop::sample::Index>(),
        price in 0..40u32,
    ) {
        let start = sequence(&problem, &draws);
        let at = at.index(start.len());
        let moment = Moment::new(&problem, &start, at);
        let ticks = Ticks::new(&problem);
        let price = f64::from(price) * 0.02 * ticks.base as f64;
        let kept = Cutter::new(&problem, ticks.clone()).cut(&moment, price, None);
        prop_assert_eq!(priced(&problem, &moment, &kept, price), twin(&problem, &ticks, &moment, price));
        let rebuilt = rebuild(&problem, &start, at, &moment, &kept);
        prop_assert_eq!(problem.check(&rebuilt), Ok(()));
    }

    #[test]
    fn what_nobody_reads_goes(
        problem in problem(1..=10),
        draws in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let start = sequence(&problem, &draws);
        let kept = without_waste(&problem, &start);
        prop_assert_eq!(problem.check(&kept), Ok(()));
        prop_assert!(cost(&problem, &kept).time <= cost(&problem, &start).time);
        prop_assert!(memory(&problem, &kept).iter().max() <= memory(&problem, &start).iter().max());
        prop_assert_eq!(without_waste(&problem, &kept), kept);
    }

    #[test]
    fn the_flow_is_the_least_cut(
        edges in prop::collection::vec((0..7u32, 0..7u32, 0..20u64), 0..25)
    ) {
        let mut network = Network::default();
        network.reset(7);
        edges.iter().filter(|e| e.0 != e.1).for_each(|e| network.edge(e.0, e.1, e.2));
        let flow = network.flow(0, 1);
        let across = |side: u32| -> u64 {
            let crosses = |e: &&(u32, u32, u64)| side >> e.0 & 1 == 1 && side >> e.1 & 1 == 0;
            edges.iter().filter(crosses).map(|e| e.2).sum()
        };
        let sides = (0..1u32 << 7).filter(|side| side & 1 == 1 && side >> 1 & 1 == 0);
        prop_assert_eq!(Some(flow), sides.map(across).min());
        let side = (0..7).filter(|v| network.on_source_side(*v)).fold(0, |side, v| side | 1 << v);
        prop_assert_eq!(flow, across(side));
    }
}
