//! A stopwatch of a stream: events before and behind what is asked for.

use super::failed;
use crate::device::DeviceError;
use crate::device::cuda::choices::Stopwatch;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use std::sync::Arc;

/// Two events of a stream.
pub struct Watch {
    device: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    events: [sys::CUevent; 2],
}

// SAFETY: events may be used by any thread, one at a time, that has the context current.
unsafe impl Send for Watch {}

impl Watch {
    /// For a context that is current.
    pub fn new(
        device: &str,
        context: &Arc<CudaContext>,
        stream: &Arc<CudaStream>,
    ) -> Result<Self, DriverError> {
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let events = [event()?, event()?];
        let (context, stream) = (context.clone(), stream.clone());
        Ok(Self { device: device.into(), context, stream, events })
    }

    fn record(&self, which: usize) -> Result<(), DeviceError> {
        // SAFETY: events live as long as this.
        let recorded =
            unsafe { result::event::record(self.events[which], self.stream.cu_stream()) };
        recorded.map_err(|e| failed(&self.device, "record an event", &e))
    }
}

impl Stopwatch for Watch {
    fn time(
        &mut self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<u64, DeviceError> {
        self.record(0)?;
        work()?;
        self.record(1)?;
        let told = |what: &'static str| {
            let device = self.device.clone();
            move |e: DriverError| failed(&device, what, &e)
        };
        self.stream.synchronize().map_err(told("wait for the device"))?;
        // SAFETY: both were recorded, and are over.
        let ms = unsafe { result::event::elapsed(self.events[0], self.events[1]) };
        Ok((f64::from(ms.map_err(told("read an event"))?) * 1e6) as u64)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A device that has failed keeps them until the process ends.
        let _ = self.context.bind_to_thread();
        for event in self.events {
            // SAFETY: made here, and nobody waits for it.
            let _ = unsafe { result::event::destroy(event) };
        }
    }
}
