//! A GPU by NVIDIA's driver.
//!
//! One stream computes: what is asked for is done in order. Another one brings what is staged ([`places`]);
//! events say when it is there and when it was read. A third is another driver [beside](Backend::beside)
//! this one, and whoever needs what the other was asked for polls an event. Nobody but these has the
//! context current on their threads.

mod graph;
mod marks;
mod modules;
mod pinned;
mod places;
pub mod queues;
mod shared;
mod watch;

use super::Library;
use super::backend::{Backend, perform};
use super::cache::Cache;
use super::choices::Choices;
use super::convolutions::Convolutions;
use super::gpu::{EIGHT_BITS, Gpu, MATRIX_UNITS};
use super::kernels::{ConvolutionStep, DevicePtr, Launch, ProductStep, Source, Storage};
use super::products::Products;
use crate::data::SampleBuffer;
use crate::device::DeviceError;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use graph::Uploads;
pub use marks::Marks;
use pipewright_core::plan::Precision;
use pipewright_core::units::Bytes;
use places::Place;
pub use shared::SharedStreams;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use watch::Watch;

/// Shared memory of a block that needs not be asked for.
const SHARED: u32 = 48 << 10;

/// A GPU in use.
pub struct Driver {
    // What libraries have ends before the context and the stream that they know.
    /// None beside another driver, where nothing is multiplied.
    products: Option<Products>,
    convolutions: Option<Convolutions>,
    gpu: Gpu,
    name: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Brings what is staged.
    bringing: Arc<CudaStream>,
    places: Vec<Option<Place>>,
    /// Of the graph that is being made: where the bytes of its next uploads will lie.
    capturing: Option<Uploads>,
    allocated: Vec<sys::CUdeviceptr>,
    modules: BTreeMap<Source, sys::CUmodule>,
    functions: BTreeMap<(Source, String), sys::CUfunction>,
    /// Workspace of convolutions, the library's or ours, and its size.
    workspace: (DevicePtr, u64),
    /// Images and weights in the usual order, for convolutions that the library knows in that alone, and its size.
    reordered: (DevicePtr, u64),
    cache: Cache,
    /// Of moments that were noted, by their numbers.
    events: Vec<sys::CUevent>,
    marks: Marks,
}

// SAFETY: handles of the driver, of cuBLASLt and of cuDNN may be used by any thread, one at a time, that has the
// context current; every call here makes it so.
unsafe impl Send for Driver {}

