//! Sums of E5M2 codes: the reduction operator that Oyama registers with MPI.
//!
//! A sum in single precision, rounded once more, is the sum in half precision: 24 bits are more than
//! twice 11 and two, so the first rounding never changes the second. NaN sums are 0x7e.

use super::fp8::Rounding;
use super::narrow::{E5m2, e5m2_truncated, narrow, narrow_finite, widen};

/// The code of `a + b`: the sum as a half (to nearest even), then brought to E5M2 by `rounding`.
pub fn sum(a: u8, b: u8, rounding: Rounding) -> u8 {
    let mut total = [a];
    add(&[b], &mut total, rounding);
    total[0]
}

/// Adds each of `codes` to the code at the same place of `totals`.
pub fn add(codes: &[u8], totals: &mut [u8], rounding: Rounding) {
    let pairs = totals.iter_mut().zip(codes);
    match rounding {
        Rounding::Truncate => pairs.for_each(|(t, c)| *t = sum_by(e5m2_truncated, *t, *c)),
        Rounding::NearestEven => pairs.for_each(|(t, c)| *t = sum_by(narrow::<E5m2>, *t, *c)),
        Rounding::Saturating => pairs.for_each(|(t, c)| *t = sum_by(narrow_finite::<E5m2>, *t, *c)),
    }
}

#[inline(always)]
fn sum_by(round: impl Fn(f32) -> u32, a: u8, b: u8) -> u8 {
    let total = widen::<E5m2>(u32::from(a)) + widen::<E5m2>(u32::from(b));
    let code = round(total) as u8;
    // A NaN's sign is the processor's choice: 0x7e on every one.
    if code & 0x7f > 0x7c { 0x7e } else { code }
}
