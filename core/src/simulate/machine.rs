//! Lanes that execute their programs, and the messages between them.

use super::StageCost;
use super::meeting::Meeting;
use crate::cost::Cluster;
use crate::ids::LaneId;
use crate::plan::{Instruction, Program};
use crate::timeline::{Lane, Message, Span, Timeline, Work};
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
}

/// All lanes of a step.
pub(super) struct Machine<'a> {
    programs: &'a [Program],
    stages: &'a [StageCost],
    cluster: &'a Cluster,
    pub lanes: Vec<LaneState>,
    mail: Vec<Mail>,
    meeting: Meeting,
    /// Lanes that may go on.
    pub woken: Vec<LaneId>,
}

impl<'a> Machine<'a> {
    pub fn new(programs: &'a [Program], stages: &'a [StageCost], cluster: &'a Cluster) -> Self {
        let tags = programs.iter().flat_map(|p| &p.train).filter_map(|i| match i {
            Instruction::Send { tag, .. } | Instruction::Recv { tag, .. } => Some(*tag + 1),
            _ => None,
        });
        let mail = vec![Mail::default(); tags.max().unwrap_or(0) as usize];
        let lane = |p: &Program| LaneState {
            next: 0,
            now: Nanos::ZERO,
            handles: vec![0; p.handles as usize],
            spans: Vec::with_capacity(p.train.len()),
        };
        let lanes: Vec<LaneState> = programs.iter().map(lane).collect();
        let woken = (0..programs.len() as u32).rev().map(LaneId).collect();
        let meeting = Meeting::new(programs, cluster);
        Self { programs, stages, cluster, lanes, mail, meeting, woken }
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
        let program = &self.programs[lane.index()];
        loop {
            let state = &mut self.lanes[lane.index()];
            let Some(instruction) = program.train.get(state.next) else { return Next::Done };
            let now = state.now;
            match *instruction {
                Instruction::Load { .. } => {}
                Instruction::Run { action, .. } => {
                    let time = self.stages[action.stage.index()].of(action.kind);
                    return Next::Compute(time, Work::Run(action));
                }
                Instruction::Optimizer { stage } => {
                    let time = self.stages[stage.index()].update;
                    return Next::Compute(time, Work::Optimizer(stage));
                }
                Instruction::ClipGradients => match self.meeting.come(lane, now) {
                    (None, _) => return Next::Blocked,
                    (Some(end), last) => {
                        if last {
                            let others = (0..self.programs.len() as u32).map(LaneId);
                            self.woken.extend(others.filter(|other| *other != lane));
                        }
                        if end > now {
                            return Next::Until(end);
                        }
                    }
                },
                Instruction::Send { to, tag, region, handle, stage, micro_batch, gradient } => {
                    state.handles[handle as usize] = tag;
                    let link = self.cluster.link(lane, to);
                    let way = if to == lane { Nanos::ZERO } else { link.time(region.bytes) };
                    let arrival = now + way;
                    let mail = &mut self.mail[tag as usize];
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
                        self.lanes[lane.index()].next += 1;
                        return Next::Until(arrival);
                    }
                }
                Instruction::Recv { tag, .. } => {
                    let mail = &mut self.mail[tag as usize];
                    let Some(message) = &mail.sent else {
                        mail.waiter = Some(lane);
                        return Next::Blocked;
                    };
                    let arrival = message.received;
                    if arrival > now {
                        return Next::Until(arrival);
                    }
                    mail.taken = Some(now);
                    self.woken.extend(mail.waiter.take());
                }
                Instruction::WaitSend { handle } => {
                    let mail = &mut self.mail[state.handles[handle as usize] as usize];
                    let Some(taken) = mail.taken else {
                        mail.waiter = Some(lane);
                        return Next::Blocked;
                    };
                    if taken > now {
                        return Next::Until(taken);
                    }
                }
            }
            self.lanes[lane.index()].next += 1;
        }
    }

    /// The work that [`Self::step`] asked for ended at `end`, having begun at the lane's moment.
    pub fn finish(&mut self, lane: LaneId, work: Work, end: Nanos) {
        let state = &mut self.lanes[lane.index()];
        state.spans.push(Span { start: state.now, end, work });
        state.now = end;
        state.next += 1;
    }

    /// The timeline, when every lane reached its end.
    pub fn into_timeline(self) -> Result<Timeline, Stuck> {
        let mut stuck = vec![];
        for ((lane, state), program) in (0..).map(LaneId).zip(&self.lanes).zip(self.programs) {
            if let Some(instruction) = program.train.get(state.next) {
                let what = match instruction {
                    Instruction::Recv { from, tag, .. } => {
                        format!("message {tag} from lane {from}")
                    }
                    Instruction::WaitSend { handle } => {
                        format!("message {} to be received", state.handles[*handle as usize])
                    }
                    Instruction::ClipGradients => "the other lanes' gradients".into(),
                    other => format!("{other:?}"),
                };
                stuck.push(Waiting { lane, instruction: state.next, what });
            }
        }
        if !stuck.is_empty() {
            return Err(Stuck { lanes: stuck });
        }
        let messages = self.mail.into_iter().filter_map(|mail| mail.sent).collect();
        let lane = |(state, program): (LaneState, &Program)| Lane::new(program, state.spans);
        let lanes: Vec<Lane> = self.lanes.into_iter().zip(self.programs).map(lane).collect();
        let ends = lanes.iter().filter_map(|l| l.spans.last()).map(|s| s.end);
        let step = ends.max().unwrap_or_default();
        Ok(Timeline { lanes, messages, step })
    }
}
