//! Samples read ahead, so that a step does not wait for disks and decoders.
//!
//! ```text
//!   thread "input":  read ──> slot 0 │ slot 1 │ .. │ slot K-1 ──> take: copy into the arena, or exchange
//!                     ^   at most K filled, in the order of the loads   │
//!                     └───────────────── freed ─────────────────────────┘
//! ```
//! One thread fills slots with the loads of step after step; the rank takes them in the same
//! order. There are as many slots as loads in a step, so a whole step is ready ahead, or as many
//! as fit into [`BYTES_MAX`], but two at least. All of them are allocated at the start, by whoever knows
//! where samples go: who has a buffer that is alike gets a slot's in exchange for it, without a copy.
//!
//! Whoever asks for another step than the next one makes the thread begin anew there. Samples are
//! a function of step and place, so reading ahead changes none.

use super::{DataError, Load, Reader, SampleBuffer};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// What may be read ahead beyond two loads, in bytes.
const BYTES_MAX: usize = 256 << 20;

/// What is read ahead of one rank.
#[derive(Debug)]
pub struct Feed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Step and index of the load that comes next; none after an error.
    next: Option<(u64, usize)>,
}

#[derive(Debug)]
struct Shared {
    reader: Reader,
    /// The loads of a step, in order.
    loads: Vec<Load>,
    /// Locked by the thread while it fills one that is free, by the rank while it empties one
    /// that is full: neither ever waits here.
    slots: Vec<Mutex<Box<dyn SampleBuffer>>>,
    state: Mutex<FeedState>,
    /// The thread waits for free slots here.
    freed: Condvar,
    /// The rank waits for full ones here.
    filled: Condvar,
}

#[derive(Debug, Default)]
struct FeedState {
    /// Counts the beginnings: what was read before the last one is thrown away.
    session: u64,
    /// Step of the session's first load.
    first_step: u64,
    /// Loads read in this session, and taken.
    filled: u64,
    taken: u64,
    /// Why load number `filled` could not be read.
    error: Option<DataError>,
    stop: bool,
    /// The thread is no more.
    ended: bool,
}

impl Feed {
    /// Begins to read the `loads` of step after step, from `first_step` on, into buffers of so many words
    /// that `allocate` makes.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// Without loads.
    pub fn new(
        reader: Reader,
        loads: Vec<Load>,
        first_step: u64,
        allocate: &mut dyn FnMut(usize) -> Box<dyn SampleBuffer>,
    ) -> Result<Self, DataError> {
        assert!(!loads.is_empty(), "a feed of nothing");
        let slots = sizes(&loads, BYTES_MAX / size_of::<u32>());
        let slots = slots.into_iter().map(|words| Mutex::new(allocate(words))).collect();
        let state = Mutex::new(FeedState { first_step, ..FeedState::default() });
        let (freed, filled) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { reader, loads, slots, state, freed, filled });
        let work = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("input".into())
            .spawn(move || work.fill())
            .map_err(|error| DataError::Reader { why: format!("it did not start: {error}") })?;
        Ok(Self { shared, thread: Some(thread), next: Some((first_step, 0)) })
    }

    /// Copies the next load of `step`, waiting until it has been read. Allocates nothing.
    ///
    /// # Errors
    /// What kept it from being read; the next call begins anew with its step.
    ///
    /// # Panics
    /// When `load` is not the next one of the step, or `into` is not as long: bugs of the caller.
    pub fn take(&mut self, step: u64, load: Load, into: &mut [u32]) -> Result<(), DataError> {
        self.take_by(step, load, |slot| into.copy_from_slice(&slot.words()[..into.len()]))
    }

    /// The same, where the slot's buffer is taken in exchange for `buffer`, if both are as large.
    ///
    /// # Errors
    /// As [`Self::take`].
    ///
    /// # Panics
    /// As [`Self::take`].
    pub fn exchange(
        &mut self,
        step: u64,
        load: Load,
        buffer: &mut Box<dyn SampleBuffer>,
    ) -> Result<(), DataError> {
        self.take_by(step, load, |slot| match slot.words().len() == buffer.words().len() {
            true => std::mem::swap(slot, buffer),
            false => {
                buffer.words()[..load.words].copy_from_slice(&slot.words()[..load.words]);
            }
        })
    }

    fn take_by(
        &mut self,
        step: u64,
        load: Load,
        take: impl FnOnce(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DataError> {
        let at = match self.next {
            Some((next, at)) if next == step => at,
            _ => {
                self.shared.restart(step);
                0
            }
        };
        let loads = &self.shared.loads;
        assert_eq!(loads[at], load, "loads come in the order of the program");
        self.next = None;
        self.shared.take(take)?;
        self.next = match at + 1 {
            end if end == loads.len() => step.checked_add(1).map(|step| (step, 0)),
            at => Some((step, at)),
        };
        Ok(())
    }

    /// Bytes that were allocated to read ahead.
    pub fn bytes(&self) -> usize {
        let words = |slot: &Mutex<Box<dyn SampleBuffer>>| unpoisoned(slot.lock()).words().len();
        self.shared.slots.iter().map(words).sum::<usize>() * size_of::<u32>()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.freed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by it.
            let _ = thread.join();
        }
    }
}

