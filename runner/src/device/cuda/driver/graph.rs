//! Commands as one graph, for one call.

use super::pinned::Pinned;
use super::{Driver, failed};
use crate::device::DeviceError;
use crate::device::cuda::backend::Capture;
use cudarc::driver::{CudaEvent, CudaGraph, DriverError, sys};

/// Commands that were captured.
pub struct Graph {
    graph: CudaGraph,
    /// What its uploads read.
    uploads: Pinned,
    /// Its last replay is over: its uploads were read.
    done: CudaEvent,
}

// SAFETY: as for the driver, which alone uses it.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // Nothing reads the bytes of uploads when they are freed. A device that has failed reads nothing.
        let _ = self.done.synchronize();
    }
}

/// Where the bytes of the uploads of a graph will lie that is being made: in its pinned memory, which it
/// keeps for as long as it may be replayed.
pub struct Uploads {
    rest: *mut [u8],
}

impl Uploads {
    /// The bytes of the next upload; none where there are not so many left.
    pub fn take<'a>(&mut self, count: usize) -> Option<&'a [u8]> {
        if count > self.rest.len() {
            return None;
        }
        let next = self.rest.cast::<u8>();
        self.rest =
            std::ptr::slice_from_raw_parts_mut(next.wrapping_add(count), self.rest.len() - count);
        // SAFETY: a part of the pinned memory, which nobody writes to while the graph is made.
        Some(unsafe { std::slice::from_raw_parts(next, count) })
    }
}

/// A driver whose stream captures, until it is told to end: also after an error, and after a panic.
struct Capturing<'a>(&'a mut Driver);

impl Capturing<'_> {
    fn end(self) -> Result<Option<CudaGraph>, DriverError> {
        let ended = self.0.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        self.0.capturing = None;
        ended
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if self.0.capturing.take().is_some() {
            // What was captured until a panic is thrown away.
            let _ = self.0.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        }
    }
}

/// Other threads of this process, other ranks among them, may do what they like meanwhile.
const MODE: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

impl Capture for Driver {
    type Graph = Graph;

    fn capture(
        &mut self,
        uploads: usize,
        issue: &mut dyn FnMut(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Graph, DeviceError> {
        self.current()?;
        let make = || {
            let pinned = Pinned::new(&self.context, uploads)?;
            Ok((pinned, self.context.new_event(None)?))
        };
        let told = |what: &str, e: DriverError| failed(&self.name, what, &e);
        let (mut pinned, done) = make().map_err(|e| told("make memory of a graph", e))?;
        self.stream.begin_capture(MODE).map_err(|e| told("begin a graph", e))?;
        self.capturing = Some(Uploads { rest: pinned.bytes() });
        let capturing = Capturing(self);
        let issued = issue(capturing.0);
        let ended = capturing.end();
        issued?;
        match self.told("make a graph", ended)? {
            Some(graph) => Ok(Graph { graph, uploads: pinned, done }),
            None => Err(DeviceError::Failed {
                device: self.name.clone(),
                what: "make a graph".into(),
                why: "the driver gave none".into(),
            }),
        }
    }

    fn replay(&mut self, graph: &mut Graph, uploads: &[u8]) -> Result<(), DeviceError> {
        self.current()?;
        if !uploads.is_empty() {
            // Most often it is over long ago: a step later the host has waited for its loss.
            self.told("wait for a graph", graph.done.synchronize())?;
            graph.uploads.bytes().copy_from_slice(uploads);
        }
        self.told("replay a graph", graph.graph.launch())?;
        self.told("say that a graph is over", graph.done.record(&self.stream))
    }
}
