//! The MPI calls that we use, with their return codes as results.
//!
//! Messages are cut into pieces of `piece` bytes, and the last piece is always a shorter one,
//! possibly empty. So a receiver sees where a message ends even when it expected another length,
//! instead of waiting for pieces that never come.

use super::request::{Request, Wait};
use super::ulfm::is_loss;
use crate::transport::{Collective, PartCollective, TransportError};
use mpi::ffi;
use pipewright_core::plan::part;
use std::ffi::{c_int, c_void};
use std::ptr;

/// A communicator. MPI must be running: only [`super::start`] makes one.
#[derive(Debug)]
pub(super) struct Comm {
    pub(super) raw: ffi::MPI_Comm,
    piece: usize,
    wait: Wait,
}

impl Comm {
    /// A duplicate of the world whose errors are returned. Collective.
    pub(super) fn world(piece_bytes: usize, wait: Wait) -> Result<Self, TransportError> {
        assert!(piece_bytes > 0 && c_int::try_from(piece_bytes).is_ok(), "size of a piece");
        // SAFETY: MPI runs; `raw` is written by the call before anything reads it.
        unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut raw))?;
            let code = ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Comm_set_errhandler", code)?;
            Ok(Self { raw, piece: piece_bytes, wait })
        }
    }

    /// Another communicator that is used like this one; its errors are returned.
    pub(super) fn like(&self, raw: ffi::MPI_Comm) -> Result<Self, TransportError> {
        // SAFETY: the communicator is valid.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN) };
        check("MPI_Comm_set_errhandler", code)?;
        Ok(Self { raw, ..*self })
    }

    /// A request of MPI's, waited for as calls of this communicator are.
    pub(super) fn request(&self, raw: ffi::MPI_Request) -> Request {
        Request { raw, wait: self.wait }
    }

    /// The same communicator for a rank that waits for long.
    pub(super) fn asleep(&self) -> Self {
        Self { wait: Wait::Asleep, ..*self }
    }

    /// Has errors that belong to no communicator of ours be returned.
    pub(super) fn no_fatal_errors() -> Result<(), TransportError> {
        // SAFETY: MPI runs, and the world is always valid.
        let code = unsafe {
            ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN)
        };
        check("MPI_Comm_set_errhandler", code)
    }

    /// This rank and the number of ranks.
    pub(super) fn place(&self) -> Result<(u32, u32), TransportError> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the communicator is valid, and both calls only write one integer.
        unsafe {
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(self.raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(self.raw, &mut ranks))?;
        }
        Ok((rank as u32, ranks as u32))
    }

    /// Starts sending all pieces of `bytes`.
    ///
    /// # Safety
    /// `bytes` must stay valid and unchanged until all of `requests` are waited for.
    pub(super) unsafe fn start_send(
        &self,
        to: u32,
        tag: u32,
        bytes: &[u8],
        requests: &mut Vec<Request>,
    ) -> Result<(), TransportError> {
        for piece in self.pieces(bytes.len()) {
            let piece = &bytes[piece];
            // SAFETY: pointer and length are those of a slice that the caller keeps; `request`
            // is written by the call.
            unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let code = ffi::MPI_Isend(
                    piece.as_ptr().cast(),
                    piece.len() as c_int,
                    ffi::RSMPI_UINT8_T,
                    to as c_int,
                    tag_of(tag),
                    self.raw,
                    &mut request,
                );
                check("MPI_Isend", code)?;
                requests.push(self.request(request));
            }
        }
        Ok(())
    }

    /// Sends and waits until the bytes may change.
    pub(super) fn send(&self, to: u32, tag: u32, bytes: &[u8]) -> Result<(), TransportError> {
        let mut requests = vec![];
        // SAFETY: `bytes` is borrowed until all requests are waited for, below. An error in
        // between ends the job: see `MpiTransport`.
        unsafe { self.start_send(to, tag, bytes, &mut requests)? };
        requests.iter_mut().try_for_each(Request::wait)
    }

    /// Waits for a message that fills `into` exactly.
    pub(super) fn recv(&self, from: u32, tag: u32, into: &mut [u8]) -> Result<(), TransportError> {
        let expected = into.len() as u64;
        let size = |found| TransportError::Size { from, tag, expected, found };
        for range in self.pieces(into.len()) {
            let piece = &mut into[range.clone()];
            let len = piece.len();
            // SAFETY: all zeros are a valid MPI_Status, a C struct of integers.
            let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
            let mut count: c_int = 0;
            // SAFETY: pointer and length are those of a slice that we borrow exclusively until
            // the bytes are there, for which we wait. An error ends the job: see `MpiTransport`.
            let code = unsafe {
                let mut raw = ffi::RSMPI_REQUEST_NULL;
                let code = ffi::MPI_Irecv(
                    piece.as_mut_ptr().cast(),
                    len as c_int,
                    ffi::RSMPI_UINT8_T,
                    from as c_int,
                    tag_of(tag),
                    self.raw,
                    &mut raw,
                );
                check("MPI_Irecv", code)?;
                self.request(raw).finish(&mut status)
            };
            if class(code) == ffi::MPI_ERR_TRUNCATE as c_int {
                return Err(size(None));
            }
            check("MPI_Wait", code)?;
            // SAFETY: `status` was filled by the receive.
            let code = unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count) };
            check("MPI_Get_count", code)?;
            if count as usize != len {
                return Err(size(Some(range.start as u64 + count as u64)));
            }
        }
        Ok(())
    }

    /// Puts the `mine.len()` values of each rank into `all`, in the order of ranks.
    pub(super) fn all_gather(&self, mine: &[f64], all: &mut [f64]) -> Result<(), TransportError> {
        let len = mine.len() as c_int;
        // SAFETY: the caller gives `all` the length of all ranks' values, the two slices cannot
        // overlap, and both are borrowed until the request is waited for.
        unsafe {
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Iallgather(
                mine.as_ptr().cast::<c_void>(),
                len,
                ffi::RSMPI_DOUBLE,
                all.as_mut_ptr().cast(),
                len,
                ffi::RSMPI_DOUBLE,
                self.raw,
                &mut raw,
            );
            check("MPI_Iallgather", code)?;
            self.request(raw).wait()
        }
    }

    /// A communicator of some ranks of this one, in that order; called by those ranks alone.
    pub(super) fn group(&self, ranks: &[u32], tag: u32) -> Result<Self, TransportError> {
        let ranks: Vec<c_int> = ranks.iter().map(|rank| *rank as c_int).collect();
        // SAFETY: the communicator is valid, `ranks` are distinct ranks of it, and each handle is
        // written by the call before it is used.
        unsafe {
            let mut all = ffi::RSMPI_GROUP_NULL;
            check("MPI_Comm_group", ffi::MPI_Comm_group(self.raw, &mut all))?;
            let mut some = ffi::RSMPI_GROUP_NULL;
            let code = ffi::MPI_Group_incl(all, ranks.len() as c_int, ranks.as_ptr(), &mut some);
            check("MPI_Group_incl", code)?;
            let mut raw = ffi::RSMPI_COMM_NULL;
            let code = ffi::MPI_Comm_create_group(self.raw, some, tag_of(tag), &mut raw);
            check("MPI_Comm_create_group", code)?;
            check("MPI_Group_free", ffi::MPI_Group_free(&mut some))?;
            check("MPI_Group_free", ffi::MPI_Group_free(&mut all))?;
            self.like(raw)
        }
    }

    /// Starts a collective call; every rank of the communicator does the same.
    ///
    /// # Safety
    /// `values` must stay valid and untouched until the request is waited for.
    pub(super) unsafe fn start_collective(
        &self,
        call: Collective,
        values: &mut [f32],
        in_place: InPlace,
    ) -> Result<Request, TransportError> {
        // SAFETY: the caller's.
        unsafe {
            match call {
                Collective::AllReduce => self.start_all_reduce(values, in_place),
                Collective::Broadcast => self.start_broadcast(values, 0),
                Collective::Reduce => self.start_reduce(values, 0, in_place),
            }
        }
    }

    /// Starts a call on parts: one of each part, with the rank that has it as root.
    ///
    /// # Safety
    /// As for [`Comm::start_collective`], until all of `requests` are waited for.
    pub(super) unsafe fn start_parts(
        &self,
        call: PartCollective,
        values: &mut [f32],
        in_place: InPlace,
        requests: &mut Vec<Request>,
    ) -> Result<(), TransportError> {
        let ranks = self.place()?.1;
        for root in 0..ranks {
            let places = part(values.len(), ranks as usize, root as usize);
            if places.is_empty() {
                continue;
            }
            let part = &mut values[places];
            // SAFETY: parts are apart, and the caller keeps all of them.
            requests.push(unsafe {
                match call {
                    PartCollective::ReduceScatter => self.start_reduce(part, root, in_place)?,
                    PartCollective::AllGather => self.start_broadcast(part, root)?,
                }
            });
        }
        Ok(())
    }

    /// Starts a sum that everybody gets.
    ///
    /// # Safety
    /// As for [`Comm::start_collective`].
    unsafe fn start_all_reduce(
        &self,
        values: &mut [f32],
        in_place: InPlace,
    ) -> Result<Request, TransportError> {
        let (data, count) = buffer(values);
        // SAFETY: pointer and length are those of a slice that the caller keeps untouched; `in_place` is
        // this library's MPI_IN_PLACE, allowed for the send buffer; `raw` is written by the call.
        unsafe {
            let (mine, float, sum) = (in_place.address(), ffi::RSMPI_FLOAT, ffi::RSMPI_SUM);
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Iallreduce(mine, data, count, float, sum, self.raw, &mut raw);
            check("MPI_Iallreduce", code)?;
            Ok(self.request(raw))
        }
    }

    /// Starts a sum that `root` gets.
    ///
    /// # Safety
    /// As for [`Comm::start_collective`].
    unsafe fn start_reduce(
        &self,
        values: &mut [f32],
        root: u32,
        in_place: InPlace,
    ) -> Result<Request, TransportError> {
        let (data, count) = buffer(values);
        let is_root = self.place()?.0 == root;
        let from = if is_root { in_place.address() } else { data.cast_const() };
        // SAFETY: as in `start_all_reduce`; MPI_IN_PLACE is allowed at the root.
        unsafe {
            let (float, sum, root) = (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, root as c_int);
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Ireduce(from, data, count, float, sum, root, self.raw, &mut raw);
            check("MPI_Ireduce", code)?;
            Ok(self.request(raw))
        }
    }

    /// Starts to hand `root`'s values to all.
    ///
    /// # Safety
    /// As for [`Comm::start_collective`].
    unsafe fn start_broadcast(
        &self,
        values: &mut [f32],
        root: u32,
    ) -> Result<Request, TransportError> {
        let (data, count) = buffer(values);
        // SAFETY: as in `start_all_reduce`.
        unsafe {
            let (float, mut raw) = (ffi::RSMPI_FLOAT, ffi::RSMPI_REQUEST_NULL);
            let code = ffi::MPI_Ibcast(data, count, float, root as c_int, self.raw, &mut raw);
            check("MPI_Ibcast", code)?;
            Ok(self.request(raw))
        }
    }

    /// Starts an all-reduce of `len` elements by any operator.
    ///
    /// # Safety
    /// As for [`Comm::start_collective`]; the elements are of type `kind`, and `operator` takes it.
    pub(super) unsafe fn all_reduce_in_place(
        &self,
        in_place: InPlace,
        values: *mut u8,
        len: usize,
        kind: ffi::MPI_Datatype,
        operator: ffi::MPI_Op,
    ) -> Result<ffi::MPI_Request, TransportError> {
        let count = c_int::try_from(len).expect("chunks are far smaller than 2^31");
        let (mine, values) = (in_place.address(), values.cast::<c_void>());
        // SAFETY: the caller's, and as in `start_collective`.
        unsafe {
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            let code = ffi::MPI_Iallreduce(mine, values, count, kind, operator, self.raw, &mut raw);
            check("MPI_Iallreduce", code)?;
            Ok(raw)
        }
    }

    /// The world's number of the first rank that shares memory with this one. Collective; of the world
    /// alone.
    pub(super) fn first_on_host(&self) -> Result<u32, TransportError> {
        // SAFETY: the communicator is valid, and each handle is written by the call before it is
        // used.
        unsafe {
            let mut host = ffi::RSMPI_COMM_NULL;
            let (kind, none) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            let code = ffi::MPI_Comm_split_type(self.raw, kind, 0, none, &mut host);
            check("MPI_Comm_split_type", code)?;
            let (mut there, mut all) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
            check("MPI_Comm_group", ffi::MPI_Comm_group(host, &mut there))?;
            check("MPI_Comm_group", ffi::MPI_Comm_group(self.raw, &mut all))?;
            let (zero, mut first) = (0, 0);
            let code = ffi::MPI_Group_translate_ranks(there, 1, &zero, all, &mut first);
            check("MPI_Group_translate_ranks", code)?;
            check("MPI_Group_free", ffi::MPI_Group_free(&mut there))?;
            check("MPI_Group_free", ffi::MPI_Group_free(&mut all))?;
            check("MPI_Comm_free", ffi::MPI_Comm_free(&mut host))?;
            Ok(first as u32)
        }
    }

    /// Gives the communicator back, with nothing under way on it. A drop has nobody to tell of errors.
    pub(super) fn free(&mut self) {
        // SAFETY: the communicator is valid, and MPI sets the handle to none.
        unsafe { ffi::MPI_Comm_free(&mut self.raw) };
    }

    pub(super) fn barrier(&self) -> Result<(), TransportError> {
        // SAFETY: the communicator is valid, `raw` is written by the call.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_REQUEST_NULL;
            check("MPI_Ibarrier", ffi::MPI_Ibarrier(self.raw, &mut raw))?;
            raw
        };
        self.request(raw).wait()
    }

    /// The pieces of `len` bytes; the last one is shorter than the others.
    fn pieces(&self, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let piece = self.piece;
        (0..=len / piece).map(move |i| i * piece..len.min((i + 1) * piece))
    }
}