/// Words of each slot. Slot s holds loads s, s + K, ..: with a multiple of the step's loads each
/// slot has the size of its load, with fewer each has that of the largest.
fn sizes(loads: &[Load], words_max: usize) -> Vec<usize> {
    let step: usize = loads.iter().map(|load| load.words).sum();
    let largest = loads.iter().map(|load| load.words).max().unwrap_or(0);
    if loads.len() == 1 {
        return vec![largest; 2];
    }
    if step <= words_max {
        return loads.iter().map(|load| load.words).collect();
    }
    vec![largest; (words_max / largest.max(1)).clamp(2, loads.len())]
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, FeedState> {
        unpoisoned(self.state.lock())
    }

    fn slot(&self, number: u64) -> MutexGuard<'_, Box<dyn SampleBuffer>> {
        unpoisoned(self.slots[(number % self.slots.len() as u64) as usize].lock())
    }

    /// Throws away what was read and begins with `step`.
    fn restart(&self, step: u64) {
        let mut state = self.state();
        state.session += 1;
        state.first_step = step;
        (state.filled, state.taken) = (0, 0);
        state.error = None;
        self.freed.notify_one();
    }

    fn take(&self, take: impl FnOnce(&mut Box<dyn SampleBuffer>)) -> Result<(), DataError> {
        let mut state = self.state();
        while state.filled == state.taken {
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if state.ended {
                return Err(DataError::Reader { why: "see its message above".into() });
            }
            state = unpoisoned(self.filled.wait(state));
        }
        let number = state.taken;
        // The thread leaves this slot alone until `taken` grows.
        drop(state);
        take(&mut self.slot(number));
        self.state().taken += 1;
        self.freed.notify_one();
        Ok(())
    }

    /// The thread's work.
    fn fill(&self) {
        let _end = End(self);
        let full = self.slots.len() as u64;
        let mut failed = None;
        let mut state = self.state();
        loop {
            // After an error there is nothing to do until somebody begins anew.
            while !state.stop
                && (failed == Some(state.session) || state.filled - state.taken == full)
            {
                state = unpoisoned(self.freed.wait(state));
            }
            if state.stop {
                return;
            }
            let (session, number) = (state.session, state.filled);
            let loads = self.loads.len() as u64;
            let (steps, load) = (number / loads, self.loads[(number % loads) as usize]);
            let step = state.first_step.saturating_add(steps);
            drop(state);
            let result = self.reader.read(step, load, &mut self.slot(number).words()[..load.words]);
            state = self.state();
            if state.session != session {
                continue;
            }
            match result {
                Ok(()) => state.filled += 1,
                Err(error) => {
                    failed = Some(session);
                    state.error = Some(error);
                }
            }
            self.filled.notify_one();
        }
    }
}

