//! Orders to begin with: named schedules of the placement, warm-ups of several depths, and what a
//! lane does that always takes the first thing that is there.

use super::fill::Problem;
use super::{Code, encode};
use crate::schedule::Action;
use crate::schedule::generate::{interleaved_zb, v_half, v_min, zb_h1, zb_h2, zb_v};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// By lane.
pub(super) type Order = Vec<Vec<Code>>;

/// Where to begin.
#[derive(Default)]
pub(super) struct Candidates {
    /// With W.
    pub(super) complete: Vec<Order>,
    /// F and I only.
    pub(super) open: Vec<Order>,
}

/// All candidates, some of which may not fit the memory; the one that a lane finds by itself
/// always does.
pub(super) fn candidates(problem: &Problem) -> Candidates {
    let (p, s, m) = (problem.memory.len(), problem.stages.len(), problem.micro_batches);
    let mut found = Candidates::default();
    let lane_of = &problem.lane_of;
    if (0..s).all(|stage| lane_of[stage] == stage % p) && s.is_multiple_of(p) {
        looped(problem, (s / p) as u32, &mut found);
    } else if s == 2 * p && (0..s).all(|stage| lane_of[stage] == stage.min(s - 1 - stage)) {
        let (p, m) = (p as u32, m as u32);
        found.add(0..p, |lane| zb_v::lane(lane, p, m));
        for order in [v_half::order(p, m), v_min::order(p, m)] {
            found.add(order, |lane| lane);
        }
    }
    for forward_first in [false, true] {
        found.open.push(found_by_lanes(problem, forward_first));
    }
    found
}

impl Candidates {
    /// A schedule, as it is and with its W to be placed anew.
    fn add<T>(&mut self, lanes: impl IntoIterator<Item = T>, order: impl Fn(T) -> Vec<Action>) {
        let codes = |lane| order(lane).iter().map(encode).collect::<Vec<Code>>();
        let complete: Order = lanes.into_iter().map(codes).collect();
        let open = |lane: &Vec<Code>| lane.iter().copied().filter(|code| code % 3 < 2).collect();
        self.open.push(complete.iter().map(open).collect());
        self.complete.push(complete);
    }
}

/// Loops, one chunk included: 1F1B with split backward passes, its zero-bubble forms, and deeper
/// warm-ups.
fn looped(problem: &Problem, chunks: u32, found: &mut Candidates) {
    let (p, m) = (problem.memory.len() as u32, problem.micro_batches as u32);
    let round = m / (m / p).max(1);
    if m.is_multiple_of(round) {
        found.add(0..p, |lane| interleaved_zb::lane(lane, p, chunks, round, m));
    }
    if chunks == 1 {
        let at_once = |lane| zb_h1::delayed(m, p - 1 - lane, 0, |op| (lane, op), |op| (lane, op));
        found.add(0..p, at_once);
        found.add(0..p, |lane| zb_h2::lane(lane, p, m));
    }
    for slope in 1..=3 {
        let depth = |lane| (chunks - 1) * p + slope * (p - 1 - lane);
        let depths: Vec<u32> = (0..p).map(depth).collect();
        found.open.push(warmed(problem, chunks, &fitting(problem, chunks, depths)));
    }
    if chunks == 1 {
        for over in [false, true] {
            let depths = fitting(problem, 1, timed(problem, over));
            found.open.push(warmed(problem, 1, &depths));
        }
    }
}

/// Forwards of one stage a lane that fill the time until the first gradient is there; with `over`
/// the last one may delay it.
fn timed(problem: &Problem, over: bool) -> Vec<u32> {
    let stages = problem.stages.len();
    let time = |stage: usize, kind: u32| problem.time(3 * stage as u32 + kind);
    let mut free = vec![0u64; stages];
    let mut head = 0u64;
    for (stage, free) in free.iter_mut().enumerate() {
        head = head.saturating_add(time(stage, 0));
        *free = head;
        if stage + 1 < stages {
            head = head.saturating_add(problem.hop(stage));
        }
    }
    let mut depths = vec![0; stages];
    // When the gradient leaves the stage behind.
    let mut back = free[stages - 1].saturating_add(time(stages - 1, 1));
    for stage in (0..stages - 1).rev() {
        let arrival = back.saturating_add(problem.hop(stage));
        let (gap, each) = (arrival.saturating_sub(free[stage]), time(stage, 0).max(1));
        let count = if over { gap.div_ceil(each) } else { gap / each };
        depths[stage] = count.min(problem.micro_batches as u64) as u32;
        let busy = free[stage].saturating_add(each.saturating_mul(u64::from(depths[stage])));
        back = arrival.max(busy).saturating_add(time(stage, 1));
    }
    depths
}

