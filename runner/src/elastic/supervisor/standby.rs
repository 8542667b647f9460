//! Supervisors that do not lead: those that wait for the job of another one, and those that were cut
//! off from the coordinator and cannot know whether they still do.
//!
//! The coordinator is where the majority is: an etcd of several members answers no one who cannot reach
//! most of them. So whoever is cut off may go on with what runs, as long as it runs, and begins
//! nothing; whoever takes over begins a generation, whose number in the run's folder keeps the ranks of
//! all others from writing.

use super::{Input, Supervisor};
use crate::elastic::membership::{Held, MembershipError};
use crate::failure::{Code, Failure};
use crate::fence;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Time between two attempts to lead.
const AGAIN: Duration = Duration::from_secs(1);

/// Ranks of a supervisor that is cut off hang when none moved for so long, or for as long as two steps
/// take: they wait for hosts on the other side.
const CUT_OFF: Duration = Duration::from_secs(3);

impl Supervisor<'_> {
    /// Waits until this supervisor leads the job; its nodes are members meanwhile. Whether it does: it
    /// may be told to end before.
    pub(super) fn stand_by(&mut self) -> Result<bool, Failure> {
        loop {
            match self.membership.lead(&self.job.host) {
                Ok(lease) => {
                    self.lead = Some(lease);
                    break;
                }
                Err(e @ (MembershipError::NotLeader | MembershipError::Unreachable { .. })) => {
                    self.waits(e.to_string());
                }
                Err(e) => return Err(Failure::new(Code::Failed, e.to_string())),
            }
            match self.events.recv_timeout(AGAIN) {
                Ok(Input::Stop) => return Ok(false),
                Ok(Input::Members(notice)) => self.members(notice),
                // Nothing runs that could give signs.
                Ok(Input::Health(..)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(Code::Failed, "the supervisor's threads have ended"));
                }
            }
            self.bring_back();
        }
        self.journal.speak(true);
        // What the one before it did, if there was one.
        let out = &self.job.out;
        self.generation = fence::newest(out).map_err(|e| Failure::file(out, &e))?;
        self.committed = self.kept()?;
        Ok(true)
    }

    /// Sees whether this supervisor is cut off: then ranks that wait for others wait for ever.
    pub(super) fn look_around(&self) {
        let leads = self.lead.as_ref().is_some_and(|lease| lease.held() == Held::Yes);
        let limit = match self.disconnected && !leads {
            false => self.job.times.hung,
            true => {
                let two_steps = self.step_time.unwrap_or_default() * 2;
                CUT_OFF.max(two_steps).min(self.job.times.hung)
            }
        };
        self.hung_after_ms.store(limit.as_millis() as u64, Ordering::Relaxed);
    }
}
