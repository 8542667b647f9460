//! Gradients in fewer bytes: codecs, the scales and feedback that keep them harmless.
//!
//! A [`Codec`] turns values into wire bytes and back. [`CodecKind`] names each with its settings, for
//! plans, and builds it; [`feedback::ErrorFeedback`] carries what a codec loses over to the next step.
//!
//! | file | codec | wire bytes of n values |
//! |---|---|---|
//! | `plain` | single precision | 4 n |
//! | `fp16`, `bf16` | half, bfloat16 | 2 n |
//! | `fp8` | E5M2, E4M3, a power of two as scale | n + one a scale |
//! | `table` | nearest of 2^(N-1) magnitudes, sampled | N n / 8 + 4 · 2^(N-1) |
//! | `cntk` | two levels, or 2^N - 1 steps | N n / 8 + 8 |
//! | `sign_norm` | DeepSpeed's signs with a norm | n / 8 + 4 |
//! | `int8` | Bagua's bytes between minimum and maximum | n + 8 a block |
//! | `top_k` | the largest values, momentum corrected | 8 k + 4 |
//! | `power_sgd` | two factors of low rank | 4 r (rows + columns) |
//!
//! **What is not finite never turns into a number.** Floating-point codecs carry NaN and infinity
//! value by value; the others decode to NaN throughout (the tensor, or the block) if one value was
//! NaN or infinite, so that a loss scaler sees it.
//!
//! All numbers on the wire are little endian. Nothing here allocates while it encodes or decodes.
//!
//! ```
//! use pipewright_core::compress::{CodecKind, Rounding, Scale};
//!
//! let kind = CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo };
//! let gradient = [1e-6f32, -2e-6, 0.0, 3e-6];
//! let mut codec = kind.build(gradient.len())?;
//! let mut wire = vec![0; codec.wire_bytes(4) as usize];
//! let used = codec.encode(&gradient, &mut wire)?;
//! let mut decoded = [0.0; 4];
//! codec.decode(&wire[..used], &mut decoded)?;
//! assert!((decoded[3] - 3e-6).abs() < 0.125 * 3e-6, "two bits of mantissa");
//! # Ok::<(), pipewright_core::compress::CodecError>(())
//! ```

mod bf16;
mod cntk;
mod codebook;
pub mod division;
pub mod e5m2_sum;
mod error;
pub mod feedback;
mod fp16;
mod fp8;
mod int8;
mod kind;
pub mod narrow;
mod pack;
mod parse;
mod plain;
mod power_sgd;
mod reduction;
mod sample;
pub mod scale;
pub mod share;
mod sign_norm;
mod sums;
mod table;
mod top_k;
mod wire;

pub use cntk::Threshold;
pub use codebook::Levels;
pub use error::relative_error;
pub use fp8::{Float8, Fp8, Rounding};
pub use kind::{CodecKind, Method};
pub use parse::ParseCodecError;
pub use reduction::{Algorithm, Reduction, USUAL};
pub use scale::Scale;

use thiserror::Error;

/// Turns values into fewer bytes, and back into values that are near them.
pub trait Codec: Send {
    /// Short name, as plans and tables write it.
    fn name(&self) -> &'static str;

    /// Bytes on the wire of `values` values: exact, save for top-k, which may use fewer.
    fn wire_bytes(&self, values: u64) -> u64;

    /// Writes `values` to the beginning of `wire`, at least [`Codec::wire_bytes`] long, and returns
    /// the bytes used. Codecs with a state change it only here.
    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError>;

    /// Reads the bytes that one `encode` used, all of them, into as many values as it was given.
    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError>;

    /// Length of the message of `values` values that `wire` begins with, where several lie behind one
    /// another. Of bytes that no encoder wrote it may be any number: [`Codec::decode`] checks.
    fn message_bytes(&self, wire: &[u8], values: u64) -> u64 {
        let _ = wire;
        self.wire_bytes(values)
    }

    /// Shows each tensor that is carried from step to step, by name, to save or to load it.
    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        let _ = visit;
    }
}

impl<C: Codec + ?Sized> Codec for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        (**self).wire_bytes(values)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        (**self).encode(values, wire)
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        (**self).decode(wire, values)
    }

    fn message_bytes(&self, wire: &[u8], values: u64) -> u64 {
        (**self).message_bytes(wire, values)
    }

    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        (**self).visit_state(visit);
    }
}

/// Why values could not be encoded or bytes not decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The buffer to encode into is too short.
    #[error("{codec}: {values} values need {needed} bytes, the buffer has {got}: make it larger")]
    ShortBuffer {
        /// Name of the codec.
        codec: &'static str,
        /// Values to encode.
        values: usize,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that there are.
        got: usize,
    },
    /// A message of another length than its values have.
    #[error(
        "{codec}: {values} values are {needed} bytes, the message has {got}: was it cut, or is it another codec's?"
    )]
    WrongLength {
        /// Name of the codec.
        codec: &'static str,
        /// Values to decode.
        values: usize,
        /// Bytes of so many values.
        needed: u64,
        /// Bytes of the message.
        got: usize,
    },
    /// A message that no encoder wrote.
    #[error("{codec}: damaged message, {what}")]
    Damaged {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A codec with a state was made for another number of values.
    #[error("{codec}: made for {expected} values, got {got}: make one for each tensor")]
    WrongCount {
        /// Name of the codec.
        codec: &'static str,
        /// Values that it keeps a state for.
        expected: usize,
        /// Values that it was given.
        got: usize,
    },
    /// Settings that no codec has.
    #[error("{codec}: {what}")]
    Settings {
        /// Name of the codec.
        codec: &'static str,
        /// What is wrong, and what is possible.
        what: &'static str,
    },
}
