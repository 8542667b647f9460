//! Codecs by name and settings, as plans hold them.

use super::{
    Bf16, Cntk, Codec, CodecError, ErrorFeedback, Float8, Fp8, Fp16, Int8, Levels, Plain, PowerSgd,
    Rounding, Scale, SignNorm, Table, Threshold, TopK, power_sgd,
};
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

    /// Bytes on the wire of `values` values, the most they can be; without building a codec.
    pub fn wire_bytes(self, values: u64) -> u64 {
        match self {
            Self::TopK { one_in, .. } => 4 + 8 * values.div_ceil(u64::from(one_in.max(1))),
            Self::PowerSgd { rank } => power_sgd::flat_wire_bytes(values, rank),
            // The others' sizes do not depend on what they are built for.
            _ => self.build(0).map_or(4 * values, |codec| codec.wire_bytes(values)),
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
