//! Recovery from the loss of a rank.
//!
//! *Relaunch* ends what is left and starts everybody anew: any MPI can, and the place of a process that
//! died on a machine that lives is filled at once. *Shrink* has the survivors go on: they find each
//! other by MPI, hear from the supervisor which of them are the ranks of the next generation
//! ([`Order`]), and begin it from the newest state, in the processes that they are. So the step under way
//! is dropped on all of them, and every step counts once, as in a relaunch.

use super::generation::{Running, Why};
use super::{Cause, End, OnLoss, Supervisor, SupervisorState};
use crate::elastic::heartbeat::{Heartbeat, Phase, this_host};
use crate::elastic::launch::kill;
use crate::elastic::order::Order;
use crate::failure::Failure;
use crate::fence;
use pipewright_core::elastic::{Occasion, Verdict};
use pipewright_core::plan::Plan;
use std::time::Instant;

/// A way to go on after the loss of a rank.
pub(super) trait Mechanism {
    /// `running` has lost a rank; what becomes of it.
    fn lost(
        &self,
        supervisor: &mut Supervisor,
        running: Running,
        why: Why,
    ) -> Result<SupervisorState, End>;
}

/// Everybody is started anew.
struct Relaunch;

/// Survivors go on, where they can.
struct Shrink {
    /// Also where more ranks could be started anew.
    whatever: bool,
}

impl OnLoss {
    fn mechanism(self) -> &'static dyn Mechanism {
        match self {
            OnLoss::Relaunch => &Relaunch,
            OnLoss::Shrink => &Shrink { whatever: true },
            OnLoss::Auto => &Shrink { whatever: false },
        }
    }
}

impl Mechanism for Relaunch {
    fn lost(
        &self,
        supervisor: &mut Supervisor,
        running: Running,
        why: Why,
    ) -> Result<SupervisorState, End> {
        supervisor.ended(running.end(why))
    }
}

impl Mechanism for Shrink {
    fn lost(
        &self,
        supervisor: &mut Supervisor,
        running: Running,
        why: Why,
    ) -> Result<SupervisorState, End> {
        if running.is_ending() {
            return Relaunch.lost(supervisor, running, why);
        }
        match supervisor.for_survivors(&running, self.whatever) {
            Ok(next) => {
                supervisor.go_on(running, why, &next).map(SupervisorState::Running).map_err(Err)
            }
            Err(obstacle) => {
                if let Some(why) = obstacle {
                    note!("survivors do not go on by themselves: {why}; starting anew");
                }
                Relaunch.lost(supervisor, running, why)
            }
        }
    }
}

/// What survivors are to do.
struct Next {
    plan: Plan,
    generation: u64,
    /// Steps whose state is kept.
    step: u64,
}

