//! Ranks as MPI processes, over the raw calls of crate `mpi`: the safe ones ignore return codes.
//!
//! Two duplicates of the world communicator keep the caller's tags apart from our own messages.
//! Errors are returned, not fatal, so that the runner can say where it was. A transport that is
//! dropped after an error, in a panic or with sends outstanding aborts the job: its peers could
//! only wait for ever.

mod comm;
mod nonblocking;
mod request;
mod start;
mod survive;
mod ulfm;

use super::clock::monotonic_ns;
use super::{
    Collective, Nonblocking, PartCollective, ProcessGroup, REDUCE_MAX, ReduceOp, Transport,
    TransportError,
};
use comm::{Comm, InPlace};
use nonblocking::MpiNonblocking;
use request::Request;
pub use start::ClockOffset;
use start::{Peers, Started};
use std::io::Write;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use survive::Survivors;

/// Largest piece that a message is cut into: MPI counts bytes in 32 signed bits.
const PIECE_BYTES: usize = 1 << 30;

/// How to start MPI. Only tests change what [`Settings::new`] says.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most outstanding sends.
    pub slots: usize,
    /// Largest piece that a message is cut into, in bytes; equal on all ranks.
    pub piece_bytes: usize,
    /// Whether to measure the distance to rank 0's clock even where both are the same clock.
    pub measure_clock: bool,
    /// Whether an [`exchange`](crate::exchange) may call from a thread of its own. MPI then takes a
    /// lock in every call.
    pub threads: bool,
    /// Ranks of a crew, where there may be several crews: see [`Transport::crew`]. It divides the
    /// number of processes, or there is one crew.
    pub crew: Option<u32>,
    /// So many consecutive ranks say that they are on one host, in place of what MPI knows.
    pub ranks_a_host: Option<u32>,
    /// Whether the loss of a rank is to be survived, where the library can: see
    /// [`MpiTransport::withdraw`].
    pub survives: bool,
}

impl Settings {
    /// For up to `slots` outstanding sends.
    pub fn new(slots: usize) -> Self {
        let (piece_bytes, measure_clock) = (PIECE_BYTES, false);
        let (threads, survives) = (false, false);
        let (crew, ranks_a_host) = (None, None);
        Self { slots, piece_bytes, measure_clock, threads, crew, ranks_a_host, survives }
    }
}

/// One rank. Stays on the thread that started it; what [`Transport::nonblocking`] makes may go to another.
#[derive(Debug)]
pub struct MpiTransport {
    rank: u32,
    ranks: u32,
    /// The caller's messages.
    data: Comm,
    /// Our own messages and the collective calls.
    control: Comm,
    /// Outstanding sends; a slot is in use while it has requests.
    slots: Vec<Vec<Request>>,
    /// By group: its communicator, where this rank is in it.
    groups: Vec<Option<Comm>>,
    /// Collective calls under way, by slot.
    collectives: Vec<Vec<Request>>,
    in_place: InPlace,
    /// Room for the values of all ranks in `all_reduce`.
    reduce: Vec<f64>,
    clock: ClockOffset,
    host: String,
    state: MpiState,
    threaded: bool,
    ranks_a_host: Option<u32>,
    /// The ranks of this number in all crews.
    peers: Option<Peers>,
    /// All processes that live, where losses are survived.
    survivors: Option<Survivors>,
    measure_clock: bool,
    /// Whether an endpoint of [`Transport::nonblocking`] failed.
    failed: Arc<AtomicBool>,
    /// MPI calls must come from the starting thread, also where handles happen to be `Send`.
    this_thread: PhantomData<*mut ()>,
}

/// Whether the job can still end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MpiState {
    Running,
    Failed,
    Finished,
}

impl MpiTransport {
    /// Starts MPI in this process, on all ranks at once. Best called first thing in `main`,
    /// before any thread: only then can the environment still ask Open MPI to yield when idle.
    ///
    /// # Errors
    /// [`TransportError::Mpi`].
    ///
    /// # Panics
    /// When called twice in one process: MPI cannot be started again.
    pub fn start(settings: Settings) -> Result<Self, TransportError> {
        let Started { data, control, peers, survivors, rank, ranks, host, clock, threaded } =
            start::start(settings)?;
        Ok(Self {
            rank,
            ranks,
            data,
            control,
            slots: (0..settings.slots).map(|_| Vec::with_capacity(2)).collect(),
            groups: vec![],
            collectives: vec![],
            in_place: InPlace::of_library()?,
            reduce: vec![0.0; ranks as usize * REDUCE_MAX],
            clock,
            host,
            state: MpiState::Running,
            threaded,
            ranks_a_host: settings.ranks_a_host,
            peers,
            survivors,
            measure_clock: settings.measure_clock,
            failed: Arc::default(),
            this_thread: PhantomData,
        })
    }

