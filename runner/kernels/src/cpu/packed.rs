//! Two bytes in memory, f32 in computations: bf16, the upper half of an f32 with its range and 8 bits of
//! precision, or IEEE half precision with 11 bits and numbers up to 65504. Two lie in each word of the
//! arena, the first in the lower half.

use super::chunks;
use pipewright_core::compress::narrow::{Half, narrow, widen};
use pipewright_core::plan::Precision;

/// The bf16 nearest to `value`, ties to even; what is not a number stays so.
fn bf16_of(value: f32) -> u16 {
    let bits = value.to_bits();
    // Half of the last place that stays, less one if that place is even.
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry such a number into the sign; a quiet one keeps its upper half.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn f16_of(value: f32) -> u16 {
    narrow::<Half>(value) as u16
}

fn of_f16(bits: u16) -> f32 {
    widen::<Half>(bits.into())
}

/// The number that is left of `value` when it is stored: all of it in precisions of four bytes.
pub fn round(precision: Precision, value: f32) -> f32 {
    match precision {
        Precision::F32 | Precision::Tf32 => value,
        Precision::Bf16 | Precision::Fp8 => of_bf16(bf16_of(value)),
        Precision::F16 => of_f16(f16_of(value)),
    }
}

/// Rounds `from` into words of two numbers each, f16 or else bf16.
pub fn pack(precision: Precision, threads: usize, from: &[f32], into: &mut [f32]) {
    match precision {
        Precision::F16 => pack_by(f16_of, threads, from, into),
        _ => pack_by(bf16_of, threads, from, into),
    }
}

/// The numbers of words of two each, f16 or else bf16.
pub fn unpack(precision: Precision, threads: usize, from: &[f32], into: &mut [f32]) {
    let copy = |value: &mut f32, packed: f32| *value = packed;
    match precision {
        Precision::F16 => each_of(of_f16, threads, from, into, copy),
        _ => each_of(of_bf16, threads, from, into, copy),
    }
}

/// Adds the numbers of words of two each, f16 or else bf16, to `into`.
pub fn add(precision: Precision, threads: usize, from: &[f32], into: &mut [f32]) {
    let sum = |value: &mut f32, added: f32| *value += added;
    match precision {
        Precision::F16 => each_of(of_f16, threads, from, into, sum),
        _ => each_of(of_bf16, threads, from, into, sum),
    }
}

fn pack_by(to_bits: impl Fn(f32) -> u16 + Sync, threads: usize, from: &[f32], into: &mut [f32]) {
    let into: &mut [u16] = bytemuck::cast_slice_mut(into);
    debug_assert!(into.len() == from.len().next_multiple_of(2));
    let threads = chunks::worth(threads, from.len());
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |chunk, into| {
        let from = &from[chunk * chunks::ELEMENTWISE..];
        into.iter_mut().zip(from).for_each(|(packed, value)| *packed = to_bits(*value));
    });
}

/// Hands each number on with the one that lies at its place of `into`.
fn each_of(
    of_bits: impl Fn(u16) -> f32 + Sync,
    threads: usize,
    from: &[f32],
    into: &mut [f32],
    work: impl Fn(&mut f32, f32) + Sync,
) {
    let from: &[u16] = bytemuck::cast_slice(from);
    debug_assert!(from.len() == into.len().next_multiple_of(2));
    let threads = chunks::worth(threads, into.len());
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |chunk, into| {
        let from = &from[chunk * chunks::ELEMENTWISE..][..into.len()];
        into.iter_mut().zip(from).for_each(|(value, packed)| work(value, of_bits(*packed)));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest of the two neighbours by f64 arithmetic, the even one of equally near ones.
    fn slow(value: f32) -> f32 {
        let below = f32::from_bits(value.to_bits() & 0xffff_0000);
        let above = f32::from_bits((value.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
        // Past the largest number comes infinity, and rounding treats it as the next number.
        let next = if above.is_infinite() {
            2.0f64.powi(128).copysign(value.into())
        } else {
            above.into()
        };
        let (down, up) =
            ((f64::from(value) - f64::from(below)).abs(), (next - f64::from(value)).abs());
        let even = (value.to_bits() >> 16).is_multiple_of(2);
        if down < up || (down == up && even) { below } else { above }
    }

    fn round(value: f32) -> f32 {
        super::round(Precision::Bf16, value)
    }

    /// Conversions are core's; that numbers take their way through the right ones is shown by some.
    #[test]
    fn half_precision() {
        for (value, expected) in [
            (1.0 + f32::powi(2.0, -11), 1.0),
            (1.0 + f32::powi(2.0, -10), 1.0 + f32::powi(2.0, -10)),
            (65519.0, 65504.0),
            (65520.0, f32::INFINITY),
            (f32::powi(2.0, -24), f32::powi(2.0, -24)),
            (f32::powi(2.0, -26), 0.0),
        ] {
            assert_eq!(super::round(Precision::F16, value), expected, "{value}");
        }
        assert!(super::round(Precision::F16, f32::NAN).is_nan());
        assert_eq!(super::round(Precision::Tf32, 1.0 + f32::EPSILON), 1.0 + f32::EPSILON);
    }

    #[test]
    fn rounds_to_nearest_and_ties_to_even() {
        let step = 0x10_0001u32 / 16 + 12_345;
        for bits in (0..=u32::MAX / step).map(|i| i * step) {
            let value = f32::from_bits(bits);
            if !value.is_nan() {
                assert_eq!(round(value).to_bits(), slow(value).to_bits(), "{bits:#x}");
            }
        }
        for (bits, expected) in [
            (0x3f80_8000, 0x3f80_0000u32),
            (0x3f81_8000, 0x3f82_0000),
            (0x3f80_8001, 0x3f81_0000),
            (0x7f7f_ffff, 0x7f80_0000),
            (0x8000_0000, 0x8000_0000),
        ] {
            assert_eq!(round(f32::from_bits(bits)).to_bits(), expected, "{bits:#x}");
        }
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xffff_ffff] {
            assert!(round(f32::from_bits(bits)).is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn there_and_back_on_any_number_of_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
        for len in [0usize, 1, 5, 100_001] {
            let values: Vec<f32> = (0..len).map(|i| (i as f32 * 0.37).sin()).collect();
            for (precision, threads) in
                [Precision::Bf16, Precision::F16].into_iter().flat_map(|p| [(p, 1), (p, 3)])
            {
                let rounded: Vec<f32> =
                    values.iter().map(|x| super::round(precision, *x)).collect();
                let mut words = vec![0.0; len.div_ceil(2)];
                let mut back = vec![f32::NAN; len];
                pool.install(|| {
                    pack(precision, threads, &values, &mut words);
                    unpack(precision, threads, &words, &mut back);
                });
                assert_eq!(back, rounded);
                pool.install(|| add(precision, threads, &words, &mut back));
                let doubled: Vec<f32> = rounded.iter().map(|x| x + x).collect();
                assert_eq!(back, doubled);
            }
        }
    }
}
