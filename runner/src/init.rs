//! First values of the parameters.
//!
//! A parameter's values depend on (seed, name) alone: every split of the model into stages, every
//! replica and a single device start from the same weights, to the bit, without exchanging them.

use crate::data::random::{Purpose, stream, symmetric};
use crate::hash::fnv1a;
use pipewright_core::graph::{Init, Param};
use rand_chacha::rand_core::Rng;

/// Writes the first values of `param`. Allocates nothing; about 1 ns a value.
///
/// # Panics
/// When `out` is not as long as the parameter.
pub fn init_param(param: &Param, seed: u64, out: &mut [f32]) {
    assert_eq!(out.len() as u64, param.elements(), "length of {}", param.name);
    match param.init {
        Init::Zeros => out.fill(0.0),
        Init::Ones => out.fill(1.0),
        Init::HeUniform { fan_in } => {
            // Square root and division are rounded correctly everywhere; then one product a value.
            let bound = (6.0 / fan_in.max(1) as f64).sqrt() as f32;
            let mut rng = stream(Purpose::Weights, seed, fnv1a(param.name.as_bytes()));
            for value in out {
                *value = bound * symmetric(rng.next_u32());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, init: Init, seed: u64, len: u64) -> Vec<f32> {
        let param = Param { name: name.into(), shape: vec![len], init, trainable: true };
        let mut out = vec![f32::NAN; len as usize];
        init_param(&param, seed, &mut out);
        out
    }

    #[test]
    fn weights_are_fixed_for_ever() {
        let weights = values("fc1.weight", Init::HeUniform { fan_in: 64 }, 1, 4);
        let bits: Vec<u32> = weights.iter().map(|w| w.to_bits()).collect();
        // Computed by a second implementation, in Python.
        assert_eq!(bits, [0x3c26_3504, 0xbe87_9290, 0xbd24_b1e2, 0x3ded_7b3f]);
    }

    #[test]
    fn constants_are_constant() {
        assert_eq!(values("b", Init::Zeros, 1, 3), [0.0; 3]);
        assert_eq!(values("g", Init::Ones, 1, 3), [1.0; 3]);
    }

    #[test]
    fn he_uniform_fills_its_interval() {
        let weights = values("w", Init::HeUniform { fan_in: 24 }, 3, 10_000);
        let mean = weights.iter().sum::<f32>() / 1e4;
        let square = weights.iter().map(|w| w * w).sum::<f32>() / 1e4;
        assert!(weights.iter().all(|w| w.abs() <= 0.5));
        // Uniform in ±1/2 has variance 1/12.
        assert!(mean.abs() < 0.02 && (square - 1.0 / 12.0).abs() < 0.003, "{mean} {square}");
    }

    #[test]
    fn names_and_seeds_decide_and_lengths_do_not() {
        let he = Init::HeUniform { fan_in: 8 };
        assert_ne!(values("a", he, 1, 4), values("b", he, 1, 4));
        assert_ne!(values("a", he, 1, 4), values("a", he, 2, 4));
        assert_eq!(values("a", he, 1, 4)[..], values("a", he, 1, 400)[..4]);
    }
}