/// `depths` (forwards before the first F of the alternation) cut to what memory allows, and no
/// deeper than on the lane before, which has to feed them.
fn fitting(problem: &Problem, chunks: u32, mut depths: Vec<u32>) -> Vec<u32> {
    if chunks > 1 {
        return depths;
    }
    let mut before = u32::MAX;
    for (stage, depth) in depths.iter_mut().enumerate() {
        let stash = problem.stages[stage].stash.0.max(1);
        let room = (problem.memory[stage] / stash).saturating_sub(1);
        *depth = (*depth).min(before).min(u32::try_from(room).unwrap_or(u32::MAX));
        before = *depth;
    }
    depths
}

/// Warm-ups of the given depths on a loop, then F and I in turn. The last round may be smaller.
fn warmed(problem: &Problem, chunks: u32, depths: &[u32]) -> Order {
    let (p, m) = (depths.len() as u32, problem.micro_batches as u32);
    let mut chunk_of = vec![];
    for round in (0..m).step_by(p as usize) {
        for chunk in 0..chunks {
            chunk_of.extend((round..m.min(round.saturating_add(p))).map(|_| chunk));
        }
    }
    let lane = |(lane, depth): (u32, &u32)| {
        let depth = (*depth as usize).min(chunk_of.len());
        let forward = |chunk: &u32| 3 * (chunk * p + lane);
        let backward = |chunk: &u32| 3 * ((chunks - 1 - chunk) * p + lane) + 1;
        let mut order: Vec<Code> = chunk_of[..depth].iter().map(forward).collect();
        for (op, chunk) in chunk_of.iter().enumerate() {
            order.extend(chunk_of.get(depth + op).map(forward));
            order.push(backward(chunk));
        }
        order
    };
    (0..).zip(depths).map(lane).collect()
}

/// Whatever is there first, gradients before values unless `forward_first`, W when there is
/// nothing else. A forward is admitted only if all micro-batches under way can still be finished
/// one after the other (the banker's algorithm, by lane), so it cannot block. O(n log p) and the
/// micro-batches in flight for each forward.
fn found_by_lanes(problem: &Problem, forward_first: bool) -> Order {
    let mut run = Event {
        problem,
        forward_first,
        on_lane: vec![vec![]; problem.memory.len()],
        free: vec![0; problem.memory.len()],
        owed: vec![VecDeque::new(); problem.memory.len()],
        kept: vec![0; problem.memory.len()],
        arrivals: vec![UNKNOWN; 2 * problem.stages.len() * problem.micro_batches],
        next: vec![0; 2 * problem.stages.len()],
        order: vec![vec![]; problem.memory.len()],
    };
    for (stage, lane) in problem.lane_of.iter().enumerate() {
        run.on_lane[*lane].push(stage);
    }
    run.arrivals[..problem.micro_batches].fill(0);
    let mut events: BinaryHeap<Reverse<(u64, usize)>> =
        (0..problem.memory.len()).map(|lane| Reverse((0, lane))).collect();
    while let Some(Reverse((now, lane))) = events.pop() {
        if run.free[lane] <= now {
            run.next_pass(now, lane, &mut events);
        }
    }
    run.order
}

/// An arrival that is not known yet.
const UNKNOWN: u64 = u64::MAX;

struct Event<'a> {
    problem: &'a Problem,
    forward_first: bool,
    on_lane: Vec<Vec<usize>>,
    /// By lane: when it is free.
    free: Vec<u64>,
    /// By lane: stages of I without W.
    owed: Vec<VecDeque<usize>>,
    /// By lane: bytes that these hold.
    kept: Vec<u64>,
    /// By kind, stage and micro-batch: when it can begin, as far as known.
    arrivals: Vec<u64>,
    /// By kind and stage: how many have begun.
    next: Vec<usize>,
    order: Order,
}

