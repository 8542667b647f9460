//! Going on in place without ranks that died: User Level Failure Mitigation (Bland et al. 2013; in the MPI
//! Forum's drafts as `MPIX_Comm_*`).
//!
//! Open MPI has it from version 5 on, when it was started with `--with-ft ulfm`. The calls are looked
//! for in the library that is loaded, so that one binary serves every MPI.
//!
//! `MPIX_Comm_agree` is not among them: what ranks agree on here is whether a step counts, and that is the
//! rename of its state by one rank that has heard of all others ([`checkpoint`](crate::checkpoint)). One
//! that died cannot have said that it made the step, whatever sums the others were given.

use super::comm::{Comm, check, class};
use crate::transport::TransportError;
use mpi::ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// Open MPI's classes of errors that mean that a rank is gone: its process failed, some process of
/// many failed, the communicator was revoked because of one. Other libraries have other numbers; none
/// of them keeps a job alive.
const LOST: [c_int; 3] = [75, 76, 77];

/// How long MPI may take to let go of what was under way.
pub(super) const LETTING_GO: Duration = Duration::from_secs(2);

/// The calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ulfm {
    revoke: Revoke,
    shrink: Shrink,
}

type Revoke = unsafe extern "C" fn(ffi::MPI_Comm) -> c_int;
type Shrink = unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Comm) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// A function of the libraries that are loaded.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the null handle means all loaded libraries, and the name is a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The loaded library's, if it has them.
pub(super) fn ulfm() -> Option<Ulfm> {
    static FOUND: OnceLock<Option<Ulfm>> = OnceLock::new();
    let load = || {
        let [revoke, shrink] = [c"MPIX_Comm_revoke", c"MPIX_Comm_shrink"].map(find);
        // SAFETY: functions of these names have these types, by the drafts and Open MPI's mpi-ext.h.
        Some(unsafe {
            Ulfm {
                revoke: std::mem::transmute::<*mut c_void, Revoke>(revoke?),
                shrink: std::mem::transmute::<*mut c_void, Shrink>(shrink?),
            }
        })
    };
    *FOUND.get_or_init(load)
}

/// Whether a code of MPI says that a rank is gone.
pub(super) fn is_loss(code: c_int) -> bool {
    code != ffi::MPI_SUCCESS as c_int && ulfm().is_some() && LOST.contains(&class(code))
}

impl Ulfm {
    /// Has every call on a communicator fail, here and on all its ranks, those under way too.
    pub(super) fn revoke(&self, comm: &Comm) {
        // SAFETY: the communicator is valid. That it is revoked already is no error that matters.
        unsafe { (self.revoke)(comm.raw) };
    }

    /// The ranks of `comm` that live, in their order. Collective over them; `comm` may be revoked.
    pub(super) fn shrink(&self, comm: &Comm) -> Result<Comm, TransportError> {
        // SAFETY: the communicator is valid, and the new one is written by the call.
        let raw = unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            check("MPIX_Comm_shrink", (self.shrink)(comm.raw, &mut raw))?;
            raw
        };
        comm.like(raw)
    }
}