/// The address that means "in place" to this MPI library: a macro in its header, which bindings to
/// C cannot see.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPlace(isize);

impl InPlace {
    fn address(self) -> *const c_void {
        self.0 as *const c_void
    }

    /// Asks the library who it is: Open MPI has 1, MPICH and all that come from it have -1.
    pub(super) fn of_library() -> Result<Self, TransportError> {
        let mut buffer = vec![0u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
        let mut len = 0;
        // SAFETY: the buffer has the length that MPI asks for.
        let code = unsafe { ffi::MPI_Get_library_version(buffer.as_mut_ptr().cast(), &mut len) };
        check("MPI_Get_library_version", code)?;
        Ok(Self(if text(&buffer, len).contains("Open MPI") { 1 } else { -1 }))
    }
}

/// Values as MPI takes them: where they lie, and how many.
fn buffer(values: &mut [f32]) -> (*mut c_void, c_int) {
    let count = c_int::try_from(values.len()).expect("buckets are far smaller than 2^31");
    (values.as_mut_ptr().cast(), count)
}

pub(super) fn tag_of(tag: u32) -> c_int {
    c_int::try_from(tag).unwrap_or_else(|_| panic!("tag {tag} exceeds what MPI can have"))
}

/// Starts MPI for calls of one thread, or of several; whether several may call.
pub(super) fn init(several: bool) -> Result<bool, TransportError> {
    let mut provided = 0;
    // SAFETY: reads constants of the library.
    let (one, all) = unsafe { (ffi::RSMPI_THREAD_FUNNELED, ffi::RSMPI_THREAD_MULTIPLE) };
    // SAFETY: MPI allows null for the arguments of main; our caller sees to it that it is called
    // once per process.
    check("MPI_Init_thread", unsafe {
        let asked = if several { all } else { one };
        ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), asked, &mut provided)
    })?;
    Ok(several && provided >= all)
}

