//! Sums of gradients that travel encoded.
//!
//! An [`Exchange`] sums buckets of values over groups of ranks, each by any of the [`Reduction`]s that it
//! was made for. It never blocks: a thread of its own, where the transport allows one, encodes,
//! sends, receives and decodes chunk after chunk while the caller computes.
//!
//! | file | what it knows |
//! |---|---|
//! | `two_shot`, `operator` | the two algorithms, as state machines |
//! | `bucket` | a bucket's steps: inside of hosts, encoded, inside again |
//! | `engine`, `driver` | all buckets; the thread that drives them |
//! | `circles` | which ranks talk for what |
//! | `pieces`, `memory`, `residual` | where everything lies |
//!
//! **Results have the same bits on every rank**: what ranks decode is the same message everywhere, also
//! on its sender. What codecs lose is kept by the exchange and not by a codec, so that it survives a
//! change of codec between steps.

mod bucket;
mod circles;
mod driver;
mod engine;
mod memory;
mod operator;
mod pieces;
mod residual;
mod tools;
mod two_shot;

pub use residual::Residual;

use crate::transport::{Transport, TransportError};
use bucket::Bucket;
use circles::Circles;
use driver::Driver;
use engine::{Engine, Start};
use memory::Values;
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{CodecError, Reduction};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use tools::Tools;

/// Values that are summed together.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSpec {
    /// Ranks that sum it, this one among them, in the same order on all of them. Ranks of a group list
    /// its buckets in the same order.
    pub group: Vec<u32>,
    /// Places of the tensors among the values, ascending. Values between them are nobody's.
    pub tensors: Vec<Range<usize>>,
    /// Number of values.
    pub len: usize,
    /// What it may be summed by: one of these in each step, the same on all ranks.
    pub reductions: Vec<Reduction>,
}

/// One rank's end of the sums. Drop it before its transport.
pub struct Exchange {
    driver: Arc<Driver>,
    thread: Option<JoinHandle<()>>,
    /// By bucket: number of values.
    lens: Vec<usize>,
    bytes: u64,
}

impl Exchange {
    /// Makes ready for `buckets`; all ranks call it. `hierarchical`: ranks of a host sum in single
    /// precision first, and only hosts exchange encoded values.
    ///
    /// # Errors
    /// Those of the transport, and [`TransportError::Codec`] for a reduction with a
    /// [fault](Reduction::fault).
    ///
    /// # Panics
    /// When this rank is not in the group of a bucket, or tensors are not within its values.
    pub fn new(
        transport: &mut (impl Transport + ?Sized),
        buckets: &[BucketSpec],
        hierarchical: bool,
    ) -> Result<Self, TransportError> {
        let rank = transport.rank();
        let hosts = if hierarchical { Some(transport.hosts()?) } else { None };
        let mut all = vec![];
        let mut made = vec![];
        for (number, spec) in buckets.iter().enumerate() {
            check(number, spec, rank)?;
            let share = match &hosts {
                None => Share::flat(&spec.group, &spec.tensors, rank),
                Some(hosts) => {
                    let host = |rank: u32| hosts[rank as usize];
                    Share::hierarchical(&spec.group, &spec.tensors, rank, host)
                }
            };
            let circles = Circles::new(spec, &share, &mut all);
            let same_group = buckets[..number].iter().filter(|other| other.group == spec.group);
            let tag = 2 * same_group.count() as u32;
            made.push(Bucket::new(number, spec, share, circles, tag));
        }
        let links = transport.links(&all, made.iter().map(Bucket::tickets).sum())?;
        let threaded = links.threaded();
        let lossy = buckets.iter().flat_map(|spec| &spec.reductions).filter(|r| !r.is_plain());
        let kinds = lossy.map(|reduction| reduction.method.codec);
        let tools = Tools::new(links, all.len(), buckets.len(), kinds)
            .map_err(|source| TransportError::Codec { bucket: 0, rank, source })?;
        let bytes = made.iter().map(Bucket::bytes).sum();
        let driver = Arc::new(Driver::new(Engine::new(tools, made)));
        let lens = buckets.iter().map(|spec| spec.len).collect();
        let own = driver.clone();
        // A system without more threads lets the caller do the work.
        let spawn = || {
            let builder = std::thread::Builder::new().name("exchange".into());
            builder.spawn(move || own.serve()).ok()
        };
        let thread = if threaded { spawn() } else { None };
        Ok(Self { driver, thread, lens, bytes })
    }

