//! Operations of MPI under way, and how they are waited for.

use super::comm::check;
use crate::transport::TransportError;
use mpi::ffi;
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// How a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// On its core, until MPI returns: soonest.
    Awake,
    /// Asleep, looking from time to time. Where ranks outnumber cores those that wait would
    /// otherwise take turns on the cores with those that compute, even when each gives its turn
    /// away at once.
    Asleep,
}

/// Looks before the first sleep, and that sleep; after as many sleeps each is twice as long, up to four times.
const LOOKS: u32 = 20;
const SLEEP: Duration = Duration::from_micros(20);

/// One outstanding operation, such as a piece of a send.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) raw: ffi::MPI_Request,
    pub(super) wait: Wait,
}

impl Request {
    /// Lets it advance.
    pub(super) fn test(&mut self) -> Result<(), TransportError> {
        check("MPI_Test", self.look(ignored()).1)
    }

    /// Waits until the bytes may change.
    pub(super) fn wait(&mut self) -> Result<(), TransportError> {
        check("MPI_Wait", self.finish(ignored()))
    }

    /// Waits until it has ended, however: then MPI does not touch its memory any more.
    pub(super) fn end(&mut self, limit: Instant) -> Result<(), TransportError> {
        loop {
            let (done, code) = self.look(ignored());
            if done || code != ffi::MPI_SUCCESS as c_int {
                return Ok(());
            }
            if Instant::now() > limit {
                return Err(TransportError::Lost { call: "MPI_Test" });
            }
            std::thread::sleep(SLEEP);
        }
    }

    /// Whether it is done, and MPI's code.
    fn look(&mut self, status: *mut ffi::MPI_Status) -> (bool, c_int) {
        let mut done = 0;
        // SAFETY: the request is one that MPI gave; once done it is MPI_REQUEST_NULL, for which
        // the call says so again. `status` is one that may be written, or ignored.
        let code = unsafe { ffi::MPI_Test(&mut self.raw, &mut done, status) };
        (done != 0, code)
    }

    /// Waits until it is done; MPI's code.
    pub(super) fn finish(&mut self, status: *mut ffi::MPI_Status) -> c_int {
        if self.wait == Wait::Awake {
            // SAFETY: as in `look`.
            return unsafe { ffi::MPI_Wait(&mut self.raw, status) };
        }
        for look in 0u32.. {
            match self.look(status) {
                (false, code) if code == ffi::MPI_SUCCESS as c_int => {}
                (_, code) => return code,
            }
            if let Some(doubled) = (look / LOOKS).checked_sub(1) {
                std::thread::sleep(SLEEP * (1 << doubled.min(2)));
            }
        }
        unreachable!("looks are not counted that far")
    }
}

/// The status of whoever does not ask.
fn ignored() -> *mut ffi::MPI_Status {
    // SAFETY: reads a constant of the library.
    unsafe { ffi::RSMPI_STATUS_IGNORE }
}
