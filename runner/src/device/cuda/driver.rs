//! A GPU by NVIDIA's driver.
//!
//! One stream: what is asked for is done in order, without events. Nobody but this has the context
//! current on the rank's thread.

use super::backend::Backend;
use super::cache::Cache;
use super::gpu::Gpu;
use super::kernels::{DevicePtr, Launch, ProductStep, Source, Storage};
use super::products::Products;
use crate::device::DeviceError;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};
use pipewright_core::units::Bytes;
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Shared memory of a block that needs not be asked for.
const SHARED: u32 = 48 << 10;

/// A GPU in use.
pub struct Driver {
    gpu: Gpu,
    name: String,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    allocated: Vec<sys::CUdeviceptr>,
    modules: BTreeMap<Source, sys::CUmodule>,
    functions: BTreeMap<(Source, String), sys::CUfunction>,
    products: Products,
    cache: Cache,
}

// SAFETY: handles of the driver and of cuBLASLt may be used by any thread, one at a time, that has the
// context current; every call here makes it so.
unsafe impl Send for Driver {}

impl Driver {
    /// Opens a GPU; takes some tenths of a second.
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
        let products = Products::new(&name)?;
        let (modules, functions) = (BTreeMap::new(), BTreeMap::new());
        let mut driver = Self {
            gpu: gpu.clone(),
            name,
            context,
            stream,
            allocated: vec![],
            modules,
            functions,
            products,
            cache: Cache::of_user(),
        };
        driver.products.workspace = driver.allocate(Products::WORKSPACE, "matrix products")?;
        Ok(driver)
    }

    /// Where it computes.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.stream.clone()
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

    fn module(&mut self, source: Source) -> Result<sys::CUmodule, DeviceError> {
        if let Some(module) = self.modules.get(&source) {
            return Ok(*module);
        }
        let code = self.cache.get(source, self.gpu.architecture);
        let code = code.map_err(|error| DeviceError::Failed {
            device: self.name.clone(),
            what: format!("compile {}", source.file()),
            why: error.to_string(),
        })?;
        // SAFETY: a whole cubin, as NVRTC made it.
        let module = unsafe { result::module::load_data(code.as_ptr().cast()) };
        let module = self.told(&format!("load {}", source.file()), module)?;
        self.modules.insert(source, module);
        Ok(module)
    }

    fn function(&mut self, launch: &Launch) -> Result<sys::CUfunction, DeviceError> {
        let key = (launch.source, launch.kernel.clone());
        if let Some(function) = self.functions.get(&key) {
            return Ok(*function);
        }
        let module = self.module(launch.source)?;
        let name = CString::new(launch.kernel.as_str()).expect("names of kernels are words");
        // SAFETY: the module is loaded and lives as long as this.
        let function = unsafe { result::module::get_function(module, name) };
        let function = self.told(&format!("find kernel {}", launch.kernel), function)?;
        self.functions.insert(key, function);
        Ok(function)
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

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.current()?;
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
        let function = self.function(launch)?;
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
        if self.products.multiply(product, storage, self.stream.cu_stream())? {
            return Ok(());
        }
        // Matrices that the library does not take.
        product.launches(storage).iter().try_for_each(|launch| self.launch(launch))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A device that has failed keeps its memory until the process ends.
        let _ = self.current();
        let _ = self.stream.synchronize();
        for address in self.allocated.drain(..) {
            // SAFETY: allocated here, and nothing runs any more.
            let _ = unsafe { result::free_sync(address) };
        }
        for module in self.modules.values() {
            // SAFETY: as above.
            let _ = unsafe { result::module::unload(*module) };
        }
    }
}
