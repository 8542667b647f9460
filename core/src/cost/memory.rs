//! Bytes of weights, gradients and optimizer state, whole or divided among replicas.
//!
//! Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), with Ψ parameters and N replicas, Adam in
//! mixed precision: 16 Ψ whole; 4 Ψ + 12 Ψ / N with the optimizer state divided (ZeRO-1);
//! 2 Ψ + 14 Ψ / N with the gradients too; 16 Ψ / N with everything.

use crate::units::Bytes;

/// How parameters are updated, by what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRule {
    /// Nothing.
    Sgd,
    /// One single-precision value per parameter.
    Momentum,
    /// Two: mean and variance of the gradient.
    Adam,
}

/// Number formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Everything in 4 bytes.
    Single,
    /// Weights and gradients in 2 bytes (fp16 or bf16), single-precision master weights.
    Mixed,
    /// The same with gradients summed in 4 bytes, as Megatron-LM does.
    MixedWideGradients,
}

/// What replicas divide among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Nothing: every replica has everything.
    Whole,
    /// Optimizer state with master weights (ZeRO-1).
    Optimizer,
    /// Gradients too (ZeRO-2).
    Gradients,
    /// Weights too (ZeRO-3).
    Weights,
}

/// How the state of training is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States {
    /// Update rule.
    pub rule: UpdateRule,
    /// Number formats.
    pub precision: Precision,
    /// Division among replicas.
    pub sharding: Sharding,
}

/// Bytes of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// Weights that compute.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer state, with master weights.
    pub optimizer: Bytes,
}

impl StateBytes {
    /// All.
    pub fn total(&self) -> Bytes {
        self.weights + self.gradients + self.optimizer
    }
}

impl States {
    /// Single-precision SGD with momentum, what plans of this house train with.
    pub const MOMENTUM: Self = Self {
        rule: UpdateRule::Momentum,
        precision: Precision::Single,
        sharding: Sharding::Whole,
    };
    /// Adam in mixed precision, 16 bytes a parameter.
    pub const ADAM: Self =
        Self { rule: UpdateRule::Adam, precision: Precision::Mixed, sharding: Sharding::Whole };
    /// Adam in mixed precision with single-precision gradients, 18 bytes a parameter.
    pub const MEGATRON: Self = Self { precision: Precision::MixedWideGradients, ..Self::ADAM };

    /// Bytes of `parameters` on each of `replicas` replicas (at least 1); divided parts are padded
    /// to equal size.
    pub fn bytes(&self, parameters: u64, replicas: u32) -> StateBytes {
        let part = parameters.div_ceil(u64::from(replicas.max(1)));
        let divided = |from: Sharding| {
            // Each form of sharding divides what the one before it divides, and one thing more.
            if self.sharding as u8 >= from as u8 { part } else { parameters }
        };
        let (weight, gradient, master) = match self.precision {
            Precision::Single => (4, 4, 0),
            Precision::Mixed => (2, 2, 4),
            Precision::MixedWideGradients => (2, 4, 4),
        };
        let state = match self.rule {
            UpdateRule::Sgd => 0,
            UpdateRule::Momentum => 4,
            UpdateRule::Adam => 8,
        };
        StateBytes {
            weights: Bytes(weight) * divided(Sharding::Weights),
            gradients: Bytes(gradient) * divided(Sharding::Gradients),
            optimizer: Bytes(master + state) * divided(Sharding::Optimizer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PSI: u64 = 7_500_000_000;

    #[test]
    fn bytes_per_parameter_are_the_published_ones() {
        let per = |states: States| states.bytes(1_000, 1).total().0 / 1_000;
        assert_eq!(per(States::ADAM), 16);
        assert_eq!(per(States::MEGATRON), 18);
        assert_eq!(per(States::MOMENTUM), 12);
        assert_eq!(per(States { rule: UpdateRule::Sgd, ..States::MOMENTUM }), 8);
        assert_eq!(per(States { rule: UpdateRule::Adam, ..States::MOMENTUM }), 16);
    }

    #[test]
    fn zero_divides_as_its_paper_says() {
        // Figure 1 of the paper: 7.5 billion parameters, 64 replicas: 120, 31.4, 16.6, 1.9 GB.
        let gb = |sharding| {
            let total = States { sharding, ..States::ADAM }.bytes(PSI, 64).total();
            (total.0 as f64 / 1e8).round() / 10.0
        };
        assert_eq!(gb(Sharding::Whole), 120.0);
        assert_eq!(gb(Sharding::Optimizer), 31.4);
        assert_eq!(gb(Sharding::Gradients), 16.6);
        assert_eq!(gb(Sharding::Weights), 1.9);
        // 4 Ψ + 12 Ψ / N.
        let n = 10;
        let zero = States { sharding: Sharding::Optimizer, ..States::ADAM }.bytes(PSI, n);
        assert_eq!(zero.total().0, 4 * PSI + 12 * PSI / u64::from(n));
    }

    #[test]
    fn parts_are_padded_and_one_replica_has_everything() {
        let zero = States { sharding: Sharding::Weights, ..States::ADAM };
        assert_eq!(zero.bytes(10, 3).total(), Bytes(16 * 4));
        assert_eq!(zero.bytes(10, 1), States::ADAM.bytes(10, 1));
        assert_eq!(zero.bytes(10, 0), States::ADAM.bytes(10, 1));
        assert_eq!(zero.bytes(0, 7).total(), Bytes(0));
    }
}
