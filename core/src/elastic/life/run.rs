//! A life that is imagined: members come and go at given times, a policy decides, and steps take what
//! was predicted for each size. Discrete events, integer time.
//!
//! ```text
//! members  a b        c joins          b is lost
//! asked    ^ (settle)   ^ (settle)       ^ (detect)
//! runs       |launch| 1 2 3 4 |launch| 5 6 7 x   |launch| 7 8 9 ...
//! ```
//! A change that was announced lets the step under way end; a loss throws it away. Joins within the
//! settle window are one change. A verdict that asks for the size that runs, by members who are all
//! there, changes nothing. Known limit: while the last step of a generation ends, nobody is lost.

use super::{Asked, Cause, End, Generation, Life, Loss};
use crate::elastic::{
    Facts, Limits, Member, Occasion, Origin, Progress, ScalePolicy, Size, Verdict, decide,
};
use crate::units::Nanos;

/// Questions after which a life is given up: a policy that waits for ever, asked every second.
const ASKED_MOST: usize = 100_000;

/// What is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Samples of the whole training.
    pub samples_total: u64,
    /// Samples of an epoch.
    pub samples_epoch: u64,
    /// What the plan's author wants.
    pub limits: Limits,
    /// All sizes, ascending by ranks, as [`crate::elastic::sizes`] gives them. Those without a
    /// predicted step are left out.
    pub sizes: Vec<Size>,
    /// When somebody else ends the job.
    pub time_limit: Option<Nanos>,
}

/// Times in which nothing is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// From the first change until the policy is asked, to gather others.
    pub settle: Nanos,
    /// From a loss until it is known.
    pub detect: Nanos,
    /// From a verdict until the first step begins.
    pub launch: Nanos,
    /// Between two questions while the job waits; zero: it is asked at changes only.
    pub timer: Nanos,
}

impl Default for Pauses {
    /// What the runner takes on one machine.
    fn default() -> Self {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        Self { settle: ms(1000), detect: ms(1100), launch: ms(1500), timer: ms(60_000) }
    }
}

/// Something that happens to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When.
    pub at: Nanos,
    /// To whom. A member that comes back counts anew.
    pub member: Member,
    /// What.
    pub what: What,
}

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It comes. One of a name that is there already is refused.
    Joins,
    /// It says that it goes.
    Leaves,
    /// It is gone.
    IsLost,
}

/// The life of `job` until it ends or the time is `until`.
pub fn live(
    job: &Job,
    policy: &dyn ScalePolicy,
    incidents: &[Incident],
    pauses: Pauses,
    until: Nanos,
) -> Life {
    let mut incidents = incidents.to_vec();
    incidents.sort_by_key(|incident| incident.at);
    let life = Life {
        samples_epoch: job.samples_epoch,
        samples_total: job.samples_total,
        ..Life::default()
    };
    let asks = Some((pauses.settle, Occasion::Started));
    let mut run = JobSimulation {
        job,
        policy,
        pauses,
        life,
        members: vec![],
        asks,
        step_ns: Nanos::ZERO,
        restarts: 0,
    };
    let mut incidents = incidents.into_iter().peekable();
    while run.life.end.is_none() && run.life.asked.len() < ASKED_MOST {
        let done = run.done_at();
        let ask = run.asks.map(|(at, _)| at);
        let incident = incidents.peek().map(|incident| incident.at);
        let Some(now) = [done, incident, ask].into_iter().flatten().min() else { break };
        if now > until {
            break;
        }
        if done == Some(now) {
            run.stop(now, Cause::Done);
        } else if incident == Some(now) {
            run.happen(incidents.next().expect("it was peeked at"));
        } else {
            run.ask(now);
        }
    }
    run.look(until)
}

struct JobSimulation<'a> {
    job: &'a Job,
    policy: &'a dyn ScalePolicy,
    pauses: Pauses,
    life: Life,
    /// Ascending by name.
    members: Vec<Member>,
    /// When the policy is asked next, and why.
    asks: Option<(Nanos, Occasion)>,
    /// Of the generation that runs or ran last.
    step_ns: Nanos,
    restarts: u32,
}

