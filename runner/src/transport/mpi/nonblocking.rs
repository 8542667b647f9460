//! Calls that nobody waits for, over MPI: a communicator for each group, an `MPI_Request` for each of ours.

use super::comm::{Comm, InPlace, check, class, tag_of};
use super::survive::Losses;
use super::ulfm::LETTING_GO;
use crate::transport::nonblocking::{CollectiveOp, Nonblocking, Request};
use crate::transport::{ProcessGroup, TransportError};
use mpi::ffi;
use pipewright_core::compress::{Rounding, e5m2_sum};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// One rank's endpoint.
pub(super) struct MpiNonblocking {
    process_groups: Vec<(Comm, Vec<u32>)>,
    /// By request: MPI's request, none where there is no request or it has ended.
    raw: Vec<ffi::MPI_Request>,
    states: Vec<RequestState>,
    /// Numbers that no request has.
    free: Vec<usize>,
    /// Room for what MPI says of requests that ended.
    ended: Vec<c_int>,
    statuses: Vec<ffi::MPI_Status>,
    operators: Operators,
    in_place: InPlace,
    sent: u64,
    threaded: bool,
    /// Where losses are survived.
    losses: Option<Losses>,
    /// The transport's, which ends the job instead of MPI once something failed.
    failed: Arc<AtomicBool>,
}

/// State of an operation under way.
#[derive(Clone, Copy, Default)]
struct RequestState {
    /// Of a receive: sender, tag and room.
    receive: Option<(u32, u32, usize)>,
    /// The bytes that were received, once it has ended.
    ended: Option<usize>,
}

// SAFETY: handles of MPI are names, good on every thread. Calls come from one thread at a time, as all
// need `&mut self`; from another one than the transport's only where MPI allows calls of several
// threads (`threaded`), which the holder must ask for.
unsafe impl Send for MpiNonblocking {}

impl MpiNonblocking {
    /// Collective over each of `groups`: all ranks make those they share in the same order.
    pub(super) fn new(
        world: &Comm,
        process_groups: &[ProcessGroup],
        requests: usize,
        in_place: InPlace,
        threaded: bool,
        losses: Option<Losses>,
        failed: Arc<AtomicBool>,
    ) -> Result<Self, TransportError> {
        // Sorted, so that ranks in several groups meet in the same one, whatever each calls it.
        let mut order: Vec<usize> = (0..process_groups.len()).collect();
        order.sort_by_key(|at| &process_groups[*at]);
        let mut made: Vec<Option<(Comm, Vec<u32>)>> = process_groups.iter().map(|_| None).collect();
        for at in order {
            let process_group = &process_groups[at];
            made[at] = Some((
                world.group(&process_group.ranks, process_group.purpose)?,
                process_group.ranks.clone(),
            ));
        }
        Ok(Self {
            process_groups: made.into_iter().flatten().collect(),
            raw: vec![none(); requests],
            states: vec![RequestState::default(); requests],
            free: (0..requests).collect(),
            ended: vec![0; requests],
            statuses: vec![no_status(); requests],
            operators: Operators::new()?,
            in_place,
            sent: 0,
            threaded,
            losses,
            failed,
        })
    }

    fn keep(&mut self, raw: ffi::MPI_Request, receive: Option<(u32, u32, usize)>) -> Request {
        let place = self.free.pop().unwrap_or_else(|| {
            self.raw.push(none());
            self.states.push(RequestState::default());
            self.ended.push(0);
            self.statuses.push(no_status());
            self.free.reserve(self.states.len());
            self.states.len() - 1
        });
        self.raw[place] = raw;
        self.states[place] = RequestState { receive, ended: None };
        Request(place)
    }

    fn outstanding(&self) -> bool {
        self.free.len() < self.states.len()
    }

    /// Has everything under way end, here and for those who wait for it; whether MPI lets go of it.
    fn take_back(&mut self) -> bool {
        let Some(losses) = &self.losses else { return false };
        self.process_groups.iter().for_each(|(comm, _)| losses.ulfm.revoke(comm));
        let Some((comm, _)) = self.process_groups.first() else { return true };
        let limit = Instant::now() + LETTING_GO;
        for raw in &mut self.raw {
            if comm.request(*raw).end(limit).is_err() {
                return false;
            }
            *raw = none();
        }
        self.free = (0..self.states.len()).collect();
        true
    }

