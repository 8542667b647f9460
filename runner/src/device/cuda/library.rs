//! NVIDIA's libraries, found at run time.

use super::nccl::Api;
use cudarc::{cublaslt, cudnn, driver, nvrtc};
use std::fmt;
use std::sync::OnceLock;

/// A library that a run on GPUs may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver; comes with the kernel module. Without it there is no GPU.
    Driver,
    /// Compiles kernels.
    Nvrtc,
    /// Products of matrices.
    CublasLt,
    /// Convolutions, pooling, batch normalisation.
    Cudnn,
    /// Messages between GPUs.
    Nccl,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Cudnn, Self::Nccl];

    /// What its file is called, without a version.
    pub fn file(self) -> &'static str {
        match self {
            Self::Driver => "libcuda.so",
            Self::Nvrtc => "libnvrtc.so",
            Self::CublasLt => "libcublasLt.so",
            Self::Cudnn => "libcudnn.so",
            Self::Nccl => "libnccl.so",
        }
    }

    /// Whether the system's loader finds it: in its usual folders, or in those of `LD_LIBRARY_PATH`. It is
    /// looked for once, and stays loaded: half a gigabyte is not read again for every question.
    pub fn is_present(self) -> bool {
        static FOUND: [OnceLock<bool>; Library::ALL.len()] =
            [const { OnceLock::new() }; Library::ALL.len()];
        // SAFETY: loads the library. That runs what it has to run when it is loaded, as every program does
        // that is linked to it.
        *FOUND[self as usize].get_or_init(|| unsafe {
            match self {
                Self::Driver => driver::sys::is_culib_present() && stays(driver::sys::culib()),
                Self::Nvrtc => nvrtc::sys::is_culib_present() && stays(nvrtc::sys::culib()),
                Self::CublasLt => {
                    cublaslt::sys::is_culib_present() && stays(cublaslt::sys::culib())
                }
                Self::Cudnn => cudnn::sys::is_culib_present() && stays(cudnn::sys::culib()),
                Self::Nccl => Api::of_system().is_some(),
            }
        })
    }

    /// Its version, as its makers write it; `None` where it is not here or does not say. The driver's is
    /// the newest CUDA that it runs.
    pub fn version(self) -> Option<String> {
        if !self.is_present() {
            return None;
        }
        let mut number = 0;
        // SAFETY: each writes one number, or two, to where it is told.
        unsafe {
            match self {
                Self::Driver => {
                    driver::sys::cuDriverGetVersion(&raw mut number).result().ok()?;
                    Some(super::gpu::written(number))
                }
                Self::Nvrtc => {
                    let (major, minor) = nvrtc_version()?;
                    Some(format!("{major}.{minor}"))
                }
                Self::CublasLt => Some(dotted(cublaslt::sys::cublasLtGetVersion())),
                Self::Cudnn => Some(dotted(cudnn::sys::cudnnGetVersion())),
                Self::Nccl => Api::of_system().map(Api::version),
            }
        }
    }

    /// Why it is not used although it is here; `None` where it is used, or not here.
    pub fn unusable(self) -> Option<String> {
        if self != Self::Cudnn || !self.is_present() {
            return None;
        }
        // SAFETY: it takes nothing, and says a number.
        foreign_cudnn(unsafe { cudnn::sys::cudnnGetVersion() })
    }
}

/// A library that the bindings keep for the whole process.
fn stays<T>(_: &'static T) -> bool {
    true
}

/// What speaks against a cuDNN. The numbers of its errors and what its functions take stay the same within
/// a major version only, and these bindings are those of 9.
fn foreign_cudnn(version: usize) -> Option<String> {
    const KNOWN: usize = 9;
    let unit = if version < 10_000 { 1000 } else { 10_000 };
    (version / unit != KNOWN)
        .then(|| format!("it is version {}, and {KNOWN}.x is needed", dotted(version)))
}

/// NVRTC's; `None` where it is not here.
pub(super) fn nvrtc_version() -> Option<(i32, i32)> {
    if !Library::Nvrtc.is_present() {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two numbers to where it is told.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().ok()?;
    Some((major, minor))
}

/// 120903 is 12.9.3, 22703 is 2.27.3; 8902 is 8.9.2, as cuDNN counted before 9.
fn dotted(number: usize) -> String {
    let unit = if number < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", number / unit, number % unit / 100, number % 100)
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Cudnn => "cuDNN",
            Self::Nccl => "NCCL",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_their_makers_write_them() {
        let texts = [120_903, 91_002, 22_703, 8902].map(dotted);
        assert_eq!(texts, ["12.9.3", "9.10.2", "2.27.3", "8.9.2"]);
    }

    #[test]
    fn other_versions_of_cudnn_have_a_reason() {
        assert_eq!([90_000, 91_002, 92_100].map(foreign_cudnn), [None, None, None]);
        let reasons = [8902, 100_000].map(|version| foreign_cudnn(version).unwrap());
        assert_eq!(
            reasons,
            ["it is version 8.9.2, and 9.x is needed", "it is version 10.0.0, and 9.x is needed"]
        );
    }

    #[test]
    fn what_is_not_here_has_no_version_and_nothing_panics() {
        for library in Library::ALL {
            assert!(library.is_present() || library.version().is_none(), "{library}");
        }
    }
}
