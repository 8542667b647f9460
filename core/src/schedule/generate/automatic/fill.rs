//! Executes an order in time and puts W where it says nothing of them.

use super::{Automatic, AutomaticError, Code, LIMIT, StageLoad, decode};
use crate::units::Bytes;
use std::collections::VecDeque;

/// Checked input, lanes as indexes.
pub(super) struct Problem {
    pub(super) stages: Vec<StageLoad>,
    pub(super) lane_of: Vec<usize>,
    pub(super) micro_batches: usize,
    pub(super) memory: Vec<u64>,
}

/// When to put a W that the order does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Never: the order has all of them.
    Given,
    /// Behind its I.
    AtOnce,
    /// Where it fits before the next pass can begin, and where it does not fit if waiting would
    /// have the lane end after this moment.
    Until(u64),
}

/// An executed order.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    /// By lane: all passes.
    pub(super) lanes: Vec<Vec<Code>>,
    /// When the last lane ends.
    pub(super) step: u64,
    /// All lanes' ends: between equal steps, room is good.
    ends: u128,
}

impl Filled {
    /// Less is better.
    pub(super) fn score(&self) -> (u64, u128) {
        (self.step, self.ends)
    }
}

impl Problem {
    /// Checks `input`.
    pub(super) fn new(input: &Automatic) -> Result<Self, AutomaticError> {
        let Automatic { stages, lane_of, micro_batches, memory } = input;
        for (what, count) in [("stage", stages.len()), ("micro-batch", *micro_batches as usize)] {
            if count == 0 {
                return Err(AutomaticError::Empty { what });
            }
        }
        if stages.len() as u64 * u64::from(*micro_batches) > LIMIT {
            let (stages, micro_batches) = (stages.len(), *micro_batches);
            return Err(AutomaticError::TooMany { stages, micro_batches });
        }
        let lanes: Vec<usize> = lane_of.iter().map(|lane| lane.index()).collect();
        let all = (0..memory.len()).all(|lane| lanes.contains(&lane));
        if lanes.len() != stages.len() || !all || lanes.iter().any(|lane| *lane >= memory.len()) {
            let (stages, placed, lanes) = (stages.len(), lanes.len(), memory.len());
            return Err(AutomaticError::Lengths { stages, placed, lanes });
        }
        for (stage, StageLoad { stash, weight_stash, .. }) in stages.iter().enumerate() {
            if weight_stash > stash {
                let (stash, weight_stash) = (*stash, *weight_stash);
                return Err(AutomaticError::Stash { stage, stash, weight_stash });
            }
        }
        let mut needs = vec![Bytes(0); memory.len()];
        for (stage, lane) in stages.iter().zip(&lanes) {
            needs[*lane] += stage.stash;
        }
        for (lane, (memory, needs)) in (0..).zip(memory.iter().zip(needs)) {
            if needs > *memory {
                let (lane, memory) = (crate::ids::LaneId(lane), *memory);
                return Err(AutomaticError::Memory { lane, memory, needs });
            }
        }
        Ok(Self {
            stages: stages.clone(),
            lane_of: lanes,
            micro_batches: *micro_batches as usize,
            memory: memory.iter().map(|bytes| bytes.0).collect(),
        })
    }

    /// Passes of the whole step.
    pub(super) fn passes(&self) -> usize {
        3 * self.stages.len() * self.micro_batches
    }

    /// Time of a pass.
    pub(super) fn time(&self, code: Code) -> u64 {
        let (stage, kind) = decode(code);
        let load = &self.stages[stage];
        [load.forward, load.backward_input, load.backward_weight][kind].0
    }

    /// From `stage` to the next.
    pub(super) fn hop(&self, stage: usize) -> u64 {
        let same = self.lane_of[stage] == self.lane_of[stage + 1];
        if same { 0 } else { self.stages[stage].hop.0 }
    }

