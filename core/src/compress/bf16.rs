//! bfloat16: single precision's range with eight bits of mantissa.

use super::narrow::{from_bf16, to_bf16};
use super::{Codec, CodecError, wire};

/// Two bytes a value, rounded to nearest even.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bf16;

impl Codec for Bf16 {
    fn name(&self) -> &'static str {
        "bf16"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        2 * values
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        for (bytes, value) in wire.as_chunks_mut::<2>().0.iter_mut().zip(values) {
            *bytes = to_bf16(*value).to_le_bytes();
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        for (value, bytes) in values.iter_mut().zip(wire.as_chunks::<2>().0) {
            *value = from_bf16(u16::from_le_bytes(*bytes));
        }
        Ok(())
    }
}