    /// Starts to sum a bucket by the `reduction`-th of its reductions. All ranks of its group start
    /// their buckets in the same order.
    ///
    /// # Errors
    /// An error of earlier sums.
    ///
    /// # Safety
    /// `values` must stay valid, and be neither read nor written, until [`Exchange::wait`] has
    /// returned for the bucket, a call has returned an error, or the exchange has been dropped. With
    /// MPI they must stay valid after an error until the process ends.
    ///
    /// # Panics
    /// When the bucket is under way, or has another number of values.
    pub unsafe fn start(
        &mut self,
        bucket: usize,
        reduction: usize,
        values: &mut [f32],
    ) -> Result<(), TransportError> {
        assert_eq!(values.len(), self.lens[bucket], "values of bucket {bucket}");
        // SAFETY: the caller's promise.
        let values = unsafe { Values::new(values) };
        self.driver.start(Start { bucket, reduction, values })?;
        self.progress()
    }

    /// Lets sums advance where no thread of its own does: then somebody must call.
    ///
    /// # Errors
    /// Those of the transport, and [`TransportError::Codec`] for a damaged message.
    pub fn progress(&mut self) -> Result<(), TransportError> {
        if self.thread.is_some() { Ok(()) } else { self.driver.work_once() }
    }

    /// Waits until the values of a bucket are the sum. Returns at once if it is not under way.
    ///
    /// # Errors
    /// As [`Exchange::progress`].
    pub fn wait(&mut self, bucket: usize) -> Result<(), TransportError> {
        if self.thread.is_none() {
            return self.driver.work_until(bucket);
        }
        if let Some(ended) = self.driver.wait(bucket) {
            return ended;
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => unreachable!("the thread ends by an error, a panic or the drop"),
        }
    }

    /// Bytes of encoded messages that this rank has handed to the transport, up to the last bucket
    /// that was summed. What collective calls send (plain sums, the operator) is not among them.
    pub fn sent_bytes(&self) -> u64 {
        self.driver.sent_bytes()
    }

    /// Bytes of all buckets' buffers and residuals, as allocated: [`Share::bytes`] of each.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From now on sums can be [undone](Self::settle): takes memory for a copy of what is carried over.
    pub fn allow_undo(&mut self) {
        let mut engine = self.driver.engine();
        engine.buckets.iter_mut().for_each(Bucket::allow_undo);
        self.bytes = engine.buckets.iter().map(Bucket::bytes).sum();
    }

    /// The sums since the last call stay, or are to be as if they had not been: what is carried over
    /// is what it was before them.
    ///
    /// # Panics
    /// While a bucket is under way.
    pub fn settle(&mut self, undo: bool) {
        let mut engine = self.driver.engine();
        assert!(engine.is_idle(), "residuals change while buckets are summed");
        engine.buckets.iter_mut().for_each(|bucket| bucket.settle(undo));
    }

    /// Shows what is carried over to the next step, to save or to load it: by bucket, whose it is, its
    /// places in the bucket and the values there.
    ///
    /// # Panics
    /// While a bucket is under way.
    pub fn residuals(&mut self, mut visit: impl FnMut(usize, Residual, Range<usize>, &mut [f32])) {
        let mut engine = self.driver.engine();
        assert!(engine.is_idle(), "residuals change while buckets are summed");
        engine.buckets.iter_mut().for_each(|bucket| bucket.visit(&mut visit));
    }
}

impl Drop for Exchange {
    /// What is under way is given up: see [`Links`](crate::transport::Links).
    fn drop(&mut self) {
        self.driver.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was the caller's to hear of when it waited.
            let _ = thread.join();
        }
    }
}

/// Refuses a bucket that makes no sense.
fn check(number: usize, spec: &BucketSpec, rank: u32) -> Result<(), TransportError> {
    let sorted = spec.tensors.iter().is_sorted_by(|a, b| a.end <= b.start);
    let last = spec.tensors.last().map_or(0, |tensor| tensor.end);
    assert!(sorted && last <= spec.len, "tensors of bucket {number}: {:?}", spec.tensors);
    match spec.reductions.iter().find_map(Reduction::fault) {
        None => Ok(()),
        Some(what) => {
            let source = CodecError::Settings { codec: "reduction", what };
            Err(TransportError::Codec { bucket: number, rank, source })
        }
    }
}
