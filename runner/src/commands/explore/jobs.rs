//! The runs that the page starts, one at a time. A run belongs to this program, not to the page: a
//! page that is reloaded finds it again.

use super::process::{How, Process, Steps, command};
use pipewright_core::plan::Plan;
use serde::Deserialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a run may take for its step and its last files when this program is closed.
const LAST_STEP: Duration = Duration::from_secs(10);

/// A run that has been told to stop is told again after that.
const AGAIN: Duration = Duration::from_secs(1);

/// How long after the signal that ends a process it may still be there.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Threads beyond this are refused.
const THREADS_MAX: u32 = 1024;

/// What the page wants to run, and all that it may choose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The file's text.
    pub plan: String,
    /// Steps in place of the plan's.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Threads of each rank; none shares the cores.
    #[serde(default)]
    pub threads: Option<u32>,
    /// What computes.
    #[serde(default)]
    pub device: Device,
    /// Whether weights are saved at the end, and when stopped.
    #[serde(default)]
    pub save: bool,
}

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// This machine's processors.
    #[default]
    Cpu,
    /// Nothing: the plan's times are spent.
    Model,
}

/// Why there is no run.
#[derive(Debug)]
pub enum Refusal {
    /// Another one goes on.
    Busy,
    /// It cannot be run.
    Plan(String),
    /// It could not be started.
    Failed(String),
}

/// Runs, of which the newest may go on.
pub struct Jobs {
    out: PathBuf,
    how: How,
    state: Mutex<JobsState>,
}

#[derive(Default)]
struct JobsState {
    newest: Option<Arc<Job>>,
    /// This program ends: nothing begins any more.
    closed: bool,
}

/// A run.
pub struct Job {
    /// Its number, which its folder has too.
    pub number: u32,
    /// Where its files are.
    pub folder: PathBuf,
    /// How ranks are started, how many there are and how many steps they train.
    pub begun: Begun,
    process: Mutex<Process>,
    ended: Condvar,
}

/// What is known when a run begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// How ranks are started.
    pub how: How,
    /// How many.
    pub ranks: u32,
    /// Steps.
    pub steps: u64,
    /// Of a step, in nanoseconds.
    pub predicted: u64,
}

impl Jobs {
    /// Runs in numbered folders below `out`, which need not be there.
    pub fn new(out: PathBuf) -> Self {
        Self { out, how: How::here(), state: Mutex::default() }
    }

    /// How ranks are started.
    pub fn how(&self) -> How {
        self.how
    }

    /// Where runs are.
    pub fn folder(&self) -> &Path {
        &self.out
    }

    /// The newest run, which may be over.
    pub fn newest(&self) -> Option<Arc<Job>> {
        self.lock().newest.clone()
    }

    /// Starts a run.
    pub fn start(&self, asked: &Asked) -> Result<Arc<Job>, Refusal> {
        let plan = Plan::from_json(&asked.plan).map_err(|e| Refusal::Plan(e.to_string()))?;
        let steps = asked.steps.unwrap_or(plan.steps);
        if asked.threads.is_some_and(|threads| threads > THREADS_MAX) {
            return Err(Refusal::Plan(format!("threads of a rank: at most {THREADS_MAX}")));
        }
        // Held until the run is there: of two that ask at once, one is refused.
        let mut state = self.lock();
        if state.closed || state.newest.as_ref().is_some_and(|job| job.goes_on()) {
            return Err(Refusal::Busy);
        }
        let failed = |e: io::Error| Refusal::Failed(format!("{}: {e}", self.out.display()));
        let (number, folder) = self.make_folder().map_err(failed)?;
        let file = folder.join("plan.json");
        fs::write(&file, &asked.plan).map_err(failed)?;
        // A single rank needs no launcher.
        let how = if plan.ranks() == 1 { How::Threads } else { self.how };
        let begun = Begun { how, ranks: plan.ranks(), steps, predicted: plan.prediction.step_ns.0 };
        let actions = plan.schedule.lanes.iter().map(|lane| lane.split_whitespace().count()).sum();
        let length = Steps { count: steps, actions };
        let command = command(asked, begun, &folder, length).map_err(failed)?;
        let log = File::create(folder.join("log.txt")).map_err(failed)?;
        let process = Process::start(command, log)
            .map_err(|e| Refusal::Failed(format!("{} could not be started: {e}", how.title())))?;
        let pid = process.id();
        let (process, ended) = (Mutex::new(process), Condvar::new());
        let job = Arc::new(Job { number, folder, begun, process, ended });
        let waiting = Arc::clone(&job);
        std::thread::spawn(move || {
            Process::wait_for(pid);
            waiting.lock().bury();
            waiting.ended.notify_all();
        });
        state.newest = Some(Arc::clone(&job));
        Ok(job)
    }

    /// The next number that is free. Making the folder is what takes it: another program may run here.
    fn make_folder(&self) -> io::Result<(u32, PathBuf)> {
        fs::create_dir_all(&self.out)?;
        let mut number = 1;
        loop {
            let folder = self.out.join(number.to_string());
            match fs::create_dir(&folder) {
                Ok(()) => return Ok((number, folder)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Stops the run after its step; asked again, at once.
    pub fn stop(&self) {
        if let Some(job) = self.newest() {
            let mut process = job.lock();
            match process.asked_to_stop() {
                true => process.end(),
                false => {
                    process.stop();
                    let job = Arc::clone(&job);
                    std::thread::spawn(move || job.stop_within(Duration::MAX));
                }
            }
        }
    }

    /// Stops the run and waits for its end; nothing begins any more.
    pub fn close(&self) {
        self.lock().closed = true;
        let Some(job) = self.newest() else { return };
        if !job.stop_within(LAST_STEP) {
            self.end_now();
        }
    }

    /// Ends the run at once.
    pub fn end_now(&self) {
        let Some(job) = self.newest() else { return };
        // mpirun ends its ranks when it is told to, and cannot when it is killed.
        job.lock().end();
        if !job.wait(LAST_BREATH) {
            job.lock().kill();
            job.wait(LAST_BREATH);
        }
    }

    fn lock(&self) -> MutexGuard<'_, JobsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        self.lock().exit().is_none()
    }

    /// Whether it has been told to stop.
    pub fn stopped(&self) -> bool {
        self.lock().asked_to_stop()
    }

    /// How the process ended, once it has.
    pub fn exit(&self) -> Option<std::process::ExitStatus> {
        self.lock().exit()
    }

    /// Tells it to stop after its step until it does or the time is over; whether it did. mpirun hands
    /// a signal on to the ranks that there are, and while it starts there are none.
    fn stop_within(&self, time: Duration) -> bool {
        let begin = Instant::now();
        loop {
            self.lock().stop();
            let left = time.saturating_sub(begin.elapsed());
            if self.wait(left.min(AGAIN)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Waits for the end, but not longer than that; whether it came.
    pub fn wait(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut process = self.lock();
        while process.exit().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (guard, _) =
                self.ended.wait_timeout(process, left).unwrap_or_else(PoisonError::into_inner);
            process = guard;
        }
        true
    }

    /// The newest trace, where there is one.
    pub fn trace(&self) -> Option<Vec<u8>> {
        fs::read(self.folder.join("trace.json")).ok()
    }
}
