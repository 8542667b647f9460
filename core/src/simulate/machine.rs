//! Lanes that execute their programs, and the messages between them.

use super::meeting::Meeting;
use super::reduce::Reductions;
use super::{Copies, StageCost, in_order};
use crate::cost::Cluster;
use crate::ids::LaneId;
use crate::plan::{Encoded, Instruction, Program, StageProgram};
use crate::timeline::{Aside, Lane, Message, Span, Timeline, Wait, What, Work};
use crate::units::Nanos;
use thiserror::Error;

/// Programs that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("deadlock: {}", .lanes.iter().map(|w| format!("lane {} at instruction {} waits for {}", w.lane, w.instruction, w.what)).collect::<Vec<_>>().join("; "))]
pub struct Stuck {
    /// Every lane that cannot go on.
    pub lanes: Vec<Waiting>,
}

/// A lane that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The lane.
    pub lane: LaneId,
    /// Where it stands in its program.
    pub instruction: usize,
    /// What it waits for.
    pub what: String,
}

/// What a lane needs to go on.
pub(super) enum Next {
    /// So much computing, then [`Machine::finish`].
    Compute(Nanos, Work),
    /// Nothing before this moment.
    Until(Nanos),
    /// Something that another lane has yet to do; it will be woken.
    Blocked,
    /// The program is at its end.
    Done,
}

/// A message by tag.
#[derive(Clone, Copy, Default)]
struct Mail {
    /// What was sent, once it was.
    sent: Option<Message>,
    /// When the receiver came for it.
    taken: Option<Nanos>,
    /// A lane that waits for one of the two.
    waiter: Option<LaneId>,
}

pub(super) struct LaneState {
    pub next: usize,
    pub now: Nanos,
    /// Tag of the last send by handle.
    handles: Vec<u32>,
    spans: Vec<Span>,
    asides: Vec<Aside>,
    /// Since when it waits at the instruction where it stands.
    waits: Option<Nanos>,
}

/// All ranks of a step, or those of the first replica. They are numbered like ranks, `lane x
/// simulated replicas + replica`; [`Self::rank`] is the number in the whole run.
pub(super) struct Machine<'a> {
    programs: &'a [Program],
    copies: Copies<'a>,
    /// Replicas that are simulated.
    simulated: usize,
    /// Messages of one replica have tags below this.
    tags: usize,
    reductions: Reductions<'a>,
    stages: &'a [StageCost],
    /// What each lane's work takes, in its order, instead of what the stages say.
    given: Option<&'a [Vec<Nanos>]>,
    cluster: &'a Cluster,
    pub lanes: Vec<LaneState>,
    mail: Vec<Mail>,
    meeting: Meeting,
    /// Lanes that may go on.
    pub woken: Vec<LaneId>,
}

impl<'a> Machine<'a> {
    /// Simulates `replicas` of the replicas there are.
    pub fn new(
        programs: &'a [Program],
        stages: &'a [StageCost],
        cluster: &'a Cluster,
        copies: Copies<'a>,
        replicas: u32,
    ) -> Self {
        let tags = programs.iter().flat_map(|p| &p.train).filter_map(|i| match i {
            Instruction::Send { tag, .. } | Instruction::Recv { tag, .. } => Some(*tag + 1),
            _ => None,
        });
        let tags = tags.max().unwrap_or(0) as usize;
        let lane = |p: &Program| LaneState {
            next: 0,
            now: Nanos::ZERO,
            handles: vec![0; p.handles as usize],
            spans: Vec::with_capacity(p.train.len()),
            asides: vec![],
            waits: None,
        };
        let simulated = replicas as usize;
        let copies_of = |program| (0..simulated).map(move |_| lane(program));
        let lanes: Vec<LaneState> = programs.iter().flat_map(copies_of).collect();
        let woken = (0..lanes.len() as u32).rev().map(LaneId).collect();
        let mail = vec![Mail::default(); tags * simulated];
        let meeting = Meeting::new(programs, cluster, lanes.len());
        let reductions = Reductions::new(cluster, copies, programs, simulated);
        Self {
            programs,
            copies,
            simulated,
            tags,
            reductions,
            stages,
            given: None,
            cluster,
            lanes,
            mail,
            meeting,
            woken,
        }
    }

