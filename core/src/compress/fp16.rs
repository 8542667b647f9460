//! IEEE half precision: PyTorch's and Horovod's fp16 compression.

use super::narrow::{Half, narrow, widen};
use super::{Codec, CodecError, wire};

/// Two bytes a value, rounded to nearest even; infinite from 65520 on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fp16;

impl Codec for Fp16 {
    fn name(&self) -> &'static str {
        "fp16"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        2 * values
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        for (bytes, value) in wire.as_chunks_mut::<2>().0.iter_mut().zip(values) {
            *bytes = (narrow::<Half>(*value) as u16).to_le_bytes();
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        for (value, bytes) in values.iter_mut().zip(wire.as_chunks::<2>().0) {
            *value = widen::<Half>(u32::from(u16::from_le_bytes(*bytes)));
        }
        Ok(())
    }
}
