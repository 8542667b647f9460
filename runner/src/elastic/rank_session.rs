//! A rank's session in an elastic job: heartbeat, fence, faults on purpose.
//!
//! A process keeps its session as long as it lives. Where it survives the loss of others, generation and
//! rank change, the heart beats on.

use super::fault_injection::{FaultAction, FaultSchedule};
use super::heartbeat::{Heartbeat, HeartbeatWriter, Phase};
use super::order::Order;
use super::session::Session;
use crate::execute::{InjectedFault, ProgressHook, StepPhase};
use crate::failure::{Code, Failure};
use crate::fence::{Fence, Fenced};
use pipewright_core::elastic::Origin;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The variable with faults for the ranks of a job.
pub const FAULTS: &str = "PIPEWRIGHT_FAIL";

/// Where the supervisor of an elastic job has prepared a rank's session.
#[derive(Clone, Debug)]
pub struct RankSessionSettings {
    /// The folder that the ranks of a machine share.
    pub session: PathBuf,
    /// The generation that begins.
    pub generation: u64,
    /// The folder of the run.
    pub out: PathBuf,
    /// The folder of heartbeats; none for the session's.
    pub beats: Option<PathBuf>,
}

/// What a rank of an elastic job has.
#[derive(Debug)]
pub struct RankSession {
    rank: u32,
    /// Which generation may write.
    pub fence: Fence,
    /// What the ranks of a machine share.
    pub session: Session,
    out: PathBuf,
    beats: PathBuf,
    beating: HeartbeatWriter,
    faults: FaultSchedule,
    /// How long the last steps took to compute.
    busy: Mutex<VecDeque<u64>>,
    /// Whether the fault has been: what goes on after it is not hit again.
    hit: AtomicBool,
}

/// Has this process end with the one that started it: when a supervisor or mpirun is killed, no
/// rank trains on.
pub fn end_with_parent() {
    // Where the system cannot do that, the supervisor still looks for what is left.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Beats between two looks at the fence.
const LOOK: u64 = 10;

/// Looks in a row that find a rank's generation given up before it ends: survivors of a loss are told of
/// their next one meanwhile.
const GIVEN_UP: u32 = 3;

/// Looks whether the rank's generation was given up, and ends this process then. The rank's own thread
/// may wait for ever: for ranks on hosts that cannot be reached, whose supervisor cannot reach this one
/// either.
struct Lookout {
    rank: u32,
    fence: Fence,
    given_up: u32,
}

impl Lookout {
    fn look(&mut self, beat: Heartbeat) {
        let waits = matches!(beat.phase, Phase::Survivor | Phase::Aside);
        self.given_up = match self.fence.of(beat.generation).check() {
            // A file that cannot be read just now says nothing.
            Err(fenced @ Fenced { now: Some(_), .. }) if !waits => {
                if self.given_up + 1 == GIVEN_UP {
                    error!("[rank {}] {fenced}", self.rank);
                    let _ = kill_process(getpid(), Signal::KILL);
                }
                self.given_up + 1
            }
            _ => 0,
        };
    }
}

impl RankSession {
    /// The session of rank `rank`.
    ///
    /// # Errors
    /// When what the supervisor prepared is not there.
    pub fn take(settings: RankSessionSettings, rank: u32) -> Result<Self, Failure> {
        let RankSessionSettings { session, generation, out, beats } = settings;
        let fence = Fence::open(&out, generation).map_err(|e| Failure::file(&out, &e))?;
        let session = Session::at(&session);
        let beats = beats.unwrap_or_else(|| session.beats());
        let mut lookout = Lookout { rank, fence: fence.clone(), given_up: 0 };
        let beating = HeartbeatWriter::start(&beats, rank, generation, move |number, beat| {
            if number.is_multiple_of(LOOK) {
                lookout.look(beat);
            }
        });
        let beating = beating.map_err(|e| Failure::file(&beats, &e))?;
        let faults = match std::env::var(FAULTS) {
            Ok(text) => text.parse().map_err(Failure::usage)?,
            Err(_) => FaultSchedule::default(),
        };
        let (busy, hit) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { rank, fence, session, out, beats, beating, faults, busy, hit })
    }

    /// Says at once that others were lost and this rank was not.
    pub fn survived(&self) {
        self.beating.belong(self.fence.generation(), Phase::Survivor);
    }

    /// Waits until the supervisor says how `survivors` processes, or fewer, go on after a loss.
    ///
    /// # Errors
    /// When it says nothing for long.
    pub fn order(&self, survivors: u32) -> Result<Order, Failure> {
        let after = self.fence.generation();
        Order::wait(&self.beats, after, survivors).ok_or_else(|| {
            let message = "ranks were lost, and the supervisor does not say how to go on";
            Failure::new(Code::Peers, message)
        })
    }

    /// From now on this is `rank` of that generation, or nobody in it.
    ///
    /// # Errors
    /// When the fence cannot be read.
    pub fn sit(&mut self, generation: u64, rank: Option<u32>) -> Result<(), Failure> {
        let fence = Fence::open(&self.out, generation);
        self.fence = fence.map_err(|e| Failure::file(&self.out, &e))?;
        self.rank = rank.unwrap_or(self.rank);
        let phase = rank.map_or(Phase::Aside, |_| Phase::Starting);
        self.beating.belong(generation, phase);
        Ok(())
    }
}

impl Drop for RankSession {
    /// The rank ends by itself, whatever for: it has said what it had to say.
    fn drop(&mut self) {
        self.beating.end();
    }
}

/// Steps of which the median is told: a rank that has become slow is known after five.
const WINDOW: usize = 9;

impl ProgressHook for RankSession {
    fn begun(&self, trained: Origin) {
        self.beating.begin(trained);
    }

    fn computed(&self, busy_ns: u64) {
        let mut last = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == WINDOW {
            last.pop_front();
        }
        last.push_back(busy_ns);
        if last.len() == WINDOW {
            let mut sorted: [u64; WINDOW] = std::array::from_fn(|at| last[at]);
            sorted.sort_unstable();
            self.beating.busy(sorted[WINDOW / 2]);
        }
    }

    fn at(&self, place: StepPhase, step: u64) -> Option<InjectedFault> {
        self.beating.moved();
        if place == StepPhase::Committed {
            self.beating.commit(step);
        }
        let action = self.faults.due(self.rank, self.fence.generation(), place, step)?;
        let again = matches!(action, FaultAction::NotFinite(_));
        if !again && self.hit.swap(true, Ordering::Relaxed) {
            return None;
        }
        let signal = match action {
            FaultAction::InjectedFault(injury) => return Some(injury),
            FaultAction::NotFinite(_) => return Some(InjectedFault::NotFinite),
            FaultAction::Kill => Some(Signal::KILL),
            FaultAction::Stop => Some(Signal::STOP),
            FaultAction::Hang => None,
        };
        self.beating.fault();
        let Some(signal) = signal else {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        };
        // To itself, so it arrives before the call returns.
        let _ = kill_process(getpid(), signal);
        None
    }
}