    /// The same with other times of the lanes' work.
    pub fn with(self, given: &'a [Vec<Nanos>]) -> Self {
        Self { given: Some(given), ..self }
    }

    /// How long the next work of `lane` takes. What was given has everything in it that delayed it.
    fn time(&mut self, lane: LaneId, work: Work, completes: Option<&StageProgram>) -> Nanos {
        if let Some(given) = self.given {
            let done = self.lanes[lane.index()].spans.len();
            return given[lane.index()].get(done).copied().unwrap_or_default();
        }
        let time = match work {
            Work::Run(action) => self.stages[action.stage.index()].of(action.kind),
            Work::Optimizer(stage) => {
                let whole = self.stages[stage.index()].update;
                let program = self.program(lane).stage(stage);
                program.map_or(whole, |program| self.reductions.update(program, whole))
            }
        };
        time + self.reductions.delay(lane, time, completes)
    }

    fn program(&self, lane: LaneId) -> &'a Program {
        &self.programs[lane.index() / self.simulated]
    }

    /// The number in the whole run.
    pub fn rank(&self, lane: LaneId) -> LaneId {
        let (of, replica) = (lane.index() / self.simulated, lane.index() % self.simulated);
        LaneId(self.copies.mesh(self.programs).rank(LaneId(of as u32), replica as u32))
    }

    /// A tag, and a lane of a program, as they are in the replica of `lane`.
    fn tag(&self, lane: LaneId, tag: u32) -> usize {
        lane.index() % self.simulated * self.tags + tag as usize
    }

    fn peer(&self, lane: LaneId, of: LaneId) -> LaneId {
        LaneId((of.index() * self.simulated + lane.index() % self.simulated) as u32)
    }

    /// Runs lanes that never share a device.
    pub fn run(mut self) -> Result<Timeline, Stuck> {
        while let Some(lane) = self.woken.pop() {
            loop {
                match self.step(lane) {
                    Next::Compute(time, work) => {
                        let end = self.lanes[lane.index()].now + time;
                        self.finish(lane, work, end);
                    }
                    Next::Until(moment) => self.lanes[lane.index()].now = moment,
                    Next::Blocked | Next::Done => break,
                }
            }
        }
        self.into_timeline()
    }

    /// Executes instructions of `lane` up to one that takes time or blocks.
    pub fn step(&mut self, lane: LaneId) -> Next {
        let program = self.program(lane);
        loop {
            let state = &self.lanes[lane.index()];
            let at = state.next;
            let Some(instruction) = program.train.get(at) else { return Next::Done };
            let pause = match *instruction {
                Instruction::Load { .. } => None,
                Instruction::Run { action, reduces, .. } => {
                    let completes = program.stage(action.stage).filter(|_| reduces);
                    let work = Work::Run(action);
                    Some(Next::Compute(self.time(lane, work, completes), work))
                }
                Instruction::Optimizer { stage, .. } => {
                    let work = Work::Optimizer(stage);
                    Some(Next::Compute(self.time(lane, work, None), work))
                }
                Instruction::Send { .. } => self.send(lane, instruction),
                Instruction::Recv { tag, decode, .. } => self.receive(lane, tag, decode),
                Instruction::WaitSend { handle } => self.wait_send(lane, handle),
                Instruction::CheckGradients
                | Instruction::WaitReduce { .. }
                | Instruction::Tie { .. }
                | Instruction::Broadcast { .. }
                | Instruction::Scatter { .. } => self.collective(lane, instruction),
            };
            if let Some(next) = pause {
                let state = &mut self.lanes[lane.index()];
                // What took the lane's own time is behind it, and noted.
                let stands = state.next == at;
                if stands && !matches!(next, Next::Compute(..)) {
                    state.waits.get_or_insert(state.now);
                }
                return next;
            }
            self.pass(lane, instruction);
        }
    }

    /// Goes on to the next instruction, and notes how long this one had to wait.
    fn pass(&mut self, lane: LaneId, instruction: &Instruction) {
        let state = &mut self.lanes[lane.index()];
        state.next += 1;
        let wait = match instruction {
            Instruction::Recv { .. } => Wait::Message,
            Instruction::WaitSend { .. } | Instruction::Send { .. } => Wait::Receiver,
            _ => Wait::Ranks,
        };
        if let Some(start) = state.waits.take().filter(|start| *start < state.now) {
            state.asides.push(Aside { start, end: state.now, what: What::Wait(wait) });
        }
    }

    fn send(&mut self, lane: LaneId, instruction: &Instruction) -> Option<Next> {
        let Instruction::Send { to, tag, region, encode, handle, stage, micro_batch, gradient } =
            *instruction
        else {
            return None;
        };
        let (to, tag) = (self.peer(lane, to), self.tag(lane, tag));
        let link = self.cluster.link(self.rank(lane), self.rank(to));
        let encoding = encode.map_or(Nanos::ZERO, |encoded| {
            self.cluster.codec_times(encoded.codec, encoded.values.bytes)[0]
        });
        let state = &mut self.lanes[lane.index()];
        let now = state.now;
        state.handles[handle as usize] = tag as u32;
        let way = match self.cluster.receivers_copy {
            _ if to == lane => Nanos::ZERO,
            true => link.latency_ns,
            false => link.time(region.bytes),
        };
        let arrival = now + encoding + way;
        let mail = &mut self.mail[tag];
        self.woken.extend(mail.waiter.take());
        mail.sent = Some(Message {
            from: lane,
            to,
            stage,
            micro_batch,
            gradient,
            bytes: region.bytes,
            sent: now,
            received: arrival,
        });
        if self.cluster.blocking_sends {
            return Some(self.spend(lane, encoding + way, Wait::Receiver));
        }
        (encoding > Nanos::ZERO).then(|| self.spend(lane, encoding, Wait::Receiver))
    }

    /// The lane does nothing else for `time`, and is then done with its instruction.
    fn spend(&mut self, lane: LaneId, time: Nanos, wait: Wait) -> Next {
        let state = &mut self.lanes[lane.index()];
        let start = state.waits.take().unwrap_or(state.now);
        let end = state.now + time;
        state.next += 1;
        if start < end {
            state.asides.push(Aside { start, end, what: What::Wait(wait) });
        }
        Next::Until(end)
    }

    fn receive(&mut self, lane: LaneId, tag: u32, decode: Option<Encoded>) -> Option<Next> {
        let (now, tag) = (self.lanes[lane.index()].now, self.tag(lane, tag));
        let mail = &mut self.mail[tag];
        let Some(message) = mail.sent else {
            mail.waiter = Some(lane);
            return Some(Next::Blocked);
        };
        let arrival = message.received;
        if arrival > now {
            return Some(Next::Until(arrival));
        }
        let time = self.taking(lane, &message, decode);
        let mail = &mut self.mail[tag];
        if time > Nanos::ZERO {
            let end = now + time;
            if let Some(message) = &mut mail.sent {
                message.received = end;
            }
            mail.taken = Some(end);
            self.woken.extend(mail.waiter.take());
            return Some(self.spend(lane, time, Wait::Message));
        }
        mail.taken = Some(now);
        self.woken.extend(mail.waiter.take());
        None
    }

    /// What a message that is there takes its receiver: bytes to move, values to decode.
    fn taking(&self, lane: LaneId, message: &Message, decode: Option<Encoded>) -> Nanos {
        let mut time = Nanos::ZERO;
        if self.cluster.receivers_copy && message.from != lane {
            let link = self.cluster.link(self.rank(message.from), self.rank(lane));
            time += link.time(message.bytes) - link.latency_ns;
        }
        let decoding =
            |encoded: Encoded| self.cluster.codec_times(encoded.codec, encoded.values.bytes)[1];
        time + decode.map_or(Nanos::ZERO, decoding)
    }

    fn wait_send(&mut self, lane: LaneId, handle: u32) -> Option<Next> {
        let state = &self.lanes[lane.index()];
        let mail = &mut self.mail[state.handles[handle as usize] as usize];
        let Some(taken) = mail.taken else {
            mail.waiter = Some(lane);
            return Some(Next::Blocked);
        };
        (taken > state.now).then_some(Next::Until(taken))
    }

    /// What groups of ranks do together.
    fn collective(&mut self, lane: LaneId, instruction: &Instruction) -> Option<Next> {
        let now = self.lanes[lane.index()].now;
        let pause = |machine: &mut Self, time: Nanos| Some(machine.spend(lane, time, Wait::Ranks));
        match *instruction {
            Instruction::CheckGradients => match self.meeting.come(lane, now) {
                (None, _) => Some(Next::Blocked),
                (Some(end), last) => {
                    if last {
                        let others = (0..self.lanes.len() as u32).map(LaneId);
                        self.woken.extend(others.filter(|other| *other != lane));
                    }
                    (end > now).then_some(Next::Until(end))
                }
            },
            Instruction::WaitReduce { stage } => match self.reductions.wait(lane, stage) {
                None => Some(Next::Blocked),
                Some(end) if end > now => Some(Next::Until(end)),
                Some(_) => {
                    if let Some(start) = self.reductions.done(lane, stage) {
                        let what = What::AllReduce(stage);
                        self.lanes[lane.index()].asides.push(Aside { start, end: now, what });
                    }
                    None
                }
            },
            // Ranks come to these at nearly the same moment: their time is added on each.
            Instruction::Tie { index } => {
                let tie = &self.program(lane).ties[index as usize];
                let group = tie.group?;
                let time = self.reductions.all_reduce(group, tie.gradients[0].bytes);
                pause(self, time)
            }
            Instruction::Broadcast { stage } => {
                let stage = self.program(lane).stage(stage)?;
                let bytes = stage.params.iter().map(|place| place.weight.bytes).sum();
                let group = stage.buckets.first()?.group;
                let time = self.reductions.broadcast(group, bytes);
                pause(self, time)
            }
            Instruction::Scatter { region, .. } => {
                let others = self.copies.data_parallel.replicas - 1;
                // The farthest replica of the lane.
                let (first, last) = (self.rank(lane), LaneId(self.rank(lane).0 + others));
                let time = self.cluster.link(first, last).time(region.bytes) * u64::from(others);
                pause(self, time)
            }
            _ => None,
        }
    }

    /// The work that [`Self::step`] asked for ended at `end`, having begun at the lane's moment.
    pub fn finish(&mut self, lane: LaneId, work: Work, end: Nanos) {
        let program = self.program(lane);
        let state = &mut self.lanes[lane.index()];
        let span = (state.now, end);
        if let Some(Instruction::Run { action, reduces: true, .. }) = program.train.get(state.next)
            && let Some(stage) = program.stage(action.stage)
        {
            self.woken.extend(self.reductions.completed(lane, stage, span));
        }
        let state = &mut self.lanes[lane.index()];
        state.spans.push(Span { start: span.0, end, work });
        state.now = end;
        state.next += 1;
    }

    /// The timeline, when every lane reached its end.
    pub fn into_timeline(self) -> Result<Timeline, Stuck> {
        let mut stuck = vec![];
        let all = |program| std::iter::repeat_n(program, self.simulated);
        let programs = self.programs.iter().flat_map(all);
        for ((lane, state), program) in (0..).map(LaneId).zip(&self.lanes).zip(programs) {
            if let Some(instruction) = program.train.get(state.next) {
                let what = match instruction {
                    Instruction::Recv { from, tag, .. } => {
                        format!("message {tag} from lane {from}")
                    }
                    Instruction::WaitSend { handle } => {
                        format!("message {} to be received", state.handles[*handle as usize])
                    }
                    Instruction::WaitReduce { stage } => format!("gradients of stage {stage}"),
                    Instruction::CheckGradients => "the other lanes' gradients".into(),
                    other => format!("{other:?}"),
                };
                stuck.push(Waiting { lane, instruction: state.next, what });
            }
        }
        if !stuck.is_empty() {
            return Err(Stuck { lanes: stuck });
        }
        let all = |program| std::iter::repeat_n(program, self.simulated);
        let programs = self.programs.iter().flat_map(all);
        let messages: Vec<Message> = self.mail.into_iter().filter_map(|mail| mail.sent).collect();
        let elsewhere = self.reductions.elsewhere(self.programs, &messages);
        let lane = |(mut state, program): (LaneState, &Program)| {
            in_order(&mut state.asides);
            Lane { asides: state.asides, ..Lane::new(program, state.spans) }
        };
        let lanes: Vec<Lane> = self.lanes.into_iter().zip(programs).map(lane).collect();
        let ends = lanes.iter().filter_map(|l| l.spans.last()).map(|s| s.end);
        let step = ends.max().unwrap_or_default();
        Ok(Timeline { lanes, messages, elsewhere, step })
    }
}
