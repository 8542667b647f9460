//! Bagua's ByteGrad: 255 steps between a block's minimum and maximum.
//!
//! `scale = 255 / (max - min + 1e-7)`, `upper = rint(max · scale)`, `lower = upper - 255`; a value's
//! code is `min(rint(x · scale), upper) - lower`, brought to 0 where single precision puts the
//! minimum at -1, and decodes to `(code + lower) / scale`.
//!
//! Wire: minimum and maximum of each block, then a byte a value. A block that is not finite has NaN
//! for both. Zero is a level, so what is zero stays so.

use super::{Codec, CodecError, wire};

/// From here on all numbers are whole.
const WHOLE: f32 = (1 << 23) as f32;

/// One byte a value, between the extremes of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Int8 {
    block: Option<u32>,
}

/// Minimum and maximum of a block, as steps.
#[derive(Clone, Copy)]
struct Steps {
    scale: f32,
    lower: f32,
    upper: f32,
}

impl Int8 {
    /// Extremes of each `block` values on their own; of the tensor without (Bagua).
    pub fn new(block: Option<u32>) -> Self {
        Self { block: block.map(|values| values.max(1)) }
    }

    fn blocks(&self, values: u64) -> u64 {
        self.block.map_or(values.min(1), |block| values.div_ceil(u64::from(block)))
    }

    fn block(&self, values: usize) -> usize {
        self.block.map_or(values.max(1), |block| block as usize)
    }
}

impl Steps {
    fn new(min: f32, max: f32) -> Self {
        let scale = (255.0 / f64::from(max - min + 1e-7)) as f32;
        let upper = round(max * scale);
        Self { scale, lower: upper - 255.0, upper }
    }

    #[inline(always)]
    fn code(self, value: f32) -> u8 {
        let level = round(value * self.scale);
        let level = if level < self.upper { level } else { self.upper };
        let code = level - self.lower;
        let code = if code > 0.0 { code } else { 0.0 };
        let code = if code < 255.0 { code } else { 255.0 };
        // It is whole: added to 2^23 it is the last byte.
        (code + WHOLE).to_bits() as u8
    }

    #[inline(always)]
    fn value(self, code: u8) -> f32 {
        (f32::from(code) + self.lower) / self.scale
    }
}

/// To nearest even, by the processor's own addition: `round_ties_even` is a call where vectors have
/// no such instruction.
#[inline(always)]
fn round(number: f32) -> f32 {
    let magnitude = number.abs();
    let rounded = (magnitude + WHOLE) - WHOLE;
    (if magnitude < WHOLE { rounded } else { magnitude }).copysign(number)
}

/// Minimum and maximum; NaN for both if a value is not finite.
fn extremes(values: &[f32]) -> (f32, f32) {
    let mut lanes = ([f32::INFINITY; 16], [f32::NEG_INFINITY; 16], [0f32; 16]);
    let (chunks, rest) = values.as_chunks::<16>();
    let mut see = |i: usize, value: f32| {
        lanes.0[i] = if value < lanes.0[i] { value } else { lanes.0[i] };
        lanes.1[i] = if value > lanes.1[i] { value } else { lanes.1[i] };
        lanes.2[i] += value * 0.0; // NaN from what is not finite, and for good
    };
    for chunk in chunks {
        for (i, value) in chunk.iter().enumerate() {
            see(i, *value);
        }
    }
    for (i, value) in rest.iter().enumerate() {
        see(i, *value);
    }
    if lanes.2.iter().any(|finite| finite.is_nan()) {
        return (f32::NAN, f32::NAN);
    }
    let min = lanes.0.into_iter().fold(f32::INFINITY, f32::min);
    (min, lanes.1.into_iter().fold(f32::NEG_INFINITY, f32::max))
}

impl Codec for Int8 {
    fn name(&self) -> &'static str {
        "int8"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        8 * self.blocks(values) + values
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        let (heads, codes) = wire.split_at_mut(8 * self.blocks(values.len() as u64) as usize);
        let block = self.block(values.len());
        let blocks = values.chunks(block).zip(codes.chunks_mut(block));
        for (head, (values, codes)) in heads.chunks_exact_mut(8).zip(blocks) {
            let (mut min, mut max) = extremes(values);
            if !(max - min).is_finite() {
                (min, max) = (f32::NAN, f32::NAN);
            }
            wire::put_f32(wire::put_f32(head, min), max);
            let steps = Steps::new(min, max);
            for (code, value) in codes.iter_mut().zip(values) {
                *code = steps.code(*value);
            }
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        let (heads, codes) = wire.split_at(8 * self.blocks(values.len() as u64) as usize);
        let block = self.block(values.len());
        let blocks = values.chunks_mut(block).zip(codes.chunks(block));
        for (head, (values, codes)) in heads.chunks_exact(8).zip(blocks) {
            let (min, rest) = wire::take_f32(head);
            let (max, _) = wire::take_f32(rest);
            let number = min <= max && (max - min).is_finite();
            let poison = min.is_nan() && max.is_nan();
            if !number && !poison {
                let what = "a block's minimum is above its maximum";
                return Err(CodecError::Damaged { codec: self.name(), what });
            }
            let steps = Steps::new(min, max);
            for (value, code) in values.iter_mut().zip(codes) {
                *value = steps.value(*code);
            }
        }
        Ok(())
    }
}
