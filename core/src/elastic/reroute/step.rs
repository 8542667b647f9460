//! Constraints on the order of rerouted work: times, messages, limits of memory.

use super::crew::Crew;
use super::order::Pipes;
use super::{Guest, Place, ends};
use crate::cost::Level;
use crate::ids::LaneId;
use crate::plan::Plan;
use crate::predict::Prediction;
use crate::schedule::{Action, ActionKind, Schedule};
use crate::simulate::Hop;
use crate::units::{Bytes, Nanos};

/// All that orders follow from.
pub(super) struct Job<'a> {
    pub plan: &'a Plan,
    pub prediction: &'a Prediction,
    pub base: &'a Schedule,
    pub crew: &'a Crew,
    pub routes: Vec<Vec<LaneId>>,
    pub route_of: Vec<u32>,
}

impl Job<'_> {
    /// Time of a message between two of the ranks that are left.
    fn hop(&self) -> impl Fn(Hop) -> Nanos + '_ {
        let (plan, crossing) = (self.plan, self.crossing());
        move |Hop { boundary, from, to, .. }| {
            let edges = plan.communication.edges;
            let across = plan.cluster.level(from, to) == Level::Network;
            let codec = if across { edges.across } else { edges.within };
            let bytes = crossing[boundary.index()];
            plan.cluster.message_time(plan.cluster.link(from, to), codec, bytes)
        }
    }

    /// Bytes that arrive at each stage after the first, of one micro-batch.
    fn crossing(&self) -> Vec<Bytes> {
        let graph = &self.prediction.graph;
        let mut bytes = vec![Bytes::ZERO; self.base.stages() as usize];
        let half = self.plan.training.precision.is_half();
        for crossing in graph.division(&self.plan.cuts).crossings {
            let whole = graph.node(crossing.node).output.bytes() * self.plan.samples();
            bytes[crossing.to.index() - 1] += if half { Bytes(whole.0 / 2) } else { whole };
        }
        bytes
    }

    pub fn order(&self, guests: &[Guest], split: bool) -> Schedule {
        let mut pipes = Pipes {
            costs: &self.prediction.stages,
            routes: &self.routes,
            route_of: &self.route_of,
            micro_batches: self.base.micro_batches,
            ranks: self.crew.ranks.len(),
            split: self
                .crew
                .ranks
                .iter()
                .map(|place| split && self.hosts(guests, *place))
                .collect(),
            limits: self.limits(guests),
        };
        if self.base.splits_backward() {
            pipes.split.fill(true);
        }
        let mut lanes = pipes.lanes(self.hop());
        lanes.iter_mut().for_each(ends::put_in_order);
        Schedule {
            overlaps: vec![vec![]; lanes.len()],
            lanes,
            routes: self.routes.clone(),
            route_of: self.route_of.clone(),
            micro_batches: self.route_of.len() as u32,
            updates: self.base.updates,
        }
    }

    fn hosts(&self, guests: &[Guest], place: Place) -> bool {
        guests.iter().any(|guest| guest.to == place.replica && guest.from.lane == place.lane)
    }

    /// By rank and stage: most micro-batches in flight. As many as the plan has, and for guests as
    /// many more as they are more, where the memory has room for them.
    fn limits(&self, guests: &[Guest]) -> Vec<Vec<u32>> {
        let memory = self.plan.cluster.device.memory;
        let own = self.plan.micro_batches;
        let limit = |place: &Place| {
            let here = |g: &&Guest| g.to == place.replica && g.from.lane == place.lane;
            let hosted = guests.iter().filter(here).count() as u32;
            let program = &self.prediction.programs[place.lane.index()];
            let slots: Bytes = program.stages.iter().map(|stage| stage.slots.bytes).sum();
            let room = memory.saturating_sub(program.arena).0 / slots.0.max(1);
            let mut limits = in_flight(self.base, place.lane);
            for most in &mut limits {
                let wanted = (u64::from(*most) * u64::from(hosted)).div_ceil(u64::from(own));
                *most += wanted.min(room) as u32;
            }
            limits
        };
        self.crew.ranks.iter().map(limit).collect()
    }
}

/// Most micro-batches of each stage that a lane keeps, 0 for stages elsewhere.
fn in_flight(schedule: &Schedule, lane: LaneId) -> Vec<u32> {
    let stages = schedule.stages() as usize;
    let (mut now, mut most) = (vec![0u32; stages], vec![0; stages]);
    for Action { stage, kind, .. } in &schedule.lanes[lane.index()] {
        let now = &mut now[stage.index()];
        match kind {
            ActionKind::Forward => *now += 1,
            ActionKind::Backward | ActionKind::BackwardWeight => *now -= 1,
            ActionKind::BackwardInput => {}
        }
        most[stage.index()] = (*now).max(most[stage.index()]);
    }
    most
}
