//! Codecs and ways of summing as short text, for command lines, links and tables:
//! `fp8-e5m2`, `table:1`, `one-bit+feedback`, `fp8-e5m2:truncate+operator`.
//!
//! A name, then settings after colons, in this order; what is usual is left out. Printing and
//! reading are inverses of each other.

use super::{Algorithm, CodecKind, Method, Reduction, Rounding, Scale, Threshold};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is wrong with the text of a codec, and what may stand there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseCodecError {
    /// No codec has that name. Of those that exist a plan can have the ones that are listed.
    #[error(
        "no codec is called `{0}`: choose fp32, fp16, bf16, fp8-e5m2, fp8-e4m3, table:BITS, \
         table-mean:BITS, one-bit, cntk-bits:BITS, sign-norm, int8, int8:BLOCK or top-k:ONE_IN"
    )]
    Name(String),
    /// A setting that the codec has not, or that is missing.
    #[error("`{text}`: {must}")]
    Setting {
        /// The codec as it was written.
        text: String,
        /// What may follow its name.
        must: &'static str,
    },
    /// Something else than `+feedback` and `+operator`.
    #[error("`+{0}`: after a codec may follow +feedback and +operator")]
    Suffix(String),
}

impl FromStr for CodecKind {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let settings: Vec<&str> = words.collect();
        let wrong = |must| ParseCodecError::Setting { text: text.into(), must };
        let plain = |kind| match settings.is_empty() {
            true => Ok(kind),
            false => Err(wrong("this codec has no settings")),
        };
        let number = |must| match settings[..] {
            [one] => one.parse::<u32>().map_err(|_| wrong(must)),
            _ => Err(wrong(must)),
        };
        let bits = |must| match number(must)? {
            bits @ (1 | 2 | 4 | 8) => Ok(bits as u8),
            _ => Err(wrong(must)),
        };
        match name {
            "fp32" => plain(Self::Fp32),
            "fp16" => plain(Self::Fp16),
            "bf16" => plain(Self::Bf16),
            "sign-norm" => plain(Self::SignNorm),
            "fp8-e5m2" => e5m2(text, &settings),
            "fp8-e4m3" => match settings[..] {
                [] => Ok(Self::Fp8E4m3 { scale: Scale::default() }),
                [one] => Ok(Self::Fp8E4m3 { scale: scale(one).ok_or(wrong(SCALES))? }),
                _ => Err(wrong(SCALES)),
            },
            "table" => Ok(Self::Table { bits: bits("write table:1, :2, :4 or :8 bits")? }),
            "table-mean" => {
                Ok(Self::TableMean { bits: bits("write table-mean:1, :2, :4 or :8 bits")? })
            }
            "one-bit" => match settings[..] {
                [] => Ok(Self::OneBit { threshold: Threshold::Zero }),
                ["mean"] => Ok(Self::OneBit { threshold: Threshold::Mean }),
                _ => Err(wrong("write one-bit, or one-bit:mean")),
            },
            "cntk-bits" => Ok(Self::CntkBits { bits: bits("write cntk-bits:2, :4 or :8")? }),
            "int8" if settings.is_empty() => Ok(Self::Int8 { block: None }),
            "int8" => Ok(Self::Int8 { block: Some(number("write int8, or int8:256 for blocks")?) }),
            "top-k" => top_k(text, &settings),
            "power-sgd" => Ok(Self::PowerSgd { rank: number("write the rank: power-sgd:4")? }),
            _ => Err(ParseCodecError::Name(name.into())),
        }
    }
}

const SCALES: &str = "scales are unscaled, power-of-two, percentile or a number of values: \
                      fp8-e4m3:256";

fn scale(word: &str) -> Option<Scale> {
    Some(match word {
        "unscaled" => Scale::None,
        "power-of-two" => Scale::PowerOfTwo,
        "percentile" => Scale::Percentile,
        number => Scale::Block(number.parse().ok()?),
    })
}

fn e5m2(text: &str, settings: &[&str]) -> Result<CodecKind, ParseCodecError> {
    let (mut rounding, mut rest) = (Rounding::default(), settings);
    if let [first, after @ ..] = settings {
        let known = match *first {
            "truncate" => Some(Rounding::Truncate),
            "nearest-even" => Some(Rounding::NearestEven),
            "saturating" => Some(Rounding::Saturating),
            _ => None,
        };
        (rounding, rest) = known.map_or((rounding, settings), |known| (known, after));
    }
    let scale = match rest {
        [] => Some(Scale::default()),
        [one] => scale(one),
        _ => None,
    };
    scale.map(|scale| CodecKind::Fp8E5m2 { rounding, scale }).ok_or(ParseCodecError::Setting {
        text: text.into(),
        must: "write how to round (truncate, nearest-even, saturating), then a scale (unscaled, \
               power-of-two, percentile or a number of values): fp8-e5m2:truncate:unscaled",
    })
}

