//! Streams of ranks that share a GPU, and memory that they open of each other.

use super::Driver;
use super::queues::{Queues, broken};
use crate::device::DevicePtr;
use crate::device::cuda::kernels::{Launch, Source};
use crate::device::cuda::nccl::{Broken, Event, Stream};
use crate::device::cuda::peers::{Handle, Release, Streams};
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

/// Queues of a rank, and what it has of others.
pub struct SharedStreams {
    queues: Queues,
    functions: BTreeMap<(Source, String), sys::CUfunction>,
    /// Where other processes' memory is mapped.
    opened: Vec<sys::CUdeviceptr>,
}

// SAFETY: as for the driver.
unsafe impl Send for SharedStreams {}

impl Driver {
    /// Its streams, for messages between ranks that share it.
    pub fn shared(&self) -> SharedStreams {
        SharedStreams {
            queues: Queues::new(self.stream.clone(), self.marks.clone()),
            functions: self.functions.clone(),
            opened: vec![],
        }
    }
}

impl SharedStreams {
    /// So many bytes of zeros that ranks may write to as long as a process has them: they are its until it ends.
    ///
    /// # Errors
    /// When the device has not so much memory.
    pub fn page(&self, bytes: u64) -> Result<DevicePtr, Broken> {
        self.queues.on(Stream::COMPUTES)?;
        // SAFETY: nobody frees it; nobody knows it before this returns.
        unsafe {
            let page = result::malloc_sync(bytes as usize).map_err(broken)?;
            sys::cuMemsetD8_v2(page, 0, bytes as usize).result().map_err(broken)?;
            self.queues.context.synchronize().map_err(broken)?;
            Ok(DevicePtr(page))
        }
    }

    /// How other processes find memory.
    ///
    /// # Errors
    /// When the driver does not share it: not on every system it does.
    pub fn handle(&self, at: DevicePtr) -> Result<Handle, Broken> {
        self.queues.on(Stream::COMPUTES)?;
        let (mut base, mut bytes) = (0, 0);
        let mut word = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: they write what they are given room for; the memory is allocated.
        unsafe {
            sys::cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, at.0)
                .result()
                .map_err(broken)?;
            sys::cuIpcGetMemHandle(&raw mut word, base).result().map_err(broken)?;
        }
        let word = word.reserved.iter().map(|byte| *byte as u8).collect();
        Ok(Handle { address: at.0, word, offset: at.0 - base })
    }

    /// Where the memory begins that another process told of.
    ///
    /// # Errors
    /// When the driver does not open it, in another container say.
    pub fn open(&mut self, handle: &Handle) -> Result<DevicePtr, Broken> {
        self.queues.on(Stream::COMPUTES)?;
        let mut word = sys::CUipcMemHandle { reserved: [0; 64] };
        for (to, byte) in word.reserved.iter_mut().zip(&handle.word) {
            *to = *byte as c_char;
        }
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut at = 0;
        // SAFETY: it writes an address.
        unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut at, word, flags) }.result().map_err(broken)?;
        self.opened.push(at);
        Ok(DevicePtr(at))
    }
}

impl Streams for SharedStreams {
    fn stream(&mut self) -> Result<Stream, Broken> {
        self.queues.stream()
    }

    fn event(&mut self) -> Result<Event, Broken> {
        self.queues.event()
    }

    fn record(&mut self, event: Event, on: Stream) -> Result<(), Broken> {
        self.queues.record(event, on)
    }

    fn wait(&mut self, event: Event, stream: Stream) -> Result<(), Broken> {
        self.queues.wait(event, stream)
    }

    fn is_idle(&mut self, stream: Stream) -> Result<bool, Broken> {
        self.queues.is_idle(stream)
    }

    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken> {
        self.queues.mark(number, on)
    }

    fn write(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken> {
        let stream = self.queues.on(on)?;
        let flags = sys::CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: a number of a page, which lives as long as its process.
        unsafe { sys::cuStreamWriteValue32_v2(stream, at.0, number, flags) }
            .result()
            .map_err(broken)
    }

    fn until(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken> {
        let stream = self.queues.on(on)?;
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: as above.
        unsafe { sys::cuStreamWaitValue32_v2(stream, at.0, number, flags) }.result().map_err(broken)
    }

    fn launch(&mut self, launch: &Launch, on: Stream) -> Result<(), Broken> {
        let stream = self.queues.on(on)?;
        let key = (launch.source, launch.kernel.clone());
        let function = self.functions.get(&key).expect("all kernels were loaded");
        let [x, y, z] = launch.grid;
        let mut arguments = [launch.args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: kernels take one argument of this size, and touch memory of ranks that wait for them.
        unsafe {
            let (grid, block) = ((x, y, z), (launch.block, 1, 1));
            result::launch_kernel(*function, grid, block, launch.shared, stream, &mut arguments)
        }
        .map_err(broken)
    }

    fn release(&mut self, at: DevicePtr, apart: u64, count: u64, number: u32) -> Release {
        let context = self.queues.context.clone();
        Box::new(move || {
            // Where that fails, the process ends.
            let _ = context.bind_to_thread();
            if let Ok(stream) = context.new_stream() {
                let (apart, count, stream) = (apart as usize, count as usize, stream.cu_stream());
                // SAFETY: the page of this process.
                let set = unsafe { sys::cuMemsetD2D32Async(at.0, apart, number, 1, count, stream) };
                let _ = set.result();
                let _ = context.synchronize();
            }
        })
    }

    fn close(&mut self) -> Result<(), Broken> {
        self.queues.on(Stream::COMPUTES)?;
        // Pages stay: numbers are still on their way.
        for at in self.opened.drain(..).step_by(2) {
            // SAFETY: opened here, and no stream of ours reads it any more.
            unsafe { sys::cuIpcCloseMemHandle(at) }.result().map_err(broken)?;
        }
        Ok(())
    }
}
