//! Codecs by name and settings, as plans hold them.

use super::bf16::Bf16;
use super::cntk::Cntk;
use super::feedback::ErrorFeedback;
use super::fp16::Fp16;
use super::int8::Int8;
use super::plain::Plain;
use super::power_sgd::PowerSgd;
use super::sign_norm::SignNorm;
use super::table::Table;
use super::top_k::TopK;
use super::{Codec, CodecError, Float8, Fp8, Levels, Rounding, Scale, Threshold, power_sgd};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// A codec and its settings. JSON: `{"codec": "table", "bits": 1}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "codec", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum CodecKind {
    /// Single precision.
    #[default]
    Fp32,
    /// IEEE half.
    Fp16,
    /// bfloat16.
    Bf16,
    /// Eight bits, five of them exponent.
    #[serde(rename = "fp8-e5m2")]
    Fp8E5m2 {
        /// How values are rounded.
        #[serde(default)]
        rounding: Rounding,
        /// How they are brought into range.
        #[serde(default)]
        scale: Scale,
    },
    /// Eight bits, four of them exponent.
    #[serde(rename = "fp8-e4m3")]
    Fp8E4m3 {
        /// How values are brought into range.
        #[serde(default)]
        scale: Scale,
    },
    /// Oyama's table(N).
    Table {
        /// 1, 2, 4 or 8 bits a value.
        bits: u8,
    },
    /// A table whose magnitudes are means.
    TableMean {
        /// 1, 2, 4 or 8 bits a value.
        bits: u8,
    },
    /// CNTK's two levels.
    OneBit {
        /// Where they part.
        #[serde(default)]
        threshold: Threshold,
    },
    /// CNTK's equal steps.
    CntkBits {
        /// 2, 4 or 8 bits a value.
        bits: u8,
    },
    /// DeepSpeed's signs with a norm.
    SignNorm,
    /// Bytes between minimum and maximum.
    Int8 {
        /// Values that share the two; the tensor without (Bagua).
        #[serde(default)]
        block: Option<u32>,
    },
    /// The largest values.
    TopK {
        /// One value in so many is sent.
        one_in: u32,
        /// Momentum of values that wait (DGC); without, what is not sent is lost.
        #[serde(default)]
        momentum: Option<f32>,
    },
    /// Two factors of low rank.
    PowerSgd {
        /// Columns of each factor.
        rank: u32,
    },
}

impl CodecKind {
    /// A codec for tensors, or buckets, of `values` values.
    pub fn build(self, values: usize) -> Result<Box<dyn Codec>, CodecError> {
        Ok(match self {
            Self::Fp32 => Box::new(Plain),
            Self::Fp16 => Box::new(Fp16),
            Self::Bf16 => Box::new(Bf16),
            Self::Fp8E5m2 { rounding, scale } => Box::new(Fp8::new(Float8::E5m2(rounding), scale)),
            Self::Fp8E4m3 { scale } => Box::new(Fp8::new(Float8::E4m3, scale)),
            Self::Table { bits } => Box::new(Table::new(bits, Levels::Percentiles)?),
            Self::TableMean { bits } => Box::new(Table::new(bits, Levels::Means)?),
            Self::OneBit { threshold } => Box::new(Cntk::one_bit(threshold)),
            Self::CntkBits { bits } => Box::new(Cntk::bits(bits)?),
            Self::SignNorm => Box::new(SignNorm),
            Self::Int8 { block } => Box::new(Int8::new(block)),
            Self::TopK { one_in, momentum: None } => Box::new(TopK::new(values, one_in)?),
            Self::TopK { one_in, momentum: Some(momentum) } => {
                Box::new(TopK::with_momentum(values, one_in, momentum)?)
            }
            Self::PowerSgd { rank } => Box::new(PowerSgd::flat(values, rank)?),
        })
    }

