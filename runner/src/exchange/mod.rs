//! Sums of gradients that travel encoded.
//!
//! An [`Exchange`] sums buckets of values over groups of ranks, each by any of the [`Reduction`]s that it
//! was made for. It never blocks: a thread of its own, where the transport allows one, encodes,
//! sends, receives and decodes chunk after chunk while the caller computes.
//!
//! | file | what it knows |
//! |---|---|
//! | `two_shot`, `operator` | the two algorithms, as state machines |
//! | `encoder` | encoding and decoding: `host_codec` on this processor, `device_codec` on the device that has the values |
//! | `bucket` | a bucket's steps: inside of hosts, encoded, inside again |
//! | `engine`, `driver` | all buckets; the thread that drives them |
//! | `process_groups` | which ranks talk for what |
//! | `pieces`, `memory`, `residual` | where everything lies |
//!
//! **Results have the same bits on every rank**: what ranks decode is the same message everywhere, also
//! on its sender. What codecs lose is kept by the exchange and not by a codec, so that it survives a
//! change of codec between steps.

mod bucket;
mod device_codec;
mod driver;
mod encoder;
mod engine;
mod host_codec;
mod memory;
mod operator;
mod pieces;
mod process_groups;
mod residual;
mod resources;
mod two_shot;

pub use residual::Residual;

use crate::device::Coder;
use crate::transport::{Transport, TransportError};
use bucket::Bucket;
use driver::Driver;
use engine::{Engine, Start};
use memory::Values;
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{CodecError, Reduction};
use pipewright_core::units::Bytes;
use process_groups::ProcessGroups;
use resources::Resources;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

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
    buckets: Vec<Known>,
    bytes: u64,
}

/// What callers may ask of a bucket.
struct Known {
    /// Number of values.
    len: usize,
    /// By reduction: whether the device sums.
    on_device: Vec<bool>,
    /// See [`Exchange::shards`].
    shards: Vec<Range<usize>>,
    /// See [`Exchange::encodes`].
    encodes: bool,
}

