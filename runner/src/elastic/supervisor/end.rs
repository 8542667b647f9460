//! Ends of a generation, and of the job.

use super::generation::{BEATS, Running, Why};
use super::{Cause, End, Supervisor, SupervisorState};
use crate::checkpoint::{FOLDER, keep_newest};
use crate::elastic::journal;
use crate::failure::{Code, Failure};
use crate::fence;
use crate::report::Difference;
use crate::report::{ResultRecord, Status};
use pipewright_core::elastic::Occasion;
use std::process::ExitStatus;
use std::time::Instant;

/// How a generation ended.
pub(super) struct How {
    pub cause: Cause,
    /// What a rank said, or mpirun's code says.
    why: Option<String>,
    /// The code of ranks that found something wrong before they began.
    refused: Option<Code>,
    /// What its replicas did not have alike any more.
    pub difference: Option<Difference>,
}

impl Supervisor<'_> {
    /// Reads the record that ranks write; without one, who began the end says what it was. A
    /// generation that has not begun is one of which no rank was ever heard.
    pub(super) fn how(&self, running: &Running, status: Option<ExitStatus>, began: bool) -> How {
        let how = |cause| How { cause, why: None, refused: None, difference: None };
        let text = std::fs::read_to_string(self.job.out.join("result.json")).ok();
        let record: Option<ResultRecord> = text.and_then(|text| serde_json::from_str(&text).ok());
        let mine = record.filter(|record| record.generation == Some(running.generation));
        let why = running.why();
        match (&mine, why) {
            (Some(ResultRecord { status: Status::Done, .. }), _) => how(Cause::Done),
            (Some(ResultRecord { status: Status::Failed, error, difference, .. }), _) => {
                let difference = difference.clone();
                How { why: error.clone(), difference, ..how(Cause::Failed) }
            }
            (_, Some(Why::Change(_))) => how(Cause::Reconfigured),
            (_, Some(Why::Stop)) | (Some(ResultRecord { status: Status::Interrupted, .. }), _) => {
                how(Cause::Stopped)
            }
            (_, Some(Why::Silent { .. })) => how(Cause::RankSilent),
            (_, Some(Why::Hung)) => how(Cause::Hung),
            (None, _) if refusal(status).is_some() => {
                How { refused: refusal(status), ..how(Cause::Failed) }
            }
            (None, None) if !began => {
                let code = status.map_or("no code".into(), |status| status.to_string());
                let why = format!("mpirun ended with {code} before any rank began");
                How { why: Some(why), ..how(Cause::Failed) }
            }
            _ => how(Cause::RankLost),
        }
    }

    /// What follows from a generation's end.
    pub(super) fn after(
        &mut self,
        running: &Running,
        how: How,
        step: u64,
    ) -> Result<SupervisorState, End> {
        match (how.cause, running.why()) {
            (Cause::Done, _) => {
                self.done = true;
                Err(Ok(()))
            }
            (Cause::Stopped, _) => Err(Ok(())),
            (Cause::Reconfigured, Some(Why::Change(why))) => {
                self.debounce.clear();
                Ok(SupervisorState::Deciding(why))
            }
            (Cause::Failed, _) if how.refused.is_some() => {
                // The ranks have said why.
                Err(Err(Failure::silent(how.refused.unwrap_or(Code::Failed))))
            }
            (Cause::Failed, _) => self.failed(how.why.unwrap_or_default(), step),
            (Cause::RankLost, _) => match self.short_of_memory(running) {
                Some(failure) => Err(Err(failure)),
                None => self.again(step),
            },
            _ => self.again(step),
        }
    }

    /// A rank said why it cannot go on. Once that may be bad luck.
    fn failed(&mut self, why: String, step: u64) -> Result<SupervisorState, End> {
        let before = self.failed.replace((why.clone(), step));
        if before.is_some_and(|(_, at)| at == step) {
            let message = format!("{why} (twice after step {step}; starting again does not help)");
            return Err(Err(Failure::new(Code::Failed, message)));
        }
        self.again(step)
    }

    /// Begins again, unless that has been of no use too often.
    fn again(&mut self, step: u64) -> Result<SupervisorState, End> {
        let now = Instant::now();
        self.lost.get_or_insert(now);
        if self.restarts.allow(now, step) {
            return Ok(SupervisorState::Deciding(Occasion::Lost));
        }
        let (most, within) = super::RESTARTS;
        let message = format!(
            "ranks were lost {} times in {} minutes without a step between; step {step} is kept. \
             Look at what they said last, lower the memory that the plan needs or leave out the \
             node where it happens, then start the job again",
            most + 1,
            within.as_secs() / 60
        );
        Err(Err(Failure::new(Code::Peers, message)))
    }

    /// Somebody asked the job to stop.
    pub(super) fn stop(&mut self, state: SupervisorState) -> Result<SupervisorState, End> {
        match state {
            // Whoever asks twice is in a hurry.
            SupervisorState::Running(running) if matches!(running.why(), Some(Why::Stop)) => {
                self.ended(running)
            }
            SupervisorState::Running(running) => {
                Ok(SupervisorState::Running(running.stop_for(Why::Stop, self.job.times.stop)))
            }
            SupervisorState::Deciding(_) | SupervisorState::Parked(_) => Err(Ok(())),
        }
    }

    /// Removes what ranks may have left that were ended while they wrote.
    pub(super) fn clean_up(&self) {
        let entries = std::fs::read_dir(&self.job.out).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(".result.json-") || name.starts_with(".trace.json-") {
                // What cannot be removed does no harm.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn on_several_hosts(&self) -> bool {
        self.running.0.iter().any(|node| node.host != self.job.host)
    }

    /// The last thing: the newest state is put on the disk, and the journal closed.
    pub(super) fn finish(mut self, end: End) -> End {
        let disk = self.job.out.join(FOLDER);
        // On several hosts each has a part; there ranks that stop in order have saved. Where another
        // supervisor has taken the job over, what is here is old.
        let newest = fence::is_newest(&self.job.out, self.generation).unwrap_or(false);
        let kept = match self.on_several_hosts() || !newest {
            true => Ok(None),
            false => keep_newest(&self.job.session.state(), &disk, self.job.keep),
        };
        let beats = self.job.out.join(BEATS);
        if beats.exists()
            && let Err(e) = std::fs::remove_dir_all(&beats)
        {
            warn!("{}: {e}", beats.display());
        }
        let end = match (end, kept) {
            (Ok(()), Err(e)) => Err(Failure::new(Code::Failed, format!("no checkpoint: {e}"))),
            (Err(failure), Err(e)) => {
                warn!("no checkpoint of the last step: {e}");
                Err(failure)
            }
            (end, Ok(_)) => end,
        };
        let (code, message) = match &end {
            Ok(()) => (0, String::new()),
            Err(failure) => (failure.code as u8, failure.message.clone()),
        };
        self.journal.write(journal::Event::Finished { code, message });
        if self.done && newest {
            self.tell_done();
        }
        end
    }
}

/// The code of ranks that refused to begin: usage, plan or machine.
fn refusal(status: Option<ExitStatus>) -> Option<Code> {
    let code = Code::from_number(u8::try_from(status?.code()?).ok()?);
    [Code::Usage, Code::Plan, Code::Hardware].into_iter().find(|refusal| *refusal == code)
}
