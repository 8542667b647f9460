//! Quantities with their unit in the type: bytes and nanoseconds, integers on every platform.
//!
//! Sums and products stop at the largest number instead of beginning again at zero: a plan for an
//! absurd machine is then absurdly slow, not fast. No sensible plan comes near (584 years, 16 EiB).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);

            /// The difference, or zero where `other` is larger.
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, count: u64) -> Self {
                Self(self.0.saturating_mul(count))
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
    };
}

quantity! {
    /// A number of bytes. `u64`, because `usize` stops at 4 GiB in wasm32.
    Bytes
}

quantity! {
    /// A duration, or a moment counted from the start of a step, in nanoseconds.
    Nanos
}

impl Nanos {
    /// From seconds, rounded to the nearest nanosecond; negative and NaN become zero.
    pub fn from_secs(seconds: f64) -> Self {
        Self((seconds * 1e9 + 0.5).max(0.0) as u64)
    }

    /// In seconds.
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no size; write one like 16GiB, 1.5GB, 512MiB or a number of bytes")]
pub struct SizeError(String);

impl FromStr for Bytes {
    type Err = SizeError;

    /// A number, a decimal one too, and B, KB, KiB, MB, MiB, GB, GiB, TB, TiB or nothing behind it;
    /// down to whole bytes, and to the most that there can be.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let refused = || SizeError(text.chars().take(40).collect());
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 1u64,
            "kb" => 1_000,
            "kib" => 1 << 10,
            "mb" => 1_000_000,
            "mib" => 1 << 20,
            "gb" => 1_000_000_000,
            "gib" => 1 << 30,
            "tb" => 1_000_000_000_000,
            "tib" => 1 << 40,
            _ => return Err(refused()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return Ok(Self(whole) * unit);
        }
        let number = number.parse::<f64>().map_err(|_| refused())?;
        Ok(Self((number * unit as f64) as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = |shift: u32| self.0 as f64 / (1u64 << shift) as f64;
        match self.0 {
            0..=9_999 => write!(f, "{} B", self.0),
            10_000..=1_048_575 => write!(f, "{:.1} KiB", scaled(10)),
            1_048_576..=1_073_741_823 => write!(f, "{:.1} MiB", scaled(20)),
            _ => write!(f, "{:.2} GiB", scaled(30)),
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..=9_999 => write!(f, "{} ns", self.0),
            10_000..=999_999 => write!(f, "{:.1} us", ns / 1e3),
            1_000_000..=9_999_999_999 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let bytes = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).ok();
        assert_eq!(bytes("16GiB"), Some(16 << 30));
        assert_eq!(bytes("16 gb"), Some(16_000_000_000));
        assert_eq!(bytes("1.5KiB"), Some(1536));
        for most in ["18446744073709551615", "999999999TiB", "99999999999.5GiB"] {
            assert_eq!(bytes(most), Some(u64::MAX), "{most}");
        }
        for wrong in ["", "GiB", "-1", "1e9", "nan", "1.2.3MB", "16 G", "1GiBs", "é"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        let error = "16 G".parse::<Bytes>().unwrap_err().to_string();
        assert!(error.starts_with("`16 G` is no size; write one like 16GiB"), "{error}");
    }
}