fn top_k(text: &str, settings: &[&str]) -> Result<CodecKind, ParseCodecError> {
    let must = "write one in how many values travels, then the momentum of those that wait: \
                top-k:1000 or top-k:1000:0.9";
    let read = || match settings {
        [one_in] => Some(CodecKind::TopK { one_in: one_in.parse().ok()?, momentum: None }),
        [one_in, momentum] => {
            let momentum = momentum.parse().ok().filter(|momentum: &f32| momentum.is_finite())?;
            Some(CodecKind::TopK { one_in: one_in.parse().ok()?, momentum: Some(momentum) })
        }
        _ => None,
    };
    read().ok_or(ParseCodecError::Setting { text: text.into(), must })
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::None => write!(f, "unscaled"),
            Self::PowerOfTwo => write!(f, "power-of-two"),
            Self::Percentile => write!(f, "percentile"),
            Self::Block(values) => write!(f, "{values}"),
        }
    }
}

impl fmt::Display for CodecKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let unless_usual = |f: &mut fmt::Formatter, scale: &Scale| match scale {
            Scale::PowerOfTwo => Ok(()),
            scale => write!(f, ":{scale}"),
        };
        match self {
            Self::Fp32 => write!(f, "fp32"),
            Self::Fp16 => write!(f, "fp16"),
            Self::Bf16 => write!(f, "bf16"),
            Self::Fp8E5m2 { rounding, scale } => {
                write!(f, "fp8-e5m2")?;
                match rounding {
                    Rounding::Truncate => write!(f, ":truncate")?,
                    Rounding::NearestEven => {}
                    Rounding::Saturating => write!(f, ":saturating")?,
                }
                unless_usual(f, scale)
            }
            Self::Fp8E4m3 { scale } => {
                write!(f, "fp8-e4m3")?;
                unless_usual(f, scale)
            }
            Self::Table { bits } => write!(f, "table:{bits}"),
            Self::TableMean { bits } => write!(f, "table-mean:{bits}"),
            Self::OneBit { threshold: Threshold::Zero } => write!(f, "one-bit"),
            Self::OneBit { threshold: Threshold::Mean } => write!(f, "one-bit:mean"),
            Self::CntkBits { bits } => write!(f, "cntk-bits:{bits}"),
            Self::SignNorm => write!(f, "sign-norm"),
            Self::Int8 { block: None } => write!(f, "int8"),
            Self::Int8 { block: Some(block) } => write!(f, "int8:{block}"),
            Self::TopK { one_in, momentum: None } => write!(f, "top-k:{one_in}"),
            Self::TopK { one_in, momentum: Some(momentum) } => {
                write!(f, "top-k:{one_in}:{momentum}")
            }
            Self::PowerSgd { rank } => write!(f, "power-sgd:{rank}"),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", self.codec, if self.feedback { "+feedback" } else { "" })
    }
}

impl FromStr for Reduction {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        let mut words = text.split('+');
        let mut reduction = Self::of(words.next().unwrap_or_default().parse()?);
        for word in words {
            match word {
                "feedback" => reduction.method.feedback = true,
                "operator" => reduction.algorithm = Algorithm::Operator,
                _ => return Err(ParseCodecError::Suffix(word.into())),
            }
        }
        Ok(reduction)
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let way = if self.algorithm == Algorithm::Operator { "+operator" } else { "" };
        write!(f, "{}{way}", self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        for text in [
            "fp32",
            "fp16",
            "bf16",
            "fp8-e5m2",
            "fp8-e5m2:truncate",
            "fp8-e5m2:saturating:percentile",
            "fp8-e5m2:unscaled",
            "fp8-e4m3",
            "fp8-e4m3:256",
            "table:1",
            "table-mean:8",
            "one-bit",
            "one-bit:mean",
            "cntk-bits:2",
            "sign-norm",
            "int8",
            "int8:256",
            "top-k:1000",
            "top-k:1000:0.9",
            "power-sgd:4",
            "one-bit+feedback",
            "fp8-e5m2:truncate+operator",
            "fp8-e5m2+feedback+operator",
        ] {
            let reduction: Reduction = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(reduction.to_string(), text);
        }
        let usual: CodecKind = "fp8-e5m2:nearest-even:power-of-two".parse().unwrap();
        assert_eq!(usual.to_string(), "fp8-e5m2");
    }

    #[test]
    fn errors_say_what_may_stand_there() {
        for (text, part) in [
            ("fp7", "choose fp32"),
            ("", "choose fp32"),
            ("bf16:2", "no settings"),
            ("table", "table:1"),
            ("table:3", "table:1"),
            ("int8:many", "int8:256"),
            ("top-k", "top-k:1000"),
            ("top-k:10:x", "top-k:1000"),
            ("fp8-e5m2:up", "truncate"),
            ("fp8-e4m3:x", "percentile"),
            ("one-bit:median", "one-bit:mean"),
            ("bf16+fast", "+feedback"),
        ] {
            let error = text.parse::<Reduction>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
