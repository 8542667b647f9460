//! NCCL itself, and the streams and events of the driver.
//!
//! The library's functions are looked up by name, those that are needed: packages bring `libnccl.so.2`, the
//! one without a number comes with headers only, and an older library may lack some.

use super::wires::{Broken, Event, Id, Seat, Stream, Wires};
use crate::device::Rooted;
use crate::device::cuda::driver::Marks;
use crate::device::cuda::driver::queues::Queues;
use crate::device::cuda::kernels::{DevicePtr, Storage};
use crate::transport::Collective;
use cudarc::driver::{CudaStream, sys as driver};
use cudarc::nccl::sys::{
    ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};
use libloading::Library;
use pipewright_core::plan::{Precision, Region};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Thread blocks of a communicator of two ranks at most: what waits for a message must leave the device to
/// those who compute.
const EDGE_BLOCKS: c_int = 8;

/// What a call says: a number, for a newer library may say more than the bindings have names for.
type Said = c_uint;

const SUCCESS: Said = ncclResult_t::ncclSuccess as Said;
const IN_PROGRESS: Said = ncclResult_t::ncclInProgress as Said;
const SYSTEM_ERROR: Said = ncclResult_t::ncclSystemError as Said;
const REMOTE_ERROR: Said = ncclResult_t::ncclRemoteError as Said;

type Peer = unsafe extern "C" fn(
    *mut c_void,
    usize,
    ncclDataType_t,
    c_int,
    ncclComm_t,
    driver::CUstream,
) -> Said;

/// The library's functions.
pub struct Api {
    /// Such as 22403 for 2.24.3.
    pub version: u32,
    unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> Said,
    init: unsafe extern "C" fn(
        *mut ncclComm_t,
        c_int,
        ncclUniqueId,
        c_int,
        *mut ncclConfig_t,
    ) -> Said,
    state: unsafe extern "C" fn(ncclComm_t, *mut Said) -> Said,
    finalize: unsafe extern "C" fn(ncclComm_t) -> Said,
    destroy: unsafe extern "C" fn(ncclComm_t) -> Said,
    abort: unsafe extern "C" fn(ncclComm_t) -> Said,
    error: unsafe extern "C" fn(Said) -> *const c_char,
    last_error: unsafe extern "C" fn(ncclComm_t) -> *const c_char,
    send: Peer,
    receive: Peer,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclRedOp_t,
        ncclComm_t,
        driver::CUstream,
    ) -> Said,
    reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclRedOp_t,
        c_int,
        ncclComm_t,
        driver::CUstream,
    ) -> Said,
    broadcast: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        c_int,
        ncclComm_t,
        driver::CUstream,
    ) -> Said,
    group_start: unsafe extern "C" fn() -> Said,
    group_end: unsafe extern "C" fn() -> Said,
    // Its functions live as long as it is loaded.
    _library: Library,
}

impl Api {
    /// The first that connects without waiting: 2.14.
    pub const OLDEST: u32 = 21_400;

