//! Going on without a rank: its work goes to its data-parallel peers (ReCycle: Gandhi et al. 2024,
//! arXiv 2405.14009).
//!
//! ```text
//! 2 stages x 2 replicas, rank X lost          its micro-batches a b run on its peer
//! lane 0, replica 0   F1 F2 B1 B2             F1 Fa F2 B1 Fb Ba ...
//! lane 0, replica 1   Fa  X
//! lane 1, replica 0   .. F1 B1 F2 B2          unchanged
//! lane 1, replica 1   ..    Fa Ba Fb Bb       unchanged, but talks to replica 0 below
//! ```
//! Every rank of the lost one's lane holds the same parameters, so any of them can run its passes; the
//! other stages of the broken replica go on. The guests fill bubbles; where backward passes are split,
//! the halves that nobody waits for (W) come last, which leaves more of them. Nothing is trained
//! otherwise: each micro-batch counts once in the sum of gradients, which has one rank less.
//!
//! **How it is written down and run: as a plan like any other.** A schedule may say on which lane each
//! micro-batch visits each stage (its routes), and several lanes may hold a stage. So the answer,
//! [`Rerouted::plan`], has one lane for each rank that is left, one "replica", and the micro-batches of all
//! replicas: number `j` of replica `r` becomes `r · micro_batches + j`, which takes the same samples.
//! All else follows as for bidirectional schedules and stages with replicas:
//!
//! ```text
//! messages   to the lane of the micro-batch's route, tags by its number among all
//! samples    loaded by the lanes that run its first and its last stage
//! slots      as many as the order keeps in flight; the plan is refused where they do not fit
//! sums       over the lanes that hold the stage, every micro-batch once; in one order, `ends.rs`
//! state      by parameter's name: any other division goes on from it
//! ```
//!
//! Losses are those of the whole plan up to the order of sums, since a host adds up its guests' gradients with
//! its own. State belongs to parameters and not to ranks, so whoever begins anew from it may choose which
//! places stay empty ([`reroute_to`]).
//!
//! Refused: schedules that change parameters while micro-batches are under way, mode `dp`, lanes whose
//! replicas are all lost, orders that need more memory than there is.
//!
//! Orders are found by running the pipeline once, `order.rs`, with backward passes of hosts whole and
//! split; the better one by [`crate::predict::predict`] is taken. O(actions · log ranks), and two predictions.

mod crew;
mod ends;
mod order;
mod step;
mod vacant;

pub use vacant::reroute_to;

use crate::ids::{LaneId, MicroBatch};
use crate::plan::{DataParallel, Plan, PlanError, ScheduleText};
use crate::predict::{FitError, PredictError, Prediction, fits, predict};
use crate::schedule::{Schedule, Updates};
use crate::units::Nanos;
use crew::Crew;
use step::Job;
use thiserror::Error;

/// A rank of a plan by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The lane that it executes.
    pub lane: LaneId,
    /// For which replica.
    pub replica: u32,
}

/// A micro-batch whose passes on one lane run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Where they would run.
    pub from: Place,
    /// The replica whose rank of that lane runs them.
    pub to: u32,
    /// Which one of those of its replica.
    pub micro_batch: MicroBatch,
}

/// How a step goes on without some ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerouted {
    /// Who runs what of the lost ranks.
    pub guests: Vec<Guest>,
    /// Order of all ranks that are left. Micro-batch `j` of replica `r` is number
    /// `r · micro_batches + j`.
    pub schedule: Schedule,
    /// By lane of the schedule: the rank.
    pub ranks: Vec<Place>,
    /// Whether ranks with guests split their backward passes.
    pub split: bool,
    /// The plan that the ranks that are left run, with its prediction in it. Its name of a schedule is
    /// that of the whole plan and who is missing, so no other plan follows from it.
    pub plan: Plan,
    /// Predicted time of a step with all ranks.
    pub healthy: Nanos,
    /// Predicted time of a step without the lost ones.
    pub step: Nanos,
}

