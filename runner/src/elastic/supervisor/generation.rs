//! One generation of ranks: how it begins.

use super::memory;
use super::{End, Input, Occasion, OnLoss, Supervisor, SupervisorState};
use crate::elastic::journal;
use crate::elastic::launch::{Launch, Launched};
use crate::elastic::membership::{MembershipError, Node};
use crate::elastic::watch::{Watched, Watching};
use crate::failure::{Code, Failure};
use crate::fence;
use crate::files;
use pipewright_core::elastic::{Replanned, Rerouted, replan};
use pipewright_core::plan::Plan;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where ranks of several hosts beat, in the run's folder.
pub(super) const BEATS: &str = "beats";

/// Time until the coordinator is asked again, where it could not be reached.
const AGAIN: Duration = Duration::from_secs(1);

/// A generation that runs.
pub(super) struct Running {
    /// The one that was started; another runs where survivors of it went on.
    pub launch: u64,
    pub generation: u64,
    pub nodes: Vec<Node>,
    pub ranks: u32,
    /// Those that were started, and which of them have died since, by their numbers then.
    pub processes: u32,
    pub dead: Vec<u32>,
    /// When survivors of a loss must have found together.
    pub regroups: Option<Instant>,
    // Before what it watches.
    pub watching: Option<Watching>,
    pub launched: Launched,
    /// When the first step was seen, and which.
    pub begun: Option<(Instant, u64)>,
    /// When the last line of progress was written.
    pub told: Option<Instant>,
    /// Why it is to end, and when it will be ended.
    ending: Option<(Why, Instant)>,
}

/// Why a generation ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    /// A rank died; how long that took to be known.
    Lost {
        rank: u32,
        detect_ms: Option<u64>,
    },
    Silent {
        rank: u32,
    },
    Hung,
    /// To begin again with other members.
    Change(Occasion),
    /// For good.
    Stop,
}

impl Running {
    pub fn deadline(&self) -> Option<Instant> {
        self.ending.map(|(_, moment)| moment).or(self.regroups)
    }

    /// Processes that live.
    pub fn survivors(&self) -> u32 {
        self.processes - self.dead.len() as u32
    }

    /// The rank that a process has now: the living are numbered as they were. Beyond the ranks are
    /// those that wait aside.
    pub fn rank_of(&self, process: u32) -> u32 {
        (0..process).filter(|other| !self.dead.contains(other)).count() as u32
    }

    pub fn why(&self) -> Option<Why> {
        self.ending.map(|(why, _)| why)
    }

    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Asks the ranks to stop after their step.
    pub fn stop(self, occasion: Occasion, limit: Duration) -> Self {
        self.stop_for(Why::Change(occasion), limit)
    }

    pub fn stop_for(mut self, why: Why, limit: Duration) -> Self {
        self.launched.stop();
        self.ending = Some((why, Instant::now() + limit));
        self
    }

    /// Is to end now, for this unless it was to end for something else.
    pub fn end(mut self, why: Why) -> Self {
        self.ending.get_or_insert((why, Instant::now()));
        self
    }
}

