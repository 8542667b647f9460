//! Gradients that groups of ranks sum while they compute.

use super::Copies;
use super::own_work::OwnWork;
use crate::compress::Reduction;
use crate::cost::Cluster;
use crate::cost::collective::{self, Collective, Price, half, price, time};
use crate::ids::{LaneId, StageId};
use crate::plan::{Bucket, Instruction, Kernel, Mesh, Program, StageProgram, Tie};
use crate::timeline::Message;
use crate::units::{Bytes, Nanos};

/// Calls of every group, and who has come to them.
pub(super) struct Reductions<'a> {
    cluster: &'a Cluster,
    groups: Vec<ReduceGroup>,
    /// By simulated lane: calls under way.
    waiting: Vec<Vec<Waiting>>,
    /// By simulated lane; none where devices are spare for it.
    own: Option<Vec<OwnWork>>,
    collective: Collective,
    by_hosts: bool,
    mesh: Mesh,
    /// Copies of a lane that are simulated.
    simulated: u32,
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

struct ReduceGroup {
    /// All of them, as in the whole run.
    ranks: Vec<LaneId>,
    place: collective::Group,
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
    /// For `simulated` copies of each lane.
    pub fn new(
        cluster: &'a Cluster,
        copies: Copies,
        programs: &[Program],
        simulated: usize,
    ) -> Self {
        let (mesh, lanes) = (copies.mesh(programs), programs.len() * simulated);
        // Whether they are simulated or not.
        let all = programs.len() as u32 * mesh.copies();
        let on_node = u64::from(all.min(cluster.ranks_per_node));
        let spare = u64::from(cluster.devices_per_node) >= 2 * on_node;
        let number = |rank: &LaneId| {
            let (lane, copy) = mesh.place(rank.0);
            let here = (copy as usize) < simulated;
            here.then_some(LaneId(lane.0 * simulated as u32 + copy))
        };
        let group = |ranks: &Vec<LaneId>| ReduceGroup {
            ranks: ranks.clone(),
            place: collective::Group::new(cluster, ranks, all),
            here: ranks.iter().filter_map(number).collect(),
            calls: vec![],
            begun: vec![0; lanes],
        };
        let collective = match copies.data_parallel.through_first() {
            true => Collective::Reduce,
            false => Collective::AllReduce,
        };
        let groups = copies.groups.iter().map(group).collect();
        let own = (!spare).then(|| vec![OwnWork::default(); lanes]);
        let by_hosts = copies.by_hosts;
        let (waiting, simulated) = (vec![vec![]; lanes], simulated as u32);
        Self { cluster, groups, waiting, own, collective, by_hosts, mesh, simulated }
    }

    /// Bytes that all ranks of the run send in a step besides these messages of the simulated ones.
    pub fn elsewhere(&self, programs: &[Program], messages: &[Message]) -> Bytes {
        let sent = |bucket: &Bucket, passes: usize| match self.collective {
            Collective::AllReduce => {
                passes as f64 * self.price(bucket.group, bucket).sent
                    + self.gather(bucket).map_or(0.0, |gather| gather.sent)
            }
            // To the first rank, and parameters back from it.
            _ => {
                let ranks = self.groups[bucket.group as usize].ranks.len().max(1) as f64;
                2.0 * (ranks - 1.0) / ranks * bucket.region.bytes.0 as f64
            }
        };
        let mut sums = 0.0;
        for program in programs {
            for stage in &program.stages {
                let passes = passes_that_sum(program, stage);
                sums += stage.buckets.iter().map(|bucket| sent(bucket, passes)).sum::<f64>();
            }
            let of_tie = |tie: &Tie| Some(self.whole(tie.group?, tie.gradients[0].bytes).sent);
            sums += program.ties.iter().filter_map(of_tie).sum::<f64>();
        }
        sums += programs.iter().map(|program| sent_within(program, self.mesh)).sum::<f64>();
        let (all, simulated) = (u64::from(self.mesh.copies()), u64::from(self.simulated.max(1)));
        let drawn: Bytes = messages.iter().map(|message| message.bytes).sum();
        let undrawn = drawn.0 / simulated * all.saturating_sub(simulated);
        Bytes((sums * all as f64).round() as u64 + undrawn)
    }

    /// The group of the lane's rank in its tensor group.
    fn group(&self, lane: LaneId, bucket: &Bucket) -> u32 {
        let copy = lane.0 % self.simulated.max(1);
        bucket.group_of(copy % self.mesh.tensor, copy / self.mesh.tensor)
    }

    /// What the sum of a bucket takes.
    fn price(&self, group: u32, bucket: &Bucket) -> Price {
        let bytes = bucket.region.bytes;
        let place = &self.groups[group as usize].place;
        match self.collective {
            Collective::AllReduce if bucket.divided.is_some() && bucket.reduction.is_plain() => {
                half(self.cluster, place, Collective::ReduceScatter, bytes.0 as f64)
            }
            Collective::AllReduce => {
                price(self.cluster, place, self.by_hosts, bucket.reduction, bytes.0 as f64)
            }
            other => {
                let seconds = self.time(other, group, bytes).secs();
                Price { seconds, ..Price::default() }
            }
        }
    }

    /// What it takes to gather the parameters of a bucket, of which each rank has updated a part.
    fn gather(&self, bucket: &Bucket) -> Option<Price> {
        let divided = bucket.divided?;
        let place = &self.groups[bucket.group as usize].place;
        Some(half(self.cluster, place, Collective::AllGather, divided.weights.bytes.0 as f64))
    }

