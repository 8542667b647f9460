//! CNTK's quantiser of 1-bit SGD (Seide et al. 2014): two levels, or 2^N - 1 equal steps.
//!
//! One bit: levels are the means of the two sides of a threshold; decoded are means, so what is lost
//! sums to zero. N bits: four standard deviations on both sides of zero, in 2^N - 1 steps, rounded
//! down, ends clamped. A tensor is one column.
//!
//! Wire: the range's lower and upper end, then words of 32 bits. Of Q words, word k holds values k,
//! k + Q, k + 2Q, ..., the first in the lowest bits: consecutive values go to consecutive words,
//! which is how vectors like it. A tensor that is not finite has NaN for ends.

use super::sums::sums;
use super::{Codec, CodecError, wire};
use serde::{Deserialize, Serialize};

/// Where the two levels of one bit part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Threshold {
    /// At zero; levels are the means of the negative values and of the others.
    #[default]
    Zero,
    /// At the mean; levels are the mean less and plus the mean absolute deviation.
    Mean,
}

/// Words that are filled at a time.
const BLOCK: usize = 64;

/// Two levels or 2^N - 1 steps.
#[derive(Clone, Copy, Debug)]
pub struct Cntk {
    bits: u32,
    threshold: Threshold,
}

/// Ends of the range that the steps divide.
#[derive(Clone, Copy)]
struct Range {
    lower: f32,
    upper: f32,
}

impl Cntk {
    /// One bit a value.
    pub fn one_bit(threshold: Threshold) -> Self {
        Self { bits: 1, threshold }
    }

    /// `bits` a value: 2, 4 or 8.
    pub fn bits(bits: u8) -> Result<Self, CodecError> {
        if ![2, 4, 8].contains(&bits) {
            return Err(CodecError::Settings { codec: "cntk-bits", what: "bits are 2, 4 or 8" });
        }
        Ok(Self { bits: u32::from(bits), threshold: Threshold::Zero })
    }

    fn words(&self, values: u64) -> u64 {
        (values * u64::from(self.bits)).div_ceil(32)
    }

    /// The value of the code `code`.
    fn level(&self, range: Range, code: u32) -> f32 {
        let steps = if self.bits == 1 { 2 } else { (1 << self.bits) - 1 };
        let step = (range.upper - range.lower) / steps as f32;
        (code as f32 + 0.5) * step + range.lower
    }

    fn range(&self, values: &[f32]) -> Range {
        let range = match (self.bits, self.threshold) {
            (1, Threshold::Zero) => means(values),
            (1, Threshold::Mean) => deviation(values),
            _ => {
                let [squares] = sums(values, |v| [v * v]);
                let deviation = (squares as f32 / values.len() as f32).sqrt();
                Range { lower: 0.0 - 4.0 * deviation, upper: 4.0 * deviation } // 0, not -0
            }
        };
        // One sum says for all values whether they are finite; an overflow counts as not.
        if range.lower.is_finite() && range.upper.is_finite() {
            return range;
        }
        Range { lower: f32::NAN, upper: f32::NAN }
    }

    fn pack<const BITS: u32>(values: &[f32], wire: &mut [u8], code: impl Fn(f32) -> u32) {
        let words = wire.as_chunks_mut::<4>().0;
        let stride = words.len();
        for (block, words) in words.chunks_mut(BLOCK).enumerate() {
            let mut filled = [0u32; BLOCK];
            for slot in 0..32 / BITS {
                let from = slot as usize * stride + block * BLOCK;
                let until = (from + words.len()).min(values.len());
                let Some(values) = values.get(from..until) else { break };
                for (word, value) in filled.iter_mut().zip(values) {
                    *word |= code(*value) << (slot * BITS);
                }
            }
            for (place, word) in words.iter_mut().zip(filled) {
                *place = word.to_le_bytes();
            }
        }
    }