    /// Notes how a request ended.
    fn note(
        &mut self,
        place: usize,
        status: &ffi::MPI_Status,
        code: c_int,
    ) -> Result<(), TransportError> {
        let state = &mut self.states[place];
        let Some((from, tag, room)) = state.receive else {
            state.ended = Some(0);
            return check("MPI_Testsome", code);
        };
        if class(code) == ffi::MPI_ERR_TRUNCATE as c_int {
            return Err(TransportError::Size { from, tag, expected: room as u64, found: None });
        }
        check("MPI_Testsome", code)?;
        let mut count: c_int = 0;
        // SAFETY: `status` was filled by the receive.
        let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut count) };
        check("MPI_Get_count", code)?;
        state.ended = Some(count as usize);
        Ok(())
    }
}

/// No request.
fn none() -> ffi::MPI_Request {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// A status before anybody wrote to it.
fn no_status() -> ffi::MPI_Status {
    // SAFETY: all zeros are a valid MPI_Status, a C struct of integers.
    unsafe { std::mem::zeroed() }
}

impl Nonblocking for MpiNonblocking {
    unsafe fn send(
        &mut self,
        process_group: usize,
        to: usize,
        tag: u32,
        bytes: *const [u8],
    ) -> Result<Request, TransportError> {
        let comm = self.process_groups[process_group].0.raw;
        // SAFETY: the caller keeps the bytes until the request is done; after an error or drop this
        // process only ends. `raw` is written by the call.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let (at, len, byte) = (bytes.cast::<c_void>(), count(bytes.len()), ffi::RSMPI_UINT8_T);
            let code = ffi::MPI_Isend(at, len, byte, to as c_int, tag_of(tag), comm, &mut raw);
            check("MPI_Isend", code)?;
            raw
        };
        self.sent += bytes.len() as u64;
        Ok(self.keep(raw, None))
    }

    unsafe fn receive(
        &mut self,
        process_group: usize,
        from: usize,
        tag: u32,
        into: *mut [u8],
    ) -> Result<Request, TransportError> {
        let (comm, ranks) =
            (self.process_groups[process_group].0.raw, &self.process_groups[process_group].1);
        let receive = Some((ranks[from], tag, into.len()));
        // SAFETY: as in `send`; nobody touches the bytes meanwhile.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let (at, len, byte) = (into.cast::<c_void>(), count(into.len()), ffi::RSMPI_UINT8_T);
            let code = ffi::MPI_Irecv(at, len, byte, from as c_int, tag_of(tag), comm, &mut raw);
            check("MPI_Irecv", code)?;
            raw
        };
        Ok(self.keep(raw, receive))
    }

    unsafe fn call(
        &mut self,
        process_group: usize,
        op: CollectiveOp,
        values: *mut u8,
        len: usize,
    ) -> Result<Request, TransportError> {
        let comm = &self.process_groups[process_group].0;
        // SAFETY: `reduce` and the others write the request; the caller keeps the values untouched
        // until it is done, and they are of the type that MPI is told.
        let raw = unsafe {
            match op {
                CollectiveOp::Float(call) => {
                    let values = std::slice::from_raw_parts_mut(values.cast::<f32>(), len);
                    comm.start_collective(call, values, self.in_place)?.raw
                }
                CollectiveOp::Max => {
                    let (float, max) = (ffi::RSMPI_FLOAT, ffi::RSMPI_MAX);
                    comm.all_reduce_in_place(self.in_place, values, len, float, max)?
                }
                CollectiveOp::Codes(rounding) => {
                    let (byte, sum) = (ffi::RSMPI_UINT8_T, self.operators.of(rounding));
                    comm.all_reduce_in_place(self.in_place, values, len, byte, sum)?
                }
            }
        };
        Ok(self.keep(raw, None))
    }

    /// One call for all requests: each call that finds nothing has MPI ask the system for news.
    fn look(&mut self) -> Result<(), TransportError> {
        let mut some: c_int = 0;
        // SAFETY: the three slices have one length, and MPI writes to nothing else.
        let code = unsafe {
            ffi::MPI_Testsome(
                count(self.raw.len()),
                self.raw.as_mut_ptr(),
                &mut some,
                self.ended.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        let in_status = class(code) == ffi::MPI_ERR_IN_STATUS as c_int;
        if !in_status {
            check("MPI_Testsome", code)?;
        }
        // Without any request it is MPI_UNDEFINED, which is negative in Open MPI and in MPICH.
        for ended in 0..usize::try_from(some).unwrap_or(0) {
            let (place, status) = (self.ended[ended] as usize, self.statuses[ended]);
            let code = if in_status { status.MPI_ERROR } else { ffi::MPI_SUCCESS as c_int };
            self.note(place, &status, code)?;
        }
        Ok(())
    }

    fn test(&mut self, request: &Request) -> Result<Option<usize>, TransportError> {
        let ended = self.states[request.0].ended;
        if ended.is_some() {
            self.free.push(request.0);
        }
        Ok(ended)
    }

    fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Where calls cannot be taken back, MPI may still use memory that was given to it: from now on this
    /// process only ends.
    fn abandon(&mut self) {
        if !self.take_back() {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    fn threaded(&self) -> bool {
        self.threaded
    }
}

impl Drop for MpiNonblocking {
    /// Frees what MPI made, when all is well. Else ends the job: peers could only wait for ever, and
    /// MPI would write to memory that is about to be freed.
    fn drop(&mut self) {
        // Others may wait for this rank although it waits for nobody.
        let lost = self.losses.as_ref().is_some_and(|losses| losses.lost.load(Ordering::Relaxed));
        if (lost || self.outstanding()) && !self.take_back() {
            super::abort(1);
        }
        let mut finished = 0;
        // SAFETY: may be called at any time.
        unsafe { ffi::MPI_Finalized(&mut finished) };
        if finished == 0 && !self.failed.load(Ordering::Relaxed) {
            self.operators.free();
            // Where losses are survived some of them may have been revoked; those stay as they are.
            if self.losses.is_none() {
                self.process_groups.iter_mut().for_each(|(comm, _)| comm.free());
            }
        }
    }
}

/// Sums of E5M2 codes as operators of MPI: Oyama's way.
struct Operators {
    truncating: ffi::MPI_Op,
    nearest: ffi::MPI_Op,
}

impl Operators {
    fn new() -> Result<Self, TransportError> {
        // SAFETY: reads a constant of the library; what is written is an operator, or not used.
        let create = |function| unsafe {
            let mut operator = std::mem::zeroed();
            // Commutative: else MPI libraries leave out their fast algorithms.
            check("MPI_Op_create", ffi::MPI_Op_create(Some(function), 1, &mut operator))?;
            Ok::<_, TransportError>(operator)
        };
        Ok(Self { truncating: create(add_truncating)?, nearest: create(add_nearest)? })
    }

    /// Saturating sums have none: reductions with them are refused where plans are read.
    fn of(&self, rounding: Rounding) -> ffi::MPI_Op {
        match rounding {
            Rounding::Truncate => self.truncating,
            Rounding::NearestEven | Rounding::Saturating => self.nearest,
        }
    }

    fn free(&mut self) {
        // SAFETY: nothing is under way that uses them. A drop has nobody to tell of errors.
        unsafe {
            ffi::MPI_Op_free(&mut self.truncating);
            ffi::MPI_Op_free(&mut self.nearest);
        }
    }
}

unsafe extern "C" fn add_truncating(
    codes: *mut c_void,
    totals: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: as MPI calls it.
    unsafe { add(codes, totals, len, Rounding::Truncate) }
}

unsafe extern "C" fn add_nearest(
    codes: *mut c_void,
    totals: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: as MPI calls it.
    unsafe { add(codes, totals, len, Rounding::NearestEven) }
}

/// # Safety
/// `len` codes lie at each of two places that are apart.
unsafe fn add(codes: *mut c_void, totals: *mut c_void, len: *const c_int, rounding: Rounding) {
    // SAFETY: the caller's; MPI never gives a negative length.
    let (codes, totals) = unsafe {
        let len = usize::try_from(*len).unwrap_or(0);
        let codes = std::slice::from_raw_parts(codes.cast_const().cast::<u8>(), len);
        (codes, std::slice::from_raw_parts_mut(totals.cast::<u8>(), len))
    };
    e5m2_sum::add(codes, totals, rounding);
}

/// Elements as MPI counts them.
fn count(len: usize) -> c_int {
    c_int::try_from(len).expect("chunks are far smaller than 2^31")
}