impl Driver {
    /// Opens a GPU; takes some tenths of a second, and where kernels were not compiled before, ten
    /// seconds.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn open(gpu: &Gpu) -> Result<Self, DeviceError> {
        let name = format!("cuda:{} ({})", gpu.index, gpu.name);
        let told = |what: &'static str| {
            let name = name.clone();
            move |error: DriverError| failed(&name, what, &error)
        };
        let context = CudaContext::new(gpu.index as usize).map_err(told("open"))?;
        let stream = context.new_stream().map_err(told("make a stream"))?;
        let bringing = context.new_stream().map_err(told("make a stream"))?;
        let mut products = Products::new(&name)?;
        let convolutions = Some(Convolutions::new(&name, gpu.memory, stream.cu_stream()));
        let (modules, functions) = (BTreeMap::new(), BTreeMap::new());
        let mut driver = Self {
            products: None,
            convolutions,
            gpu: gpu.clone(),
            name,
            context,
            stream,
            bringing,
            places: vec![],
            capturing: None,
            allocated: vec![],
            modules,
            functions,
            workspace: (DevicePtr::NULL, 0),
            reordered: (DevicePtr::NULL, 0),
            cache: Cache::of_user(),
            events: vec![],
            marks: Marks::default(),
        };
        products.no_eight = (!gpu.fp8).then(|| {
            format!("{} is {}, and {EIGHT_BITS} is the first with fp8", gpu.name, gpu.architecture)
        });
        products.workspace = driver.allocate(Products::WORKSPACE, "matrix products")?;
        driver.products = Some(products);
        driver.load_all()?;
        Ok(driver)
    }

    /// The same, which takes of the libraries' algorithms what is quickest by its time: those that it meets before
    /// [`Backend::rehearsed`] are measured, unless they were before.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn by_time(mut self) -> Result<Self, DeviceError> {
        let choices = |library: Library| -> Result<Choices, DeviceError> {
            let watch = Watch::new(&self.name, &self.context, &self.stream);
            let watch = self.told("make events", watch)?;
            let version = library.version().unwrap_or_default();
            let who = format!("{library} {version}, {}", self.gpu.name);
            Ok(Choices::new(who, Cache::of_user_in("algorithms"), Box::new(watch)))
        };
        let (of_products, of_convolutions) =
            (choices(Library::CublasLt)?, choices(Library::Cudnn)?);
        if let Some(products) = &mut self.products {
            products.choose_by(of_products);
        }
        if let Some(convolutions) = &mut self.convolutions {
            convolutions.choose_by(of_convolutions);
        }
        Ok(self)
    }

    fn choices(&mut self) -> impl Iterator<Item = &mut Choices> {
        let of_products = self.products.as_mut().and_then(Products::choices);
        of_products.into_iter().chain(self.convolutions.as_mut().and_then(Convolutions::choices))
    }

    /// Where it computes.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.stream.clone()
    }

    /// The marks of all its queues.
    pub fn marks(&self) -> Marks {
        self.marks.clone()
    }

    fn current(&self) -> Result<(), DeviceError> {
        self.context.bind_to_thread().map_err(|e| failed(&self.name, "make the device current", &e))
    }

    fn told<T>(&self, what: &str, result: Result<T, DriverError>) -> Result<T, DeviceError> {
        result.map_err(|error| failed(&self.name, what, &error))
    }

    /// Memory that is left.
    fn free(&self) -> Bytes {
        // Where the driver does not say, the message says none.
        Bytes(result::mem_get_info().map_or(0, |(free, _)| free as u64))
    }

    /// A convolution by the library: what remains to be launched, or `None` if it has nothing for it.
    fn convolve(
        &mut self,
        step: &ConvolutionStep,
        storage: Storage,
    ) -> Result<Option<Vec<Launch>>, DeviceError> {
        let Some(convolutions) = &mut self.convolutions else { return Ok(None) };
        let Some(needed) = convolutions.workspace(step, storage)? else { return Ok(None) };
        let workspace = self.grow_workspace(needed)?;
        let Some(convolutions) = &mut self.convolutions else { return Ok(None) };
        convolutions.convolve(step, storage, workspace)
    }

    /// A convolution of images with their channels innermost, by copies in the usual order.
    fn convolve_reordered(
        &mut self,
        step: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        let needed = step.reordered_bytes(storage);
        if needed > self.reordered.1 {
            let bytes = needed.next_power_of_two();
            self.reordered = (self.allocate(bytes, "images in another order")?, bytes);
        }
        let scratch = self.reordered.0;
        let [before, after] = step.reorders(storage, scratch);
        before.iter().try_for_each(|launch| self.launch(launch))?;
        self.convolution(&step.reordered(storage, scratch), storage)?;
        after.iter().try_for_each(|launch| self.launch(launch))
    }

    /// A workspace of at least so many bytes. What is outgrown stays, for recorded calls know it: so it
    /// grows to twice its size at least.
    fn grow_workspace(&mut self, needed: u64) -> Result<DevicePtr, DeviceError> {
        if needed > self.workspace.1 {
            let bytes = needed.next_power_of_two();
            self.workspace = (self.allocate(bytes, "the workspace of convolutions")?, bytes);
        }
        Ok(self.workspace.0)
    }
}

fn failed(device: &str, what: &str, error: &DriverError) -> DeviceError {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    DeviceError::Failed {
        device: device.into(),
        what: what.into(),
        why: text.unwrap_or_else(|_| format!("{:?}", error.0)),
    }
}

impl Backend for Driver {
    fn name(&self) -> &str {
        &self.name
    }

