//! Factors of products in eight bits: what is left of a tensor's values when each is a code of E4M3 or
//! E5M2, divided by the tensor's scale. Scales are powers of two, so codes alone round, and devices that
//! multiply codes get the same factors.

use super::chunks;
use super::vector::vectorised;
use crate::Call;
use pipewright_core::compress::narrow::{Format, from_bf16, narrow_finite, to_bf16, widen};
use pipewright_core::compress::scale::power_of_two;
use pipewright_core::plan::Precision;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// Two factors, beside the arena: as large as the largest so far.
    static FACTORS: RefCell<[Vec<f32>; 2]> = const { RefCell::new([vec![], vec![]]) };
}

/// Hands a product's factors on, rounded to `A` and `B` where the call is in eight bits.
pub fn factors<A: Format, B: Format>(
    call: &Call,
    (a, b): (&[f32], &[f32]),
    work: impl FnOnce(&[f32], &[f32]),
) {
    if call.precision != Precision::Fp8 {
        return work(a, b);
    }
    FACTORS.with_borrow_mut(|[rounded_a, rounded_b]| {
        work(round::<A>(call.threads, a, rounded_a), round::<B>(call.threads, b, rounded_b));
    });
}

/// What is left of `from`, which is rounded to bf16 before: devices have parameters and samples so.
fn round<'a, F: Format>(threads: usize, from: &[f32], into: &'a mut Vec<f32>) -> &'a [f32] {
    if into.len() < from.len() {
        into.resize(from.len(), 0.0);
    }
    let into = &mut into[..from.len()];
    let threads = chunks::worth(threads, into.len());
    let most = AtomicU32::new(0);
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |chunk, into| {
        let largest = to_halves(into, &from[chunk * chunks::ELEMENTWISE..][..into.len()]);
        most.fetch_max(largest, Ordering::Relaxed);
    });
    let scale = scale::<F>(f32::from_bits(most.into_inner()));
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |_, values| to_grid::<F>(values, scale));
    into
}

/// Of a tensor with this largest magnitude; 1 where some value is none.
fn scale<F: Format>(largest: f32) -> f32 {
    if largest.is_finite() { power_of_two::<F>(largest, 1) } else { 1.0 }
}

vectorised! {
    /// Returns the bits of the largest magnitude: they are in the order of numbers, and what is none comes
    /// last.
    fn to_halves(into: &mut [f32], from: &[f32]) -> u32 {
        let mut largest = 0;
        for (into, value) in into.iter_mut().zip(from) {
            *into = from_bf16(to_bf16(*value));
            largest = largest.max(into.to_bits() & 0x7fff_ffff);
        }
        largest
    }

    fn to_grid<F: Format>(values: &mut [f32], scale: f32) {
        let back = 1.0 / scale;
        for value in values {
            *value = widen::<F>(narrow_finite::<F>(*value * scale)) * back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::compress::narrow::{E4m3, E5m2};

    fn rounded<F: Format>(values: &[f32]) -> Vec<f32> {
        let mut memory = vec![f32::NAN; 3];
        round::<F>(1, values, &mut memory).to_vec()
    }

    /// The finite number of a format that is nearest to `value`, the one with an even code of two.
    fn nearest<F: Format>(value: f64) -> f64 {
        let codes = (0..=F::LARGEST).map(|code| (code, f64::from(widen::<F>(code))));
        let far = |number: f64| (number - value.abs()).abs();
        let closer = |(code, number): (u32, f64), (other, best): (u32, f64)| {
            far(number) < far(best) || far(number) == far(best) && code % 2 < other % 2
        };
        let best = codes.reduce(|best, next| if closer(next, best) { next } else { best });
        best.expect("there are codes").1.copysign(value)
    }

    fn all_numbers<F: Format>(power: f32) {
        // Every number of the format, and the middle of each two.
        let numbers: Vec<f32> = (0..=F::LARGEST).map(widen::<F>).collect();
        let middles = numbers.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2.0);
        let all = numbers.iter().copied().chain(middles).flat_map(|x| [x * power, -x * power]);
        let all: Vec<f32> = all.collect();
        for (value, found) in all.iter().zip(rounded::<F>(&all)) {
            let expected = nearest::<F>(f64::from(value / power)) * f64::from(power);
            assert_eq!(f64::from(found).to_bits(), expected.to_bits(), "{value}");
        }
    }

    #[test]
    fn to_the_nearest_code_whatever_the_scale() {
        for power in [1.0, f32::powi(2.0, -40), f32::powi(2.0, 30)] {
            all_numbers::<E4m3>(power);
            all_numbers::<E5m2>(power);
        }
    }

    #[test]
    fn the_largest_value_fills_the_format() {
        for (largest, expected) in [(448.0, 1.0), (449.0, 0.5), (224.0, 2.0), (3.0, 128.0)] {
            assert_eq!(scale::<E4m3>(largest), expected, "{largest}");
        }
        assert_eq!(scale::<E5m2>(57344.0), 1.0);
        assert_eq!(scale::<E5m2>(1.0), 32768.0);
        for none in [0.0, f32::INFINITY, f32::NAN] {
            assert_eq!(scale::<E4m3>(none), 1.0);
        }
        assert_eq!(scale::<E4m3>(1e-45), f32::powi(2.0, 126));
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let found = rounded::<E5m2>(&[1.0, f32::INFINITY, f32::NAN, 1e9]);
        assert!(found[1].is_infinite() && found[2].is_nan());
        assert_eq!([found[0], found[3]], [1.0, 57344.0]);
        assert!(rounded::<E4m3>(&[f32::NEG_INFINITY])[0].is_nan());
    }

    /// First to bf16, whose middle between 1 and 1.125 this then is.
    #[test]
    fn as_devices_round() {
        let value = 1.0625 + f32::powi(2.0, -12);
        assert_eq!(rounded::<E4m3>(&[value, 256.0])[0], 1.0);
        assert_eq!(rounded::<E4m3>(&[1.0625 + f32::powi(2.0, -7), 256.0])[0], 1.125);
    }
}
