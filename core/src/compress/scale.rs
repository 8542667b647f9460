//! Scales for short floats: powers of two, so that scaling itself rounds nothing.
//!
//! E5M2 without a scale flushes most of a gradient of size 1e-5 to zero. A scale travels as one
//! byte, its exponent plus 127 (E8M0, as in the microscaling formats).

use super::narrow::{Format, widen};
use super::sample::{Sample, percentile};
use serde::{Deserialize, Serialize};

/// How a short float's values are brought into its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// As they are.
    None,
    /// The largest magnitude of the tensor just fits (APS).
    #[default]
    PowerOfTwo,
    /// The sampled 99th percentile of the magnitudes comes to three quarters of the range of
    /// exponents: one in a hundred values lies above it, all others below (Oyama). Lower where the
    /// largest would become infinite.
    Percentile,
    /// As `PowerOfTwo`, for each so many values on their own.
    Block(u32),
}

/// Bounds of a scale's exponent: within them it and its inverse are normal numbers.
const EXPONENTS: std::ops::RangeInclusive<i32> = -126..=126;

/// Two to the power of `exponent`, brought within ±126.
pub fn power(exponent: i32) -> f32 {
    let within = exponent.clamp(*EXPONENTS.start(), *EXPONENTS.end());
    f32::from_bits(((within + 127) as u32) << 23)
}

/// A scale as a byte of the wire.
pub fn to_byte(scale: f32) -> u8 {
    (scale.to_bits() >> 23) as u8
}

/// The scale of a byte; none for bytes that no scale has.
pub fn from_byte(byte: u8) -> Option<f32> {
    let exponent = i32::from(byte) - 127;
    EXPONENTS.contains(&exponent).then(|| power(exponent))
}

/// The largest finite magnitude; 0 of nothing.
pub fn largest_magnitude(values: &[f32]) -> f32 {
    // As integers, whose order is that of the magnitudes; in lanes, which become vectors.
    let mut lanes = [0i32; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    let finite = |value: &f32| {
        let magnitude = (value.to_bits() & 0x7fff_ffff) as i32;
        if magnitude < 0x7f80_0000 { magnitude } else { 0 }
    };
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            let magnitude = finite(value);
            *lane = if magnitude > *lane { magnitude } else { *lane };
        }
    }
    let most = rest.iter().map(finite).chain(lanes).max().unwrap_or(0);
    f32::from_bits(most as u32)
}

/// The largest power of two that keeps sums of `terms` values, each of magnitude `largest` at most,
/// within `F` (APS with `terms` ranks; 1 where sums are in single precision). 1 if `largest` is 0.
pub fn power_of_two<F: Format>(largest: f32, terms: u32) -> f32 {
    let reach = f64::from(largest) * f64::from(terms.max(1));
    if reach == 0.0 {
        return 1.0;
    }
    power(floor_log2(f64::from(widen::<F>(F::LARGEST)) / reach))
}

/// The power of two that brings the sampled 99th percentile to three quarters of `F`'s exponents; where
/// what is too large `overflows`, the largest value to within `F`.
pub(super) fn by_percentile<F: Format>(
    values: &[f32],
    sample: &mut Sample,
    overflows: bool,
) -> f32 {
    let size = percentile(sample.take(values), 99.0);
    let fit = || power_of_two::<F>(largest_magnitude(values), 1);
    if size == 0.0 {
        // Few values are not zero: the largest decides.
        return fit();
    }
    let (least, largest) = (f64::from(widen::<F>(1)), f64::from(widen::<F>(F::LARGEST)));
    let anchor = (floor_log2(least) + 3 * floor_log2(largest)).div_euclid(4);
    let wanted = power(anchor - floor_log2(size));
    if overflows { wanted.min(fit()) } else { wanted }
}

/// The exponent of a positive normal number.
fn floor_log2(number: f64) -> i32 {
    (number.to_bits() >> 52) as i32 - 1023
}
