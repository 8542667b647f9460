//! Repairs: the nearest lanes and micro-batches that a schedule can have.

use super::engine;
use super::inputs::Inputs;
use super::kept;
use super::link::{MICRO_BATCHES_MAX, MINI_BATCH_MAX};
use crate::base::stops::divisors;
use pipewright_core::schedule::ScheduleKind;

/// A change after which the schedule is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Another number of micro-batches.
    MicroBatches(u32),
    /// Another number of lanes.
    Lanes(u32),
}

impl Repair {
    /// Makes the change.
    pub fn apply(self, inputs: &mut Inputs) {
        match self {
            Repair::MicroBatches(m) => inputs.micro_batches = m,
            Repair::Lanes(lanes) => engine::split(inputs, lanes),
        }
    }
}

/// Takes lanes and a schedule, with cuts that were kept for them and micro-batches that the schedule can have.
pub fn take_lanes(inputs: &mut Inputs, lanes: u32, kind: ScheduleKind) {
    kept::recut(inputs, &|inputs| {
        engine::split(inputs, lanes);
        engine::reschedule(inputs, kind);
    });
    if let Some(found) = repair(inputs) {
        found.apply(inputs);
    }
}

/// The same with the nearest micro-batches that divide the samples of a replica; where replicas do not divide the
/// mini-batch, with the next mini-batch that they and the micro-batches divide.
pub fn dividing(inputs: &Inputs) -> Inputs {
    let mut next = inputs.clone();
    let (replicas, m) =
        (u64::from(inputs.rest.data_parallel.replicas.max(1)), u64::from(inputs.micro_batches));
    if inputs.mini_batch.is_multiple_of(replicas) {
        let all = divisors(inputs.mini_batch / replicas, MICRO_BATCHES_MAX.into());
        next.micro_batches = all.into_iter().min_by_key(|d| d.abs_diff(m)).unwrap_or(1) as u32;
    } else {
        let parts = replicas * m.max(1);
        let above = inputs.mini_batch.next_multiple_of(parts);
        next.mini_batch =
            if above > MINI_BATCH_MAX { (MINI_BATCH_MAX / parts).max(1) * parts } else { above };
    }
    next
}

/// Numbers that are tried, from near to far.
const TRIED: usize = 24;

/// The nearest number of micro-batches, else of lanes, that the schedule can have; none where it has no
/// complaint.
pub fn repair(inputs: &Inputs) -> Option<Repair> {
    let fits = |stages: u32, m: u32| inputs.schedule.generate(stages, m).is_ok();
    let (stages, m) = (inputs.stages(), inputs.micro_batches);
    if inputs.own.is_some() || inputs.samples().is_none() || fits(stages, m) {
        return None;
    }
    let replicas = u64::from(inputs.rest.data_parallel.replicas);
    let share = inputs.mini_batch / replicas.max(1);
    let divides = |n: &u32| *n > 0 && share.is_multiple_of(u64::from(*n));
    let near =
        |from: u32| (1..=from.max(64)).flat_map(move |by| [from + by, from.saturating_sub(by)]);
    let found = near(m).filter(divides).take(TRIED).find(|m| fits(stages, *m));
    let placement = inputs.schedule.placement();
    let layers = inputs.model.graph().layers().len() as u32;
    let lanes = || {
        let holds = |n: &u32| *n > 0 && placement.stages(*n) <= layers;
        let mut tried = near(inputs.lanes()).filter(holds).take(TRIED);
        tried.find(|n| fits(placement.stages(*n), m))
    };
    found.map(Repair::MicroBatches).or_else(|| lanes().map(Repair::Lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, reschedule, solve, split};
    use crate::planner::presets::{EXAMPLES, first};

    #[test]
    fn lanes_that_are_offered_can_be_had() {
        let mut inputs = first();
        let most = engine::most_lanes(&inputs.model.graph(), ScheduleKind::ZbV);
        for kind in [ScheduleKind::ZbV, ScheduleKind::Interleaved { chunks: 2 }] {
            take_lanes(&mut inputs, most, kind);
            assert_eq!((inputs.lanes(), inputs.schedule), (most, kind));
            solve(&inputs, &Ground::of(&inputs)).unwrap();
        }
    }

    #[test]
    fn every_schedule_can_be_shown_after_one_repair_at_most() {
        for example in &EXAMPLES {
            for kind in ScheduleKind::ALL {
                let mut inputs = example.inputs();
                reschedule(&mut inputs, kind);
                if let Some(found) = repair(&inputs) {
                    found.apply(&mut inputs);
                }
                let solved = solve(&inputs, &Ground::of(&inputs));
                let solved =
                    solved.unwrap_or_else(|why| panic!("{kind} of {}: {why}", example.title));
                assert_eq!(solved.timeline.lanes.len(), inputs.lanes() as usize, "{kind}");
                assert_eq!(solved.lane_of.len(), inputs.stages() as usize, "{kind}");
            }
        }
    }

    #[test]
    fn odd_numbers_are_made_even_where_a_schedule_runs_both_ways() {
        let mut inputs = first();
        reschedule(&mut inputs, ScheduleKind::Chimera);
        assert_eq!(repair(&inputs), None);
        inputs.micro_batches = 7;
        assert_eq!(repair(&inputs), Some(Repair::MicroBatches(8)));
        inputs.micro_batches = 8;
        split(&mut inputs, 3);
        assert_eq!(repair(&inputs), Some(Repair::Lanes(4)));
    }

    #[test]
    fn micro_batches_and_replicas_divide_what_is_offered() {
        for (batch, m, replicas) in
            [(64, 64, 4), (64, 4, 3), (64, 16, 1), (7, 3, 2), (1 << 24, 5, 3)]
        {
            let mut inputs = Inputs { mini_batch: batch, micro_batches: m, ..first() };
            inputs.rest.data_parallel.replicas = replicas;
            let next = dividing(&inputs);
            assert!(next.samples().is_some(), "{batch} {m} {replicas}: {}", next.mini_batch);
            assert_eq!(next.rest.data_parallel.replicas, replicas);
            let kept = batch.is_multiple_of(replicas.into());
            assert!(next.mini_batch == batch || !kept && next.micro_batches == m);
        }
    }

    #[test]
    fn another_schedule_keeps_the_lanes() {
        let mut inputs = first();
        let cuts = inputs.cuts.clone();
        reschedule(&mut inputs, ScheduleKind::ZbH1);
        assert_eq!((inputs.lanes(), &inputs.cuts), (4, &cuts));
        reschedule(&mut inputs, ScheduleKind::Interleaved { chunks: 2 });
        assert_eq!((inputs.lanes(), inputs.stages()), (4, 8));
        reschedule(&mut inputs, ScheduleKind::OneFOneB);
        assert_eq!((inputs.lanes(), inputs.cuts), (4, cuts));
    }
}
