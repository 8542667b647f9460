//! The GPUs that the driver has.

use super::Library;
use cudarc::driver::{DriverError, result, sys};
use pipewright_core::units::Bytes;
use serde::Serialize;
use std::fmt;
use sys::CUdevice_attribute as Attribute;
use thiserror::Error;

/// A generation of GPUs: what machine code is made for. `sm_90` is 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Architecture {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

/// The oldest whose kernels are compiled: Volta, the first with matrix units. It needs NVRTC 12, for 13 knows
/// Turing as the oldest.
pub const OLDEST: Architecture = Architecture { major: 7, minor: 0 };

/// The oldest CUDA whose driver is used, as `cuDriverGetVersion` counts: the first that reads events by
/// `cuEventElapsedTime_v2`. The bindings end the process where a driver lacks it.
const OLDEST_DRIVER: i32 = 12_080;

/// The oldest whose matrix units multiply halves as our kernels ask them to: Ampere.
pub const MATRIX_UNITS: Architecture = Architecture { major: 8, minor: 0 };

/// The oldest that multiplies numbers of eight bits: Ada.
pub const EIGHT_BITS: Architecture = Architecture { major: 8, minor: 9 };

/// A GPU as the driver describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// Its number on this machine, as in `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// Its generation.
    pub architecture: Architecture,
    /// All of its memory.
    pub memory: Bytes,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block may ask for, in bytes.
    pub shared_bytes: u32,
    /// Bytes a second between it and its memory, by clock and width of the bus; 0 where the driver does
    /// not say.
    pub memory_bytes_per_sec: f64,
    /// Whether it multiplies numbers of fp8.
    pub fp8: bool,
    /// Why plans cannot run on it.
    pub unusable: Option<String>,
}

/// Why there are no GPUs to use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// No driver.
    #[error("the driver's library ({}) is not on this machine", Library::Driver.file())]
    NoDriver,
    /// A driver that cannot begin: its kernel module is not loaded, say.
    #[error("the driver does not start: {0}")]
    Driver(String),
    /// A driver that lacks functions which runs need.
    #[error(
        "the driver runs CUDA {found}, and {oldest} or newer is needed: install a newer driver"
    )]
    OldDriver {
        /// What it runs.
        found: String,
        /// What is needed.
        oldest: String,
    },
    /// None, or none that this process may see.
    #[error("the driver has no device{0}")]
    NoDevice(String),
}

/// All GPUs that this process may see, none of them touched: no context is made.
///
/// # Errors
/// Why there are none.
pub fn gpus() -> Result<Vec<Gpu>, Unusable> {
    if !Library::Driver.is_present() {
        return Err(Unusable::NoDriver);
    }
    let mut version = 0;
    // SAFETY: it writes one number, and may be called before the driver begins.
    let told = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    if told.is_ok() && version < OLDEST_DRIVER {
        return Err(old(version));
    }
    let hidden = || match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => Unusable::NoDevice(format!(" (CUDA_VISIBLE_DEVICES is `{list}`)")),
        Err(_) => Unusable::NoDevice(String::new()),
    };
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Err(hidden()),
        init => init.map_err(failed)?,
    }
    let count = result::device::get_count().map_err(failed)?;
    if count == 0 {
        return Err(hidden());
    }
    (0..count).map(|index| describe(index).map_err(failed)).collect()
}

impl Gpu {
    /// Which GPU it is whatever it is called here: its unique number, zeros where the driver does not say,
    /// and where on its host it is. Parts of a GPU have that place alike.
    ///
    /// # Errors
    /// When the driver does not know it.
    pub fn identity(&self) -> Result<([u8; 16], String), Unusable> {
        let device = result::device::get(self.index as i32).map_err(failed)?;
        let uuid = result::device::get_uuid(device).map_or([0; 16], |id| id.bytes.map(|b| b as u8));
        let mut text = [0_u8; 32];
        // SAFETY: it writes a text of at most that length, with its end.
        unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 32, device) }
            .result()
            .map_err(failed)?;
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok((uuid, String::from_utf8_lossy(text).into_owned()))
    }
}

fn old(version: i32) -> Unusable {
    Unusable::OldDriver { found: written(version), oldest: written(OLDEST_DRIVER) }
}

/// 12080 is 12.8.
pub fn written(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn failed(error: DriverError) -> Unusable {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    Unusable::Driver(text.unwrap_or_else(|_| format!("{:?}", error.0)))
}

fn describe(index: i32) -> Result<Gpu, DriverError> {
    let device = result::device::get(index)?;
    // SAFETY: `device` is one that the driver gave.
    let attribute = |what| unsafe { result::device::get_attribute(device, what) };
    let number = |what| attribute(what).map(|value| value.max(0) as u32);
    let architecture = Architecture {
        major: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        minor: number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    };
    // Newer drivers may leave both out.
    let khz = number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0);
    let bits = number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0);
    let unusable = (architecture < OLDEST)
        .then(|| format!("it is {architecture}, and kernels are made for {OLDEST} and newer"));
    Ok(Gpu {
        index: index as u32,
        name: result::device::get_name(device)?,
        architecture,
        // SAFETY: as above.
        memory: Bytes(unsafe { result::device::total_mem(device) }? as u64),
        multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        // Two transfers a clock.
        memory_bytes_per_sec: 2.0 * f64::from(khz) * 1e3 * f64::from(bits) / 8.0,
        fp8: architecture >= EIGHT_BITS,
        unusable,
    })
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

impl From<Architecture> for String {
    fn from(architecture: Architecture) -> Self {
        architecture.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_newer() {
        let [volta, turing, blackwell] =
            [(7, 0), (7, 5), (12, 0)].map(|(major, minor)| Architecture { major, minor });
        assert!(volta < turing && turing < blackwell && OLDEST <= volta);
        assert_eq!(blackwell.to_string(), "sm_120");
    }

    #[test]
    fn old_drivers_have_a_reason() {
        let why = old(12_060).to_string();
        assert!(why.starts_with("the driver runs CUDA 12.6, and 12.8 or newer is needed"), "{why}");
    }

    #[test]
    fn without_a_driver_there_is_a_reason() {
        match gpus() {
            Ok(found) => assert!(!found.is_empty()),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
