//! The supervisor: a process without MPI that keeps a job going.
//!
//! ```text
//!              verdict: run                 a rank is lost, or silent
//!   Deciding ---------------> Running ----------------------------------.
//!      ^  ^                    |    |  members change, and another size  |
//!      |  '--- Parked <--------|    '--> Stopping ---> ended ------------+--> Deciding
//!      |        verdict: wait  |                                         |
//!      '-----------------------+------- done, failed, too many losses: Finished
//! ```
//!
//! One thread decides. Everybody else sends it [`Input`]s: the membership's watch, the watch of the
//! ranks, signals. Nothing is polled; where nothing is to be done it sleeps.
//!
//! A generation is lost with its first rank. What is left of it is ended at once and started anew, or goes
//! on by itself ([`loss`]); either way the next one begins from the newest state. Whether it came to its end says its record, never mpirun's code.

mod decide;
mod end;
mod generation;
mod health_events;
mod job;
mod loss;
mod memory;
mod news;
mod own_nodes;
mod reroute;
mod standby;
mod trained;

use super::debounce::Debounce;
use super::journal::{self, Cause, Journal};
use super::membership::{Lease, Membership, News, Node, Notice, TIME_TO_LIVE};
use super::restarts::Restarts;
use super::straggler::Warnings;
use super::watch::HealthEvent;
use crate::failure::{Code, Failure};
use crate::fence;
use crate::signals;
use generation::Running;
pub use job::{Job, OnLoss, Times};
use own_nodes::OwnNode;
use pipewright_core::elastic::{Occasion, Size};
use signal_hook::consts::SIGHUP;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use trained::Samples;

/// Restarts without progress, and the time in which they are counted.
const RESTARTS: (usize, Duration) = (3, Duration::from_secs(600));

/// What the supervisor hears.
enum Input {
    Members(Notice),
    /// From the watch of a generation that was started.
    Health(u64, HealthEvent),
    Stop,
}

/// What it does.
#[allow(clippy::large_enum_variant, reason = "there is one of them in a process")]
enum SupervisorState {
    Deciding(Occasion),
    Running(Running),
    /// Until members change or the time has come.
    Parked(Instant),
}

/// The supervisor of one job.
pub struct Supervisor<'a> {
    job: &'a Job,
    membership: &'a dyn Membership,
    lead: Option<Box<dyn Lease>>,
    journal: Journal,
    events: Receiver<Input>,
    sender: Sender<Input>,
    /// As seen last.
    nodes: Vec<Node>,
    own: Vec<OwnNode>,
    disconnected: bool,
    /// What it told the members last.
    news: News,
    /// Whether all steps are trained.
    done: bool,
    /// What it said last of why it waits.
    said: String,
    slow: Warnings,
    /// Who is in the generation that runs or ran last, and how many ranks it has.
    running: (Vec<Node>, u32),
    generation: u64,
    debounce: Debounce,
    restarts: Restarts,
    /// The newest step that was committed.
    committed: u64,
    samples: Samples,
    /// Ranks hang when none moved for so many milliseconds; the watch of the ranks looks.
    hung_after_ms: Arc<AtomicU64>,
    /// Time of a step of the generation that runs or ran last.
    step_time: Option<Duration>,
    /// The ways to run on some number of slots.
    sizes: Option<(u32, Vec<Size>)>,
    /// When the loss was that the job has not recovered from.
    lost: Option<Instant>,
    /// By node, the places of ranks that died while the others went on.
    missing: Vec<String>,
    /// What a rank said when it could not go on, and the step.
    failed: Option<(String, u64)>,
    /// Processes of this machine that the kernel had ended for memory before a generation began.
    killed_before: Option<u64>,
    /// With how many ranks the kernel ended one for memory.
    short_of_memory: Option<u32>,
    next_question: Instant,
}

/// Keeps a job going until it is done, fails or is told to stop.
///
/// # Errors
/// Why it did not come to its end, with the exit code.
pub fn supervise(job: &Job, membership: &dyn Membership) -> Result<(), Failure> {
    let journal = Journal::open(&job.out).map_err(|e| Failure::file(&job.out, &e))?;
    let (sender, events) = channel();
    listen(membership, &sender)?;
    let newest = fence::newest(&job.out).map_err(|e| Failure::file(&job.out, &e))?;
    let supervisor = Supervisor {
        job,
        membership,
        lead: None,
        journal,
        events,
        sender,
        nodes: vec![],
        own: vec![],
        disconnected: false,
        news: News::default(),
        done: false,
        said: String::new(),
        slow: Warnings::default(),
        running: (vec![], 0),
        generation: newest,
        debounce: Debounce::new(job.times.settle),
        restarts: Restarts::new(RESTARTS.0, RESTARTS.1),
        committed: 0,
        samples: Samples::new(job.plan.planned_batch()),
        hung_after_ms: Arc::new(AtomicU64::new(job.times.hung.as_millis() as u64)),
        step_time: None,
        sizes: None,
        lost: None,
        missing: vec![],
        failed: None,
        killed_before: None,
        short_of_memory: None,
        next_question: Instant::now() + job.times.ask,
    };
    supervisor.run()
}

