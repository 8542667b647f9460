//! CUDA C++ to machine code, by NVRTC. Needs no GPU.

use super::gpu::Architecture;
use super::kernels::Source;
use super::library::{Library, nvrtc_version};
use cudarc::nvrtc::{result, sys};
use std::ffi::{CString, c_int};
use std::ptr;
use thiserror::Error;

/// Why there is no machine code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// No NVRTC.
    #[error(
        "NVRTC ({}) is not on this machine, and kernels are compiled by it; it comes with the CUDA \
         toolkit and as the Python package nvidia-cuda-nvrtc (name its folder in LD_LIBRARY_PATH)",
        Library::Nvrtc.file()
    )]
    NoNvrtc,
    /// GPUs that this NVRTC does not know.
    #[error("NVRTC {major}.{minor} compiles for {known}, not for {wanted}")]
    Architecture {
        /// Its version.
        major: i32,
        /// Its version.
        minor: i32,
        /// What was asked for.
        wanted: Architecture,
        /// What it can.
        known: String,
    },
    /// A mistake in the source.
    #[error("{name} for {architecture}: {log}")]
    Source {
        /// Which.
        name: String,
        /// For what.
        architecture: Architecture,
        /// What the compiler says.
        log: String,
    },
    /// Anything else.
    #[error("NVRTC: {0}")]
    Other(String),
}

/// What the machine code depends on beside source, options and architecture.
///
/// # Errors
/// Without NVRTC.
pub fn version() -> Result<(i32, i32), CompileError> {
    nvrtc_version().ok_or(CompileError::NoNvrtc)
}

/// The architectures that this machine's NVRTC makes code for, ascending.
///
/// # Errors
/// Without NVRTC.
pub fn architectures() -> Result<Vec<Architecture>, CompileError> {
    version()?;
    let mut count: c_int = 0;
    // SAFETY: writes a number to where it is told.
    unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result().map_err(other)?;
    let mut numbers: Vec<c_int> = vec![0; count.max(0) as usize];
    // SAFETY: there is room for as many as it said.
    unsafe { sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()) }.result().map_err(other)?;
    let architecture =
        |n: &c_int| Architecture { major: (*n / 10) as u32, minor: (*n % 10) as u32 };
    Ok(numbers.iter().map(architecture).collect())
}

/// Machine code (a cubin) for `architecture`. Takes a tenth of a second to some seconds.
///
/// # Errors
/// Without NVRTC, for architectures that it does not know, and with mistakes in the source, told in the
/// compiler's words.
pub fn compile(source: Source, architecture: Architecture) -> Result<Vec<u8>, CompileError> {
    let (major, minor) = version()?;
    let known = architectures()?;
    if !known.contains(&architecture) {
        let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(CompileError::Architecture { major, minor, wanted: architecture, known });
    }
    let program = Program::new(source)?;
    let target = format!("--gpu-architecture={architecture}");
    let options: Vec<&str> = source.options().iter().copied().chain([target.as_str()]).collect();
    // SAFETY: the program is one that NVRTC made, and lives.
    if let Err(error) = unsafe { result::compile_program(program.handle, &options) } {
        return Err(match program.log() {
            Some(log) => CompileError::Source { name: source.file().into(), architecture, log },
            None => other(error),
        });
    }
    program.cubin()
}

fn other(error: result::NvrtcError) -> CompileError {
    CompileError::Other(format!("{:?}", error.0))
}

/// A program that NVRTC has; it refers to the texts.
struct Program {
    handle: sys::nvrtcProgram,
    _texts: [CString; 2],
}

impl Program {
    fn new(source: Source) -> Result<Self, CompileError> {
        let text = |text: &str| CString::new(text).expect("sources are text");
        let (main, name) = (text(&source.text()), text(source.file()));
        let mut handle = ptr::null_mut();
        // SAFETY: both texts end with a zero and live as long as the program; there are no headers.
        let made = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut handle,
                main.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        made.result().map_err(other)?;
        Ok(Self { handle, _texts: [main, name] })
    }

    /// What the compiler said, if it said something.
    fn log(&self) -> Option<String> {
        // SAFETY: the program lives.
        let log = unsafe { result::get_program_log(self.handle) }.ok()?;
        let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|c| *c != 0).collect();
        let log = String::from_utf8_lossy(&log).trim().to_owned();
        (!log.is_empty()).then_some(log)
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let mut size = 0;
        // SAFETY: writes a number to where it is told; the program lives.
        unsafe { sys::nvrtcGetCUBINSize(self.handle, &raw mut size) }.result().map_err(other)?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: there is room for as many bytes as it said.
        unsafe { sys::nvrtcGetCUBIN(self.handle, cubin.as_mut_ptr().cast()) }
            .result()
            .map_err(other)?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is NVRTC's and nobody has it any more. That it cannot be given back
        // leaves some memory behind, no more.
        let _ = unsafe { result::destroy_program(self.handle) };
    }
}