impl Supervisor<'_> {
    /// A process of a generation is dead, or counts as such.
    pub(super) fn lost(
        &mut self,
        mut running: Running,
        process: u32,
        why: Why,
    ) -> Result<SupervisorState, End> {
        let aside = running.rank_of(process) >= running.ranks;
        self.missing.extend(node_of(&running, process));
        running.dead.push(process);
        if aside && running.regroups.is_none() {
            // It had nothing to do, and nobody waits for it.
            return Ok(SupervisorState::Running(running));
        }
        self.lost.get_or_insert_with(Instant::now);
        if let Why::Silent { .. } = why {
            self.end_silent(&running, process);
        }
        self.job.on_loss.mechanism().lost(self, running, why)
    }

    /// Ends a process that stands still: others wait for it.
    fn end_silent(&self, running: &Running, process: u32) {
        let beat = Heartbeat::read(&self.beats(&running.nodes), process);
        if let Some(beat) = beat.filter(|beat| beat.host == this_host()) {
            kill(beat.pid);
        }
    }

    /// How survivors of a loss are to go on; why they cannot, where there is something to say.
    fn for_survivors(&mut self, running: &Running, whatever: bool) -> Result<Next, Option<String>> {
        let said = |why: String| Some(why);
        if !self.all_stand(running) {
            return Err(said("ranks were still beginning".into()));
        }
        let newest = fence::shut(&self.job.out, running.generation);
        if !newest.map_err(|e| said(e.to_string()))? {
            // Another supervisor has taken the job over.
            return Err(None);
        }
        if self.how(running, None, true).cause != Cause::RankLost {
            // It has come to its end already.
            return Err(None);
        }
        let ranks = self.ranks_of_survivors(running.survivors(), whatever)?;
        let step = self.kept().map_err(|failure| said(failure.message))?;
        let plan = self.plan_for(ranks).map_err(|failure| said(failure.message))?;
        if !self.restarts.allow(Instant::now(), step) {
            return Err(None);
        }
        let generation = self.next_generation().map_err(|e| said(e.to_string()))?;
        Ok(Next { plan, generation, step })
    }

    /// Whether those who live have all begun to train: calls with which ranks find each other do not
    /// always return when one of them dies.
    fn all_stand(&self, running: &Running) -> bool {
        let folder = self.beats(&running.nodes);
        let stands = |beat: Heartbeat| {
            let phases = [Phase::Training, Phase::Aside, Phase::Survivor];
            beat.generation >= running.launch && phases.contains(&beat.phase)
        };
        let mut living = (0..running.processes).filter(|process| !running.dead.contains(process));
        living.all(|process| Heartbeat::read(&folder, process).is_some_and(stands))
    }

    /// How many ranks the policy lets survivors be.
    fn ranks_of_survivors(
        &mut self,
        survivors: u32,
        whatever: bool,
    ) -> Result<u32, Option<String>> {
        if !whatever {
            let missing = std::mem::take(&mut self.missing);
            let verdict = self.ask(Occasion::Lost);
            self.missing = missing;
            if matches!(verdict, Verdict::Run { ranks } if ranks > survivors) {
                return Err(None);
            }
        }
        match self.ask(Occasion::Lost) {
            Verdict::Run { ranks } if ranks <= survivors => Ok(ranks),
            Verdict::Run { ranks } => Err(Some(format!("{survivors} are left and {ranks} wanted"))),
            Verdict::Wait { why } | Verdict::Fail { why } => Err(Some(why)),
        }
    }

    /// Has the survivors be the next generation.
    fn go_on(&mut self, mut running: Running, why: Why, next: &Next) -> Result<Running, Failure> {
        let (job, Next { plan, generation, step }) = (self.job, next);
        let cause = if let Why::Silent { .. } = why { Cause::RankSilent } else { Cause::RankLost };
        self.tell_end(&running, (cause, Some(why)), *step);
        (self.generation, self.committed) = (*generation, self.committed.max(*step));
        self.write_plan(plan)?;
        self.tell_generation(plan);
        fence::open(&job.out, *generation).map_err(|e| Failure::file(&job.out, &e))?;
        let order =
            Order { generation: *generation, survivors: running.survivors(), ranks: plan.ranks() };
        let beats = self.beats(&running.nodes);
        order.give(&beats).map_err(|e| Failure::file(&beats, &e))?;
        (running.generation, running.ranks) = (order.generation, order.ranks);
        (running.begun, running.told) = (None, None);
        running.regroups = Some(Instant::now() + job.times.regroup);
        self.running.1 = order.ranks;
        Ok(running)
    }

    /// A generation that was to end has not, or survivors have not begun to train.
    pub(super) fn overdue(&mut self, mut running: Running) -> Result<SupervisorState, End> {
        let folder = self.beats(&running.nodes);
        let mut living = (0..running.processes).filter(|process| !running.dead.contains(process));
        let together = living.all(|process| {
            Heartbeat::read(&folder, process).is_some_and(|b| b.generation == running.generation)
        });
        if !running.is_ending() && together {
            // They load what they need.
            running.regroups = None;
            return Ok(SupervisorState::Running(running));
        }
        if !running.is_ending() {
            note!("survivors did not find together; starting anew");
        }
        self.ended(running)
    }
}

/// The node that a process was started on: mpirun fills one after the other.
fn node_of(running: &Running, process: u32) -> Option<String> {
    let mut before = 0;
    let node = running.nodes.iter().find(|node| {
        before += node.slots;
        process < before
    });
    node.map(|node| node.name.clone())
}