impl Event<'_> {
    fn index(&self, kind: usize, stage: usize) -> usize {
        kind * self.problem.stages.len() + stage
    }

    fn begun(&self, kind: usize, stage: usize) -> usize {
        self.next[self.index(kind, stage)]
    }

    /// Where the arrival of a pass stands.
    fn slot(&self, kind: usize, stage: usize, micro_batch: usize) -> usize {
        self.index(kind, stage) * self.problem.micro_batches + micro_batch
    }

    /// The next pass of a kind and stage is there.
    fn ready(&self, kind: usize, stage: usize, now: u64) -> bool {
        let turn = self.begun(kind, stage);
        turn < self.problem.micro_batches && {
            let arrival = self.arrivals[self.slot(kind, stage, turn)];
            arrival != UNKNOWN && arrival <= now
        }
    }

    fn next_pass(&mut self, now: u64, lane: usize, events: &mut BinaryHeap<Reverse<(u64, usize)>>) {
        // The stage nearest to the loss first: it is what frees memory.
        let first = |kind| {
            let mut stages = self.on_lane[lane].iter().rev().copied();
            stages.find(|stage| self.ready(kind, *stage, now))
        };
        let backward = first(1);
        let forward = first(0).filter(|stage| self.admits(lane, *stage));
        let (kind, stage) = match (backward, forward) {
            (Some(stage), None) => (1, stage),
            (Some(stage), _) if !self.forward_first => (1, stage),
            (_, Some(stage)) if self.room(lane) >= self.problem.stages[stage].stash.0 => (0, stage),
            (Some(stage), _) => (1, stage),
            _ => match self.owed[lane].pop_front() {
                Some(stage) => (2, stage),
                None => return,
            },
        };
        let end = now.saturating_add(self.problem.time((3 * stage + kind) as Code));
        self.free[lane] = end;
        events.push(Reverse((end, lane)));
        let kept = self.problem.stages[stage].weight_stash.0;
        match kind {
            0 => {}
            1 => {
                self.owed[lane].push_back(stage);
                self.kept[lane] += kept;
            }
            _ => {
                self.kept[lane] -= kept;
                return;
            }
        }
        self.order[lane].push((3 * stage + kind) as Code);
        let row = self.index(kind, stage);
        let turn = self.next[row];
        self.next[row] += 1;
        let last = self.problem.stages.len() - 1;
        let (to, hop) = match kind {
            0 if stage == last => (Some((1, last)), 0),
            0 => (Some((0, stage + 1)), self.problem.hop(stage)),
            _ if stage == 0 => (None, 0),
            _ => (Some((1, stage - 1)), self.problem.hop(stage - 1)),
        };
        if let Some((kind, stage)) = to {
            let there = end.saturating_add(hop).min(UNKNOWN - 1);
            let slot = self.slot(kind, stage, turn);
            self.arrivals[slot] = there;
            events.push(Reverse((there, self.problem.lane_of[stage])));
        }
    }

    /// Bytes that are not held, with `owed` W still holding theirs.
    fn room(&self, lane: usize) -> u64 {
        self.problem.memory[lane].saturating_sub(self.kept[lane]).saturating_sub(self.held(lane))
    }

    /// Bytes between F and I.
    fn held(&self, lane: usize) -> u64 {
        let flying = |s: &usize| (self.begun(0, *s) - self.begun(1, *s)) as u64;
        self.on_lane[lane].iter().map(|s| flying(s) * self.problem.stages[*s].stash.0).sum()
    }

    /// Whether the next forward of `stage` leaves every micro-batch a way to its end, in turn,
    /// when all W are done.
    fn admits(&self, lane: usize, stage: usize) -> bool {
        let stash = |stage: usize| self.problem.stages[stage].stash.0;
        let Some(mut room) =
            (self.problem.memory[lane] - self.held(lane)).checked_sub(stash(stage))
        else {
            return false;
        };
        let stages = &self.on_lane[lane];
        if stages.len() == 1 {
            return true;
        }
        let forwards = |s: usize| self.begun(0, s) + usize::from(s == stage);
        // In a lane the first stage forwards first and backwards last.
        for micro_batch in self.begun(1, stages[0])..forwards(stages[0]) {
            let (mut needs, mut holds) = (0u64, 0u64);
            for s in stages.iter().copied() {
                if micro_batch >= forwards(s) {
                    needs = needs.saturating_add(stash(s));
                } else if micro_batch >= self.begun(1, s) {
                    holds = holds.saturating_add(stash(s));
                }
            }
            if needs > room {
                return false;
            }
            room += holds;
        }
        true
    }
}
