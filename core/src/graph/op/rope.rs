//! Frequencies of rotary positions (Su et al. 2021), plain or scaled for texts longer than those first trained on.

use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// A scaling of frequencies by their wavelengths, as LLaMA 3 has it (Grattafiori et al. 2024): long waves are
/// slowed down by `factor`, short ones stay, and those between change smoothly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RopeScaling {
    /// By what long waves are slowed down.
    pub factor: f32,
    /// Waves that fit less often into the original length are long.
    pub low_freq_factor: f32,
    /// Waves that fit more often are short.
    pub high_freq_factor: f32,
    /// Positions of the texts first trained on; 0: all waves are long.
    pub original_length: f32,
}

impl RopeScaling {
    /// All frequencies by one factor (Chen et al. 2023).
    pub const fn linear(factor: f32) -> Self {
        Self { factor, low_freq_factor: 1.0, high_freq_factor: 1.0, original_length: 0.0 }
    }

    /// The frequency in place of one.
    fn of(&self, frequency: f64) -> f64 {
        let (factor, length) = (f64::from(self.factor), f64::from(self.original_length));
        let (low, high) = (f64::from(self.low_freq_factor), f64::from(self.high_freq_factor));
        let times = length * frequency / TAU;
        match times {
            times if times < low => frequency / factor,
            times if times > high => frequency,
            times => {
                let smooth = if high > low { (times - low) / (high - low) } else { 0.0 };
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

/// By what angle pair `at` of a vector of `size` elements turns from one position to the next.
pub fn rope_frequency(base: f32, scaling: Option<RopeScaling>, at: u64, size: u64) -> f64 {
    let plain = f64::from(base).powf(-2.0 * at as f64 / size as f64);
    scaling.map_or(plain, |scaling| scaling.of(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waves_are_slowed_down_and_short_ones_stay() {
        let llama3 = RopeScaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_length: 8192.0,
        };
        let of = |at| rope_frequency(5e5, Some(llama3), at, 128);
        let plain = |at| rope_frequency(5e5, None, at, 128);
        assert_eq!((of(0), of(63)), (plain(0), plain(63) / 8.0));
        let between: Vec<u64> =
            (0..64).filter(|at| of(*at) < plain(*at) && of(*at) > plain(*at) / 8.0).collect();
        assert!(!between.is_empty() && between.windows(2).all(|two| two[1] == two[0] + 1));
        assert!((0..63).all(|at| of(at) > of(at + 1)), "they descend");
        let linear = |at| rope_frequency(1e4, Some(RopeScaling::linear(4.0)), at, 8);
        assert!((0..4).all(|at| linear(at) == rope_frequency(1e4, None, at, 8) / 4.0));
    }
}