    /// Makes room for up to `slots` outstanding sends, for callers that learn their number only
    /// after MPI has started.
    pub fn reserve(&mut self, slots: usize) {
        self.slots.resize_with(slots, || Vec::with_capacity(2));
    }

    /// How `now_ns` follows from this machine's monotonic clock, and how far it may be off.
    pub fn clock_offset(&self) -> ClockOffset {
        self.clock
    }

    /// Ends MPI; waits for all ranks. Dropping does the same but cannot report.
    ///
    /// # Errors
    /// [`TransportError::Mpi`].
    pub fn finish(mut self) -> Result<(), TransportError> {
        for slot in 0..self.slots.len() {
            self.wait_send(slot)?;
        }
        self.state = MpiState::Finished;
        comm::finalize()
    }

    fn check_rank(&self, rank: u32) {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
    }

    fn settle<T>(&mut self, result: Result<T, TransportError>) -> Result<T, TransportError> {
        if result.is_err() {
            self.state = MpiState::Failed;
        }
        result
    }

    fn try_gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        if self.rank != 0 {
            self.control.send(0, 0, &(bytes.len() as u64).to_le_bytes())?;
            self.control.send(0, 0, bytes)?;
            return Ok(None);
        }
        let mut all = vec![bytes.to_vec()];
        for rank in 1..self.ranks {
            let mut len = [0; 8];
            self.control.recv(rank, 0, &mut len)?;
            let mut bytes = vec![0; u64::from_le_bytes(len) as usize];
            self.control.recv(rank, 0, &mut bytes)?;
            all.push(bytes);
        }
        Ok(Some(all))
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    unsafe fn start_send(
        &mut self,
        to: u32,
        tag: u32,
        bytes: &[u8],
        slot: usize,
    ) -> Result<(), TransportError> {
        self.check_rank(to);
        assert!(self.slots[slot].is_empty(), "slot {slot} is in use");
        // SAFETY: the caller keeps `bytes` until the requests of this slot are waited for, or
        // until an error or drop; after those this process only aborts, and MPI may at worst
        // send what else lies there to a peer that is about to be ended.
        let result = unsafe { self.data.start_send(to, tag, bytes, &mut self.slots[slot]) };
        self.settle(result)
    }

    fn wait_send(&mut self, slot: usize) -> Result<(), TransportError> {
        let result = self.slots[slot].iter_mut().try_for_each(Request::wait);
        self.slots[slot].clear();
        self.settle(result)
    }

    fn recv(&mut self, from: u32, tag: u32, into: &mut [u8]) -> Result<(), TransportError> {
        self.check_rank(from);
        let result = self.data.recv(from, tag, into);
        self.settle(result)
    }

    fn connect(&mut self, groups: &[Vec<u32>], slots: usize) -> Result<(), TransportError> {
        let rank = self.rank;
        let member = |(tag, ranks): (u32, &Vec<u32>)| {
            ranks.contains(&rank).then(|| self.control.group(ranks, tag)).transpose()
        };
        // In one order everywhere, so that ranks in several groups meet in the same one.
        let made = (0..).zip(groups).map(member).collect();
        // A call on parts has a request for each.
        let most = groups.iter().map(Vec::len).max().unwrap_or(0).max(1);
        self.collectives.resize_with(slots, || Vec::with_capacity(most));
        self.groups = self.settle(made)?;
        Ok(())
    }