    /// The library where the system's loader finds it, loaded once for the whole process.
    pub fn of_system() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Api>> = OnceLock::new();
        let names = ["libnccl.so.2", "libnccl.so"];
        let find = || names.iter().find_map(|name| Self::load(Path::new(name)).ok());
        FOUND.get_or_init(find).as_ref()
    }

    /// A library.
    ///
    /// # Errors
    /// When it cannot be loaded, or lacks a function: in the loader's words.
    pub fn load(file: &Path) -> Result<Self, String> {
        let told = |error: libloading::Error| error.to_string();
        // SAFETY: NVIDIA's library does nothing when it is loaded but set itself up.
        let library = unsafe { Library::new(file) }.map_err(told)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the signatures are those of nccl.h, which has not changed them since 2.14.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(told)?
            };
        }
        let version: unsafe extern "C" fn(*mut c_int) -> Said = function!("ncclGetVersion");
        let mut number = 0;
        // SAFETY: it writes one number.
        unsafe { version(&raw mut number) };
        Ok(Self {
            version: number.unsigned_abs(),
            unique_id: function!("ncclGetUniqueId"),
            init: function!("ncclCommInitRankConfig"),
            state: function!("ncclCommGetAsyncError"),
            finalize: function!("ncclCommFinalize"),
            destroy: function!("ncclCommDestroy"),
            abort: function!("ncclCommAbort"),
            error: function!("ncclGetErrorString"),
            last_error: function!("ncclGetLastError"),
            send: function!("ncclSend"),
            receive: function!("ncclRecv"),
            all_reduce: function!("ncclAllReduce"),
            reduce: function!("ncclReduce"),
            broadcast: function!("ncclBroadcast"),
            group_start: function!("ncclGroupStart"),
            group_end: function!("ncclGroupEnd"),
            _library: library,
        })
    }

    /// As NVIDIA writes it.
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// A new id.
    ///
    /// # Errors
    /// When this host has no network that the library can use.
    pub fn id(&self) -> Result<Id, Broken> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: it writes the id.
        let made = unsafe { (self.unique_id)(&raw mut id) };
        self.told("make an id", std::ptr::null_mut(), made)?;
        Ok(id.internal.map(|byte| byte as u8))
    }

    /// Begins to connect this process to others. The device is the one that is current on this thread.
    ///
    /// # Errors
    /// When the library refuses, without a GPU say.
    pub fn begin(&self, id: &Id, rank: u32, ranks: u32) -> Result<Comm, Broken> {
        let id = ncclUniqueId { internal: id.map(|byte| byte as c_char) };
        let mut config = config();
        if ranks == 2 {
            config.maxCTAs = EDGE_BLOCKS;
        }
        let mut comm = std::ptr::null_mut();
        // SAFETY: it writes the communicator; the settings are only read, before it returns.
        let begun = unsafe {
            (self.init)(&raw mut comm, ranks as c_int, id, rank as c_int, &raw mut config)
        };
        self.told("connect", comm, begun).map(|()| Comm(comm))
    }

    /// Whether a communicator has done what it was asked for.
    ///
    /// # Errors
    /// When it is broken.
    pub fn is_ready(&self, Comm(comm): Comm) -> Result<bool, Broken> {
        let mut state = SUCCESS;
        // SAFETY: it writes one number; the communicator is one that `begin` gave.
        let asked = unsafe { (self.state)(comm, &raw mut state) };
        self.told("ask for its state", comm, asked)?;
        self.told("communicate", comm, state)?;
        Ok(state != IN_PROGRESS)
    }

    /// Gives a communicator up.
    pub fn abort(&self, Comm(comm): Comm) {
        // SAFETY: nobody uses it any more. What it says changes nothing.
        unsafe { (self.abort)(comm) };
    }

    fn told(&self, what: &str, comm: ncclComm_t, said: Said) -> Result<(), Broken> {
        if matches!(said, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: texts of the library, which it keeps.
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        // SAFETY: as above; without a communicator it tells the last error of the process.
        let (short, long) = unsafe { (text((self.error)(said)), text((self.last_error)(comm))) };
        let long =
            if long.trim().is_empty() { String::new() } else { format!(" ({})", long.trim()) };
        let lost = matches!(said, REMOTE_ERROR | SYSTEM_ERROR);
        Err(Broken { why: format!("NCCL cannot {what}: {short}{long}"), lost })
    }
}

/// As `NCCL_CONFIG_INITIALIZER` of 2.24 makes them, but for calls that do not wait.
fn config() -> ncclConfig_t {
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22_400 as c_uint,
        blocking: 0,
        cgaClusterSize: c_int::MIN,
        minCTAs: c_int::MIN,
        maxCTAs: c_int::MIN,
        netName: std::ptr::null(),
        splitShare: c_int::MIN,
    }
}

/// 22403 is 2.24.3.
fn dotted(number: u32) -> String {
    format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100)
}

/// A communicator, which threads may hand to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comm(ncclComm_t);

// SAFETY: NCCL's communicators may be used by any thread, one at a time; `Cuda` is one, and what aborts
// comes after its last use.
unsafe impl Send for Comm {}

/// Communicators of a GPU.
pub struct Cuda {
    api: &'static Api,
    queues: Queues,
    /// Where the rank's arena begins.
    arena: DevicePtr,
    /// Those that are not freed.
    comms: Arc<Mutex<Vec<Comm>>>,
}

impl Cuda {
    /// For an arena on the device of the stream that computes there.
    pub fn new(
        api: &'static Api,
        computes: Arc<CudaStream>,
        (arena, marks): (DevicePtr, Marks),
    ) -> Self {
        let queues = Queues::new(computes, marks);
        Self { api, queues, arena, comms: Arc::default() }
    }

    fn at(&self, region: Region) -> *mut c_void {
        self.arena.after(region.offset.0).0 as *mut c_void
    }

    /// A call that moves bytes.
    fn move_bytes(
        &self,
        what: &str,
        call: Peer,
        Comm(comm): Comm,
        peer: u32,
        region: Region,
        stream: Stream,
    ) -> Result<(), Broken> {
        let (stream, bytes) = (self.queues.on(stream)?, ncclDataType_t::ncclUint8);
        // SAFETY: the region is one of the arena, which outlives this; streams and events keep others from
        // it meanwhile.
        let said = unsafe {
            let count = region.bytes.0 as usize;
            call(self.at(region), count, bytes, peer as c_int, comm, stream)
        };
        self.api.told(what, comm, said)
    }

