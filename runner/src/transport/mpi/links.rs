//! Calls that nobody waits for, over MPI: a communicator for each circle, a request for each ticket.

use super::comm::{Comm, InPlace, Wait, check, class, tag_of};
use crate::transport::links::{Joint, Links, Ticket};
use crate::transport::{Circle, TransportError};
use mpi::ffi;
use pipewright_core::compress::{Rounding, e5m2_sum};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One rank's endpoint.
pub(super) struct MpiLinks {
    circles: Vec<(Comm, Vec<u32>)>,
    requests: Vec<Request>,
    /// Places in `requests` that are free.
    free: Vec<usize>,
    operators: Operators,
    in_place: InPlace,
    sent: u64,
    threaded: bool,
    wait: Wait,
    /// The transport's, which ends the job instead of MPI once something failed.
    failed: Arc<AtomicBool>,
}

/// What a ticket stands for.
struct Request {
    raw: ffi::MPI_Request,
    /// Of a receive: sender, tag and room.
    receive: Option<(u32, u32, usize)>,
}

// SAFETY: handles of MPI are names, good on every thread. Calls come from one thread at a time, as all
// need `&mut self`; from another one than the transport's only where MPI allows calls of several
// threads (`threaded`), which the holder must ask for.
unsafe impl Send for MpiLinks {}

impl MpiLinks {
    /// Collective over each of `circles`: all ranks make those they share in the same order.
    pub(super) fn new(
        world: &Comm,
        (circles, tickets): (&[Circle], usize),
        in_place: InPlace,
        threaded: bool,
        failed: Arc<AtomicBool>,
    ) -> Result<Self, TransportError> {
        // Sorted, so that ranks in several circles meet in the same one, whatever each calls it.
        let mut order: Vec<usize> = (0..circles.len()).collect();
        order.sort_by_key(|at| &circles[*at]);
        let mut made: Vec<Option<(Comm, Vec<u32>)>> = circles.iter().map(|_| None).collect();
        for at in order {
            let circle = &circles[at];
            made[at] = Some((world.group(&circle.ranks, circle.purpose)?, circle.ranks.clone()));
        }
        Ok(Self {
            circles: made.into_iter().flatten().collect(),
            requests: (0..tickets).map(|_| Request::none()).collect(),
            free: (0..tickets).collect(),
            operators: Operators::new()?,
            in_place,
            sent: 0,
            threaded,
            wait: world.wait,
            failed,
        })
    }

    fn keep(&mut self, raw: ffi::MPI_Request, receive: Option<(u32, u32, usize)>) -> Ticket {
        let place = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::none());
            self.free.reserve(self.requests.len());
            self.requests.len() - 1
        });
        self.requests[place] = Request { raw, receive };
        Ticket(place)
    }

    fn outstanding(&self) -> bool {
        self.free.len() < self.requests.len()
    }
}

impl Request {
    fn none() -> Self {
        // SAFETY: reads a constant of the library.
        Self { raw: unsafe { ffi::RSMPI_REQUEST_NULL }, receive: None }
    }

    /// Whether it has ended, and the bytes that were received.
    fn test(&mut self) -> Result<Option<usize>, TransportError> {
        let mut done = 0;
        // SAFETY: all zeros are a valid MPI_Status, a C struct of integers.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the request is one that MPI gave, and both places may be written.
        let code = unsafe { ffi::MPI_Test(&mut self.raw, &mut done, &mut status) };
        let Some((from, tag, room)) = self.receive else {
            check("MPI_Test", code)?;
            return Ok((done != 0).then_some(0));
        };
        if class(code) == ffi::MPI_ERR_TRUNCATE as c_int {
            return Err(TransportError::Size { from, tag, expected: room as u64, found: None });
        }
        check("MPI_Test", code)?;
        if done == 0 {
            return Ok(None);
        }
        let mut count: c_int = 0;
        // SAFETY: `status` was filled by the receive.
        let code = unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count) };
        check("MPI_Get_count", code)?;
        Ok(Some(count as usize))
    }
}

impl Links for MpiLinks {
    unsafe fn send(
        &mut self,
        circle: usize,
        to: usize,
        tag: u32,
        bytes: *const [u8],
    ) -> Result<Ticket, TransportError> {
        let comm = self.circles[circle].0.raw;
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
        circle: usize,
        from: usize,
        tag: u32,
        into: *mut [u8],
    ) -> Result<Ticket, TransportError> {
        let (comm, ranks) = (self.circles[circle].0.raw, &self.circles[circle].1);
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
        circle: usize,
        joint: Joint,
        values: *mut u8,
        len: usize,
    ) -> Result<Ticket, TransportError> {
        let comm = &self.circles[circle].0;
        // SAFETY: `reduce` and the others write the request; the caller keeps the values untouched
        // until it is done, and they are of the type that MPI is told.
        let raw = unsafe {
            match joint {
                Joint::Float(call) => {
                    let values = std::slice::from_raw_parts_mut(values.cast::<f32>(), len);
                    comm.start_collective(call, values, self.in_place)?.raw
                }
                Joint::Max => {
                    let (float, max) = (ffi::RSMPI_FLOAT, ffi::RSMPI_MAX);
                    comm.all_reduce_in_place(self.in_place, values, len, float, max)?
                }
                Joint::Codes(rounding) => {
                    let (byte, sum) = (ffi::RSMPI_UINT8_T, self.operators.of(rounding));
                    comm.all_reduce_in_place(self.in_place, values, len, byte, sum)?
                }
            }
        };
        Ok(self.keep(raw, None))
    }

    fn test(&mut self, ticket: &Ticket) -> Result<Option<usize>, TransportError> {
        let ended = self.requests[ticket.0].test();
        if let Ok(Some(_)) = ended {
            self.free.push(ticket.0);
        }
        ended
    }

    fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// MPI may still use memory that was given to it: from now on this process only ends.
    fn abandon(&mut self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn threaded(&self) -> bool {
        self.threaded
    }

    fn asleep(&self) -> bool {
        self.wait == Wait::Asleep
    }
}

impl Drop for MpiLinks {
    /// Frees what MPI made, when all is well. Else ends the job: peers could only wait for ever, and
    /// MPI would write to memory that is about to be freed.
    fn drop(&mut self) {
        if self.outstanding() {
            super::abort(1);
        }
        let mut finished = 0;
        // SAFETY: may be called at any time.
        unsafe { ffi::MPI_Finalized(&mut finished) };
        if finished == 0 && !self.failed.load(Ordering::Relaxed) {
            self.operators.free();
            self.circles.iter_mut().for_each(|(comm, _)| comm.free());
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
            Ok(operator)
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
