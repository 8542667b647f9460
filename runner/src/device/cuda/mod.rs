//! NVIDIA's GPUs.
//!
//! ```text
//! library    which of NVIDIA's libraries are here, and their versions
//! gpu        which devices the driver has
//! kernels    sources of kernels, and what launches each computation becomes
//! compile    CUDA C++ to machine code by NVRTC, without a GPU as well
//! cache      what was compiled, on the disk
//! engine     a rank's arena on a device: computations become launches ...
//! backend    ... which are handed to a device: the driver, or an emulator in tests
//! driver     a GPU; products of matrices by cuBLASLt
//! nccl       messages and sums between GPUs
//! ```
//! Nothing is linked: libraries are loaded when they are first asked for, so one program starts on every
//! machine. `cudarc` panics where a library is missing, hence [`Library::is_present`] comes before each
//! first call.

mod backend;
pub mod cache;
pub mod compile;
mod driver;
mod engine;
mod gpu;
pub mod kernels;
mod library;
pub mod nccl;
mod products;

pub use backend::Backend;
pub use driver::Driver;
pub use engine::Engine;
pub use gpu::{Architecture, Gpu, Unusable, gpus};
pub use library::Library;