/// Ends MPI.
pub(super) fn finalize() -> Result<(), TransportError> {
    // SAFETY: MPI runs, and no transport exists after this.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

/// Asks MPI to end all processes.
pub(super) fn abort(exit_code: i32) {
    // SAFETY: MPI runs: only a transport calls this.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, exit_code) };
}

/// MPI's name for this machine.
pub(super) fn processor_name() -> Result<String, TransportError> {
    let mut buffer = vec![0u8; ffi::MPI_MAX_PROCESSOR_NAME as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the length that MPI asks for.
    let code = unsafe { ffi::MPI_Get_processor_name(buffer.as_mut_ptr().cast(), &mut len) };
    check("MPI_Get_processor_name", code)?;
    Ok(text(&buffer, len))
}

pub(super) fn check(call: &'static str, code: c_int) -> Result<(), TransportError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    if is_loss(code) {
        return Err(TransportError::Lost { call });
    }
    let mut buffer = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the length that MPI asks for.
    let known = unsafe { ffi::MPI_Error_string(code, buffer.as_mut_ptr().cast(), &mut len) };
    let text = if known == 0 { text(&buffer, len) } else { "unknown code".into() };
    Err(TransportError::Mpi { call, code, text })
}

/// The standard's class of an implementation's code.
pub(super) fn class(code: c_int) -> c_int {
    let mut class = code;
    // SAFETY: only writes one integer.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    class
}

fn text(buffer: &[u8], len: c_int) -> String {
    let len = usize::try_from(len).unwrap_or(0).min(buffer.len());
    String::from_utf8_lossy(&buffer[..len]).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_piece_is_always_a_short_one() {
        let comm = |piece| Comm {
            // SAFETY: reads a constant of the library; MPI is not called.
            raw: unsafe { ffi::RSMPI_COMM_NULL },
            piece,
            wait: Wait::Awake,
        };
        let pieces =
            |len| comm(4).pieces(len).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>();
        assert_eq!(pieces(0), [(0, 0)]);
        assert_eq!(pieces(3), [(0, 3)]);
        assert_eq!(pieces(4), [(0, 4), (4, 4)]);
        assert_eq!(pieces(10), [(0, 4), (4, 8), (8, 10)]);
    }
}
