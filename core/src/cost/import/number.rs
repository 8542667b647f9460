//! Numbers of a profile, with their ranges: sums of any number of them count in 64 bits or stop
//! at the largest one.

use super::ImportError;
use crate::units::{Bytes, Nanos};

/// What a time may be.
const TIME: &str = "a time from 0 to 10^6 seconds";
/// What a size may be.
const SIZE: &str = "a number of bytes from 0 to 2^50";

/// Nanoseconds from `value` times `unit_ns`, to the nearest; `at` is called for the message only.
pub(super) fn time(
    value: f64,
    unit_ns: f64,
    at: impl Fn() -> String,
) -> Result<Nanos, ImportError> {
    let nanos = value * unit_ns;
    if !(0.0..=1e15).contains(&nanos) {
        return Err(ImportError::Value { at: at(), value: value.to_string(), must: TIME });
    }
    Ok(Nanos((nanos + 0.5) as u64))
}

/// Whole bytes, to the nearest.
pub(super) fn bytes(value: f64, at: impl Fn() -> String) -> Result<Bytes, ImportError> {
    const LIMIT: f64 = (1u64 << 50) as f64;
    if !(0.0..=LIMIT).contains(&value) {
        return Err(ImportError::Value { at: at(), value: value.to_string(), must: SIZE });
    }
    Ok(Bytes((value + 0.5) as u64))
}
