//! Events that one queue of work makes and another one asks for.

use cudarc::driver::{CudaStream, DriverError, result, sys};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events by number, of all streams of a rank's device. Clones are the same ones. Who calls has the device
/// current.
#[derive(Clone, Default)]
pub struct Marks(Arc<Mutex<Vec<Event>>>);

/// An event of the driver's.
struct Event(sys::CUevent);

// SAFETY: a handle of the driver, which any thread that has the context current may use, one at a time.
unsafe impl Send for Event {}

impl Event {
    /// One that was never recorded.
    const NONE: Self = Self(std::ptr::null_mut());
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made here, and nobody else has it.
            let _ = unsafe { result::event::destroy(self.0) };
        }
    }
}

impl Marks {
    /// What a stream was asked for so far is mark `number`.
    pub fn record(&self, number: usize, stream: &CudaStream) -> Result<(), DriverError> {
        let mut marks = self.lock();
        while marks.len() <= number {
            marks.push(Event::NONE);
        }
        let event = &mut marks[number].0;
        if event.is_null() {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            *event = result::event::create(flags)?;
        }
        // SAFETY: an event and a stream of this context.
        unsafe { result::event::record(*event, stream.cu_stream()) }
    }

    /// Whether all is done that a mark stands for; nothing for one that nobody made.
    pub fn reached(&self, number: usize) -> Result<bool, DriverError> {
        let event = self.lock().get(number).map_or(std::ptr::null_mut(), |event| event.0);
        if event.is_null() {
            return Ok(true);
        }
        // SAFETY: events live until the last one ends that has them.
        match unsafe { result::event::query(event) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            asked => asked.map(|()| true),
        }
    }

    /// The last one that has them destroys events, while there is a context.
    pub(super) fn forget(&mut self) {
        if let Some(marks) = Arc::get_mut(&mut self.0) {
            marks.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Events; a thread that panicked has left them as they are.
    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