    /// Time of a stage's update that takes `whole` for all of its parameters: of a rank's share, and until it has the
    /// others'. Ranks come to that at nearly the same moment.
    pub fn update(&self, stage: &StageProgram, whole: Nanos) -> Nanos {
        let gathers = stage.buckets.iter().filter_map(|bucket| self.gather(bucket));
        let gathered: f64 = gathers.map(|price| price.seconds).sum();
        stage.update_share(whole) + Nanos::from_secs(gathered)
    }

    /// Seconds of a call of `group` over `bytes`, over the slowest link among its ranks.
    fn time(&self, collective: Collective, group: u32, bytes: Bytes) -> Nanos {
        let ranks = &self.groups[group as usize].ranks;
        let (first, last) = (ranks[0], ranks[ranks.len() - 1]);
        let link = self.cluster.collective_link(first, last);
        Nanos::from_secs(time(collective, ranks.len() as u32, bytes.0 as f64, link))
    }

    /// `lane` has begun to hand in a bucket at `now`; now somebody may go on.
    fn begin(&mut self, lane: LaneId, stage: StageId, bucket: &Bucket, now: Nanos) {
        let group = self.group(lane, bucket);
        let price = self.price(group, bucket);
        let takes = Nanos::from_secs(price.seconds);
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
        for bucket in &stage.buckets {
            let moment = start + part(end - start, complete(stage, bucket));
            self.begin(lane, stage.stage, bucket, moment.min(end));
        }
        let groups = stage.buckets.iter().map(|bucket| self.group(lane, bucket));
        let lanes = groups.flat_map(|group| &self.groups[group as usize].here);
        lanes.copied().filter(|other| *other != lane).collect()
    }

    /// How much longer a pass of `lane` takes for what its device encodes and decodes meanwhile;
    /// `completes` is the stage whose gradients are complete with it.
    pub fn delay(&mut self, lane: LaneId, pass: Nanos, completes: Option<&StageProgram>) -> Nanos {
        let Some(mut own) = self.own.as_ref().map(|own| own[lane.index()]) else {
            return Nanos::ZERO;
        };
        let (mut at, mut delay) = (Nanos::ZERO, Nanos::ZERO);
        for (stage, bucket) in completes.iter().flat_map(|s| s.buckets.iter().map(move |b| (s, b)))
        {
            let moment = part(pass, complete(stage, bucket)).min(pass);
            delay += own.delay(moment.saturating_sub(at));
            at = at.max(moment);
            let work = self.price(bucket.group, bucket).codec;
            own.owe(Nanos::from_secs(work));
        }
        delay += own.delay(pass.saturating_sub(at));
        if let Some(all) = &mut self.own {
            all[lane.index()] = own;
        }
        delay
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
        if let (true, Some(own)) = (waiting.is_empty(), &mut self.own) {
            own[lane.index()].wait();
        }
        first
    }

    /// Time of a broadcast within `group`.
    pub fn broadcast(&self, group: u32, bytes: Bytes) -> Nanos {
        self.time(Collective::Broadcast, group, bytes)
    }

    /// Time of the sum of one tensor within `group`, in single precision.
    pub fn all_reduce(&self, group: u32, bytes: Bytes) -> Nanos {
        Nanos::from_secs(self.whole(group, bytes).seconds)
    }

    /// What the sum of one tensor takes, in single precision.
    fn whole(&self, group: u32, bytes: Bytes) -> Price {
        let place = &self.groups[group as usize].place;
        price(self.cluster, place, false, Reduction::default(), bytes.0 as f64)
    }
}

/// Passes of a stage behind which its gradients are summed, where ranks keep parts of them; else 1.
fn passes_that_sum(program: &Program, stage: &StageProgram) -> usize {
    let of_stage = |instruction: &&Instruction| match instruction {
        Instruction::Run { action, reduces, .. } => *reduces && action.stage == stage.stage,
        _ => false,
    };
    match stage.divides_gradients() {
        true => program.train.iter().filter(of_stage).count().max(1),
        false => 1,
    }
}

/// Bytes that a rank sends in a step within passes: its tensor group sums, gathers slices and scatters sums, and its
/// expert group sends rows.
fn sent_within(program: &Program, mesh: Mesh) -> f64 {
    let others = |ranks: u32| 1.0 - 1.0 / f64::from(ranks);
    if mesh.tensor == 1 && mesh.experts == 1 {
        return 0.0;
    }
    let of_pass = |instruction: &Instruction| {
        let Instruction::Run { action, reduces, .. } = instruction else { return 0.0 };
        let Some(stage) = program.stage(action.stage) else { return 0.0 };
        let of_kernel = |kernel: &Kernel| match kernel.kind.is_all_to_all() {
            true => others(mesh.experts) * kernel.reads[0].bytes.0 as f64,
            false => others(mesh.tensor) * stage.exchanged(kernel, *reduces),
        };
        stage.pass(action.kind).iter().map(of_kernel).sum::<f64>()
    };
    program.train.iter().map(of_pass).sum()
}

/// The share of a stage's backward pass after which a bucket is complete.
fn complete(stage: &StageProgram, bucket: &Bucket) -> f64 {
    let first = stage.forward_end;
    let kernels = (stage.kernels.len() as u32 - first).max(1);
    let ready = bucket.ready + 1;
    f64::from(ready - first.min(ready)) / f64::from(kernels)
}

fn part(of: Nanos, share: f64) -> Nanos {
    Nanos((of.0 as f64 * share) as u64)
}