/// Has the membership's watch and the signals send events.
fn listen(membership: &dyn Membership, sender: &Sender<Input>) -> Result<(), Failure> {
    let notices = membership.watch();
    let members = sender.clone();
    std::thread::spawn(move || {
        notices.into_iter().try_for_each(|notice| members.send(Input::Members(notice)))
    });
    let failed = |e: std::io::Error| Failure::new(Code::Failed, format!("signals: {e}"));
    let mut signals = signal_hook::iterator::Signals::new(signals::ends()).map_err(failed)?;
    let stop = sender.clone();
    std::thread::spawn(move || {
        signals.forever().try_for_each(|signal| {
            if signal == SIGHUP {
                signals::without_terminal();
            }
            stop.send(Input::Stop)
        })
    });
    Ok(())
}

/// An end: of the job, or of the supervisor's work on it.
type End = Result<(), Failure>;

impl Supervisor<'_> {
    fn run(mut self) -> End {
        let job = self.job;
        self.bring()?;
        if !self.stand_by()? {
            return Ok(());
        }
        self.committed = self.kept()?;
        self.begin_news();
        self.journal.write(journal::Event::Started {
            job: job.name.clone(),
            plan: job.plan_file.display().to_string(),
            policy: job.policy.name(),
            steps: job.plan.steps,
            mini_batch: Some(job.plan.planned_batch()),
            samples_epoch: Some(job.epoch).filter(|samples| *samples > 0),
        });
        // The first members decide at once: this supervisor's own are among them.
        let mut state = SupervisorState::Parked(Instant::now() + job.times.ask);
        loop {
            state = match self.step(state) {
                Ok(state) => state,
                Err(end) => return self.finish(end),
            };
        }
    }

    /// One decision or one event; `Err` with the job's end.
    fn step(&mut self, state: SupervisorState) -> Result<SupervisorState, End> {
        let state = match state {
            SupervisorState::Deciding(occasion) => return self.decide(occasion),
            state => state,
        };
        self.bring_back();
        self.look_around();
        let limit = self.until(&state).saturating_duration_since(Instant::now());
        match self.events.recv_timeout(limit) {
            Ok(Input::Stop) => self.stop(state),
            Ok(Input::Members(notice)) => {
                self.members(notice);
                Ok(state)
            }
            Ok(Input::Health(launch, event)) => match state {
                SupervisorState::Running(running) if running.launch == launch => {
                    self.event(running, event)
                }
                state => Ok(state),
            },
            Err(RecvTimeoutError::Timeout) => self.due(state),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Err(Failure::new(Code::Failed, "the supervisor's threads have ended")))
            }
        }
    }

    /// When something is to be done though nothing happens.
    fn until(&self, state: &SupervisorState) -> Instant {
        let next = match state {
            SupervisorState::Deciding(_) => Instant::now(),
            SupervisorState::Parked(moment) => *moment,
            SupervisorState::Running(running) => running.deadline().unwrap_or(self.next_question),
        };
        [self.debounce.due(), self.next_look()].into_iter().flatten().fold(next, Instant::min)
    }

    /// The time for something has come.
    fn due(&mut self, state: SupervisorState) -> Result<SupervisorState, End> {
        let now = Instant::now();
        let settled = self.debounce.due().is_some_and(|due| due <= now);
        match state {
            SupervisorState::Running(running)
                if running.deadline().is_some_and(|due| due <= now) =>
            {
                self.overdue(running)
            }
            // What comes while survivors find together is looked at when they have.
            SupervisorState::Running(running) if running.regroups.is_some() => {
                self.debounce.hold(now + self.job.times.settle);
                Ok(SupervisorState::Running(running))
            }
            // What comes while a generation ends is looked at when it has ended.
            SupervisorState::Running(running) if running.is_ending() => {
                self.debounce.clear();
                Ok(SupervisorState::Running(running))
            }
            SupervisorState::Running(running) if settled => self.reconsider(running),
            SupervisorState::Running(running) if self.next_question <= now => {
                self.next_question = now + self.job.times.ask;
                self.question(running, Occasion::Timer)
            }
            SupervisorState::Parked(_) if settled => {
                let occasion = self.settled();
                Ok(SupervisorState::Deciding(occasion))
            }
            SupervisorState::Parked(moment) if moment <= now => {
                Ok(SupervisorState::Deciding(Occasion::Timer))
            }
            state => Ok(state),
        }
    }

    fn members(&mut self, notice: Notice) {
        let now = Instant::now();
        match notice {
            Notice::Members(nodes) => {
                self.hold_for_own(&nodes, now);
                if std::mem::take(&mut self.disconnected) {
                    note!("the coordinator is back");
                    // Nodes whose leases are over, or that it has forgotten, join again.
                    self.debounce.hold(now + TIME_TO_LIVE + self.job.times.settle);
                    self.debounce.note(now);
                }
                if nodes != self.nodes {
                    self.note_members(&nodes);
                    self.nodes = nodes;
                    self.debounce.note(now);
                }
            }
            Notice::Disconnected(why) => {
                self.disconnected = true;
                warn!("the coordinator is lost: {why}; what runs goes on");
            }
        }
    }

    /// Says why nothing runs, once.
    fn waits(&mut self, why: String) {
        if self.said != why {
            note!("waiting: {why}");
            self.said = why;
        }
    }
}