/// Tells the rank that the thread is no more, also when it panics.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.filled.notify_one();
    }
}

/// Neither lock guards anything that a panic leaves half done.
fn unpoisoned<G>(guard: Result<G, PoisonError<G>>) -> G {
    guard.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, classes, language};
    use super::super::{Order, Sequence, open, plain};
    use super::*;
    use pipewright_core::plan::{Data, Source};
    use proptest::prelude::*;

    /// Four micro-batches of two samples each, and their targets.
    fn loads() -> Vec<Load> {
        let of = |m: u64| {
            [
                Load { source: Source::Input, first: 2 * m, words: 6 },
                Load { source: Source::Target, first: 2 * m, words: 2 },
            ]
        };
        (0..4).flat_map(of).collect()
    }

    fn reader() -> Reader {
        let data = Data::Synthetic { train: 100, test: 1 };
        let split = open(&data, &classes(&[3], 4), 1).unwrap().train;
        let sequence = Sequence::Shuffled { seed: 3 };
        Reader::new(split, Order::new(sequence, 100, 8))
    }

    fn direct(reader: &Reader, step: u64, load: Load) -> Vec<u32> {
        let mut out = vec![0; load.words];
        reader.read(step, load, &mut out).unwrap();
        out
    }

    fn taken(feed: &mut Feed, step: u64, load: Load) -> Vec<u32> {
        let mut out = vec![0; load.words];
        feed.take(step, load, &mut out).unwrap();
        out
    }

    #[test]
    fn slots_hold_a_step_or_what_there_is_room_for() {
        assert_eq!(sizes(&loads(), 1000), [6, 2, 6, 2, 6, 2, 6, 2]);
        assert_eq!(sizes(&loads(), 32), [6, 2, 6, 2, 6, 2, 6, 2]);
        assert_eq!(sizes(&loads(), 31), [6; 5]);
        assert_eq!(sizes(&loads(), 1), [6; 2]);
        assert_eq!(sizes(&loads()[..1], 1), [6; 2]);
        assert_eq!(Feed::new(reader(), loads(), 0, &mut plain).unwrap().bytes(), 128);
    }

    proptest! {
        #[test]
        fn whoever_asks_for_any_steps_gets_what_a_direct_read_gives(
            steps in proptest::collection::vec((0u64..40, 1usize..4, 1usize..=8), 1..12),
        ) {
            let reader = reader();
            let mut feed = Feed::new(reader.clone(), loads(), 0, &mut plain).unwrap();
            for (first, count, loads_of_last) in steps {
                for step in first..first + count as u64 {
                    // A step may be left in its middle: an error elsewhere, a new evaluation.
                    let last = step + 1 == first + count as u64;
                    let loads = loads().into_iter().take(if last { loads_of_last } else { 8 });
                    for load in loads {
                        prop_assert_eq!(taken(&mut feed, step, load), direct(&reader, step, load));
                    }
                    feed.next = feed.next.filter(|(_, at)| *at == 0);
                }
            }
        }
    }

    /// Buffers go round and round, by whose addresses it is seen; one of another size is copied to.
    #[test]
    fn buffers_are_exchanged() {
        let reader = reader();
        let mut feed = Feed::new(reader.clone(), loads(), 0, &mut plain).unwrap();
        let mut places: Vec<_> = loads().iter().map(|load| plain(load.words)).collect();
        places[3] = plain(9);
        let address = |place: &mut Box<dyn SampleBuffer>| place.words().as_ptr() as usize;
        let first: Vec<usize> = places.iter_mut().map(address).collect();
        for step in 0..4 {
            for (load, place) in loads().into_iter().zip(&mut places) {
                feed.exchange(step, load, place).unwrap();
                assert_eq!(place.words()[..load.words], direct(&reader, step, load));
            }
            let now: Vec<usize> = places.iter_mut().map(address).collect();
            let same = |(a, b): (&usize, &usize)| a == b;
            let stay = first.iter().zip(&now).map(same).collect::<Vec<_>>();
            // Each slot has one buffer and each place another: after two steps they are back.
            let expected: Vec<bool> = (0..8).map(|at| at == 3 || step % 2 == 1).collect();
            assert_eq!(stay, expected, "step {step}");
        }
    }

    #[test]
    fn few_slots_suffice() {
        let reader = reader();
        let mut feed = Feed::new(reader.clone(), loads(), 5, &mut plain).unwrap();
        let shared = Arc::get_mut(&mut feed.shared);
        assert!(shared.is_none(), "the thread shares it");
        drop(feed);
        // The same with as little room as there may be.
        let slots = sizes(&loads(), 1).into_iter().map(|words| Mutex::new(plain(words)));
        let shared = Arc::new(Shared {
            reader: reader.clone(),
            loads: loads(),
            slots: slots.collect(),
            state: Mutex::default(),
            freed: Condvar::new(),
            filled: Condvar::new(),
        });
        let work = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || work.fill()));
        let mut feed = Feed { shared, thread, next: Some((0, 0)) };
        for step in 0..20 {
            for load in loads() {
                assert_eq!(taken(&mut feed, step, load), direct(&reader, step, load));
            }
        }
    }

    /// A feed over a file of tokens, one sample a step.
    fn from_file(folder: &Folder, tokens: u16) -> (Feed, Load) {
        let bytes: Vec<u8> = (0..tokens).flat_map(u16::to_le_bytes).collect();
        folder.write("t.bin", &bytes);
        let data = Data::Tokens16 { path: folder.path("t.bin") };
        let split = open(&data, &language(4, 60_000), 0).unwrap().train;
        let samples = split.len();
        let order = Order::new(Sequence::Repeated, samples, 1);
        let load = Load { source: Source::Input, first: 0, words: 4 };
        (Feed::new(Reader::new(split, order), vec![load], 0, &mut plain).unwrap(), load)
    }

    #[test]
    fn errors_come_after_what_was_read_before_them() {
        let folder = Folder::new("feed");
        let (mut feed, load) = from_file(&folder, 41);
        assert_eq!(taken(&mut feed, 0, load), [0, 1, 2, 3]);
        let file = std::fs::OpenOptions::new().write(true).open(folder.path("t.bin")).unwrap();
        file.set_len(60).unwrap();
        // What was read ahead by then is still good.
        let mut out = [0; 4];
        let errors: Vec<String> = (1..9)
            .filter_map(|step| feed.take(step, load, &mut out).err())
            .map(|error| error.to_string())
            .collect();
        assert!(errors.len() >= 6, "two slots and one under way: {errors:?}");
        for error in errors {
            assert!(error.contains("had 82 bytes when training began and has 60 now"), "{error}");
        }
        // A file that is whole again can be read again.
        file.set_len(82).unwrap();
        assert_eq!(feed.take(9, load, &mut out).map(|()| out[0]).unwrap(), 0, "zeros by now");
    }

    #[test]
    fn a_thread_that_dies_is_an_error() {
        let mut feed = Feed::new(reader(), loads(), 0, &mut plain).unwrap();
        // It is told to stop behind the rank's back, as a panic would.
        feed.shared.state().stop = true;
        feed.shared.freed.notify_one();
        feed.thread.take().unwrap().join().unwrap();
        let mut out = [0; 6];
        let mut taken = 0;
        let error = loop {
            let load = loads()[taken % 8];
            match feed.take(taken as u64 / 8, load, &mut out[..load.words]) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!(taken <= 8 && matches!(error, DataError::Reader { .. }), "{taken}: {error}");
    }

    #[test]
    #[should_panic(expected = "loads come in the order of the program")]
    fn another_load_is_a_bug() {
        let mut feed = Feed::new(reader(), loads(), 0, &mut plain).unwrap();
        let load = loads()[1];
        let _ = feed.take(0, load, &mut [0; 2]);
    }
}