    /// By lane: time of all its passes of one micro-batch, of the given kinds.
    fn loads(&self, kinds: &[u32]) -> Vec<u64> {
        let mut loads = vec![0u64; self.memory.len()];
        for (stage, lane) in (0..).zip(&self.lane_of) {
            for kind in kinds {
                loads[*lane] = loads[*lane].saturating_add(self.time(3 * stage + kind));
            }
        }
        loads
    }

    /// No order ends before: every lane waits for its first value and computes; after its last I
    /// the stages before it still have theirs and a W; and a micro-batch passes everything.
    pub(super) fn bound(&self) -> u64 {
        let (all, urgent) = (self.loads(&[0, 1, 2]), self.loads(&[0, 1]));
        let m = self.micro_batches as u64;
        let (mut head, mut tail) = (0u64, 0u64);
        let mut seen = vec![false; self.memory.len()];
        let mut bound = 0;
        let first_weight = self.time(2);
        for (stage, lane) in self.lane_of.iter().copied().enumerate() {
            // The lane's first stage: its last I is this one's.
            if !std::mem::replace(&mut seen[lane], true) {
                let last = tail.saturating_add(if stage > 0 { first_weight } else { 0 });
                let urgent = urgent[lane].saturating_mul(m).saturating_add(last);
                bound = bound.max(head.saturating_add(urgent.max(all[lane].saturating_mul(m))));
            }
            head = head.saturating_add(self.time(3 * stage as u32));
            tail = tail.saturating_add(self.time(3 * stage as u32 + 1));
            if stage + 1 < self.stages.len() {
                head = head.saturating_add(self.hop(stage));
                tail = tail.saturating_add(self.hop(stage));
            }
        }
        bound.max(head.saturating_add(tail).saturating_add(first_weight))
    }

    /// The ways to fill that are worth a try.
    pub(super) fn rules(&self, bound: u64) -> [Rule; 5] {
        let later = bound.saturating_add(bound / 32);
        let rules = [0, bound, later, u64::MAX].map(Rule::Until);
        [rules[0], rules[1], rules[2], rules[3], Rule::AtOnce]
    }

    /// Executes `order` (F and I, with [`Rule::Given`] W as well). Nothing if its lanes block each
    /// other or a lane would hold too much. O(n).
    pub(super) fn fill(&self, order: &[Vec<Code>], rule: Rule) -> Option<Filled> {
        let mut run = Run::new(self, rule);
        let mut ready: Vec<usize> = (0..order.len()).rev().collect();
        while let Some(lane) = ready.pop() {
            while let Some(code) = order[lane].get(run.lanes[lane].at) {
                let Some(arrival) = run.arrival(*code) else { break };
                run.pass(lane, *code, arrival)?;
                ready.extend(run.woken_by(*code).filter(|other| *other != lane));
            }
        }
        for (lane, order) in order.iter().enumerate() {
            if run.lanes[lane].at < order.len() {
                return None;
            }
            while run.owed(lane).is_some() {
                run.weight(lane);
            }
        }
        let ends = run.lanes.iter().map(|lane| u128::from(lane.time)).sum();
        let step = run.lanes.iter().map(|lane| lane.time).max()?;
        Some(Filled { lanes: run.lanes.into_iter().map(|lane| lane.done).collect(), step, ends })
    }
}

/// One execution.
struct Run<'a> {
    problem: &'a Problem,
    rule: Rule,
    lanes: Vec<LaneRun>,
    /// By stage x micro-batch: ends of F and of I, as far as executed.
    ends: [Vec<u64>; 2],
    /// By code: how many are executed.
    next: Vec<usize>,
}

#[derive(Default)]
struct LaneRun {
    at: usize,
    time: u64,
    held: u64,
    /// Time of all passes that are still to come.
    left: u64,
    /// Stages of I without W.
    owed: VecDeque<u32>,
    done: Vec<Code>,
}