impl JobSimulation<'_> {
    fn running(&mut self) -> Option<&mut Generation> {
        self.life.generations.last_mut().filter(|g| g.ended.is_none())
    }

    fn origin(&self) -> Origin {
        Origin { step: self.life.steps(), samples: self.life.samples() }
    }

    /// When training is done, if nothing happens.
    fn done_at(&mut self) -> Option<Nanos> {
        let (total, step_ns) = (self.job.samples_total, self.step_ns);
        let running = self.running()?;
        let origin = Origin { step: 0, samples: running.first_sample };
        Some(running.training? + step_ns * origin.steps(running.mini_batch, total))
    }

    /// Asks later, and not later than it would anyway; of two reasons the worse one.
    fn ask_after(&mut self, at: Nanos, occasion: Occasion) {
        let rank = |occasion| match occasion {
            Occasion::Timer => 0,
            Occasion::Joined => 1,
            Occasion::Left => 2,
            Occasion::Started => 3,
            Occasion::Lost => 4,
        };
        self.asks = match self.asks {
            // A loss is known when it is known, and a timer waits for nothing.
            Some((_, before)) if occasion == Occasion::Lost && before != Occasion::Lost => {
                Some((at, occasion))
            }
            None | Some((_, Occasion::Timer)) => Some((at, occasion)),
            Some((then, before)) if rank(occasion) > rank(before) => Some((then, occasion)),
            before => before,
        };
    }

    fn happen(&mut self, Incident { at, member, what }: Incident) {
        let found = self.members.binary_search_by(|m| m.name.cmp(&member.name));
        match (what, found) {
            (What::Joins, Err(place)) => {
                self.members.insert(place, member);
                self.ask_after(at + self.pauses.settle, Occasion::Joined);
            }
            (What::Leaves, Ok(place)) => {
                self.members.remove(place);
                self.ask_after(at + self.pauses.settle, Occasion::Left);
            }
            (What::IsLost, Ok(place)) => {
                self.members.remove(place);
                let ran = |g: &mut Generation| g.members.iter().any(|m| m.name == member.name);
                if self.running().is_some_and(ran) {
                    self.stop(at, Cause::MemberLost);
                    self.restarts += 1;
                }
                self.ask_after(at + self.pauses.detect, Occasion::Lost);
            }
            // Somebody who is there already, or not there at all.
            (What::Joins, Ok(_)) | (_, Err(_)) => return,
        }
        self.note(at);
    }

    fn note(&mut self, at: Nanos) {
        self.life.until = at;
        match self.life.members.last_mut() {
            Some((then, members)) if *then == at => members.clone_from(&self.members),
            _ => self.life.members.push((at, self.members.clone())),
        }
    }

    /// Ends the generation that runs, if one does: at once by a loss, else after the step under way.
    /// Returns when the next one may be launched.
    fn stop(&mut self, now: Nanos, cause: Cause) -> Nanos {
        let (step_ns, detect) = (self.step_ns, self.pauses.detect);
        let ended = self.life.generations.last().and_then(|generation| generation.ended);
        let Some(running) = self.running() else { return ended.map_or(now, |(at, _)| at.max(now)) };
        let begin = running.training.expect("every imagined generation begins");
        let since = now.saturating_sub(begin).0;
        let steps = match cause {
            Cause::MemberLost => since / step_ns.0.max(1),
            _ => since.div_ceil(step_ns.0.max(1)),
        };
        if begin > now {
            running.training = None;
        } else if steps > 0 {
            running.points = vec![(begin + step_ns * steps, running.first_step + steps)];
        }
        running.reached = running.first_step + steps;
        if cause == Cause::MemberLost {
            running.loss = Some(Loss { rank: None, detected: Some(detect) });
            // The step under way.
            running.reached += u64::from(begin <= now);
        }
        let end = match cause {
            Cause::MemberLost => now,
            _ if begin > now => now,
            _ => now.max(begin + step_ns * steps),
        };
        // A member may be lost while the generation before lets its last step end.
        let end = end.max(running.launched);
        running.ended = Some((end, cause));
        if self.life.samples() >= self.job.samples_total {
            self.finish(end, End::Done);
        }
        end
    }

    /// The first end counts: who is done cannot fail any more.
    fn finish(&mut self, at: Nanos, end: End) {
        if self.life.end.is_none() {
            self.life.until = at;
            self.life.end = Some(end);
        }
    }

    fn ask(&mut self, now: Nanos) {
        let (_, occasion) = self.asks.take().expect("it is time to ask");
        let facts = self.facts(now, occasion);
        let verdict = decide(self.policy, &facts);
        self.life.asked.push(Asked { at: now, occasion, verdict: verdict.clone() });
        self.life.until = now;
        match verdict {
            Verdict::Run { ranks } => {
                if !self.goes_on_with(ranks) {
                    let at = self.stop(now, Cause::Reconfigured);
                    if self.life.end.is_none() {
                        self.launch(at, ranks);
                    }
                }
            }
            Verdict::Wait { .. } => {
                self.stop(now, Cause::Stopped);
                if self.pauses.timer > Nanos::ZERO {
                    self.asks = Some((now + self.pauses.timer, Occasion::Timer));
                }
            }
            Verdict::Fail { why } => {
                let at = self.stop(now, Cause::Failed);
                self.finish(at, End::Failed(why));
            }
        }
    }

    fn goes_on_with(&mut self, ranks: u32) -> bool {
        let members = self.members.clone();
        let there = |m: &Member| members.contains(m);
        self.running().is_some_and(|g| g.ranks == ranks && g.members.iter().all(there))
    }

    fn launch(&mut self, at: Nanos, ranks: u32) {
        let sizes = &self.job.sizes;
        let size = *sizes.iter().find(|size| size.ranks == ranks).expect("it was decided on");
        let mut left = ranks;
        let mut members = vec![];
        for member in &self.members {
            if left > 0 {
                left -= left.min(member.slots);
                members.push(member.clone());
            }
        }
        let Origin { step, samples } = self.origin();
        self.step_ns = size.step_ns.unwrap_or_default();
        let training = at + self.pauses.launch;
        let before = self.life.generations.last().filter(|g| g.loss.is_some());
        let lost_at = before.and_then(|g| g.ended).map(|(at, _)| at);
        self.life.generations.push(Generation {
            number: self.life.generations.len() as u64 + 1,
            members,
            ranks,
            replicas: size.replicas,
            mini_batch: size.mini_batch,
            rate_factor: None,
            launched: at,
            training: Some(training),
            first_step: step,
            first_sample: samples,
            points: vec![],
            reached: step,
            recovered: lost_at.map(|lost| training.saturating_sub(lost)),
            ended: None,
            loss: None,
        });
    }

    fn facts(&mut self, now: Nanos, occasion: Occasion) -> Facts {
        let step_ns = self.step_ns;
        // As far as it is at this moment.
        let mut origin = self.origin();
        if let Some(running) = self.running() {
            let since = now.saturating_sub(running.training.unwrap_or(now));
            let first = Origin { step: running.first_step, samples: running.first_sample };
            origin = first.after(running.mini_batch, first.step + since.0 / step_ns.0.max(1));
        }
        let last = self.life.generations.last();
        let slots: u32 = self.members.iter().fold(0, |sum: u32, m| sum.saturating_add(m.slots));
        let fits = |size: &&Size| size.ranks <= slots && size.step_ns.is_some_and(|s| s.0 > 0);
        Facts {
            occasion,
            initial: last.is_none(),
            running: last.map_or(vec![], |g| g.members.clone()),
            running_ranks: last.map_or(0, |g| g.ranks),
            generation: last.map_or(0, |g| g.number),
            step_ns: last.map(|_| step_ns),
            members: self.members.clone(),
            sizes: self.job.sizes.iter().filter(fits).copied().collect(),
            limits: self.job.limits,
            progress: Progress {
                step: origin.step,
                samples: origin.samples,
                samples_total: self.job.samples_total,
                samples_epoch: self.job.samples_epoch,
            },
            elapsed_ns: now,
            left_ns: self.job.time_limit.map(|limit| limit.saturating_sub(now)),
            restarts: self.restarts,
        }
    }

    /// What is to be seen at `until`, if the job did not end before.
    fn look(mut self, until: Nanos) -> Life {
        if self.life.end.is_none() {
            self.life.until = until;
            let step_ns = self.step_ns;
            if let Some(running) = self.running() {
                let begin = running.training.unwrap_or(until);
                let steps = until.saturating_sub(begin).0 / step_ns.0.max(1);
                running.reached = running.first_step + steps;
                if steps > 0 {
                    running.points = vec![(begin + step_ns * steps, running.first_step + steps)];
                }
            }
        }
        self.life
    }
}
