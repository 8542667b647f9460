//! Machine code of kernels, loaded into a device.

use super::Driver;
use crate::device::DeviceError;
use crate::device::cuda::compile::CompileError;
use crate::device::cuda::kernels::Source;
use cudarc::driver::{result, sys};
use std::ffi::CString;

impl Driver {
    fn module(&mut self, source: Source) -> Result<sys::CUmodule, DeviceError> {
        if let Some(module) = self.modules.get(&source) {
            return Ok(*module);
        }
        let code = self.cache.get(source, self.gpu.architecture);
        self.load(source, code)
    }

    fn load(
        &mut self,
        source: Source,
        code: Result<Vec<u8>, CompileError>,
    ) -> Result<sys::CUmodule, DeviceError> {
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

    pub(super) fn function(
        &mut self,
        source: Source,
        kernel: &str,
    ) -> Result<sys::CUfunction, DeviceError> {
        let key = (source, kernel.to_string());
        if let Some(function) = self.functions.get(&key) {
            return Ok(*function);
        }
        let module = self.module(source)?;
        let name = CString::new(kernel).expect("names of kernels are words");
        // SAFETY: the module is loaded and lives as long as this.
        let function = unsafe { result::module::get_function(module, name) };
        let function = self.told(&format!("find kernel {kernel}"), function)?;
        self.functions.insert(key, function);
        Ok(function)
    }

    /// Loads all kernels. CUDA loads them when they are first asked for, and may wait for the whole context
    /// then (programming guide, "Lazy Loading"): for a message under way, say, whose sender waits for this
    /// rank. Those that were not compiled before are compiled now, all at a time.
    pub(super) fn load_all(&mut self) -> Result<(), DeviceError> {
        let (cache, architecture) = (&self.cache, self.gpu.architecture);
        let codes = std::thread::scope(|scope| {
            Source::ALL
                .map(|source| scope.spawn(move || cache.get(source, architecture)))
                .map(|compiling| compiling.join().expect("a compiler that does not panic"))
        });
        for (source, code) in Source::ALL.into_iter().zip(codes) {
            self.load(source, code)?;
            for kernel in source.kernels() {
                self.function(source, &kernel)?;
            }
        }
        Ok(())
    }
}
