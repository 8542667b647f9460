//! Heartbeats: that a rank's process lives, and where it is.
//!
//! A rank has one small file. A thread of its own renews it ten times a second, so a process that
//! is stopped, or swapped out for good, falls silent, and one that computes for long does not. In it
//! stand the step and how often the rank has moved from place to place: a rank that beats and never
//! moves waits for others or hangs.

use crate::hash::fnv1a;
use pipewright_core::elastic::Origin;
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two beats.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Numbers in the file.
const NUMBERS: usize = 10;

/// How far a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It reads its state.
    #[default]
    Starting,
    /// It trains.
    Training,
    /// It ends by itself.
    Ended,
    /// It survived the loss of another and has nothing to do in this generation.
    Aside,
    /// It survived the loss of another and waits to be told how to go on.
    Survivor,
}

/// What the file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The rank's process on its host.
    pub pid: u32,
    /// Which host that is: [`this_host`] there.
    pub host: u32,
    /// The generation that it belongs to.
    pub generation: u64,
    /// How often it was written.
    pub beats: u64,
    /// Steps that were committed when it began to train, and their samples.
    pub begun: Origin,
    /// Steps that are committed.
    pub step: u64,
    /// Places that the rank came to.
    pub moves: u64,
    /// How far it is.
    pub phase: Phase,
    /// When a fault that was asked for ended it, on the monotonic clock; 0: none did.
    pub fault_ns: u64,
    /// How long it computes in a step: the median of the last ones; 0: not known yet.
    pub busy_ns: u64,
}

/// Nanoseconds on the machine's monotonic clock.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A number for this host by its name: numbers of processes mean something there alone.
pub fn this_host() -> u32 {
    fnv1a(uname().nodename().to_bytes()) as u32
}

fn path(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("rank-{rank:03}"))
}

impl Heartbeat {
    /// What process `rank`, by its number when all were started, wrote last in `folder`; none where it has not begun.
    pub fn read(folder: &Path, rank: u32) -> Option<Self> {
        let mut bytes = [0; NUMBERS * 8];
        File::open(path(folder, rank)).ok()?.read_exact_at(&mut bytes, 0).ok()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        let phase = match number(5) {
            0 => Phase::Starting,
            1 => Phase::Training,
            3 => Phase::Aside,
            4 => Phase::Survivor,
            _ => Phase::Ended,
        };
        let [process, generation, beats, step, moves, _, fault_ns, first, samples, busy_ns] =
            std::array::from_fn(number);
        let begun = Origin { step: first, samples };
        let (pid, host) = (process as u32, (process >> 32) as u32);
        Some(Self { pid, host, generation, beats, begun, step, moves, phase, fault_ns, busy_ns })
    }

    fn bytes(&self) -> [u8; NUMBERS * 8] {
        let Self { pid, host, generation, beats, begun, step, moves, phase, fault_ns, busy_ns } =
            *self;
        let process = u64::from(host) << 32 | u64::from(pid);
        let (phase, Origin { step: first, samples }) = (phase as u64, begun);
        let numbers =
            [process, generation, beats, step, moves, phase, fault_ns, first, samples, busy_ns];
        let mut bytes = [0; NUMBERS * 8];
        let (places, _) = bytes.as_chunks_mut::<8>();
        places.iter_mut().zip(numbers).for_each(|(place, number)| *place = number.to_le_bytes());
        bytes
    }
}

/// A rank's side.
#[derive(Debug)]
pub struct HeartbeatWriter {
    shared: Arc<Shared>,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    moves: AtomicU64,
    busy_ns: AtomicU64,
    now: RwLock<Heartbeat>,
}

impl Shared {
    fn write(&self, change: impl FnOnce(&mut Heartbeat)) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut now);
        now.moves = self.moves.load(Ordering::Relaxed);
        now.busy_ns = self.busy_ns.load(Ordering::Relaxed);
        now.beats += 1;
        // A file in memory takes it, or the rank will be found silent.
        let _ = self.file.write_all_at(&now.bytes(), 0);
    }
}

impl HeartbeatWriter {
    /// Begins to beat in `folder`. After each beat `beaten` is called with their number and what was said.
    ///
    /// # Errors
    /// When there can be no file or no thread.
    pub fn start(
        folder: &Path,
        rank: u32,
        generation: u64,
        mut beaten: impl FnMut(u64, Heartbeat) + Send + 'static,
    ) -> io::Result<Self> {
        let file = File::create(path(folder, rank))?;
        let (pid, host) = (std::process::id(), this_host());
        let now = Heartbeat { pid, host, generation, ..Heartbeat::default() };
        let (moves, busy_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { file, moves, busy_ns, now: RwLock::new(now) });
        shared.write(|_| {});
        let (end, ended) = channel();
        let beats = shared.clone();
        let thread = std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            let mut number = 0;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(INTERVAL) {
                beats.write(|_| {});
                number += 1;
                beaten(number, *beats.now.read().unwrap_or_else(PoisonError::into_inner));
            }
        })?;
        Ok(Self { shared, end: Some(end), thread: Some(thread) })
    }

    /// The rank came to another place.
    pub fn moved(&self) {
        self.shared.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Says with the next beat how long the rank computes in a step.
    pub fn busy(&self, ns: u64) {
        self.shared.busy_ns.store(ns, Ordering::Relaxed);
    }

    /// Says at once that the process belongs to another generation from now on.
    pub fn belong(&self, generation: u64, phase: Phase) {
        self.shared.write(|beat| (beat.generation, beat.phase) = (generation, phase));
    }

    /// Says at once that the rank begins to train, after what was trained before.
    pub fn begin(&self, trained: Origin) {
        self.shared.write(|beat| {
            (beat.phase, beat.begun, beat.step) = (Phase::Training, trained, trained.step);
        });
    }

    /// Says at once that so many steps are committed.
    pub fn commit(&self, step: u64) {
        self.shared.write(|beat| beat.step = step);
    }

    /// Says at once that the rank ends by itself.
    pub fn end(&self) {
        self.shared.write(|beat| beat.phase = Phase::Ended);
    }

    /// Says at once that a fault is about to end the rank.
    pub fn fault(&self) {
        self.shared.write(|beat| beat.fault_ns = now_ns());
    }
}

impl Drop for HeartbeatWriter {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and a drop has nobody to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_beats_and_says_where_it_is() {
        let folder = std::env::temp_dir().join(format!("beat-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(Heartbeat::read(&folder, 3), None);
        let beating = HeartbeatWriter::start(&folder, 3, 9, |_, _| {}).unwrap();
        let first = Heartbeat::read(&folder, 3).unwrap();
        assert_eq!((first.pid, first.generation), (std::process::id(), 9));
        beating.moved();
        let trained = Origin { step: 17, samples: 400 };
        beating.begin(trained);
        beating.commit(18);
        let told = Heartbeat::read(&folder, 3).unwrap();
        assert_eq!((told.phase, told.begun, told.step), (Phase::Training, trained, 18));
        assert_eq!((told.moves, told.host), (1, this_host()));
        // By itself, too.
        while Heartbeat::read(&folder, 3).unwrap().beats == told.beats {
            std::thread::sleep(INTERVAL / 10);
        }
        drop(beating);
        let last = Heartbeat::read(&folder, 3).unwrap();
        assert_eq!((last.phase, last.fault_ns), (Phase::Training, 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
