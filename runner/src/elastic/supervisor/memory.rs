//! Ranks that the kernel ends for memory: from outside that is a `kill -9` like any other, so the
//! machine's own count tells. The same plan needs the same memory again; twice is enough.

use super::Supervisor;
use super::generation::{Running, Why};
use crate::execute::available_memory;
use crate::failure::{Code, Failure};
use pipewright_core::cost::Halves;
use pipewright_core::predict::predict_with;

/// Processes of this machine that the kernel has ended for memory; `None` where it does not say.
pub(super) fn killed() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

impl Supervisor<'_> {
    /// A generation was lost. Why not to begin it again, where that was for memory and not for the
    /// first time with so many ranks.
    pub(super) fn short_of_memory(&mut self, running: &Running) -> Option<Failure> {
        if killed()? <= self.killed_before? {
            return None;
        }
        let again = self.short_of_memory.replace(running.ranks) == Some(running.ranks);
        let who = self.who(running);
        warn!("the kernel of this machine ended {who} for memory");
        again.then(|| {
            let message = format!(
                "the kernel ended {who} for memory, for the second time with this plan. Use more \
                 stages on more machines, a smaller mini-batch or more micro-batches, or fewer ranks \
                 on this machine"
            );
            Failure::new(Code::Hardware, message)
        })
    }

    /// The rank that was lost first, with what it is meant to need and what there is.
    fn who(&self, running: &Running) -> String {
        let Some(Why::Lost { rank, .. }) = running.why() else { return "a process".into() };
        let plan = self.plan_for(running.ranks).ok();
        let found = plan.and_then(|plan| Some((predict_with(&plan, Halves::Unpacked).ok()?, plan)));
        let Some((prediction, plan)) = found else { return format!("rank {rank}") };
        let program = &prediction.programs[plan.mesh().lane(rank).index()];
        let stages: Vec<String> = program.stages.iter().map(|s| s.stage.0.to_string()).collect();
        let left =
            available_memory().map_or(String::new(), |left| format!(", {left} are left now"));
        let (stages, needs) = (stages.join(", "), program.arena);
        format!("rank {rank} (stage {stages}; its tensors take {needs}{left})")
    }
}
