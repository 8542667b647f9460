//! DeepSpeed's one bit: signs, and the root mean square as size of all (1-bit Adam and LAMB).
//!
//! Wire: ‖x‖₂ / √n, then signs: 1 for x >= 0 (so for both zeros), the first value in a byte's highest
//! bit. Meant for momenta whose variance is frozen, with [`super::feedback::ErrorFeedback`]. A tensor that is
//! not finite has NaN for its size.

use super::pack::{GROUP, squeeze};
use super::sums::squares;
use super::{Codec, CodecError, wire};

/// A sign a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignNorm;

/// Values that are encoded at a time.
const BLOCK: usize = 256;

impl Codec for SignNorm {
    fn name(&self) -> &'static str {
        "sign-norm"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        4 + values.div_ceil(8)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        let norm = squares(values).sqrt() as f32;
        let size = norm / (values.len().max(1) as f32).sqrt();
        let signs = wire::put_f32(wire, if size.is_finite() { size } else { f32::NAN });
        let mut flags = [0u8; BLOCK];
        for (values, signs) in values.chunks(BLOCK).zip(signs.chunks_mut(BLOCK / GROUP)) {
            for (flag, value) in flags.iter_mut().zip(values) {
                *flag = u8::from(*value >= 0.0);
            }
            flags[values.len()..].fill(0); // places behind the last value
            for (byte, group) in signs.iter_mut().zip(flags.as_chunks().0) {
                *byte = squeeze::<1>(u64::from_be_bytes(*group)) as u8;
            }
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        let (size, signs) = wire::take_f32(wire);
        if size < 0.0 || size.is_infinite() {
            return Err(CodecError::Damaged { codec: self.name(), what: "its size is no size" });
        }
        let level = |byte: u8, bit: usize| if byte & (0x80 >> bit) != 0 { size } else { -size };
        let (groups, rest) = values.as_chunks_mut::<GROUP>();
        let last = signs.get(groups.len());
        for (group, byte) in groups.iter_mut().zip(signs) {
            for (bit, value) in group.iter_mut().enumerate() {
                *value = level(*byte, bit);
            }
        }
        for (bit, value) in rest.iter_mut().enumerate() {
            *value = last.map_or(f32::NAN, |byte| level(*byte, bit)); // the length was checked
        }
        Ok(())
    }
}
