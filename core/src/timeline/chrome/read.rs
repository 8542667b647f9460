//! Reading.

use super::{AsideArgs, Header, INPUT, MessageArgs, VERSION, WAIT, WorkArgs};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::timeline::{Aside, Lane, Message, Span, Step, Timeline, Trace, What, Work};
use crate::units::{Bytes, Nanos};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a text is no trace of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// Not JSON, or cut off.
    #[error("not a trace: not JSON ({0})")]
    Json(String),
    /// JSON without events.
    #[error("not a trace: no `traceEvents`")]
    NoEvents,
    /// A trace of another program.
    #[error("not a trace of a run: not written by Pipewright (no field `pipewright`)")]
    Foreign,
    /// From a newer version.
    #[error("the trace has version {0}, this program reads up to {VERSION}; use a newer one")]
    Version(u32),
    /// An event that contradicts the rest.
    #[error("trace, event {index}: {why}")]
    Event {
        /// Its position.
        index: usize,
        /// What does not fit.
        why: String,
    },
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Option<Vec<Event>>,
    pipewright: Option<Header>,
}

#[derive(Deserialize)]
struct Event {
    ph: String,
    pid: u32,
    #[serde(default)]
    tid: u32,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Value,
}

/// Reads a trace that [`super::write`] wrote.
///
/// # Errors
/// What the text is instead, or which event contradicts the rest.
pub fn read(text: &str) -> Result<Trace, TraceError> {
    let file: File = serde_json::from_str(text).map_err(|e| TraceError::Json(e.to_string()))?;
    let events = file.events.ok_or(TraceError::NoEvents)?;
    let header = file.pipewright.ok_or(TraceError::Foreign)?;
    if header.version > VERSION {
        return Err(TraceError::Version(header.version));
    }
    let mut steps = Steps::new(&header);
    for (index, event) in events.iter().enumerate() {
        let refuse = |why| TraceError::Event { index, why };
        match (event.ph.as_str(), event.tid) {
            ("X", 0) => steps.work(event),
            ("X", WAIT | INPUT) | ("b", _) => steps.aside(event),
            ("X", _) => steps.message(event),
            ("C", _) => steps.memory(event),
            _ => Ok(()),
        }
        .map_err(refuse)?;
    }
    Ok(steps.finish(header.model))
}

struct Steps {
    steps: Vec<Step>,
    /// One end of each message, until the other comes.
    halves: BTreeMap<u64, Nanos>,
}

fn nanos(micros: f64) -> Nanos {
    Nanos((micros * 1000.0 + 0.5).max(0.0) as u64)
}

impl Steps {
    fn new(header: &Header) -> Self {
        let lane = |arena: &Bytes| Lane { arena: *arena, ..Lane::default() };
        let step = |s: &super::StepHeader| Step {
            number: s.number,
            start: Nanos(s.start),
            timeline: Timeline {
                lanes: header.arena.iter().map(lane).collect(),
                messages: vec![],
                step: Nanos(s.end.saturating_sub(s.start)),
            },
        };
        Self { steps: header.steps.iter().map(step).collect(), halves: BTreeMap::new() }
    }

    fn step(&mut self, number: u64) -> Result<&mut Step, String> {
        let found = self.steps.iter_mut().find(|s| s.number == number);
        found.ok_or_else(|| format!("step {number} is not in the trace's list of steps"))
    }

    fn work(&mut self, event: &Event) -> Result<(), String> {
        let args: WorkArgs = parse(event)?;
        let step = self.step(args.step)?;
        let work = match (&args.action, args.optimizer) {
            (Some(action), _) => {
                Work::Run(action.parse().map_err(|e: crate::schedule::ParseError| e.to_string())?)
            }
            (None, Some(stage)) => Work::Optimizer(StageId(stage)),
            (None, None) => return Err("neither an action nor an optimizer update".into()),
        };
        let start = nanos(event.ts).saturating_sub(step.start);
        let lane = lane(step, event.pid)?;
        lane.spans.push(Span { start, end: start + nanos(event.dur), work });
        Ok(())
    }

    fn aside(&mut self, event: &Event) -> Result<(), String> {
        let args: AsideArgs = parse(event)?;
        let what = match (args.wait, args.stage) {
            (Some(wait), _) => What::Wait(wait),
            (None, Some(stage)) => What::AllReduce(StageId(stage)),
            (None, None) => What::Input,
        };
        let step = self.step(args.step)?;
        let start = nanos(event.ts).saturating_sub(step.start);
        let end = start + args.duration.map_or_else(|| nanos(event.dur), Nanos);
        lane(step, event.pid)?.asides.push(Aside { start, end, what });
        Ok(())
    }

    fn memory(&mut self, event: &Event) -> Result<(), String> {
        let bytes = event.args["bytes"].as_u64().ok_or("a counter without bytes")?;
        let moment = nanos(event.ts);
        // Counters carry no step number, which would be drawn as a curve of its own.
        let within = |s: &&mut Step| s.start <= moment && moment <= s.start + s.timeline.step;
        if let Some(step) = self.steps.iter_mut().find(within) {
            let moment = moment - step.start;
            lane(step, event.pid)?.memory.push((moment, Bytes(bytes)));
        }
        Ok(())
    }

    fn message(&mut self, event: &Event) -> Result<(), String> {
        let args: MessageArgs = parse(event)?;
        let Some(sent) = self.halves.remove(&args.message) else {
            self.halves.insert(args.message, nanos(event.ts));
            return Ok(());
        };
        let step = self.step(args.step)?;
        let start = step.start;
        for pid in [args.from, args.to] {
            lane(step, pid)?;
        }
        step.timeline.messages.push(Message {
            from: LaneId(args.from),
            to: LaneId(args.to),
            stage: StageId(args.stage),
            micro_batch: MicroBatch(args.micro_batch),
            gradient: args.gradient,
            bytes: Bytes(args.bytes),
            sent: sent.saturating_sub(start),
            received: nanos(event.ts).saturating_sub(start),
        });
        Ok(())
    }

    fn finish(mut self, model: String) -> Trace {
        for step in &mut self.steps {
            for lane in &mut step.timeline.lanes {
                lane.spans.sort_by_key(|s| s.start);
                lane.asides.sort_by_key(|a| a.start);
            }
        }
        Trace { model, steps: self.steps }
    }
}

fn parse<T: serde::de::DeserializeOwned>(event: &Event) -> Result<T, String> {
    T::deserialize(&event.args).map_err(|e| e.to_string())
}

fn lane(step: &mut Step, pid: u32) -> Result<&mut Lane, String> {
    let lanes = step.timeline.lanes.len();
    let found = step.timeline.lanes.get_mut(pid as usize);
    found.ok_or_else(|| format!("lane {pid}, but the trace has {lanes} lanes"))
}
