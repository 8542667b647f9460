//! Eight-bit floats with a scale: E5M2 in three roundings, E4M3.
//!
//! Wire: one byte a scale (none without), then one byte a value.

use super::narrow::{E4m3, E5m2, Format, e5m2_truncated, narrow, narrow_finite, widen};
use super::sample::Sample;
use super::scale::{self, Scale, largest_magnitude, power_of_two};
use super::{Codec, CodecError, wire};
use serde::{Deserialize, Serialize};

/// Which eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float8 {
    /// Five bits of exponent, two of mantissa, rounded as told.
    E5m2(Rounding),
    /// Four bits of exponent, three of mantissa; beyond 448 is 448, to nearest even below.
    E4m3,
}

impl Float8 {
    /// Whether finite values can become infinite.
    fn overflows(self) -> bool {
        matches!(self, Self::E5m2(Rounding::Truncate | Rounding::NearestEven))
    }
}

/// How E5M2 rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Oyama's: the upper byte of a half.
    Truncate,
    /// To nearest even; from 61440 on infinite.
    #[default]
    NearestEven,
    /// To nearest even; finite values beyond 57344 become 57344.
    Saturating,
}

/// One byte a value.
#[derive(Clone, Debug)]
pub struct Fp8 {
    float: Float8,
    scale: Scale,
    sample: Sample,
}

impl Fp8 {
    /// A codec of `float` with scales by the rule `scale`.
    pub fn new(float: Float8, scale: Scale) -> Self {
        Self { float, scale, sample: Sample::new() }
    }

    /// Encodes with a scale that the caller chose, without sending it: one byte a value. For sums of
    /// codes over ranks, all of which must have the same scale.
    pub fn encode_scaled(&self, values: &[f32], scale: f32, codes: &mut [u8]) {
        let pairs = codes.iter_mut().zip(values);
        match self.float {
            Float8::E5m2(Rounding::Truncate) => {
                pairs.for_each(|(code, v)| *code = e5m2_truncated(v * scale) as u8)
            }
            Float8::E5m2(Rounding::NearestEven) => {
                pairs.for_each(|(code, v)| *code = narrow::<E5m2>(v * scale) as u8)
            }
            Float8::E5m2(Rounding::Saturating) => {
                pairs.for_each(|(code, v)| *code = narrow_finite::<E5m2>(v * scale) as u8)
            }
            Float8::E4m3 => {
                pairs.for_each(|(code, v)| *code = narrow_finite::<E4m3>(v * scale) as u8)
            }
        }
    }

    /// What [`Fp8::encode_scaled`] wrote with `scale`.
    pub fn decode_scaled(&self, codes: &[u8], scale: f32, values: &mut [f32]) {
        let back = scale.recip(); // exact: scales are powers of two
        let pairs = values.iter_mut().zip(codes);
        match self.float {
            Float8::E5m2(_) => {
                pairs.for_each(|(v, code)| *v = widen::<E5m2>(u32::from(*code)) * back)
            }
            Float8::E4m3 => pairs.for_each(|(v, code)| *v = widen::<E4m3>(u32::from(*code)) * back),
        }
    }

    /// Values that share a scale; none without scales.
    fn block(&self, values: usize) -> Option<usize> {
        match self.scale {
            Scale::None => None,
            Scale::PowerOfTwo | Scale::Percentile => Some(values.max(1)),
            Scale::Block(block) => Some(block.max(1) as usize),
        }
    }

    fn choose_scale(&mut self, values: &[f32]) -> f32 {
        match self.float {
            Float8::E5m2(_) => self.scale_for::<E5m2>(values),
            Float8::E4m3 => self.scale_for::<E4m3>(values),
        }
    }

    fn scale_for<F: Format>(&mut self, values: &[f32]) -> f32 {
        match self.scale {
            Scale::None => 1.0,
            Scale::PowerOfTwo | Scale::Block(_) => power_of_two::<F>(largest_magnitude(values), 1),
            Scale::Percentile => {
                let overflows = self.float.overflows();
                scale::by_percentile::<F>(values, &mut self.sample, overflows)
            }
        }
    }
}

impl Codec for Fp8 {
    fn name(&self) -> &'static str {
        match self.float {
            Float8::E5m2(_) => "fp8-e5m2",
            Float8::E4m3 => "fp8-e4m3",
        }
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        values
            + match self.scale {
                Scale::None => 0,
                Scale::PowerOfTwo | Scale::Percentile => values.min(1),
                Scale::Block(block) => values.div_ceil(u64::from(block.max(1))),
            }
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        let Some(block) = self.block(values.len()) else {
            self.encode_scaled(values, 1.0, wire);
            return Ok(wire.len());
        };
        let (scales, codes) = wire.split_at_mut(values.len().div_ceil(block));
        let blocks = values.chunks(block).zip(codes.chunks_mut(block));
        for (byte, (values, codes)) in scales.iter_mut().zip(blocks) {
            let scale = self.choose_scale(values);
            *byte = scale::to_byte(scale);
            self.encode_scaled(values, scale, codes);
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        let Some(block) = self.block(values.len()) else {
            self.decode_scaled(wire, 1.0, values);
            return Ok(());
        };
        let (scales, codes) = wire.split_at(values.len().div_ceil(block));
        let blocks = values.chunks_mut(block).zip(codes.chunks(block));
        for (byte, (values, codes)) in scales.iter().zip(blocks) {
            let damaged =
                CodecError::Damaged { codec: self.name(), what: "no scale has this byte" };
            self.decode_scaled(codes, scale::from_byte(*byte).ok_or(damaged)?, values);
        }
        Ok(())
    }
}
