//! NVIDIA's GPUs.
//!
//! ```text
//! library    which of NVIDIA's libraries are here, and their versions
//! gpu        which devices the driver has
//! kernels    sources of kernels, and what launches each computation becomes
//! compile    CUDA C++ to machine code by NVRTC, without a GPU as well
//! cache      what was compiled, on the disk
//! engine     a rank's arena on a device: computations become launches ...
//! copies     parameters in 16 bits, which kernels of half precision read
//! codecs     ... those of gradients on a queue beside it ...
//! recorder   ... which are collected, and replayed where they come again ...
//! backend    ... and handed to a device: the driver, or an emulator in tests
//! driver     a GPU: streams, graphs, memory that samples leave from; products of matrices by cuBLASLt, convolutions by
//!            cuDNN
//! choices    which of the libraries' algorithms, by time
//! nccl       messages and sums between GPUs
//! peers      the same between ranks that share one
//! ```
//! Nothing is linked: libraries are loaded when they are first asked for, so one program starts on every
//! machine. `cudarc` panics where a library is missing, hence [`Library::is_present`] comes before each
//! first call.

mod backend;
pub mod cache;
mod choices;
mod codecs;
pub mod compile;
mod convolutions;
mod copies;
mod driver;
mod engine;
mod gpu;
mod graph_replay;
pub mod kernels;
mod library;
pub mod nccl;
pub mod peers;
mod products;

pub use backend::{Backend, Capture, perform};
pub use choices::{Choices, Stopwatch};
pub use convolutions::Convolutions;
pub use driver::{Driver, Marks, SharedStreams};
pub use engine::Engine;
pub use gpu::{Architecture, Gpu, Unusable, gpus};
pub use graph_replay::GraphReplay;
pub use library::Library;
pub use products::Products;