    fn allocate(&mut self, bytes: u64, what: &str) -> Result<DevicePtr, DeviceError> {
        self.current()?;
        // An address, also for nothing.
        let asked = bytes.max(1);
        // SAFETY: what is allocated is freed once, when this ends.
        let address = match unsafe { result::malloc_sync(asked as usize) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                return Err(DeviceError::OutOfMemory {
                    device: self.name.clone(),
                    what: what.into(),
                    asked: Bytes(asked),
                    free: self.free(),
                });
            }
            address => self.told("allocate memory", address)?,
        };
        self.allocated.push(address);
        let address = DevicePtr(address);
        self.zero(address, asked)?;
        Ok(address)
    }

    fn upload(&mut self, to: DevicePtr, mut bytes: &[u8]) -> Result<(), DeviceError> {
        self.current()?;
        if let Some(uploads) = &mut self.capturing {
            let Some(own) = uploads.take(bytes.len()) else {
                return Err(DeviceError::Failed {
                    device: self.name.clone(),
                    what: "make a graph".into(),
                    why: "it uploads more than it said".into(),
                });
            };
            bytes = own;
        }
        // SAFETY: the caller's addresses are allocated. From memory that is not pinned the driver has
        // taken the bytes when this returns.
        let copied = unsafe { result::memcpy_htod_async(to.0, bytes, self.stream.cu_stream()) };
        self.told("copy to the device", copied)
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.current()?;
        // SAFETY: as above; nobody looks at the bytes before the stream has written them.
        let copied = unsafe { result::memcpy_dtoh_async(bytes, from.0, self.stream.cu_stream()) };
        self.told("copy from the device", copied)?;
        let done = self.stream.synchronize();
        self.told("wait for the device", done)
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.current()?;
        let (bytes, stream) = (bytes as usize, self.stream.cu_stream());
        // SAFETY: as above.
        let copied = unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, stream) };
        self.told("copy on the device", copied)
    }

    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.current()?;
        let (bytes, stream) = (bytes as usize, self.stream.cu_stream());
        // SAFETY: as above.
        let set = unsafe { result::memset_d8_async(at.0, 0, bytes, stream) };
        self.told("set memory to zero", set)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.current()?;
        let function = self.function(launch.source, &launch.kernel)?;
        if launch.shared > SHARED {
            let attribute =
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of a loaded module.
            let set = unsafe {
                result::function::set_function_attribute(function, attribute, launch.shared as i32)
            };
            self.told(&format!("give {} shared memory", launch.kernel), set)?;
        }
        let [x, y, z] = launch.grid;
        // The driver copies the arguments before the call returns; it only reads them.
        let mut arguments = [launch.args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: kernels take one argument of this size, and touch the memory that it names.
        let launched = unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (launch.block, 1, 1),
                launch.shared,
                self.stream.cu_stream(),
                &mut arguments,
            )
        };
        self.told(&format!("launch {}", launch.kernel), launched)
    }

    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError> {
        self.current()?;
        let stream = self.stream.cu_stream();
        if let Some(products) = &mut self.products
            && match product.fp8 {
                Some(_) => products.multiply_eight(product, storage, stream)?,
                None => products.multiply(product, storage, stream)?,
            }
        {
            return Ok(());
        }
        if let Some((before, product)) = product.in_bf16() {
            before.iter().try_for_each(|launch| self.launch(launch))?;
            return self.product(&product, storage);
        }
        // Matrices that the library does not take.
        product.launches(storage).iter().try_for_each(|launch| self.launch(launch))
    }

    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        self.current()?;
        match self.convolve(convolution, storage)? {
            Some(rest) => rest.iter().try_for_each(|launch| self.launch(launch)),
            // The library may know the usual order.
            None if convolution.channels_last => self.convolve_reordered(convolution, storage),
            None => {
                let scratch = self.grow_workspace(convolution.scratch_bytes(storage))?;
                let own = ConvolutionStep { scratch, ..*convolution }.steps(storage);
                own.iter().try_for_each(|step| perform(self, step, storage))
            }
        }
    }

    fn most_shared(&self) -> u32 {
        self.gpu.shared_bytes
    }

    fn matrix_units(&self) -> bool {
        self.gpu.architecture >= MATRIX_UNITS
    }

    fn channels_last(&self, precision: Precision) -> bool {
        precision != Precision::F32
            && self.convolutions.as_ref().is_some_and(Convolutions::is_there)
    }

    fn brings_scratch(&self) -> bool {
        true
    }

    fn rehearsed(&mut self) {
        self.choices().for_each(Choices::end);
    }

    fn algorithms(&mut self) -> Vec<String> {
        self.choices().flat_map(|choices| choices.told().to_vec()).collect()
    }

    fn no_fp8(&self) -> Option<String> {
        self.products.as_ref().and_then(|products| products.refused.clone())
    }

    fn moment(&mut self, number: usize) -> Result<(), DeviceError> {
        self.current()?;
        while self.events.len() <= number {
            let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
            self.events.push(self.told("make an event", event)?);
        }
        let (event, stream) = (self.events[number], self.stream.cu_stream());
        // In a graph it is recorded at each replay, by its number as well.
        let flags = match &self.capturing {
            Some(_) => sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL,
            None => sys::CUevent_record_flags_enum::CU_EVENT_RECORD_DEFAULT,
        };
        // SAFETY: events live as long as this.
        let recorded = unsafe { sys::cuEventRecordWithFlags(event, stream, flags as u32) }.result();
        self.told("record an event", recorded)
    }

    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        // Now, as the device has it.
        self.moment(count)?;
        let done = self.stream.synchronize();
        self.told("wait for the device", done)?;
        for event in &self.events[..count] {
            // SAFETY: both were recorded, and are over.
            let ms = unsafe { result::event::elapsed(*event, self.events[count]) };
            // A float has 24 bits: half a microsecond of 8 seconds, and the clock itself is no finer.
            ages.push((f64::from(self.told("read an event", ms)?) * 1e6) as u64);
        }
        Ok(())
    }

    fn buffer(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        self.pinned(words)
    }

    fn rehearses(&self) -> bool {
        true
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        self.stage_at(place, bytes, fill)
    }

    fn arrived(&mut self, place: usize) -> Result<(), DeviceError> {
        self.arrived_at(place)
    }

    fn taken(&mut self, place: usize) -> Result<(), DeviceError> {
        self.taken_from(place)
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.current()?;
        self.told("record an event", self.marks.record(number, &self.stream))
    }

    fn reached(&mut self, number: usize) -> Result<bool, DeviceError> {
        self.current()?;
        self.told("ask for an event", self.marks.reached(number))
    }

    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError> {
        let stream = || self.told("make a stream", self.context.new_stream());
        Ok(Some(Box::new(Self {
            products: None,
            convolutions: None,
            gpu: self.gpu.clone(),
            name: self.name.clone(),
            context: self.context.clone(),
            stream: stream()?,
            bringing: stream()?,
            places: vec![],
            capturing: None,
            allocated: vec![],
            // All are loaded, and the other one, which unloads them, ends later.
            modules: BTreeMap::new(),
            functions: self.functions.clone(),
            workspace: (DevicePtr::NULL, 0),
            reordered: (DevicePtr::NULL, 0),
            cache: Cache::of_user(),
            events: vec![],
            marks: self.marks.clone(),
        })))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A device that has failed keeps its memory until the process ends.
        let _ = self.current();
        let _ = self.stream.synchronize();
        let _ = self.bringing.synchronize();
        for address in self.allocated.drain(..) {
            // SAFETY: allocated here, and nothing runs any more.
            let _ = unsafe { result::free_sync(address) };
        }
        for event in self.events.drain(..) {
            // SAFETY: as above.
            let _ = unsafe { result::event::destroy(event) };
        }
        for module in self.modules.values() {
            // SAFETY: as above.
            let _ = unsafe { result::module::unload(*module) };
        }
        self.marks.forget();
    }
}