impl Supervisor<'_> {
    /// Starts so many ranks from the newest state, or waits for the coordinator.
    pub(super) fn begin(&mut self, ranks: u32) -> Result<SupervisorState, End> {
        let again = SupervisorState::Parked(Instant::now() + AGAIN);
        match self.next_generation() {
            Ok(generation) => {
                self.journal.speak(true);
                self.generation = generation;
                // Another supervisor may have led meanwhile.
                let kept = self.kept().map_err(Err)?;
                self.committed = self.committed.max(kept);
            }
            Err(e @ (MembershipError::Unreachable { .. } | MembershipError::NotLeader)) => {
                if e == MembershipError::NotLeader {
                    self.journal.speak(false);
                }
                self.waits(e.to_string());
                return Ok(again);
            }
            Err(e) => return Err(Err(Failure::new(Code::Failed, e.to_string()))),
        }
        let running = self.launch(ranks).map_err(Err)?;
        self.tell_idle(&running);
        Ok(SupervisorState::Running(running))
    }

    fn launch(&mut self, ranks: u32) -> Result<Running, Failure> {
        let (job, generation) = (self.job, self.generation);
        let plan = self.plan_for(ranks)?;
        let ranks = plan.ranks();
        let folder = job.session.folder();
        job.session.renew().map_err(|e| Failure::file(folder, &e))?;
        let plan_file = self.write_plan(&plan)?;
        let nodes: Vec<Node> = self.nodes.iter().filter(|node| !node.leaving).cloned().collect();
        fence::open(&job.out, generation).map_err(|e| Failure::file(&job.out, &e))?;
        let beats = self.beats(&nodes);
        std::fs::create_dir_all(&beats).map_err(|e| Failure::file(&beats, &e))?;
        let launch = Launch {
            session: &job.session,
            plan: &plan_file,
            out: &job.out,
            generation,
            ranks,
            hosts: hosts(&nodes, &job.host),
            beats: &beats,
            survives: job.on_loss != OnLoss::Relaunch,
            options: &job.options,
        };
        self.missing.clear();
        self.tell_generation(&plan);
        self.killed_before = memory::killed();
        let launched = launch.start().map_err(|e| Failure::new(Code::Hardware, e.to_string()))?;
        let watched = Watched {
            id: launched.id(),
            beats: beats.clone(),
            generation,
            ranks,
            silent_after: job.times.silent,
            hung_after_ms: self.hung_after_ms.clone(),
            plan,
        };
        let sender = self.sender.clone();
        let watching =
            watched.start(move |event| drop(sender.send(Input::Health(generation, event))));
        let watching = watching.map_err(|e| Failure::new(Code::Failed, format!("threads: {e}")))?;
        self.say_goodbye();
        self.said.clear();
        self.running = (nodes.clone(), ranks);
        Ok(Running {
            launch: generation,
            generation,
            nodes,
            ranks,
            processes: ranks,
            dead: vec![],
            regroups: None,
            watching: Some(watching),
            launched,
            begun: None,
            told: None,
            ending: None,
        })
    }

    /// Puts the plan where ranks find it, all at once: some may read the one before.
    pub(super) fn write_plan(&self, plan: &Plan) -> Result<PathBuf, Failure> {
        let path = self.job.session.plan();
        files::replace(&path, plan.to_json()).map_err(|e| Failure::file(&path, &e))?;
        Ok(path)
    }

    /// Writes down that a generation begins by this plan.
    pub(super) fn tell_generation(&mut self, plan: &Plan) {
        self.samples.go_on(self.committed, plan.mini_batch);
        self.journal.write(journal::Event::Generation {
            generation: self.generation,
            members: journal::members(&self.present()),
            ranks: plan.ranks(),
            replicas: plan.data_parallel.replicas,
            micro_batches: plan.micro_batches,
            mini_batch: plan.mini_batch,
            rate_factor: plan.resized.map(|_| plan.rate_factor()),
            samples: Some(self.samples.of(self.committed)),
            step: self.committed,
            rerouted: Rerouted::name_of(plan).map(Into::into),
        });
    }

    /// The plan for so many ranks, made from that of the whole job.
    pub(super) fn plan_for(&self, ranks: u32) -> Result<Plan, Failure> {
        let whole = &self.job.plan;
        if ranks == whole.ranks() {
            return Ok(whole.clone());
        }
        let replanned = replan(whole, ranks, self.job.mini_batch);
        let fewer = replanned.as_ref().ok().map(Replanned::size);
        // Why not was said when the sizes were made.
        if let Ok(Some(plan)) = self.rerouted(ranks, fewer.as_ref()) {
            return Ok(plan);
        }
        Ok(replanned.map_err(|e| Failure::new(Code::Plan, e.to_string()))?.plan)
    }

    /// Where ranks beat: in memory, or where all hosts see it.
    pub(super) fn beats(&self, nodes: &[Node]) -> PathBuf {
        match hosts(nodes, &self.job.host) {
            Some(_) => self.job.out.join(BEATS),
            None => self.job.session.beats(),
        }
    }
}

/// The hosts for mpirun; none where all members are on this one.
fn hosts(nodes: &[Node], here: &str) -> Option<String> {
    if nodes.iter().all(|node| node.host == here) {
        return None;
    }
    let host = |node: &Node| format!("{}:{}", node.host, node.slots);
    Some(nodes.iter().map(host).collect::<Vec<_>>().join(","))
}
