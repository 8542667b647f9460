//! Memory of the host that a GPU copies from by itself, while the host goes on.

use crate::data::SampleBuffer;
use cudarc::driver::{CudaContext, DriverError, result};
use std::fmt;
use std::sync::Arc;

/// Bytes that stay where they are.
pub struct Pinned {
    context: Arc<CudaContext>,
    at: *mut u8,
    len: usize,
}

// SAFETY: it owns its bytes, and frees them with the context current.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Zeros; the context is current.
    pub fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self, DriverError> {
        // SAFETY: it is freed once, when this ends. No flags: the host reads it as fast as it writes.
        let at = unsafe { result::malloc_host(len.max(1), 0) }?.cast::<u8>();
        // SAFETY: as long as it was asked for.
        unsafe { at.write_bytes(0, len) };
        Ok(Self { context: context.clone(), at, len })
    }

    /// The bytes. Whoever writes to them knows that no copy of them is under way.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated, written once, and borrowed like this.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl SampleBuffer for Pinned {
    fn words(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(self.bytes())
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned bytes", self.len)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // What cannot be freed on a device that has failed is freed with the process.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated here, and whoever had copies of it made has waited for them.
            let _ = unsafe { result::free_host(self.at.cast()) };
        }
    }
}
