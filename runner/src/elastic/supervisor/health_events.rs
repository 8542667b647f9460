//! Health events of a generation, and its end.

use super::generation::{Running, Why};
use super::{Cause, End, Supervisor, SupervisorState};
use crate::elastic::heartbeat::{Heartbeat, now_ns, this_host};
use crate::elastic::journal;
use crate::elastic::straggler::Straggler;
use crate::elastic::watch::HealthEvent;
use crate::failure::Failure;
use crate::fence;
use crate::report::Difference;
use pipewright_core::elastic::Origin;
use std::time::{Duration, Instant};

/// Time between two lines of progress in the journal.
const PROGRESS: Duration = Duration::from_secs(1);

impl Supervisor<'_> {
    /// What is to be done about something that was seen.
    pub(super) fn event(
        &mut self,
        running: Running,
        event: HealthEvent,
    ) -> Result<SupervisorState, End> {
        match event {
            HealthEvent::Step { generation, .. } if generation != running.generation => {
                Ok(SupervisorState::Running(running))
            }
            HealthEvent::Step { begun, step, .. } => {
                Ok(SupervisorState::Running(self.stepped(running, begun, step)))
            }
            HealthEvent::Slow { straggler, step } => {
                self.slow(&running, straggler, step);
                Ok(SupervisorState::Running(running))
            }
            HealthEvent::Ended => self.ended(running),
            HealthEvent::Died { rank, .. } | HealthEvent::Silent { rank, dead: true, .. }
                if running.dead.contains(&rank) =>
            {
                Ok(SupervisorState::Running(running))
            }
            HealthEvent::Died { rank: process, last } => {
                let detect_ms =
                    (last.fault_ns > 0).then(|| now_ns().saturating_sub(last.fault_ns) / 1_000_000);
                let why = Why::Lost { rank: running.rank_of(process), detect_ms };
                self.lost(running, process, why)
            }
            HealthEvent::Silent { rank, time, dead: false } => {
                let ms = time.as_millis() as u64;
                warn!("rank {rank} has said nothing for {ms} ms");
                let generation = running.generation;
                self.journal.write(journal::Event::Quiet { generation, rank, ms });
                Ok(SupervisorState::Running(running))
            }
            HealthEvent::Silent { rank: process, .. } => {
                let why = Why::Silent { rank: running.rank_of(process) };
                self.lost(running, process, why)
            }
            HealthEvent::Stuck { .. } => {
                self.lost.get_or_insert_with(Instant::now);
                self.ended(running.end(Why::Hung))
            }
        }
    }

    fn stepped(&mut self, mut running: Running, begun: Origin, step: u64) -> Running {
        let (now, generation) = (Instant::now(), running.generation);
        let (since, first) = *running.begun.get_or_insert_with(|| {
            self.begins_at(begun);
            (now, step)
        });
        running.regroups = None;
        self.committed = step;
        if step > first {
            let steps = u32::try_from(step - first).unwrap_or(u32::MAX);
            self.step_time = Some((now - since) / steps);
        }
        if step == begun.step {
            return running;
        }
        if running.told.is_none() {
            let recover_ms = self.lost.take().map(|moment| moment.elapsed().as_millis() as u64);
            self.journal.write(journal::Event::Training { generation, step, recover_ms });
            running.told = Some(now);
        } else if running.told.is_none_or(|told| now - told >= PROGRESS) {
            self.journal.write(journal::Event::Progress { generation, step });
            running.told = Some(now);
        }
        running
    }

    /// Steps that are trained and kept when a generation has ended: what memory and disk of this
    /// machine say, or what its ranks said where they had others.
    fn trained(&mut self, last: &[Heartbeat]) -> Result<u64, Failure> {
        let told = last.iter().map(|beat| beat.step).min().unwrap_or(0).max(self.committed);
        let elsewhere = last.iter().any(|beat| beat.host != this_host());
        if elsewhere {
            self.committed = told;
            return Ok(told);
        }
        let kept = self.kept()?;
        // What is missing is said when the next one begins.
        self.committed = kept.max(self.committed);
        Ok(kept)
    }

    /// A generation begins; says what was lost where that is not the last step that was trained.
    fn begins_at(&mut self, begun: Origin) {
        let (trained, step) = (self.committed, begun.step);
        self.samples.know(begun);
        if step < trained {
            warn!(
                "the state of step {trained} is lost with everybody who had it; going on \
                 from step {step}, {} steps are trained again",
                trained - step
            );
            self.journal.write(journal::Event::StateLost { step: trained, left: step });
        }
    }

    /// Ends what is left of a generation, and sees how it went.
    pub(super) fn ended(&mut self, mut running: Running) -> Result<SupervisorState, End> {
        let folder = self.beats(&running.nodes);
        let beats = (0..running.processes).filter_map(|process| Heartbeat::read(&folder, process));
        let mut beats: Vec<Heartbeat> = beats.filter(|b| b.generation >= running.launch).collect();
        let began = !beats.is_empty();
        beats.retain(|beat| beat.generation == running.generation);
        let shut = fence::shut(&self.job.out, running.generation);
        let newest = shut.map_err(|e| Err(Failure::file(&self.job.out, &e)))?;
        let status = running.launched.end();
        drop(running.watching.take());
        if newest {
            self.clean_up();
        } else {
            // Another supervisor has taken the job over.
            self.journal.speak(false);
        }
        let step = self.trained(&beats).map_err(Err)?;
        let how = self.how(&running, status, began);
        if let Some(difference) = &how.difference {
            self.differ(&running, difference, step);
        }
        self.tell_end(&running, (how.cause, running.why()), step);
        self.missing.clear();
        self.after(&running, how, step)
    }

    /// Replicas were not alike: what is left is what they had alike; that the rest is gone is meant.
    fn differ(&mut self, running: &Running, difference: &Difference, step: u64) {
        let Difference { tensor, ranks, alike, .. } = difference;
        self.committed = step.min(*alike);
        self.journal.write(journal::Event::ReplicasDiffer {
            generation: running.generation,
            ranks: ranks.clone(),
            tensor: tensor.clone(),
            left: step.min(*alike),
        });
    }

    /// A rank holds the others up.
    fn slow(&mut self, running: &Running, straggler: Straggler, step: u64) {
        let Straggler { rank, stages, factor } = straggler;
        if let Some(unsaid) = self.slow.due(Instant::now()) {
            let more = match unsaid {
                0 => String::new(),
                _ => format!("; {unsaid} such warnings more are in {}", journal::FILE),
            };
            warn!(
                "rank {rank} (stage {}) computes {factor:.1} times as long as others would; \
                 all wait for it{more}",
                stages.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            );
        }
        let generation = running.generation;
        let slow = journal::Event::Straggler { generation, rank, stages, factor, step };
        self.journal.write(slow);
    }

    /// Writes down that a generation has ended, and with whom that began.
    pub(super) fn tell_end(
        &mut self,
        running: &Running,
        (cause, why): (Cause, Option<Why>),
        step: u64,
    ) {
        let (rank, detect_ms) = match why {
            Some(Why::Lost { rank, detect_ms }) => (Some(rank), detect_ms),
            Some(Why::Silent { rank }) => (Some(rank), None),
            _ => (None, None),
        };
        let loss = matches!(cause, Cause::RankLost | Cause::RankSilent | Cause::Hung);
        self.journal.write(journal::Event::Ended {
            generation: running.generation,
            step,
            cause,
            // Who waited aside had no rank.
            rank: rank.filter(|rank| loss && *rank < running.ranks),
            detect_ms: detect_ms.filter(|_| loss),
        });
    }
}