impl<'a> Run<'a> {
    fn new(problem: &'a Problem, rule: Rule) -> Self {
        let m = problem.micro_batches;
        let lane =
            |load: u64| LaneRun { left: load.saturating_mul(m as u64), ..LaneRun::default() };
        let lanes = problem.loads(&[0, 1, 2]).into_iter().map(lane).collect();
        let ends = vec![0; problem.stages.len() * m];
        let next = vec![0; 3 * problem.stages.len()];
        Self { problem, rule, lanes, ends: [ends.clone(), ends], next }
    }

    /// When what `code` needs is there; nothing if that is not known yet.
    fn arrival(&self, code: Code) -> Option<u64> {
        let (stage, kind) = decode(code);
        let turn = self.next[code as usize];
        let last = stage + 1 == self.problem.stages.len();
        let (needs, hop) = match kind {
            0 if stage == 0 => return Some(0),
            0 => (code - 3, self.problem.hop(stage - 1)),
            // The last stage's I needs its own F, others that of the stage behind, whose I has
            // needed this stage's F.
            1 if last => (code - 1, 0),
            1 => (code + 3, self.problem.hop(stage)),
            _ => return (turn < self.next[code as usize - 1]).then_some(0),
        };
        let of = decode(needs);
        let known = turn < self.next[needs as usize];
        known.then(|| {
            let end = self.ends[of.1][of.0 * self.problem.micro_batches + turn];
            end.saturating_add(hop)
        })
    }

    fn owed(&self, lane: usize) -> Option<u32> {
        if self.rule == Rule::Given { None } else { self.lanes[lane].owed.front().copied() }
    }

    /// Executes the lane's oldest W.
    fn weight(&mut self, lane: usize) {
        if let Some(stage) = self.lanes[lane].owed.pop_front() {
            self.execute(lane, 3 * stage + 2, 0);
        }
    }

    /// Executes `code`, and before it the W that the rule puts there.
    fn pass(&mut self, lane: usize, code: Code, arrival: u64) -> Option<()> {
        let (stage, kind) = decode(code);
        if kind == 0 {
            let stash = self.problem.stages[stage].stash.0;
            while self.problem.memory[lane] - self.lanes[lane].held < stash {
                self.owed(lane)?;
                self.weight(lane);
            }
        }
        while let Some(owed) = self.owed(lane) {
            let LaneRun { time, left, .. } = self.lanes[lane];
            let fits = time.saturating_add(self.problem.time(3 * owed + 2)) <= arrival;
            let late = |target| time < arrival && arrival.saturating_add(left) > target;
            match self.rule {
                Rule::Until(target) if fits || late(target) => self.weight(lane),
                _ => break,
            }
        }
        self.execute(lane, code, arrival);
        self.lanes[lane].at += 1;
        if kind == 1 {
            self.lanes[lane].owed.push_back(stage as u32);
            if self.rule == Rule::AtOnce {
                self.weight(lane);
            }
        }
        Some(())
    }

    fn execute(&mut self, lane: usize, code: Code, arrival: u64) {
        let (stage, kind) = decode(code);
        let (time, load) = (self.problem.time(code), &self.problem.stages[stage]);
        let (stash, kept) = (load.stash.0, load.weight_stash.0);
        let turn = self.next[code as usize];
        self.next[code as usize] += 1;
        let lane = &mut self.lanes[lane];
        lane.time = lane.time.max(arrival).saturating_add(time);
        lane.left = lane.left.saturating_sub(time);
        lane.done.push(code);
        match kind {
            0 => lane.held += stash,
            1 => lane.held -= stash - kept,
            _ => lane.held -= kept,
        }
        if kind < 2 {
            self.ends[kind][stage * self.problem.micro_batches + turn] = lane.time;
        }
    }

    /// The lane that may go on.
    fn woken_by(&self, code: Code) -> impl Iterator<Item = usize> + use<> {
        let (stage, kind) = decode(code);
        let stage = match kind {
            0 => Some(stage + 1),
            1 => stage.checked_sub(1),
            _ => None,
        };
        stage.and_then(|stage| self.problem.lane_of.get(stage).copied()).into_iter()
    }
}
