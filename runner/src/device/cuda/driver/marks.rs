//! Events that one queue of work makes and another one asks for.

use super::Driver;
use crate::device::DeviceError;
use cudarc::driver::{DriverError, result, sys};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events by number, of all streams of a rank's device.
pub(super) type Marks = Arc<Mutex<Vec<Event>>>;

/// An event of the driver's; null where it was never recorded.
pub(super) struct Event(sys::CUevent);

// SAFETY: a handle of the driver, which any thread that has the context current may use, one at a time.
unsafe impl Send for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made here, and nobody else has it.
            let _ = unsafe { result::event::destroy(self.0) };
        }
    }
}

impl Driver {
    /// See [`Backend::mark`](crate::device::cuda::Backend::mark).
    pub(super) fn mark_at(&mut self, number: usize) -> Result<(), DeviceError> {
        self.current()?;
        let marks = self.marks.clone();
        let mut marks = lock(&marks);
        while marks.len() <= number {
            marks.push(Event(std::ptr::null_mut()));
        }
        let event = &mut marks[number].0;
        if event.is_null() {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            *event = self.told("make an event", result::event::create(flags))?;
        }
        // SAFETY: an event and a stream of this context.
        let recorded = unsafe { result::event::record(*event, self.stream.cu_stream()) };
        self.told("record an event", recorded)
    }

    /// See [`Backend::reached`](crate::device::cuda::Backend::reached).
    pub(super) fn has_reached(&self, number: usize) -> Result<bool, DeviceError> {
        self.current()?;
        let event = lock(&self.marks).get(number).map_or(std::ptr::null_mut(), |event| event.0);
        if event.is_null() {
            return Ok(true);
        }
        // SAFETY: events live until the last driver that has them ends.
        match unsafe { result::event::query(event) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            asked => self.told("ask for an event", asked).map(|()| true),
        }
    }

    /// The last driver that has them destroys events, while there is a context.
    pub(super) fn forget_marks(&mut self) {
        if let Some(marks) = Arc::get_mut(&mut self.marks) {
            marks.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// Events; a thread that panicked has left them as they are.
fn lock(marks: &Marks) -> MutexGuard<'_, Vec<Event>> {
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}
