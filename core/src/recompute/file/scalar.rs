//! A value of a file that is a number, a text or a flag, or says what it is instead.
//!
//! Lists and objects are skipped, not kept: a file cannot make a small field take much memory.

use super::FileError;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Largest time: sums of them stay finite.
const MOST_TIME: f64 = 1e30;

/// Letters of a wrong text that an error repeats.
const QUOTED: usize = 40;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Whole(u64),
    Number(f64),
    Flag(bool),
    Text(String),
    /// Anything else, by its kind.
    Other(&'static str),
}

impl Scalar {
    /// A whole number of `0..=most`, written with or without `.0`.
    pub fn whole(&self, most: u64) -> Option<u64> {
        let number = match *self {
            Scalar::Whole(number) => Some(number),
            // From 2^53 on, neighbours are the same number.
            Scalar::Number(number) => {
                let whole = number % 1.0 == 0.0 && (0.0..=(1u64 << 53) as f64).contains(&number);
                whole.then_some(number as u64)
            }
            _ => None,
        };
        number.filter(|number| *number <= most)
    }

    /// A time.
    pub fn time(&self) -> Option<f64> {
        let time = match *self {
            Scalar::Whole(number) => number as f64,
            Scalar::Number(number) => number,
            _ => return None,
        };
        // Sums never become -0.
        (0.0..=MOST_TIME).contains(&time).then_some(time + 0.0)
    }

    /// Whether it is true; a text is if there is one.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Scalar::Flag(flag) => Some(*flag),
            Scalar::Text(text) => Some(!text.is_empty()),
            _ => None,
        }
    }

    /// The text, or the number as a text.
    pub fn text(self) -> Result<String, Self> {
        match self {
            Scalar::Text(text) => Ok(text),
            Scalar::Whole(_) | Scalar::Number(_) => Ok(self.to_string()),
            _ => Err(self),
        }
    }

    /// The error that this value, `what` of the node at a place, is something else.
    pub fn refuse(&self, node: usize, what: &str, must: &'static str) -> FileError {
        FileError::Value { at: format!("node {node}, {what}"), value: self.to_string(), must }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Scalar::Whole(number) => number.fmt(f),
            // Not as hundreds of digits.
            Scalar::Number(number) if number.abs() >= 1e15 => write!(f, "{number:e}"),
            Scalar::Number(number) => number.fmt(f),
            Scalar::Flag(flag) => flag.fmt(f),
            Scalar::Text(text) => {
                let end = text.char_indices().nth(QUOTED).map(|(end, _)| end);
                let dots = if end.is_some() { ".." } else { "" };
                write!(f, "`{}{dots}`", text[..end.unwrap_or(text.len())].escape_debug())
            }
            Scalar::Other(kind) => kind.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number, a text or a flag")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Scalar, E> {
        Ok(Scalar::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(u64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Whole))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.into()))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}
