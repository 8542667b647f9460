//! Decisions on a change of members: the policy's answer, and the next state.

use super::{End, Running, Supervisor, SupervisorState};
use crate::elastic::journal::{self, Event, members};
use crate::elastic::membership::{Held, MembershipError, Node};
use crate::failure::{Code, Failure};
use crate::fence;
use pipewright_core::elastic::{
    BatchRule, Facts, Limits, Occasion, Progress, Size, Verdict, decide, sizes,
};
use pipewright_core::units::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Most slots for which sizes are predicted: more take too long.
const SLOTS_MAX: u64 = 4096;

/// What makes the difference between two lists of nodes.
fn occasion(before: &[Node], now: &[Node]) -> Occasion {
    let named = |nodes: &[Node], name: &str| nodes.iter().any(|node| node.name == name);
    if before.is_empty() {
        return Occasion::Started;
    }
    if before.iter().any(|node| !named(now, &node.name)) {
        return Occasion::Lost;
    }
    if now.iter().any(|node| node.leaving) {
        return Occasion::Left;
    }
    Occasion::Joined
}

impl Supervisor<'_> {
    /// Takes note of the members as they have settled.
    pub(super) fn settled(&mut self) -> Occasion {
        self.debounce.clear();
        let why = match self.running.0.is_empty() {
            true => Occasion::Started,
            false => occasion(&self.running.0, &self.nodes),
        };
        self.journal.write(Event::Members { members: members(&self.nodes), why });
        why
    }

    /// The ways to run the job on so many slots, ascending; predicted once.
    fn sizes(&mut self, slots: u32) -> Vec<Size> {
        let (plan, rule) = (&self.job.plan, self.job.mini_batch);
        let most = match rule {
            // Replicas have a sample each at least.
            BatchRule::Keep => {
                u64::from(plan.lanes() * plan.tensor).saturating_mul(plan.mini_batch)
            }
            BatchRule::Scale(_) => SLOTS_MAX,
        };
        let slots = slots.min(most.min(SLOTS_MAX) as u32);
        match &self.sizes {
            Some((known, sizes)) if *known == slots => sizes.clone(),
            _ => {
                // A plan that does not fit together was refused at the begin.
                let sizes = sizes(plan, slots, rule).unwrap_or_default();
                let sizes = self.with_rerouted(slots, sizes);
                self.sizes.insert((slots, sizes)).1.clone()
            }
        }
    }

    /// The nodes, without the places of ranks that died while others went on.
    pub(super) fn present(&self) -> Vec<Node> {
        let missing = |node: &Node| self.missing.iter().filter(|name| **name == node.name).count();
        let left = |node: &Node| Node {
            slots: node.slots.saturating_sub(missing(node) as u32),
            ..node.clone()
        };
        self.nodes.iter().map(left).filter(|node| node.slots > 0).collect()
    }

    fn facts(&mut self, occasion: Occasion) -> Facts {
        let job = self.job;
        let plan = &job.plan;
        let members = members(&self.present());
        let slots = members.iter().fold(0, |sum: u32, member| sum.saturating_add(member.slots));
        let sizes = self.sizes(slots);
        let least = if slots < plan.tensor { plan.tensor } else { plan.ranks() };
        let nanos = |time: std::time::Duration| Nanos(time.as_nanos() as u64);
        Facts {
            occasion,
            initial: self.running.1 == 0,
            members,
            running: journal::members(&self.running.0),
            running_ranks: self.running.1,
            limits: Limits {
                least: sizes.first().map_or(least, |size| size.ranks),
                most: sizes.last().map_or(plan.ranks(), |size| size.ranks),
                asked: plan.ranks(),
            },
            sizes,
            progress: Progress {
                step: self.committed,
                samples: self.samples.of(self.committed),
                samples_total: plan.samples_total(),
                samples_epoch: job.epoch,
            },
            step_ns: self.step_time.map(nanos),
            elapsed_ns: nanos(self.journal.elapsed()),
            left_ns: None,
            generation: self.generation,
            restarts: self.restarts.total(),
        }
    }

    /// Asks the policy. One that panics ends the job, like one that says so.
    pub(super) fn ask(&mut self, why: Occasion) -> Verdict {
        let facts = self.facts(why);
        let policy = self.job.policy.as_ref();
        let answer = catch_unwind(AssertUnwindSafe(|| decide(policy, &facts)));
        answer.unwrap_or_else(|_| Verdict::fail("the policy panicked"))
    }

    /// Asks the policy, and writes its answer down.
    fn verdict(&mut self, why: Occasion) -> Verdict {
        let verdict = self.ask(why);
        // Many questions have the same answer; only what is new is worth a line.
        if why != Occasion::Timer || !matches!(verdict, Verdict::Run { .. }) {
            self.journal.write(Event::Verdict { why, verdict: verdict.clone() });
        }
        verdict
    }

    /// Nothing runs: what now?
    pub(super) fn decide(&mut self, why: Occasion) -> Result<SupervisorState, End> {
        self.next_question = Instant::now() + self.job.times.ask;
        let parked = SupervisorState::Parked(self.next_question);
        match self.verdict(why) {
            Verdict::Run { ranks } => self.begin(ranks),
            Verdict::Wait { why } => {
                self.waits(why);
                self.say_goodbye();
                Ok(parked)
            }
            Verdict::Fail { why } => {
                Err(Err(Failure::new(Code::POLICY, format!("{}: {why}", self.job.policy.name()))))
            }
        }
    }

    /// Members have changed while a generation runs.
    pub(super) fn reconsider(&mut self, running: Running) -> Result<SupervisorState, End> {
        let why = self.settled();
        self.question(running, why)
    }

    /// Goes on, or has the generation stop for another size or none.
    pub(super) fn question(
        &mut self,
        running: Running,
        why: Occasion,
    ) -> Result<SupervisorState, End> {
        let stays = |node: &Node| {
            self.nodes
                .iter()
                .any(|now| now.name == node.name && !now.leaving && now.slots == node.slots)
        };
        let all_there = running.nodes.iter().all(stays);
        match self.verdict(why) {
            Verdict::Run { ranks } if ranks == running.ranks && all_there => {
                // Who is to leave has no ranks here.
                self.say_goodbye();
                self.tell_idle(&running);
                Ok(SupervisorState::Running(running))
            }
            // Asked again when it has stopped, with what there is then.
            _ => Ok(SupervisorState::Running(running.stop(why, self.job.times.stop))),
        }
    }

    /// Leads, if it does not, and takes the number of the next generation.
    pub(super) fn next_generation(&mut self) -> Result<u64, MembershipError> {
        if self.lead.as_ref().is_none_or(|lease| lease.held() != Held::Yes) {
            self.lead = None;
            self.lead = Some(self.membership.lead(&self.job.host)?);
        }
        // A coordinator may have lost what it knew; what may write says the run's folder.
        let open = fence::newest(&self.job.out).unwrap_or(0);
        let known = self.membership.generation()?.max(self.generation).max(open);
        self.membership.advance(known)
    }

    /// Ends the membership of nodes that were asked to leave and have no ranks any more.
    pub(super) fn say_goodbye(&mut self) {
        for node in self.nodes.iter().filter(|node| node.leaving) {
            if let Err(e) = self.membership.remove(&node.name) {
                warn!("node `{}` cannot be told to go: {e}", node.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed() {
        let node = |name: &str, leaving| Node {
            name: name.into(),
            slots: 1,
            host: "here".into(),
            leaving,
        };
        let (a, b) = (node("a", false), node("b", false));
        let (only_a, only_b) = ([a.clone()], [b.clone()]);
        let both = [a.clone(), b];
        assert_eq!(occasion(&[], &only_a), Occasion::Started);
        assert_eq!(occasion(&only_a, &both), Occasion::Joined);
        assert_eq!(occasion(&both, &only_b), Occasion::Lost);
        assert_eq!(occasion(&both, &[a, node("b", true)]), Occasion::Left);
    }
}
