//! Random numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// Numbers that follow from a seed.
pub(super) struct Rng(ChaCha8Rng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Any number.
    pub fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `n`, which is at least 1.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.bits()) * u64::from(n)) >> 32) as u32
    }

    /// Between 0 and 1, neither of them.
    pub fn unit(&mut self) -> f64 {
        (f64::from(self.bits()) + 0.5) / 4_294_967_296.0
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// Between `1 / most` and `most`, evenly in the logarithm.
    pub fn factor(&mut self, most: f64) -> f64 {
        libm::exp(libm::log(most) * (2.0 * self.unit() - 1.0))
    }
}
