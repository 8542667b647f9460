//! Watching a generation: processes that end, hearts that stand still, steps that are made.
//!
//! A thread waits for the end of mpirun and of each rank on this machine at once (`pidfd`), and looks
//! at heartbeats in between. What it says are signs; what they mean is the supervisor's affair.

use super::heartbeat::{Heartbeat, Phase, this_host};
use super::straggler::{Straggler, Stragglers};
use pipewright_core::elastic::Origin;
use pipewright_core::plan::Plan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A rank that was silent for so long is worth a line.
const QUIET: Duration = Duration::from_secs(2);

/// Where some say that they survived others, those are dead whose hearts stand still for so long.
const MISSED: Duration = Duration::from_secs(1);

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthEvent {
    /// mpirun is gone.
    Ended,
    /// A rank's process was ended by something else than itself.
    Died {
        /// Who.
        rank: u32,
        /// What it said last.
        last: Heartbeat,
    },
    /// A heart stands still.
    Silent {
        /// Whose.
        rank: u32,
        /// For how long.
        time: Duration,
        /// Whether it counts as dead.
        dead: bool,
    },
    /// No rank moves.
    Stuck {
        /// For how long.
        time: Duration,
    },
    /// A rank holds the others up.
    Slow {
        /// Which.
        straggler: Straggler,
        /// Steps that are committed.
        step: u64,
    },
    /// The ranks train.
    Step {
        /// Their generation.
        generation: u64,
        /// What was trained when they began.
        begun: Origin,
        /// And now.
        step: u64,
    },
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watched {
    /// mpirun.
    pub id: u32,
    /// Where ranks beat.
    pub beats: PathBuf,
    /// Which generation they were when they were started.
    pub generation: u64,
    /// How many were started.
    pub ranks: u32,
    /// A rank is dead when its heart stood still for so long.
    pub silent_after: Duration,
    /// Ranks hang when none moved for so many milliseconds.
    pub hung_after_ms: Arc<AtomicU64>,
    /// What they run.
    pub plan: Plan,
}

/// The thread; dropping it ends it.
#[derive(Debug)]
pub struct Watching {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    /// Begins to watch.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(
        self,
        mut see: impl FnMut(HealthEvent) + Send + 'static,
    ) -> std::io::Result<Watching> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let body = move || {
            let mut watch = Watch::new(self);
            while !ended.load(Ordering::Relaxed) && watch.look(&mut see) {}
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(body)?;
        Ok(Watching { end, thread: Some(thread) })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One rank's heart.
#[derive(Debug, Default)]
struct Heart {
    last: Option<Heartbeat>,
    process: Option<OwnedFd>,
    /// Since its last beat, counted in looks: a time in which this process stood still counts for no
    /// rank.
    still: Duration,
    said: bool,
    gone: bool,
}

/// How far those are who live.
#[derive(Default)]
struct Seen {
    /// Whether one has not been heard of, or is of an older generation.
    missing: bool,
    /// Whether one has survived others.
    survivors: bool,
    generation: u64,
    begun: Origin,
    /// The least of the ranks.
    step: Option<u64>,
}

impl Seen {
    fn add(&mut self, beat: &Heartbeat) {
        self.missing |= self.generation > 0 && self.generation != beat.generation;
        self.generation = self.generation.max(beat.generation);
        match beat.phase {
            Phase::Aside => {}
            Phase::Training => {
                self.begun = beat.begun;
                self.step = Some(self.step.map_or(beat.step, |step| step.min(beat.step)));
            }
            Phase::Survivor => (self.missing, self.survivors) = (true, true),
            Phase::Starting | Phase::Ended => self.missing = true,
        }
    }

    /// Generation, what was trained at its begin, and steps now, where all its ranks train.
    fn all_train(&self) -> Option<(u64, Origin, u64)> {
        Some((self.generation, self.begun, self.step.filter(|_| !self.missing)?))
    }
}

struct Watch {
    what: Watched,
    mpirun: Option<OwnedFd>,
    host: u32,
    hearts: Vec<Heart>,
    looked: Instant,
    /// The step that was seen last, and of which generation.
    step: Option<(u64, u64)>,
    moves: u64,
    stuck: Duration,
    stragglers: Option<Stragglers>,
    /// Makes them: to predict a large plan takes seconds, in which ranks may die.
    making: Option<JoinHandle<Stragglers>>,
    /// Whether a rank said at the last look that it survived others.
    survivors: bool,
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until one of the processes ends; which of them have.
fn ended(processes: &[&OwnedFd], limit: Duration) -> Vec<bool> {
    let mut polled: Vec<PollFd> =
        processes.iter().map(|process| PollFd::new(*process, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 0, tv_nsec: limit.as_nanos() as i64 };
    match poll(&mut polled, Some(&limit)) {
        Ok(_) => polled.iter().map(|p| p.revents().contains(PollFlags::IN)).collect(),
        Err(_) => vec![false; processes.len()],
    }
}

impl Watch {
    fn new(what: Watched) -> Self {
        let hearts = (0..what.ranks).map(|_| Heart::default()).collect();
        let mpirun = open(what.id);
        let (looked, stuck) = (Instant::now(), Duration::ZERO);
        let host = this_host();
        let plan = what.plan.clone();
        // Without another thread nobody is called slow.
        let making = std::thread::Builder::new().spawn(move || Stragglers::new(&plan)).ok();
        let (step, moves, stragglers, survivors) = (None, 0, None, false);
        Self {
            what,
            mpirun,
            host,
            hearts,
            looked,
            step,
            moves,
            stuck,
            stragglers,
            making,
            survivors,
        }
    }

    /// Looks once; whether there is more to see.
    fn look(&mut self, see: &mut impl FnMut(HealthEvent)) -> bool {
        let watched = |heart: &Heart| heart.process.is_some() && !heart.gone;
        let ranks: Vec<usize> =
            (0..self.hearts.len()).filter(|rank| watched(&self.hearts[*rank])).collect();
        let processes = ranks.iter().filter_map(|rank| self.hearts[*rank].process.as_ref());
        let processes: Vec<&OwnedFd> = self.mpirun.iter().chain(processes).collect();
        let mut ended = ended(&processes, LOOK).into_iter();
        let mpirun_ended = self.mpirun.is_none() || ended.next() == Some(true);
        for (rank, gone) in ranks.into_iter().zip(ended) {
            if gone {
                self.died(rank, see);
            }
        }
        self.beats(see);
        if mpirun_ended {
            see(HealthEvent::Ended);
        }
        !mpirun_ended
    }

    fn died(&mut self, rank: usize, see: &mut impl FnMut(HealthEvent)) {
        let number = rank as u32;
        let last = Heartbeat::read(&self.what.beats, number).unwrap_or_default();
        self.hearts[rank].gone = true;
        if last.phase != Phase::Ended {
            see(HealthEvent::Died { rank: number, last });
        }
    }

    fn beats(&mut self, see: &mut impl FnMut(HealthEvent)) {
        let now = Instant::now();
        let passed = (now - self.looked).min(2 * LOOK);
        self.looked = now;
        let (mut moves, mut seen) = (0_u64, Seen::default());
        let missed = if self.survivors { MISSED } else { Duration::MAX };
        let silent_after = self.what.silent_after.min(missed);
        for (rank, heart) in (0..).zip(&mut self.hearts) {
            let beat = Heartbeat::read(&self.what.beats, rank);
            let Some(beat) = beat.filter(|beat| beat.generation >= self.what.generation) else {
                seen.missing = true;
                continue;
            };
            if heart.process.is_none() && !heart.gone && beat.host == self.host {
                heart.process = open(beat.pid);
                // It has been buried already.
                if heart.process.is_none() {
                    heart.gone = true;
                    if beat.phase != Phase::Ended {
                        see(HealthEvent::Died { rank, last: beat });
                    }
                }
            }
            let before = heart.last.replace(beat);
            if before.is_some_and(|before| before.beats == beat.beats) && !heart.gone {
                heart.still += passed;
            } else {
                (heart.still, heart.said) = (Duration::ZERO, false);
            }
            if !heart.gone {
                seen.add(&beat);
            }
            moves = moves.wrapping_add(beat.moves);
            let (time, ended) = (heart.still, beat.phase == Phase::Ended);
            if time >= silent_after && !ended {
                see(HealthEvent::Silent { rank, time, dead: true });
            } else if time >= QUIET && !heart.said && !ended {
                heart.said = true;
                see(HealthEvent::Silent { rank, time, dead: false });
            }
        }
        self.survivors = seen.survivors;
        if let Some((generation, begun, step)) = seen.all_train()
            && self.step != Some((generation, step))
        {
            self.step = Some((generation, step));
            see(HealthEvent::Step { generation, begun, step });
            self.slow(generation, step, see);
        }
        // Nobody moves while a rank is silent, and that has a time of its own.
        let silent = self.hearts.iter().any(|heart| heart.still >= QUIET);
        self.stuck =
            if moves == self.moves && !silent { self.stuck + passed } else { Duration::ZERO };
        self.moves = moves;
        let hung_after = self.what.hung_after_ms.load(Ordering::Relaxed);
        if self.stuck >= Duration::from_millis(hung_after) {
            see(HealthEvent::Stuck { time: self.stuck });
            self.stuck = Duration::ZERO;
        }
    }

    /// Says who holds the others up. Survivors of a loss have another plan, of which nothing is known here.
    fn slow(&mut self, generation: u64, step: u64, see: &mut impl FnMut(HealthEvent)) {
        if generation != self.what.generation {
            return;
        }
        if let Some(made) = self.making.take_if(|making| making.is_finished()) {
            self.stragglers = made.join().ok();
        }
        let Some(stragglers) = &mut self.stragglers else { return };
        let busy = |heart: &Heart| heart.last.map_or(0, |beat| beat.busy_ns);
        let busy: Vec<u64> = self.hearts.iter().map(busy).collect();
        for straggler in stragglers.look(step, &busy) {
            see(HealthEvent::Slow { straggler, step });
        }
    }
}