/// A device that encodes and decodes what it has kernels for.
pub struct Beside<'a> {
    /// Its codecs.
    pub coder: Box<dyn Coder>,
    /// Where its arena has the values of each bucket.
    pub values: &'a [Bytes],
    /// Whether devices also do what hosts sum by themselves in hierarchical sums: the caller's affair,
    /// before and after [`Exchange::start_there`]. The same on all ranks.
    pub intra_node: bool,
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
        Self::beside(None, transport, buckets, hierarchical)
    }

    /// The same on a rank whose device encodes and decodes.
    ///
    /// # Errors
    /// As [`Exchange::new`], and [`TransportError::Device`] where it has not so much memory.
    ///
    /// # Panics
    /// As [`Exchange::new`].
    pub fn beside(
        device: Option<Beside>,
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
            let process_groups = ProcessGroups::new(spec, &share, &mut all);
            let same_group = buckets[..number].iter().filter(|other| other.group == spec.group);
            let tag = 2 * same_group.count() as u32;
            made.push(Bucket::new(number, spec, share, process_groups, tag));
        }
        let coder = match device {
            Some(device) => Some(take_scratch(device, &mut made)?),
            None => None,
        };
        let endpoint = transport.nonblocking(&all, made.iter().map(Bucket::requests).sum())?;
        let threaded = endpoint.threaded();
        let lossy = buckets.iter().flat_map(|spec| &spec.reductions).filter(|r| !r.is_plain());
        let kinds = lossy.map(|reduction| reduction.method.codec);
        let resources = Resources::new(endpoint, coder, all.len(), buckets.len(), kinds)
            .map_err(|source| TransportError::Codec { bucket: 0, rank, source })?;
        let bytes = made.iter().map(Bucket::bytes).sum();
        let known = |(bucket, spec): (&Bucket, &BucketSpec)| Known {
            len: spec.len,
            on_device: bucket.on_device().to_vec(),
            shards: bucket.shards(),
            encodes: bucket.encodes(),
        };
        let known = made.iter().zip(buckets).map(known).collect();
        let driver = Arc::new(Driver::new(Engine::new(resources, made)));
        let own = driver.clone();
        // A system without more threads lets the caller do the work.
        let spawn = || {
            let builder = std::thread::Builder::new().name("exchange".into());
            builder.spawn(move || own.serve()).ok()
        };
        let thread = if threaded { spawn() } else { None };
        Ok(Self { driver, thread, buckets: known, bytes })
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
        assert_eq!(values.len(), self.buckets[bucket].len, "values of bucket {bucket}");
        // SAFETY: the caller's promise.
        let values = Some(unsafe { Values::new(values) });
        self.driver.start(Start { bucket, reduction, values })?;
        self.progress()
    }

    /// Whether the device sums a bucket by the `reduction`-th of its reductions.
    pub fn sums_on_device(&self, bucket: usize, reduction: usize) -> bool {
        self.buckets[bucket].on_device[reduction]
    }

    /// What ranks of this host sum before they encode, by owner: places in the bucket. Nothing where none
    /// does.
    pub fn shards(&self, bucket: usize) -> &[Range<usize>] {
        &self.buckets[bucket].shards
    }

    /// Whether values of a bucket travel encoded: not those of ranks of one host that sum first.
    pub fn encodes(&self, bucket: usize) -> bool {
        self.buckets[bucket].encodes
    }

    /// The same as [`Exchange::start`] of values that the device has, when it reaches the mark with
    /// the bucket's number. Until [`Exchange::wait`] has returned nobody touches them there. Where the
    /// host has [shards](Exchange::shards), devices have added them up by then, and hand them out after it.
    ///
    /// # Errors
    /// As [`Exchange::start`].
    ///
    /// # Panics
    /// When the bucket is under way, or the device [does not](Exchange::is_there) sum it so.
    pub fn start_there(&mut self, bucket: usize, reduction: usize) -> Result<(), TransportError> {
        assert!(self.sums_on_device(bucket, reduction), "bucket {bucket} is summed by the host");
        self.driver.start(Start { bucket, reduction, values: None })?;
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

    /// Whether the values of a bucket are the sum, or it is not under way.
    ///
    /// # Errors
    /// As [`Exchange::progress`].
    pub fn is_summed(&mut self, bucket: usize) -> Result<bool, TransportError> {
        self.progress()?;
        match self.driver.look(bucket) {
            Some(summed) => summed,
            None => self.wait(bucket).map(|()| true),
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
    ///
    /// # Errors
    /// [`TransportError::Device`] where the device has not so much.
    pub fn allow_undo(&mut self) -> Result<(), TransportError> {
        let mut engine = self.driver.engine();
        engine.allow_undo()?;
        self.bytes = engine.buckets.iter().map(Bucket::bytes).sum();
        Ok(())
    }

    /// The sums since the last call stay, or are to be as if they had not been: what is carried over
    /// is what it was before them. A device that fails is told of by the next sum.
    ///
    /// # Panics
    /// While a bucket is under way.
    pub fn settle(&mut self, undo: bool) {
        let settled = self.driver.engine().settle(undo);
        self.driver.note(settled);
    }

    /// Shows what is carried over to the next step, to save or to load it: by bucket, whose it is, its
    /// places in the bucket and the values there. A device that fails is told of by the next sum.
    ///
    /// # Panics
    /// While a bucket is under way.
    pub fn residuals(&mut self, visit: impl FnMut(usize, Residual, Range<usize>, &mut [f32])) {
        let shown = self.driver.engine().residuals(visit);
        self.driver.note(shown);
    }
}

impl Drop for Exchange {
    /// What is under way is given up: see [`Nonblocking`](crate::transport::Nonblocking).
    fn drop(&mut self) {
        self.driver.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was the caller's to hear of when it waited.
            let _ = thread.join();
        }
    }
}

/// Has buckets take what they need of a device.
fn take_scratch(
    Beside { mut coder, values, intra_node }: Beside,
    buckets: &mut [Bucket],
) -> Result<Box<dyn Coder>, TransportError> {
    let count = buckets.len();
    for (number, (bucket, place)) in buckets.iter_mut().zip(values).enumerate() {
        let values = coder.arena(*place);
        bucket.take_scratch(values, intra_node, [number, count + number], &mut *coder)?;
    }
    Ok(coder)
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
