//! A life that was recorded: the runner's `run.jsonl`, a JSON object a line.
//!
//! Times are milliseconds since the supervisor began. A file that several supervisors wrote one after
//! the other goes on where the one before ended, or as much later as the machine's clock says.

use super::{Asked, Cause, End, Event, Generation, Life, Line, Loss};
use crate::units::Nanos;
use thiserror::Error;

/// A record that says nothing of a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the records: {what}")]
pub struct RecordError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Life {
    /// Reads records; an epoch has `samples_epoch` samples where they do not say it. What follows the last line break is a line that is being written, and left
    /// out.
    ///
    /// # Errors
    /// The first line that is no record, or a record of a generation that was not launched.
    pub fn read(text: &str, samples_epoch: u64) -> Result<Self, RecordError> {
        let mut life = Life { samples_epoch, ..Life::default() };
        let mut clock = Clock::default();
        let mut planned = (0, None);
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        let lines = text[..end].lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (number, line) in lines {
            let refuse = |what: String| RecordError { line: number + 1, what };
            let line: Line = serde_json::from_str(line).map_err(|e| refuse(e.to_string()))?;
            life.until = clock.read(&line);
            if let Event::Started { steps, mini_batch, samples_epoch, .. } = line.event {
                planned = (steps, mini_batch);
                life.samples_epoch = samples_epoch.unwrap_or(life.samples_epoch);
            }
            life.add(line.event).map_err(|what| refuse(what.into()))?;
        }
        let (steps, mini_batch) = planned;
        // Mini-batches stayed before records said what was planned.
        let mini_batch = mini_batch.or(life.generations.first().map(|first| first.mini_batch));
        life.samples_total = steps.saturating_mul(mini_batch.unwrap_or(0));
        Ok(life)
    }

    fn add(&mut self, event: Event) -> Result<(), &'static str> {
        let at = self.until;
        match event {
            Event::Started { .. } => self.end = None,
            Event::Quiet { .. }
            | Event::Straggler { .. }
            | Event::ReplicasDiffer { .. }
            | Event::StateLost { .. }
            | Event::Unknown => {}
            Event::Members { members, .. } => self.members.push((at, members)),
            Event::Verdict { why: occasion, verdict } => {
                self.asked.push(Asked { at, occasion, verdict });
            }
            Event::Generation {
                generation: number,
                members,
                ranks,
                replicas,
                micro_batches: _,
                mini_batch,
                rate_factor,
                samples,
                step,
                rerouted: _,
            } => {
                let before = || self.samples_before(step, mini_batch);
                let first_sample = samples.unwrap_or_else(before);
                self.generations.push(Generation {
                    number,
                    members,
                    ranks,
                    replicas,
                    mini_batch,
                    rate_factor,
                    launched: at,
                    training: None,
                    first_step: step,
                    first_sample,
                    points: vec![],
                    reached: step,
                    recovered: None,
                    ended: None,
                    loss: None,
                });
            }
            Event::Training { step, recover_ms, .. } => {
                self.last()?.recovered = recover_ms.map(millis);
                self.progress(step)?;
            }
            Event::Progress { step, .. } => self.progress(step)?,
            Event::Ended { step, cause, rank, detect_ms, .. } => {
                let generation = self.last()?;
                generation.reached = generation.reached.max(step);
                if cause.is_loss() {
                    generation.loss = Some(Loss { rank, detected: detect_ms.map(millis) });
                }
                if step != generation.last_step() {
                    // Steps after the last report, or some that are lost again.
                    generation.points.retain(|(_, reported)| *reported < step);
                    generation.points.push((at, step.max(generation.first_step)));
                }
                generation.ended = Some((at, cause));
            }
            Event::Finished { code: 0, .. } if self.is_done() => self.end = Some(End::Done),
            Event::Finished { message, .. } => self.end = Some(End::Failed(message)),
        }
        Ok(())
    }

    fn progress(&mut self, step: u64) -> Result<(), &'static str> {
        let at = self.until;
        let generation = self.last()?;
        generation.training.get_or_insert(at);
        generation.points.push((at, step.max(generation.last_step())));
        generation.reached = generation.reached.max(step);
        Ok(())
    }

    fn last(&mut self) -> Result<&mut Generation, &'static str> {
        self.generations.last_mut().ok_or("no generation was launched before")
    }

    fn is_done(&self) -> bool {
        let ended = self.generations.last().and_then(|generation| generation.ended);
        ended.is_some_and(|(_, cause)| cause == Cause::Done)
    }

    /// Samples of the first `step` steps: by the generations that trained them, those before all
    /// records by mini-batches of `mini_batch`.
    fn samples_before(&self, step: u64, mini_batch: u64) -> u64 {
        let trained = self.generations.iter().rev().find(|g| g.first_step <= step);
        trained.map_or(step.saturating_mul(mini_batch), |generation| generation.samples_at(step))
    }
}

/// Time since the first record.
#[derive(Default)]
struct Clock {
    first_unix_ms: Option<u64>,
    /// Of the supervisor that writes: when it began.
    began_ms: u64,
    last_ms: u64,
}

impl Clock {
    fn read(&mut self, line: &Line) -> Nanos {
        let first = *self.first_unix_ms.get_or_insert(line.unix_ms.saturating_sub(line.at_ms));
        if matches!(line.event, Event::Started { .. }) {
            let began = line.unix_ms.saturating_sub(first).saturating_sub(line.at_ms);
            self.began_ms = began.max(self.last_ms);
        }
        self.last_ms = self.began_ms.saturating_add(line.at_ms).max(self.last_ms);
        millis(self.last_ms)
    }
}

fn millis(ms: u64) -> Nanos {
    Nanos(ms.saturating_mul(1_000_000))
}
