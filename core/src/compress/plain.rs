//! Single precision as it is: the codec of plans that compress nothing.

use super::{Codec, CodecError, wire};

/// Four bytes a value, nothing lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Codec for Plain {
    fn name(&self) -> &'static str {
        "fp32"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        4 * values
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        wire::write_f32s(values, wire);
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        wire::read_f32s(wire, values);
        Ok(())
    }
}
