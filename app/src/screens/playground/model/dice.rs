//! Random numbers with the same bits on every machine.

use std::f64::consts::TAU;

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Dice(u64);

impl Dice {
    /// The numbers of a seed; `purpose` tells several uses of one seed apart.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither of them.
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Of mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.uniform())).sqrt();
        radius * libm::cos(TAU * self.uniform())
    }

    /// Brings `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let at = (self.next() % (last as u64 + 1)) as usize;
            items.swap(last, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_of_the_right_size() {
        let draw = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            (0..4000).map(|_| dice.normal()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        let normal = draw(7, 1);
        let mean = normal.iter().sum::<f64>() / 4000.0;
        let square = normal.iter().map(|n| n * n).sum::<f64>() / 4000.0;
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.08, "{mean} {square}");
        let mut order: Vec<u32> = (0..50).collect();
        Dice::new(3, 3).shuffle(&mut order);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
