//! Writing.

use super::{ALL_REDUCE, AsideArgs, INPUT, TRACKS, WAIT};
use super::{Header, MessageArgs, StepHeader, VERSION, WorkArgs};
use crate::timeline::{Aside, Message, Step, Trace, Wait, What, Work};
use crate::units::Nanos;
use serde::Serialize;
use std::fmt::Write;

/// The trace as text, an event a line.
pub fn write(trace: &Trace) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    let lanes = trace.steps.first().map_or(0, |s| s.timeline.lanes.len());
    let mut events = Events { out: &mut out, first: true, reductions: 0 };
    for lane in 0..lanes {
        events.names(lane);
    }
    let mut message = 0;
    for step in &trace.steps {
        events.step(step, &mut message);
    }
    let end = |s: &Step| s.start + s.timeline.step;
    let header = Header {
        version: VERSION,
        model: trace.model.clone(),
        arena: trace
            .steps
            .first()
            .map_or(vec![], |s| s.timeline.lanes.iter().map(|lane| lane.arena).collect()),
        steps: trace
            .steps
            .iter()
            .map(|s| StepHeader { number: s.number, start: s.start.0, end: end(s).0 })
            .collect(),
    };
    out.push_str("\n],\"pipewright\":");
    out.push_str(&json(&header));
    out.push_str("}\n");
    out
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// Nanoseconds as microseconds with three digits, exactly.
fn micros(time: Nanos) -> String {
    format!("{}.{:03}", time.0 / 1000, time.0 % 1000)
}

struct Events<'a> {
    out: &'a mut String,
    first: bool,
    /// All-reduces so far: each has an id.
    reductions: u64,
}

impl Events<'_> {
    fn push(&mut self, event: std::fmt::Arguments) {
        if !std::mem::take(&mut self.first) {
            self.out.push_str(",\n");
        }
        self.out.write_fmt(event).expect("a string takes everything");
    }

    fn names(&mut self, lane: usize) {
        self.push(format_args!(
            r#"{{"ph":"M","pid":{lane},"name":"process_name","args":{{"name":"lane {lane}"}}}}"#
        ));
        for (tid, name) in TRACKS.into_iter().enumerate() {
            self.push(format_args!(
                r#"{{"ph":"M","pid":{lane},"tid":{tid},"name":"thread_name","args":{{"name":"{name}"}}}}"#
            ));
        }
    }

    fn step(&mut self, step: &Step, message: &mut u64) {
        for (pid, lane) in step.timeline.lanes.iter().enumerate() {
            for span in &lane.spans {
                let ts = micros(step.start + span.start);
                let dur = micros(span.end - span.start);
                let (name, cat, action, optimizer) = match span.work {
                    Work::Run(a) => {
                        let kind = a.kind.letter();
                        (format!("{kind}{}", a.micro_batch), kind, Some(a.to_string()), None)
                    }
                    Work::Optimizer(stage) => ("optimizer".into(), 'O', None, Some(stage.0)),
                };
                let args = json(&WorkArgs { step: step.number, action, optimizer });
                self.push(format_args!(
                    r#"{{"ph":"X","pid":{pid},"tid":0,"ts":{ts},"dur":{dur},"name":"{name}","cat":"{cat}","args":{args}}}"#
                ));
            }
            for aside in &lane.asides {
                self.aside(step, pid, aside);
            }
            for (moment, bytes) in &lane.memory {
                let ts = micros(step.start + *moment);
                self.push(format_args!(
                    r#"{{"ph":"C","pid":{pid},"ts":{ts},"name":"memory","args":{{"bytes":{}}}}}"#,
                    bytes.0
                ));
            }
        }
        for m in &step.timeline.messages {
            self.message(step, m, *message);
            *message += 1;
        }
    }

    fn aside(&mut self, step: &Step, pid: usize, aside: &Aside) {
        let ts = micros(step.start + aside.start);
        let dur = micros(aside.end - aside.start);
        let mut args = AsideArgs { step: step.number, wait: None, stage: None, duration: None };
        let (tid, name) = match aside.what {
            What::Input => (INPUT, "input"),
            What::Wait(wait) => {
                args.wait = Some(wait);
                let name = match wait {
                    Wait::Message => "wait for a message",
                    Wait::Receiver => "wait for the receiver",
                    Wait::Ranks => "wait for ranks",
                };
                (WAIT, name)
            }
            What::AllReduce(stage) => {
                args.stage = Some(stage.0);
                args.duration = Some((aside.end - aside.start).0);
                let args = json(&args);
                let id = self.reductions;
                self.reductions += 1;
                let end = micros(step.start + aside.end);
                for (ph, ts) in [("b", ts), ("e", end)] {
                    self.push(format_args!(
                        r#"{{"ph":"{ph}","cat":"all-reduce","id":{id},"pid":{pid},"tid":{ALL_REDUCE},"ts":{ts},"name":"all-reduce {stage}","args":{args}}}"#
                    ));
                }
                return;
            }
        };
        let args = json(&args);
        self.push(format_args!(
            r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"name":"{name}","args":{args}}}"#
        ));
    }

    /// Two slices, one on each side, joined by a flow.
    fn message(&mut self, step: &Step, m: &Message, id: u64) {
        let kind = if m.gradient { "gradient" } else { "activation" };
        let name = format!("{kind} {}", m.micro_batch);
        let args = json(&MessageArgs {
            step: step.number,
            message: id,
            from: m.from.0,
            to: m.to.0,
            stage: m.stage.0,
            micro_batch: m.micro_batch.0,
            gradient: m.gradient,
            bytes: m.bytes.0,
        });
        let ends = [(m.from, 1, m.sent, "s", ""), (m.to, 2, m.received, "f", r#","bp":"e""#)];
        for (lane, tid, moment, ph, bind) in ends {
            let ts = micros(step.start + moment);
            self.push(format_args!(
                r#"{{"ph":"X","pid":{lane},"tid":{tid},"ts":{ts},"dur":0.000,"name":"{name}","args":{args}}}"#
            ));
            self.push(format_args!(
                r#"{{"ph":"{ph}"{bind},"id":{id},"pid":{lane},"tid":{tid},"ts":{ts},"name":"message","cat":"message"}}"#
            ));
        }
    }
}