/// Between the name of the whole plan's schedule and the ranks that are missing.
const WITHOUT: &str = " without rank";

impl Rerouted {
    /// How `plan`, of which `prediction` is known, goes on without the ranks of `lost`.
    ///
    /// # Errors
    /// When no peer holds what a lost rank held, or replicas of the plan cannot stand in for each other.
    pub fn of(plan: &Plan, prediction: &Prediction, lost: &[Place]) -> Result<Self, RerouteError> {
        let (_, base) = plan.check()?;
        plan.check_undivided("ranks that stand in for others")?;
        // What the lost ranks kept is nowhere else.
        plan.check_whole("ranks that stand in for others")?;
        plan.check_all_experts("ranks that stand in for others")?;
        if base.updates != Updates::Synchronous {
            return Err(RerouteError::Kind("parameters change while micro-batches are under way"));
        }
        if plan.data_parallel.through_first() {
            return Err(RerouteError::Kind("the first replica alone updates (mode `dp`)"));
        }
        if lost.is_empty() {
            return Err(RerouteError::Nobody);
        }
        let crew = Crew::new(plan, lost)?;
        let guests = crew.guests(plan.micro_batches);
        let (routes, route_of) = crew.routes(&base, &guests);
        let job = Job { plan, prediction, base: &base, crew: &crew, routes, route_of };
        let mut best: Option<(Plan, Schedule, bool)> = None;
        let mut refused = None;
        let splits = if base.splits_backward() { vec![true] } else { vec![false, true] };
        for split in splits {
            let schedule = job.order(&guests, split);
            let mut own = as_plan(plan, &crew, &schedule);
            let found = predict(&own)?;
            if let Err(why) = fits(&own, &found) {
                refused = Some(RerouteError::Memory(why));
                continue;
            }
            own.prediction = found.expectation();
            let step = |plan: &Plan| plan.prediction.step_ns;
            if best.as_ref().is_none_or(|(least, ..)| step(&own) < step(least)) {
                best = Some((own, schedule, split));
            }
        }
        let Some((plan, schedule, split)) = best else {
            return Err(refused.expect("an order, or what is wrong with it"));
        };
        let (healthy, step) = (prediction.timeline.step, plan.prediction.step_ns);
        Ok(Self { guests, schedule, ranks: crew.ranks, split, plan, healthy, step })
    }

    /// The name of a plan's schedule, where the plan is one that [`Self::of`] made.
    pub fn name_of(plan: &Plan) -> Option<&str> {
        Some(plan.schedule.name.as_str()).filter(|name| name.contains(WITHOUT))
    }
}

/// Why work cannot be taken over.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RerouteError {
    /// The plan to begin with.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A rank that the plan does not have.
    #[error("the plan has no lane {} of replica {}", .0.lane, .0.replica)]
    NoSuchRank(Place),
    /// All ranks are there.
    #[error("no rank is lost")]
    Nobody,
    /// All replicas of a lane are lost.
    #[error("all {replicas} replicas of lane {lane} are lost, and its parameters with them")]
    NoPeer {
        /// The lane.
        lane: LaneId,
        /// How many there were.
        replicas: u32,
    },
    /// Work that nobody else can do.
    #[error("{0}: nobody can take over the work of a rank")]
    Kind(&'static str),
    /// What became of it is no plan, or one that would stand still; a mistake here.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// Guests need room.
    #[error("guests need more memory than there is: {0}")]
    Memory(FitError),
}

/// The plan whose lanes are the ranks that are left.
fn as_plan(whole: &Plan, crew: &Crew, schedule: &Schedule) -> Plan {
    let name = format!("{}{WITHOUT}{}", whole.schedule.name, crew.missing(whole));
    Plan {
        schedule: ScheduleText { name, lanes: schedule.lines() },
        micro_batches: schedule.micro_batches,
        data_parallel: DataParallel { replicas: 1, ..whole.data_parallel },
        measured: None,
        ..whole.clone()
    }
}
