//! Random bits that are a pure function of (seed, purpose, stream), equal on every platform.
//!
//! Values are made from integers by one conversion and one multiplication, both exact or rounded
//! once as IEEE 754 says: no `ln`, `cos` or `exp`, whose last bit differs between maths libraries.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Keeps the uses of one seed apart: stream 7 of the weights is not stream 7 of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// First values of a parameter.
    Weights,
    /// What the samples of one class have in common.
    Centre,
    /// What the target values of one class have in common.
    Answer,
    /// What sets a training sample apart from its class.
    TrainNoise,
    /// The same for a test sample.
    TestNoise,
    /// Which token goes on with a text.
    Token,
}

impl Purpose {
    /// Part of the key. These texts are stored in nobody's file, yet every run depends on them.
    fn key(self) -> &'static [u8; 8] {
        match self {
            Purpose::Weights => b"weights ",
            Purpose::Centre => b"centre  ",
            Purpose::Answer => b"answer  ",
            Purpose::TrainNoise => b"train   ",
            Purpose::TestNoise => b"test    ",
            Purpose::Token => b"token   ",
        }
    }
}

/// The generator of one stream. On the stack; costs one ChaCha8 refill (256 bytes) at first use.
///
/// The key is written here, not by `seed_from_u64`, whose expansion is the library's to change.
pub(crate) fn stream(purpose: Purpose, seed: u64, stream: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(purpose.key());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(stream);
    rng
}

/// The number from 0 to 1, of which 1 is none, that draws token `at` of a text.
pub fn draw(seed: u64, at: u64) -> f64 {
    (stream(Purpose::Token, seed, at).next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Uniform on the grid of 2⁻²³ in [-1, 1): all values are exact in single precision.
pub(crate) fn symmetric(bits: u32) -> f32 {
    ((bits >> 8) as i32 - (1 << 23)) as f32 * (1.0 / (1 << 23) as f32)
}

/// Close to normal, with mean 0 and variance 1: the sum of the four bytes of `bits`, which
/// lies within ±3.46 (Irwin-Hall distribution of order 4).
pub(crate) fn bell(bits: u32) -> f32 {
    // Four uniform bytes have mean 4 · 127.5 and variance 4 · (256² - 1) / 12.
    const DEVIATION: f32 = 147.80;
    let sum: i32 = bits.to_le_bytes().iter().map(|&byte| i32::from(byte)).sum();
    (sum - 510) as f32 * (1.0 / DEVIATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_are_fixed_for_ever() {
        let first = |purpose, seed, index| stream(purpose, seed, index).next_u32();
        assert_eq!(first(Purpose::Weights, 0, 0), 0x7ee7_666a);
        assert_eq!(first(Purpose::TrainNoise, 1, 2), 0x4573_6830);
    }

    #[test]
    fn seeds_purposes_and_streams_are_all_different() {
        let mut seen: Vec<u64> = vec![];
        for purpose in [
            Purpose::Weights,
            Purpose::Centre,
            Purpose::Answer,
            Purpose::TrainNoise,
            Purpose::TestNoise,
            Purpose::Token,
        ] {
            for (seed, index) in [(0, 0), (0, 1), (1, 0), (u64::MAX, 5)] {
                seen.push(stream(purpose, seed, index).next_u64());
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 24);
    }

    #[test]
    fn the_distributions_have_the_stated_moments() {
        let mut rng = stream(Purpose::Centre, 3, 0);
        let n = 100_000;
        let (mut uniform, mut normal) = ([0.0f64; 2], [0.0f64; 2]);
        for _ in 0..n {
            let u = f64::from(symmetric(rng.next_u32()));
            let b = f64::from(bell(rng.next_u32()));
            assert!((-1.0..1.0).contains(&u) && b.abs() < 3.46);
            uniform = [uniform[0] + u, uniform[1] + u * u];
            normal = [normal[0] + b, normal[1] + b * b];
        }
        let n = f64::from(n);
        assert!((uniform[0] / n).abs() < 0.01 && (uniform[1] / n - 1.0 / 3.0).abs() < 0.01);
        assert!((normal[0] / n).abs() < 0.02 && (normal[1] / n - 1.0).abs() < 0.02);
        assert_eq!((symmetric(0), symmetric(1 << 31)), (-1.0, 0.0));
    }
}
