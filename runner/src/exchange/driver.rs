//! The engine's driver: a thread of its own, or the caller while it waits.

use super::engine::{Engine, Start};
use crate::transport::TransportError;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Looks before the first sleep of a waiting engine, and that sleep; the next ones are longer up to eight
/// times as long. Also where ranks have cores to themselves: those compute meanwhile.
const LOOKS: u32 = 4;
const SLEEP: Duration = Duration::from_micros(20);

/// What the caller and the engine's thread share.
pub(super) struct Driver {
    engine: Mutex<Engine>,
    board: Mutex<Board>,
    /// Where the thread waits for something to do, and the caller for something done.
    work: Condvar,
    done: Condvar,
}

/// Messages between the two.
struct Board {
    starts: VecDeque<Start>,
    /// By bucket.
    under_way: Vec<bool>,
    failed: Option<TransportError>,
    /// The exchange is being dropped.
    stop: bool,
    /// The thread has ended; without `failed` in a panic.
    ended: bool,
    sent_bytes: u64,
}

impl Board {
    /// See [`Driver::look`].
    fn look(&self, bucket: usize) -> Option<Result<bool, TransportError>> {
        match &self.failed {
            Some(error) => Some(Err(error.clone())),
            None if !self.under_way[bucket] => Some(Ok(true)),
            None if self.ended => None,
            None => Some(Ok(false)),
        }
    }
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Nothing is under way.
    Idle,
    /// Something is, and was waiting for others.
    Waiting,
    Worked,
}

impl Driver {
    pub fn new(engine: Engine) -> Self {
        let buckets = engine.buckets.len();
        let board = Board {
            starts: VecDeque::with_capacity(buckets),
            under_way: vec![false; buckets],
            failed: None,
            stop: false,
            ended: false,
            sent_bytes: 0,
        };
        let (work, done) = (Condvar::new(), Condvar::new());
        Self { engine: Mutex::new(engine), board: Mutex::new(board), work, done }
    }

    /// A thread that panicked has said so on the board; the lock's poison would hide it.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a sum to begin.
    pub fn start(&self, start: Start) -> Result<(), TransportError> {
        let mut board = self.board();
        if let Some(error) = &board.failed {
            return Err(error.clone());
        }
        let under_way = &mut board.under_way[start.bucket];
        assert!(!*under_way, "bucket {} is under way", start.bucket);
        *under_way = true;
        board.starts.push_back(start);
        self.work.notify_one();
        Ok(())
    }

    /// Notes what went wrong beside the sums: the next call says so.
    pub fn note(&self, done: Result<(), TransportError>) {
        if let Err(error) = done {
            self.board().failed.get_or_insert(error);
        }
    }

    /// The engine's thread, until it is told to stop or fails.
    pub fn serve(&self) {
        let _ended = Ended(self);
        while self.next() {
            let mut looks = 0;
            loop {
                match self.turn() {
                    Ok(Turn::Idle) => break,
                    Ok(Turn::Worked) => looks = 0,
                    Ok(Turn::Waiting) => pause(&mut looks),
                    Err(_) => return,
                }
                if self.board().stop {
                    return;
                }
            }
        }
    }

    /// Sleeps until there is something to do; whether there is.
    fn next(&self) -> bool {
        let mut board = self.board();
        while board.starts.is_empty() && !board.stop {
            board = self.work.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        !board.stop
    }

    /// Tells the thread to end.
    pub fn stop(&self) {
        self.board().stop = true;
        self.work.notify_one();
    }

    /// Whether a bucket is summed. `None`: the thread panicked.
    pub fn look(&self, bucket: usize) -> Option<Result<bool, TransportError>> {
        self.board().look(bucket)
    }

    /// Waits for a bucket that the thread sums. `None`: the thread panicked.
    pub fn wait(&self, bucket: usize) -> Option<Result<(), TransportError>> {
        let mut board = self.board();
        loop {
            match board.look(bucket) {
                Some(Ok(false)) => {}
                ended => return ended.map(|summed| summed.map(|_| ())),
            }
            board = self.done.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sums a bucket on the caller's thread.
    pub fn work_until(&self, bucket: usize) -> Result<(), TransportError> {
        let mut looks = 0;
        while self.board().under_way[bucket] {
            match self.turn()? {
                Turn::Worked => looks = 0,
                Turn::Waiting | Turn::Idle => pause(&mut looks),
            }
        }
        Ok(())
    }

    /// One round of the engine, on the caller's thread.
    pub fn work_once(&self) -> Result<(), TransportError> {
        self.turn().map(|_| ())
    }

    pub fn sent_bytes(&self) -> u64 {
        self.board().sent_bytes
    }

    fn turn(&self) -> Result<Turn, TransportError> {
        let mut engine = self.engine();
        let turned = self.turn_of(&mut engine);
        if let Err(error) = &turned {
            engine.resources.endpoint.abandon();
            let mut board = self.board();
            board.failed.get_or_insert_with(|| error.clone());
            self.done.notify_all();
        }
        turned
    }

    fn turn_of(&self, engine: &mut Engine) -> Result<Turn, TransportError> {
        loop {
            let mut board = self.board();
            if let Some(error) = &board.failed {
                return Err(error.clone());
            }
            let Some(start) = board.starts.pop_front() else { break };
            drop(board);
            engine.start(start)?;
        }
        if engine.is_idle() {
            return Ok(Turn::Idle);
        }
        let mut done = smallvec::SmallVec::<[usize; 8]>::new();
        let worked = engine.advance(|bucket| done.push(bucket))?;
        if !done.is_empty() {
            let mut board = self.board();
            board.sent_bytes = engine.resources.endpoint.sent_bytes();
            done.iter().for_each(|bucket| board.under_way[*bucket] = false);
            self.done.notify_all();
        }
        Ok(if worked { Turn::Worked } else { Turn::Waiting })
    }
}

/// Between two looks of an engine that waits for others.
fn pause(looks: &mut u32) {
    match looks.checked_sub(LOOKS) {
        None => std::thread::yield_now(),
        Some(sleeps) => std::thread::sleep(SLEEP * (1 << sleeps.min(3))),
    }
    *looks += 1;
}

/// Tells the caller that the thread has ended, also in a panic.
struct Ended<'a>(&'a Driver);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.board().ended = true;
        self.0.done.notify_all();
    }
}
