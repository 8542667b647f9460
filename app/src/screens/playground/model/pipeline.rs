//! A schedule as the order in which one step is executed: what the schedule's own generator gives, in
//! the simulator's times.

use pipewright_core::schedule::{Action, GenerateError, Schedule, ScheduleKind, Updates, check};
use pipewright_core::simulate::{Footprint, Sends, StageCost, lanes_over_time};
use pipewright_core::timeline::{Lane, Work};
use pipewright_core::units::Nanos;
use std::ops::Range;

/// A network divided into stages, and the order of a step's actions.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Lanes, routes and updates.
    pub schedule: Schedule,
    /// By stage: its layers.
    pub stages: Vec<Range<usize>>,
    /// All actions, by the moment at which they start.
    pub order: Vec<Action>,
    /// The step over time: a forward takes 1 µs for each layer, a backward 2.
    pub lanes: Vec<Lane>,
}

/// Why there is no such pipeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// More stages than layers.
    Layers {
        /// Stages asked for.
        stages: u32,
        /// Layers there are.
        layers: usize,
    },
    /// Numbers that the schedule cannot have.
    Schedule(GenerateError),
    /// Lanes that would wait for each other.
    Stuck,
}

impl Pipeline {
    /// `layers` layers on `stages` stages, as equal as can be.
    ///
    /// # Errors
    /// Numbers that do not fit together.
    pub fn new(
        kind: ScheduleKind,
        stages: u32,
        layers: usize,
        micro_batches: u32,
    ) -> Result<Self, Refusal> {
        if stages as usize > layers {
            return Err(Refusal::Layers { stages, layers });
        }
        let schedule = kind.generate(stages, micro_batches).map_err(Refusal::Schedule)?;
        check(&schedule).map_err(|_| Refusal::Stuck)?;
        let count = stages as usize;
        let stages: Vec<Range<usize>> =
            (0..count).map(|s| s * layers / count..(s + 1) * layers / count).collect();
        let lanes = times(&schedule, &stages)?;
        let mut starts: Vec<(Nanos, usize, Action)> = vec![];
        for lane in &lanes {
            for (at, span) in lane.spans.iter().enumerate() {
                if let Work::Run(action) = span.work {
                    starts.push((span.start, at, action));
                }
            }
        }
        starts.sort_by_key(|(start, at, _)| (*start, *at));
        let order = starts.into_iter().map(|(_, _, action)| action).collect();
        Ok(Self { schedule, stages, order, lanes })
    }

    /// All layers on one device, without micro-batches: what every pipeline is compared with.
    pub fn alone(layers: usize) -> Self {
        let one = Self::new(ScheduleKind::GPipe, 1, layers, 1);
        one.expect("one stage and one micro-batch are a schedule")
    }

    /// Copies of each stage, on different lanes.
    pub fn copies(&self) -> usize {
        self.schedule.routes.len()
    }

    /// The share of a step in which lanes are idle; of the time between steps where nothing is flushed, so that
    /// only lanes wait that compute less than the busiest.
    pub fn bubble(&self) -> f64 {
        let end = self.lanes.iter().filter_map(|l| l.spans.last()).map(|s| s.end.0).max();
        let busy = || self.lanes.iter().map(|lane| lane.busy().0);
        let whole = if self.flushes() { end } else { busy().max() };
        1.0 - busy().sum::<u64>() as f64
            / (whole.unwrap_or(1).max(1) * self.lanes.len() as u64) as f64
    }

    /// Whether the pipeline is empty between steps.
    pub fn flushes(&self) -> bool {
        self.schedule.updates == Updates::Synchronous
    }
}

fn times(schedule: &Schedule, stages: &[Range<usize>]) -> Result<Vec<Lane>, Refusal> {
    let cost = |layers: &Range<usize>| {
        let time = Nanos(1000 * layers.len() as u64);
        StageCost {
            forward: time,
            backward_input: time,
            backward_weight: time,
            update: Nanos::ZERO,
        }
    };
    let costs: Vec<StageCost> = stages.iter().map(cost).collect();
    let footprints = vec![Footprint::default(); stages.len()];
    lanes_over_time(schedule, &costs, &footprints, Sends::Free, |_| Nanos::ZERO)
        .map_err(|_| Refusal::Stuck)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_stand_behind_what_they_need_and_keep_their_lane_s_order() {
        use pipewright_core::schedule::ActionKind::{Backward, BackwardInput, Forward};
        let mut tried = 0;
        for kind in ScheduleKind::ALL {
            for (stages, m) in [(1, 4), (2, 4), (4, 8)] {
                let Ok(pipe) = Pipeline::new(kind, stages, 5, m) else { continue };
                tried += 1;
                let at = |action| pipe.order.iter().position(|a| *a == action);
                let back = |stage, m| {
                    at(Action::new(stage, Backward, m)).or(at(Action::new(stage, BackwardInput, m)))
                };
                for m in 0..m {
                    for stage in 1..stages {
                        assert!(
                            at(Action::new(stage - 1, Forward, m))
                                < at(Action::new(stage, Forward, m))
                        );
                        assert!(back(stage, m) < back(stage - 1, m), "{kind} {stage} {m}");
                    }
                    assert!(at(Action::new(stages - 1, Forward, m)) < back(stages - 1, m));
                }
                for lane in &pipe.schedule.lanes {
                    let places: Vec<_> = lane.iter().map(|a| at(*a).unwrap()).collect();
                    assert!(places.is_sorted(), "{kind}: {places:?}");
                }
                assert_eq!(pipe.stages.iter().map(Range::len).sum::<usize>(), 5);
                assert!((0.0..1.0).contains(&pipe.bubble()));
            }
        }
        assert!(tried > 30, "{tried}");
        let refused = Pipeline::new(ScheduleKind::OneFOneB, 4, 3, 4).unwrap_err();
        assert_eq!(refused, Refusal::Layers { stages: 4, layers: 3 });
        let odd = Pipeline::new(ScheduleKind::DualPipe, 3, 5, 8);
        assert!(matches!(odd, Err(Refusal::Schedule(_))));
    }
}
