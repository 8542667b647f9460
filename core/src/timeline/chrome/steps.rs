//! Events find their steps and lanes.

use super::Header;
use super::read::{Entry, Place};
use crate::timeline::{Lane, Step, Timeline, Trace};
use crate::units::{Bytes, Nanos};

/// Steps with all their lanes.
pub(super) struct Steps(Vec<Step>);

/// Lanes of all steps together: ten times those of the longest traces, and they still fit a page.
const LANES_MAX: usize = 1 << 21;
/// Micro-batches of all lanes: whoever asks which message came last keeps a number for each.
const CELLS_MAX: usize = 1 << 24;

impl Steps {
    /// Empty steps.
    ///
    /// # Errors
    /// What about the header cannot be.
    pub fn new(header: &Header) -> Result<Self, String> {
        let lanes = header.arena.len();
        if lanes == 0 {
            return Err("it has no lanes".into());
        }
        if lanes.saturating_mul(header.steps.len()) > LANES_MAX {
            let steps = header.steps.len();
            return Err(format!("{steps} steps of {lanes} lanes are more than can be read"));
        }
        if !header.steps.is_sorted_by(|a, b| a.number < b.number && a.start <= b.start) {
            return Err("its steps are not in order".into());
        }
        if header.steps.iter().any(|step| step.end < step.start) {
            return Err("a step ends before it begins".into());
        }
        let lane = |arena: &Bytes| Lane { arena: *arena, ..Lane::default() };
        let step = |s: &super::StepHeader| Step {
            number: s.number,
            start: Nanos(s.start),
            timeline: Timeline {
                lanes: header.arena.iter().map(lane).collect(),
                messages: vec![],
                elsewhere: Bytes::ZERO,
                step: Nanos(s.end - s.start),
            },
        };
        Ok(Self(header.steps.iter().map(step).collect()))
    }

    /// Puts an event where it belongs.
    ///
    /// # Errors
    /// What does not fit.
    pub fn add(&mut self, place: &Place, entry: Entry) -> Result<(), String> {
        if let Entry::Memory(moment, bytes) = entry {
            // Counters carry no step number, which would be drawn as a curve of its own.
            let at = self.0.partition_point(|s| s.start + s.timeline.step < moment);
            if let Some(step) = self.0.get_mut(at).filter(|step| step.start <= moment) {
                let moment = moment - step.start;
                lane(step, place.lane)?.memory.push((moment, bytes));
            }
            return Ok(());
        }
        let Ok(at) = self.0.binary_search_by_key(&place.step, |step| step.number) else {
            return Err(format!("step {} is not in the trace's list of steps", place.step));
        };
        let step = &mut self.0[at];
        let begin = step.start;
        let within = |moment: Nanos| moment.saturating_sub(begin);
        match entry {
            Entry::Span(mut span) => {
                (span.start, span.end) = (within(span.start), within(span.end));
                lane(step, place.lane)?.spans.push(span);
            }
            Entry::Aside(mut aside) => {
                (aside.start, aside.end) = (within(aside.start), within(aside.end));
                lane(step, place.lane)?.asides.push(aside);
            }
            Entry::Message(mut message) => {
                let lanes = step.timeline.lanes.len();
                if message.micro_batch.index() > CELLS_MAX / lanes {
                    let number = message.micro_batch;
                    return Err(format!("micro-batch {number} is beyond what can be shown"));
                }
                for end in [message.from, message.to] {
                    lane(step, end.0)?;
                }
                (message.sent, message.received) = (within(message.sent), within(message.received));
                step.timeline.messages.push(message);
            }
            Entry::Memory(..) => {}
        }
        Ok(())
    }

    /// The trace.
    pub fn finish(mut self, model: String) -> Trace {
        for step in &mut self.0 {
            for lane in &mut step.timeline.lanes {
                lane.spans.sort_by_key(|s| s.start);
                lane.asides.sort_by_key(|a| a.start);
            }
        }
        Trace { model, steps: self.0 }
    }
}

fn lane(step: &mut Step, pid: u32) -> Result<&mut Lane, String> {
    let lanes = step.timeline.lanes.len();
    let found = step.timeline.lanes.get_mut(pid as usize);
    found.ok_or_else(|| format!("lane {pid}, but the trace has {lanes} lanes"))
}