    unsafe fn start_collective(
        &mut self,
        call: Collective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError> {
        assert!(self.collectives[slot].is_empty(), "slot {slot} is in use");
        let group = self.groups[group].as_ref().expect("a rank calls in its own groups");
        // SAFETY: the caller keeps `values` untouched until this slot is waited for, an error or
        // drop; after those this process only aborts.
        let result = unsafe { group.start_collective(call, values, self.in_place) };
        let request = self.settle(result)?;
        self.collectives[slot].push(request);
        Ok(())
    }

    unsafe fn start_part_collective(
        &mut self,
        call: PartCollective,
        group: usize,
        values: &mut [f32],
        slot: usize,
    ) -> Result<(), TransportError> {
        let requests = &mut self.collectives[slot];
        assert!(requests.is_empty(), "slot {slot} is in use");
        let group = self.groups[group].as_ref().expect("a rank calls in its own groups");
        // SAFETY: as in `start_collective`.
        let result = unsafe { group.start_parts(call, values, self.in_place, requests) };
        self.settle(result)
    }

    fn progress(&mut self) -> Result<(), TransportError> {
        let result = self.collectives.iter_mut().flatten().try_for_each(Request::test);
        self.settle(result)
    }

    fn wait_collective(&mut self, slot: usize) -> Result<(), TransportError> {
        let mut requests = self.collectives[slot].drain(..);
        let result = requests.try_for_each(|mut request| request.wait());
        drop(requests);
        self.settle(result)
    }

    fn crew(&self) -> (u32, u32) {
        self.peers.as_ref().map_or((0, 1), |peers| (peers.crew, peers.crews))
    }

    fn share_from(&mut self, crew: u32, bytes: &mut [u8]) -> Result<(), TransportError> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let result = peers.share(crew, bytes);
        self.settle(result)
    }

    /// Everybody gets everybody's values and joins them itself: for sixteen values no slower than
    /// `MPI_Allreduce`, and the result has the same bits with every MPI and every algorithm.
    fn all_reduce(&mut self, values: &mut [f64], op: ReduceOp) -> Result<(), TransportError> {
        let len = values.len();
        assert!(len <= REDUCE_MAX, "all_reduce of {len} values");
        let all = &mut self.reduce[..len * self.ranks as usize];
        let result = self.control.all_gather(values, all);
        if result.is_ok() {
            op.join_all(values, self.ranks, |rank| &all[rank as usize * len..][..len]);
        }
        self.settle(result)
    }

    fn gather(&mut self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let result = self.try_gather(bytes);
        self.settle(result)
    }

    fn barrier(&mut self) -> Result<(), TransportError> {
        let result = self.control.barrier();
        self.settle(result)
    }

    fn hosts(&mut self) -> Result<Vec<u32>, TransportError> {
        if let Some(together) = self.ranks_a_host {
            return Ok((0..self.ranks).map(|rank| rank / together.max(1)).collect());
        }
        let mut firsts = vec![0.0; self.ranks as usize];
        let gathered = self
            .control
            .first_on_host()
            .and_then(|first| self.control.all_gather(&[f64::from(first)], &mut firsts));
        self.settle(gathered)?;
        Ok(firsts.into_iter().map(|first| first as u32).collect())
    }

    fn nonblocking(
        &mut self,
        process_groups: &[ProcessGroup],
        requests: usize,
    ) -> Result<Box<dyn Nonblocking>, TransportError> {
        let (threaded, failed) = (self.threaded, self.failed.clone());
        let losses = self.survivors.as_ref().map(Survivors::losses);
        let (world, in_place) = (&self.control, self.in_place);
        let made = MpiNonblocking::new(
            world,
            process_groups,
            requests,
            in_place,
            threaded,
            losses,
            failed,
        );
        Ok(Box::new(self.settle(made)?))
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_add_signed(self.clock.offset_ns)
    }

    /// Ends all processes with `exit_code`. `why` reaches nobody: MPI has no way to say it.
    fn abort(&mut self, exit_code: i32, _why: &str) {
        abort(exit_code)
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn host(&self) -> String {
        self.host.clone()
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        let outstanding = self.slots.iter().any(|requests| !requests.is_empty())
            || self.collectives.iter().any(|requests| !requests.is_empty())
            || self.failed.load(Ordering::Relaxed);
        match self.state {
            MpiState::Finished => {}
            MpiState::Running if !outstanding && !std::thread::panicking() => {
                // A drop must not panic, and there is nobody left to tell.
                let _ = comm::finalize();
            }
            MpiState::Running | MpiState::Failed => abort(1),
        }
    }
}

/// Ends all processes of the job. What was printed comes out first.
fn abort(exit_code: i32) -> ! {
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().flush();
    comm::abort(exit_code);
    // The standard lets MPI_Abort be a mere attempt.
    std::process::exit(exit_code)
}