    fn unpack<const BITS: u32>(wire: &[u8], values: &mut [f32], value: impl Fn(u32) -> f32) {
        let words = wire.as_chunks::<4>().0;
        let stride = words.len();
        for (block, words) in words.chunks(BLOCK).enumerate() {
            let mut filled = [0u32; BLOCK];
            for (word, bytes) in filled.iter_mut().zip(words) {
                *word = u32::from_le_bytes(*bytes);
            }
            for slot in 0..32 / BITS {
                let from = slot as usize * stride + block * BLOCK;
                let until = (from + words.len()).min(values.len());
                let Some(values) = values.get_mut(from..until) else { break };
                for (place, word) in values.iter_mut().zip(&filled) {
                    *place = value((word >> (slot * BITS)) & ((1 << BITS) - 1));
                }
            }
        }
    }

    fn pack_steps<const BITS: u32>(values: &[f32], wire: &mut [u8], range: Range) {
        let (Range { lower, upper }, top) = (range, (1 << BITS) - 1);
        let width = upper - lower;
        // The range of zeros has no steps.
        let factor = if width < 1e-36 { 0.0 } else { top as f32 / width };
        Self::pack::<BITS>(values, wire, |value| {
            let inside = ((value - lower) * factor) as i32 as u32;
            let code = if value >= upper { top } else { inside };
            if value <= lower { 0 } else { code }
        });
    }
}

/// Sums of the values below `border` and of the others, and how many are below.
fn sides(values: &[f32], border: f32) -> [f32; 3] {
    let select = |v: f32| if v < border { [v, 0.0, 1.0] } else { [0.0, v, 0.0] };
    sums(values, select).map(|sum| sum as f32)
}

/// Levels at the means of the negative values and of the others; an empty side has 0.
fn means(values: &[f32]) -> Range {
    let [below, above, negatives] = sides(values, 0.0);
    let mean = |sum: f32, count: f32| if count == 0.0 { 0.0 } else { sum / count };
    let low = mean(below, negatives);
    let high = mean(above, values.len() as f32 - negatives);
    let middle = (low + high) / 2.0;
    around(middle, high - middle)
}

/// Levels at the mean less and plus the mean absolute deviation, by CNTK's formula.
fn deviation(values: &[f32]) -> Range {
    let count = values.len() as f32;
    let [sum] = sums(values, |v| [v]);
    let mean = sum as f32 / count;
    let [below, above, small] = sides(values, mean);
    let distance = (small * mean - below) + (above - (count - small) * mean);
    around(mean, distance / count)
}

/// The range of two steps whose middles are `radius` away from `middle`.
fn around(middle: f32, radius: f32) -> Range {
    let width = 2.0 * radius;
    Range { lower: middle - width, upper: middle + width }
}

impl Codec for Cntk {
    fn name(&self) -> &'static str {
        if self.bits == 1 { "one-bit" } else { "cntk-bits" }
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        8 + 4 * self.words(values)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        let range = self.range(values);
        let words = wire::put_f32(wire::put_f32(wire, range.lower), range.upper);
        match (self.bits, self.threshold) {
            (1, Threshold::Zero) => Self::pack::<1>(values, words, |v| u32::from(v >= 0.0)),
            (1, Threshold::Mean) => {
                let middle = 0.5 * (range.lower + range.upper);
                Self::pack::<1>(values, words, |v| u32::from(v >= middle));
            }
            (2, _) => Self::pack_steps::<2>(values, words, range),
            (4, _) => Self::pack_steps::<4>(values, words, range),
            _ => Self::pack_steps::<8>(values, words, range),
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        let (lower, rest) = wire::take_f32(wire);
        let (upper, words) = wire::take_f32(rest);
        let number = lower.is_finite() && upper.is_finite() && lower <= upper;
        let poison = lower.is_nan() && upper.is_nan();
        if !number && !poison {
            let what = "its range does not ascend";
            return Err(CodecError::Damaged { codec: self.name(), what });
        }
        let range = Range { lower, upper };
        match self.bits {
            1 => {
                let (low, high) = (self.level(range, 0), self.level(range, 1));
                Self::unpack::<1>(words, values, |code| if code == 0 { low } else { high });
            }
            2 => Self::unpack::<2>(words, values, |code| self.level(range, code)),
            4 => Self::unpack::<4>(words, values, |code| self.level(range, code)),
            _ => Self::unpack::<8>(words, values, |code| self.level(range, code)),
        }
        Ok(())
    }
}