    /// A collective call.
    fn call(
        &self,
        Comm(comm): Comm,
        call: Collective,
        Rooted { root, region }: Rooted,
        storage: Storage,
        on: Stream,
    ) -> Result<(), Broken> {
        let (at, stream, root) = (self.at(region), self.queues.on(on)?, root as c_int);
        let float = match storage {
            Storage::F32 => ncclDataType_t::ncclFloat32,
            Storage::Bf16 => ncclDataType_t::ncclBfloat16,
            Storage::F16 => ncclDataType_t::ncclFloat16,
        };
        let count = (region.bytes.0 / storage.bytes()) as usize;
        let sum = ncclRedOp_t::ncclSum;
        // SAFETY: as for messages.
        let (what, said) = unsafe {
            match call {
                Collective::AllReduce => {
                    ("sum", (self.api.all_reduce)(at, at, count, float, sum, comm, stream))
                }
                Collective::Reduce => {
                    ("sum", (self.api.reduce)(at, at, count, float, sum, root, comm, stream))
                }
                Collective::Broadcast => {
                    ("hand out", (self.api.broadcast)(at, at, count, float, root, comm, stream))
                }
            }
        };
        self.api.told(what, comm, said)
    }

    /// Several, as one call of NCCL's: all regions travel at the same time.
    fn group(
        &self,
        comm: Comm,
        call: Collective,
        values: impl Iterator<Item = Rooted>,
        storage: Storage,
        on: Stream,
    ) -> Result<(), Broken> {
        // SAFETY: the group ends below, whatever is said in between.
        let said = unsafe { (self.api.group_start)() };
        self.api.told("begin a group", comm.0, said)?;
        let some = values.filter(|value| value.region.bytes.0 > 0);
        let mut each = some.map(|value| self.call(comm, call, value, storage, on));
        let called = each.find(Result::is_err).unwrap_or(Ok(()));
        // SAFETY: as above.
        let said = unsafe { (self.api.group_end)() };
        called.and_then(|()| self.api.told("sum", comm.0, said))
    }
}

impl Wires for Cuda {
    type Comm = Comm;

    fn name(&self) -> String {
        format!("nccl {}", self.api.version())
    }

    fn id(&mut self) -> Result<Id, Broken> {
        self.api.id()
    }

    fn begin(&mut self, seat: Seat) -> Result<Comm, Broken> {
        self.queues.on(Stream::COMPUTES)?;
        let comm = self.api.begin(seat.id, seat.place, seat.ranks.len() as u32)?;
        self.comms.lock().unwrap_or_else(PoisonError::into_inner).push(comm);
        Ok(comm)
    }

    fn is_ready(&mut self, comm: Comm) -> Result<bool, Broken> {
        self.api.is_ready(comm)
    }

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

    fn send(&mut self, comm: Comm, to: u32, region: Region, on: Stream) -> Result<(), Broken> {
        self.move_bytes("send", self.api.send, comm, to, region, on)
    }

    fn receive(&mut self, comm: Comm, from: u32, region: Region, on: Stream) -> Result<(), Broken> {
        self.move_bytes("receive", self.api.receive, comm, from, region, on)
    }

    fn join(
        &mut self,
        comm: Comm,
        call: Collective,
        values: &[Rooted],
        precision: Precision,
        on: Stream,
    ) -> Result<(), Broken> {
        match *values {
            [one] => self.call(comm, call, one, precision.into(), on),
            _ => self.group(comm, call, values.iter().copied(), precision.into(), on),
        }
    }

    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken> {
        self.queues.mark(number, on)
    }

    fn end(&mut self, Comm(comm): Comm) -> Result<(), Broken> {
        self.queues.on(Stream::COMPUTES)?;
        // SAFETY: nothing is started in it any more.
        let said = unsafe { (self.api.finalize)(comm) };
        self.api.told("end", comm, said)
    }

    fn free(&mut self, comm: Comm) {
        // SAFETY: it has ended, and is not used again.
        unsafe { (self.api.destroy)(comm.0) };
        self.comms.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != comm);
    }

    fn abort(&mut self) -> Box<dyn FnOnce() + Send> {
        let (api, context, comms) = (self.api, self.queues.context.clone(), self.comms.clone());
        Box::new(move || {
            // Where that fails, giving up does not need it everywhere.
            let _ = context.bind_to_thread();
            let comms = std::mem::take(&mut *comms.lock().unwrap_or_else(PoisonError::into_inner));
            comms.into_iter().for_each(|comm| api.abort(comm));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!([22_403, 21_805, Api::OLDEST].map(dotted), ["2.24.3", "2.18.5", "2.14.0"]);
    }
}
