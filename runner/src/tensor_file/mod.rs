//! Files of named tensors, in the safetensors format.
//!
//! Tensors are read and written piece by piece at their place: no file is ever held in memory
//! whole, and none is mapped, because a mapped file that another program shortens ends the process
//! with a signal instead of an error.
//!
//! ```text
//! u64 length of the header | header: JSON, padded to 8 bytes | values of all tensors in a row
//! ```

mod read;
mod rows;
mod write;

pub use read::{TensorFile, checksum};
pub use rows::{RowsFile, RowsFormat};
pub use write::{Tensor, Written, write};

use std::path::PathBuf;
use thiserror::Error;

// Values are the arena's bytes; the format wants the least significant byte first.
const _: () = assert!(cfg!(target_endian = "little"));

/// Why a file of tensors cannot be read or written.
#[derive(Debug, Error)]
pub enum TensorFileError {
    /// The system refused to read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system refused to write, such as on a full disk.
    #[error("{}: {source}; the file takes {bytes} bytes", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Its size when whole.
        bytes: u64,
        /// Why.
        source: std::io::Error,
    },
    /// Values of an ONNX file.
    #[error(transparent)]
    Onnx(Box<crate::onnx::OnnxFileError>),
    /// No safetensors file.
    #[error("{}: not a safetensors file: {why}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with its beginning.
        why: String,
    },
    /// Cut off, or longer than its header says.
    #[error("{}: damaged: it has {found} bytes, its header says {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes that the header announces.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Elements that are no real numbers.
    #[error(
        "{}: tensor `{name}` is stored as {dtype}; f32, f16, bf16 and f64 can be read",
        path.display()
    )]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// How it is stored.
        dtype: String,
    },
}
