//! Gradients that groups of ranks sum while they compute.

use super::Copies;
use crate::cost::Cluster;
use crate::cost::collective::{Collective, time};
use crate::ids::{LaneId, StageId};
use crate::plan::{Bucket, StageProgram};
use crate::units::{Bytes, Nanos};

/// Calls of every group, and who has come to them.
pub(super) struct Reductions<'a> {
    cluster: &'a Cluster,
    groups: Vec<Group>,
    /// By simulated lane: calls under way.
    waiting: Vec<Vec<Waiting>>,
    collective: Collective,
}

#[derive(Clone, Copy)]
struct Waiting {
    stage: StageId,
    group: u32,
    /// The call's number in its group.
    number: usize,
    /// When the rank handed its bucket in.
    since: Nanos,
}

struct Group {
    /// All of them, as in the whole run.
    ranks: Vec<LaneId>,
    /// Those that are simulated, by the machine's numbers.
    here: Vec<LaneId>,
    calls: Vec<Call>,
    /// Calls that each simulated lane has begun.
    begun: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
struct Call {
    came: usize,
    /// When the last one came, later when it is over.
    moment: Nanos,
    over: bool,
}

impl<'a> Reductions<'a> {
    /// For `lanes` simulated lanes of `replicas` simulated replicas.
    pub fn new(cluster: &'a Cluster, copies: Copies, (lanes, replicas): (usize, usize)) -> Self {
        let number = |rank: &LaneId| {
            let (lane, replica) = copies.data_parallel.place(rank.0);
            let here = (replica as usize) < replicas;
            here.then_some(LaneId(lane.0 * replicas as u32 + replica))
        };
        let group = |ranks: &Vec<LaneId>| Group {
            ranks: ranks.clone(),
            here: ranks.iter().filter_map(number).collect(),
            calls: vec![],
            begun: vec![0; lanes],
        };
        let collective = match copies.data_parallel.through_first() {
            true => Collective::Reduce,
            false => Collective::AllReduce,
        };
        let groups = copies.groups.iter().map(group).collect();
        Self { cluster, groups, waiting: vec![vec![]; lanes], collective }
    }

    /// Seconds of a call of `group` over `bytes`, over the slowest link among its ranks.
    fn time(&self, collective: Collective, group: u32, bytes: Bytes) -> Nanos {
        let ranks = &self.groups[group as usize].ranks;
        let (first, last) = (ranks[0], ranks[ranks.len() - 1]);
        let link = self.cluster.collective_link(first, last);
        Nanos::from_secs(time(collective, ranks.len() as u32, bytes.0 as f64, link))
    }

    /// `lane` has begun to hand in a bucket at `now`; now somebody may go on.
    fn begin(&mut self, lane: LaneId, stage: StageId, group: u32, bytes: Bytes, now: Nanos) {
        let takes = self.time(self.collective, group, bytes);
        let state = &mut self.groups[group as usize];
        let number = state.begun[lane.index()];
        state.begun[lane.index()] += 1;
        if state.calls.len() == number {
            state.calls.push(Call::default());
        }
        let before = number.checked_sub(1).map_or(Nanos::ZERO, |before| state.calls[before].moment);
        let call = &mut state.calls[number];
        call.came += 1;
        call.moment = call.moment.max(now);
        if call.came == state.here.len() {
            // Calls of a group are over in order.
            call.moment = call.moment.max(before) + takes;
            call.over = true;
        }
        self.waiting[lane.index()].push(Waiting { stage, group, number, since: now });
    }

    /// A backward pass from `start` to `end` completed the stage's gradients. Returns the lanes
    /// that may have waited for it.
    pub fn completed(
        &mut self,
        lane: LaneId,
        stage: &StageProgram,
        (start, end): (Nanos, Nanos),
    ) -> Vec<LaneId> {
        let first = stage.forward_end;
        let kernels = (stage.kernels.len() as u32 - first).max(1);
        for Bucket { region, ready, group, .. } in &stage.buckets {
            let share = f64::from(ready + 1 - first.min(ready + 1)) / f64::from(kernels);
            let moment = start + Nanos(((end - start).0 as f64 * share) as u64);
            self.begin(lane, stage.stage, *group, region.bytes, moment.min(end));
        }
        let groups = stage.buckets.iter().map(|bucket| bucket.group);
        let lanes = groups.flat_map(|group| &self.groups[group as usize].here);
        lanes.copied().filter(|other| *other != lane).collect()
    }

    /// When the stage's buckets are summed; `None` while ranks are missing.
    pub fn wait(&mut self, lane: LaneId, stage: StageId) -> Option<Nanos> {
        let waiting = &self.waiting[lane.index()];
        let mine = waiting.iter().filter(|w| w.stage == stage);
        let calls = mine.map(|w| &self.groups[w.group as usize].calls[w.number]);
        let mut end = Nanos::ZERO;
        for call in calls {
            if !call.over {
                return None;
            }
            end = end.max(call.moment);
        }
        Some(end)
    }

    /// The stage's buckets are summed and waited for. Returns when the first was handed in.
    pub fn done(&mut self, lane: LaneId, stage: StageId) -> Option<Nanos> {
        let waiting = &mut self.waiting[lane.index()];
        let first = waiting.iter().filter(|w| w.stage == stage).map(|w| w.since).min();
        waiting.retain(|w| w.stage != stage);
        first
    }

    /// Time of a broadcast within `group`.
    pub fn broadcast(&self, group: u32, bytes: Bytes) -> Nanos {
        self.time(Collective::Broadcast, group, bytes)
    }

    /// Time of the sum of one tensor within `group`.
    pub fn all_reduce(&self, group: u32, bytes: Bytes) -> Nanos {
        self.time(Collective::AllReduce, group, bytes)
    }
}
