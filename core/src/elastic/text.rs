//! Policies as text, for command lines and links: `min-max:2:8+deadline:48h`.

use super::Policy;
use crate::units::Nanos;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What may be asked for, in messages and help.
const POLICIES: &str = "any, fail-stop:RANKS, fixed-size:RANKS, min-max:LEAST:MOST, \
                            deadline:TIME (such as 48h, 90m or 30s), progress:SHARE, \
                            batch-range:LEAST:MOST, or several joined by +";

/// Most policies of a text, so that hostile links end soon.
const MOST: usize = 32;

/// A text that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is no policy: {what}; use {POLICIES}")]
pub struct PolicyError {
    /// The part that is wrong.
    pub text: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Any => write!(f, "any"),
            Policy::FailStop(ranks) => write!(f, "fail-stop:{ranks}"),
            Policy::FixedSize(ranks) => write!(f, "fixed-size:{ranks}"),
            Policy::MinMax(least, most) => write!(f, "min-max:{least}:{most}"),
            Policy::Deadline(limit) => write!(f, "deadline:{}", time(*limit)),
            Policy::ProgressGate(share) => write!(f, "progress:{share}"),
            Policy::BatchRange(least, most) => write!(f, "batch-range:{least}:{most}"),
            Policy::All(policies) if policies.is_empty() => write!(f, "any"),
            Policy::All(policies) => {
                let texts: Vec<String> = policies.iter().map(Policy::to_string).collect();
                write!(f, "{}", texts.join("+"))
            }
        }
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for Policy {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let parts: Vec<&str> = text.split('+').collect();
        if parts.len() > MOST {
            return Err(error(text, format!("it joins {}, {MOST} at most", parts.len())));
        }
        let mut policies = parts.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(if policies.len() == 1 { policies.remove(0) } else { Policy::All(policies) })
    }
}

fn error(text: &str, what: impl Into<String>) -> PolicyError {
    PolicyError { text: text.chars().take(40).collect(), what: what.into() }
}

/// One policy without `+`.
fn one(text: &str) -> Result<Policy, PolicyError> {
    let refuse = |what: &str| error(text, what);
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let values: Vec<&str> = parts.collect();
    let ranks = |text: &str| match text.parse::<u32>() {
        Ok(ranks) if ranks > 0 => Ok(ranks),
        _ => Err(refuse("a number of ranks is at least 1")),
    };
    let samples = |text: &str| match text.parse::<u64>() {
        Ok(samples) if samples > 0 => Ok(samples),
        _ => Err(refuse("a mini-batch has at least 1 sample")),
    };
    let ordered = |holds: bool| {
        if holds { Ok(()) } else { Err(refuse("the least is more than the most")) }
    };
    match (name, &values[..]) {
        ("any", []) => Ok(Policy::Any),
        ("fail-stop", [n]) => Ok(Policy::FailStop(ranks(n)?)),
        ("fixed-size", [n]) => Ok(Policy::FixedSize(ranks(n)?)),
        ("min-max", [least, most]) => {
            let (least, most) = (ranks(least)?, ranks(most)?);
            ordered(least <= most)?;
            Ok(Policy::MinMax(least, most))
        }
        ("deadline", [limit]) => seconds(limit)
            .map(Policy::Deadline)
            .ok_or_else(|| refuse("a time is a whole number, and s, m or h behind it")),
        ("progress", [share]) => match share.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Policy::ProgressGate(share.abs())),
            _ => Err(refuse("a share is between 0 and 1")),
        },
        ("batch-range", [least, most]) => {
            let (least, most) = (samples(least)?, samples(most)?);
            ordered(least <= most)?;
            Ok(Policy::BatchRange(least, most))
        }
        (
            "any" | "fail-stop" | "fixed-size" | "min-max" | "deadline" | "progress"
            | "batch-range",
            _,
        ) => Err(refuse("it has another number of values")),
        _ => Err(refuse("there is none of that name")),
    }
}

const SECOND: u64 = 1_000_000_000;

/// Units of time from the longest, in seconds.
const UNITS: [(&str, u64); 3] = [("h", 3600), ("m", 60), ("s", 1)];

/// A whole number of seconds, minutes or hours, that fits.
fn seconds(text: &str) -> Option<Nanos> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, seconds)| Some((text.strip_suffix(name)?, *seconds)))
        .unwrap_or((text, 1));
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    seconds.checked_mul(SECOND).map(Nanos)
}

/// In the longest unit of which it is a whole number; down to whole seconds.
fn time(time: Nanos) -> String {
    let seconds = time.0 / SECOND;
    let whole = |(_, unit): &&(&str, u64)| seconds.is_multiple_of(*unit) && seconds > 0;
    let (name, unit) = UNITS.iter().find(whole).unwrap_or(&UNITS[2]);
    format!("{}{name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_policy_prints_as_it_parses() {
        for text in [
            "any",
            "fail-stop:4",
            "fixed-size:32",
            "min-max:2:8",
            "deadline:48h",
            "deadline:90m",
            "deadline:3601s",
            "deadline:0s",
            "progress:0.8",
            "progress:0",
            "batch-range:256:32000",
            "min-max:2:8+deadline:64h+progress:0.5",
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
        assert_eq!("deadline:3600".parse(), Ok(Policy::Deadline(Nanos(3600 * SECOND))));
        assert_eq!(Policy::All(vec![]).to_string(), "any");
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        for (text, what) in [
            ("", "`` is no policy: there is none of that name"),
            ("any+", "`` is no policy"),
            ("any:1", "another number of values"),
            ("min-max:2", "another number of values"),
            ("min-max:8:2", "`min-max:8:2` is no policy: the least is more than the most"),
            ("any+fixed-size:0", "`fixed-size:0` is no policy: a number of ranks is at least 1"),
            ("fail-stop:-1", "at least 1"),
            ("fail-stop:4294967296", "at least 1"),
            ("progress:1.1", "between 0 and 1"),
            ("progress:NaN", "between 0 and 1"),
            ("deadline:1.5h", "whole number"),
            ("deadline:99999999999999h", "whole number"),
            ("deadline:20000000000s", "whole number"),
            ("batch-range:0:1", "at least 1 sample"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert!(error.ends_with(POLICIES), "{error}");
        }
        let many = vec!["any"; 33].join("+").parse::<Policy>().unwrap_err().to_string();
        assert!(many.contains("it joins 33, 32 at most"), "{many}");
    }

    proptest! {
        #[test]
        fn texts_never_panic(text in "[a-z0-9:+.-]{0,40}|\\PC{0,20}") {
            if let Ok(policy) = text.parse::<Policy>() {
                prop_assert_eq!(policy.to_string().parse::<Policy>(), Ok(policy));
            }
        }
    }
}
