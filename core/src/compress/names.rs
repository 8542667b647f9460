//! Codecs and sums as people write them on a command line.
//!
//! A name, a number behind `:` where the codec has one, options behind `+`:
//!
//! ```
//! use pipewright_core::compress::{CodecKind, Reduction};
//!
//! assert_eq!("table:1".parse(), Ok(Reduction::of(CodecKind::Table { bits: 1 })));
//! let oyama: Reduction = "fp8-e5m2+truncate+unscaled+operator".parse()?;
//! let json = r#"{"codec": "fp8-e5m2", "rounding": "truncate", "scale": "none", "algorithm": "operator"}"#;
//! assert_eq!(json.parse(), Ok(oyama));
//! # Ok::<(), pipewright_core::compress::NameError>(())
//! ```

use super::{Algorithm, CodecKind, Reduction, Rounding, Scale, Threshold};
use std::str::FromStr;
use thiserror::Error;

/// A text that names no sum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}`: {why}")]
pub struct NameError {
    /// The text, or its beginning.
    text: String,
    why: String,
}

const NAMES: &str = "codecs are fp32, fp16, bf16, fp8-e5m2, fp8-e4m3, table:N, table-mean:N, one-bit, \
     cntk-bits:N, sign-norm, int8, int8:BLOCK, top-k:ONE_IN and power-sgd:RANK";

const OPTIONS: &str = "options are +feedback and +operator; for fp8-e5m2 also +truncate and +saturate; \
     for both fp8 +unscaled, +percentile and +block=N; for one-bit +mean; for top-k +momentum=M";

impl FromStr for Reduction {
    type Err = NameError;

    /// A name as above, or the JSON of a plan. What is possible is not checked: see
    /// [`Reduction::fault`].
    fn from_str(text: &str) -> Result<Self, NameError> {
        let refused =
            |why: &str| NameError { text: text.chars().take(80).collect(), why: why.into() };
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(|error| refused(&error.to_string()));
        }
        let mut words = text.trim().split('+');
        let name = words.next().unwrap_or_default();
        let mut reduction = Self::of(codec(name).ok_or_else(|| refused(NAMES))?);
        for word in words {
            option(&mut reduction, word).ok_or_else(|| refused(OPTIONS))?;
        }
        Ok(reduction)
    }
}

/// The codec of a name and a number.
fn codec(name: &str) -> Option<CodecKind> {
    let (name, number) = match name.split_once(':') {
        None => (name, None),
        Some((name, number)) => (name, Some(number.parse::<u32>().ok()?)),
    };
    let bits = || u8::try_from(number?).ok();
    let codec = match name {
        "table" => CodecKind::Table { bits: bits()? },
        "table-mean" => CodecKind::TableMean { bits: bits()? },
        "cntk-bits" => CodecKind::CntkBits { bits: bits()? },
        "int8" => CodecKind::Int8 { block: number },
        "top-k" => CodecKind::TopK { one_in: number?, momentum: None },
        "power-sgd" => CodecKind::PowerSgd { rank: number? },
        _ if number.is_some() => return None,
        "fp32" => CodecKind::Fp32,
        "fp16" => CodecKind::Fp16,
        "bf16" => CodecKind::Bf16,
        "fp8-e5m2" => CodecKind::Fp8E5m2 { rounding: Rounding::default(), scale: Scale::default() },
        "fp8-e4m3" => CodecKind::Fp8E4m3 { scale: Scale::default() },
        "one-bit" => CodecKind::OneBit { threshold: Threshold::Zero },
        "sign-norm" => CodecKind::SignNorm,
        _ => return None,
    };
    Some(codec)
}

/// Sets an option; none if the codec has no such.
fn option(reduction: &mut Reduction, word: &str) -> Option<()> {
    match word {
        "feedback" => reduction.method.feedback = true,
        "operator" => reduction.algorithm = Algorithm::Operator,
        _ => return codec_option(&mut reduction.method.codec, word),
    }
    Some(())
}

fn codec_option(codec: &mut CodecKind, word: &str) -> Option<()> {
    match (codec, word) {
        (CodecKind::Fp8E5m2 { rounding, .. }, "truncate") => *rounding = Rounding::Truncate,
        (CodecKind::Fp8E5m2 { rounding, .. }, "saturate") => *rounding = Rounding::Saturating,
        (CodecKind::OneBit { threshold }, "mean") => *threshold = Threshold::Mean,
        (CodecKind::Fp8E5m2 { scale, .. } | CodecKind::Fp8E4m3 { scale }, word) => {
            *scale = match word.split_once('=') {
                Some(("block", values)) => Scale::Block(values.parse().ok()?),
                None if word == "unscaled" => Scale::None,
                None if word == "percentile" => Scale::Percentile,
                _ => return None,
            }
        }
        (CodecKind::TopK { momentum, .. }, word) => {
            *momentum = Some(word.strip_prefix("momentum=")?.parse().ok()?);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_json_say_the_same() {
        for (name, json) in [
            ("fp32", r#"{"codec": "fp32"}"#),
            ("table:1+feedback", r#"{"codec": "table", "bits": 1, "feedback": true}"#),
            ("one-bit+mean", r#"{"codec": "one-bit", "threshold": "mean"}"#),
            ("int8:64", r#"{"codec": "int8", "block": 64}"#),
            ("top-k:100+momentum=0.5", r#"{"codec": "top-k", "one-in": 100, "momentum": 0.5}"#),
            ("fp8-e4m3+block=32", r#"{"codec": "fp8-e4m3", "scale": {"block": 32}}"#),
            ("fp8-e5m2+operator", r#"{"codec": "fp8-e5m2", "algorithm": "operator"}"#),
        ] {
            let by_name: Reduction = name.parse().unwrap();
            assert_eq!(json.parse(), Ok(by_name), "{name}");
            let written = serde_json::to_string(&by_name).unwrap();
            assert_eq!(written.parse(), Ok(by_name), "{written}");
        }
    }

    #[test]
    fn what_is_no_codec_is_refused_with_what_there_is() {
        for bad in ["", "fp9", "table", "table:300", "fp32:1", "one-bit+truncate", "fp16+", "{}"] {
            let error = bad.parse::<Reduction>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}`: ")) && error.len() > 20, "{error}");
        }
    }
}
