//! Streams and events of a rank by number, for messages beside what it computes.

use super::Marks;
use crate::device::cuda::nccl::{Broken, Event, Stream};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use std::sync::Arc;

/// The first stream computes.
pub struct Queues {
    /// The device's.
    pub context: Arc<CudaContext>,
    streams: Vec<Arc<CudaStream>>,
    events: Vec<CudaEvent>,
    marks: Marks,
}

/// An error in the driver's words.
pub fn broken(error: DriverError) -> Broken {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    Broken { why: text.unwrap_or_else(|_| format!("{:?}", error.0)), lost: false }
}

impl Queues {
    /// Beside a stream that computes.
    pub fn new(computes: Arc<CudaStream>, marks: Marks) -> Self {
        let context = computes.context().clone();
        Self { context, streams: vec![computes], events: vec![], marks }
    }

    /// A stream, of a device that is current from now on.
    pub fn on(&self, stream: Stream) -> Result<sys::CUstream, Broken> {
        self.context.bind_to_thread().map_err(broken)?;
        Ok(self.streams[stream.0].cu_stream())
    }

    pub fn stream(&mut self) -> Result<Stream, Broken> {
        // Before computations: else a message's blocks wait for a wave of theirs, and its sender with them.
        self.on(Stream::COMPUTES)?;
        let (_, first) = result::stream::get_priority_range().map_err(broken)?;
        self.streams.push(self.context.new_stream_with_priority(first).map_err(broken)?);
        Ok(Stream(self.streams.len() - 1))
    }

    pub fn event(&mut self) -> Result<Event, Broken> {
        self.events.push(self.context.new_event(None).map_err(broken)?);
        Ok(Event(self.events.len() - 1))
    }

    pub fn record(&self, event: Event, on: Stream) -> Result<(), Broken> {
        self.events[event.0].record(&self.streams[on.0]).map_err(broken)
    }

    pub fn wait(&self, event: Event, stream: Stream) -> Result<(), Broken> {
        self.streams[stream.0].wait(&self.events[event.0]).map_err(broken)
    }

    pub fn is_idle(&self, stream: Stream) -> Result<bool, Broken> {
        let stream = self.on(stream)?;
        // SAFETY: the stream is ours.
        match unsafe { sys::cuStreamQuery(stream) }.result() {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    pub fn mark(&self, number: usize, on: Stream) -> Result<(), Broken> {
        self.on(on)?;
        self.marks.record(number, &self.streams[on.0]).map_err(broken)
    }
}
