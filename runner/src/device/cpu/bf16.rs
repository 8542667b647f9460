//! bf16 in memory, f32 in computations. A bf16 is the upper half of an f32: the same range, 8 bits
//! of precision. Two lie in each word of the arena, the first in the lower half.

use super::chunks;

/// The bf16 nearest to `value`, ties to even; what is not a number stays so.
fn to_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    // Half of the last place that stays, less one if that place is even.
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding could carry such a number into the sign; a quiet one keeps its upper half.
    let quiet = (bits >> 16) | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

/// The number that [`to_bits`] keeps.
pub fn round(value: f32) -> f32 {
    f32::from_bits(u32::from(to_bits(value)) << 16)
}

/// Rounds `from` into words of two numbers each.
pub fn pack(threads: usize, from: &[f32], into: &mut [f32]) {
    let into: &mut [u16] = bytemuck::cast_slice_mut(into);
    debug_assert!(into.len() == from.len().next_multiple_of(2));
    let threads = chunks::worth(threads, from.len());
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |chunk, into| {
        let from = &from[chunk * chunks::ELEMENTWISE..];
        into.iter_mut().zip(from).for_each(|(packed, value)| *packed = to_bits(*value));
    });
}

/// The numbers of words of two each.
pub fn unpack(threads: usize, from: &[f32], into: &mut [f32]) {
    let from: &[u16] = bytemuck::cast_slice(from);
    debug_assert!(from.len() == into.len().next_multiple_of(2));
    let threads = chunks::worth(threads, into.len());
    chunks::for_each(threads, into, chunks::ELEMENTWISE, |chunk, into| {
        let from = &from[chunk * chunks::ELEMENTWISE..][..into.len()];
        for (value, packed) in into.iter_mut().zip(from) {
            *value = f32::from_bits(u32::from(*packed) << 16);
        }
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
            let rounded: Vec<f32> = values.iter().map(|x| round(*x)).collect();
            for threads in [1, 3] {
                let mut words = vec![0.0; len.div_ceil(2)];
                let mut back = vec![f32::NAN; len];
                pool.install(|| {
                    pack(threads, &values, &mut words);
                    unpack(threads, &words, &mut back);
                });
                assert_eq!(back, rounded);
            }
        }
    }
}