    /// Bytes on the wire of `values` values, the most they can be. Builds no codec, so that whoever only
    /// plans (the page) does not carry their code.
    pub fn wire_bytes(self, values: u64) -> u64 {
        let bits = |bits: u8, unit: u32| (values * u64::from(bits)).div_ceil(unit.into());
        let blocks = |size: u32| values.div_ceil(u64::from(size.max(1)));
        match self {
            Self::Fp32 => 4 * values,
            Self::Fp16 | Self::Bf16 => 2 * values,
            Self::Fp8E5m2 { scale, .. } | Self::Fp8E4m3 { scale } => match scale {
                Scale::None => values,
                Scale::PowerOfTwo | Scale::Percentile => values + values.min(1),
                Scale::Block(size) => values + blocks(size),
            },
            Self::Table { bits: n } | Self::TableMean { bits: n } => {
                (4 << n.clamp(1, 8)) / 2 + bits(n, 8)
            }
            Self::OneBit { .. } => 8 + 4 * bits(1, 32),
            Self::CntkBits { bits: n } => 8 + 4 * bits(n, 32),
            Self::SignNorm => 4 + bits(1, 8),
            Self::Int8 { block: None } => values + 8 * values.min(1),
            Self::Int8 { block: Some(size) } => values + 8 * blocks(size),
            Self::TopK { one_in, .. } => 4 + 8 * blocks(one_in),
            Self::PowerSgd { rank } => power_sgd::flat_wire_bytes(values, rank),
        }
    }

    /// Whether its settings are such as a codec has; [`Self::build`] says what is wrong.
    pub fn has_sound_settings(self) -> bool {
        match self {
            Self::Table { bits } | Self::TableMean { bits } => matches!(bits, 1 | 2 | 4 | 8),
            Self::CntkBits { bits } => matches!(bits, 2 | 4 | 8),
            Self::TopK { one_in, momentum } => {
                one_in > 0 && momentum.is_none_or(|momentum| (0.0..1.0).contains(&momentum))
            }
            Self::PowerSgd { rank } => rank > 0,
            _ => true,
        }
    }

    /// The same for so many bytes of single precision.
    pub fn bytes(self, values: Bytes) -> Bytes {
        if self.is_lossless() { values } else { Bytes(self.wire_bytes(values.0 / 4)) }
    }

    /// Whether encoding does not depend on what was encoded before.
    pub fn is_stateless(self) -> bool {
        !matches!(self, Self::TopK { momentum: Some(_), .. } | Self::PowerSgd { .. })
    }

    /// Whether decoded values are the encoded ones, always.
    pub fn is_lossless(self) -> bool {
        self == Self::Fp32
    }
}

/// A codec, with or without error feedback. JSON: `{"codec": "one-bit", "feedback": true}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Method {
    /// The codec.
    #[serde(flatten)]
    pub codec: CodecKind,
    /// Whether what it loses is added to the next step's values.
    #[serde(default)]
    pub feedback: bool,
}

impl Method {
    /// A codec for tensors, or buckets, of `values` values.
    pub fn build(self, values: usize) -> Result<Box<dyn Codec>, CodecError> {
        let codec = self.codec.build(values)?;
        if self.feedback {
            return Ok(Box::new(ErrorFeedback::new(codec, values)));
        }
        Ok(codec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_settings_are_those_of_the_codecs() {
        let texts = [
            "fp32",
            "fp16",
            "bf16",
            "fp8-e5m2",
            "fp8-e5m2:unscaled",
            "fp8-e4m3:256",
            "table:1",
            "table:2",
            "table-mean:4",
            "table:8",
            "one-bit",
            "one-bit:mean",
            "cntk-bits:2",
            "cntk-bits:8",
            "sign-norm",
            "int8",
            "int8:256",
            "top-k:1000",
            "top-k:7:0.9",
            "power-sgd:1",
            "power-sgd:4",
        ];
        for text in texts {
            let kind: CodecKind = text.parse().unwrap();
            assert!(kind.has_sound_settings(), "{text}");
            for values in [0u64, 1, 7, 64, 255, 256, 257, 10_000] {
                let built = kind.build(values as usize).unwrap().wire_bytes(values);
                assert_eq!(kind.wire_bytes(values), built, "{text}, {values} values");
            }
        }
        let unsound = [
            CodecKind::Table { bits: 3 },
            CodecKind::TableMean { bits: 0 },
            CodecKind::CntkBits { bits: 1 },
            CodecKind::TopK { one_in: 0, momentum: None },
            CodecKind::TopK { one_in: 2, momentum: Some(1.0) },
            CodecKind::TopK { one_in: 2, momentum: Some(f32::NAN) },
            CodecKind::PowerSgd { rank: 0 },
        ];
        for kind in unsound {
            assert!(!kind.has_sound_settings() && kind.build(1).is_err(), "{kind}");
        }
    }
}
