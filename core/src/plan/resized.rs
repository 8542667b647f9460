//! A mini-batch that follows the number of replicas, and the learning rate that follows it.

use super::Plan;
use serde::{Deserialize, Serialize};

/// What a plan says that was made from a job's own for another number of replicas: its steps have
/// other samples than those that the job was planned with. All that counts steps (`steps`, warm-up,
/// decay) still counts planned ones, so that training takes the same samples in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resized {
    /// Samples of a step of the job's own plan, for which its learning rate is.
    pub mini_batch: u64,
    /// How the learning rate follows.
    pub rate: RateRule,
}

/// What the learning rate is multiplied by when the mini-batch grows by a factor k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RateRule {
    /// k (Goyal et al. 2017), as eChainer did.
    Linear,
    /// √k (Krizhevsky 2014), which keeps the variance of a step; usual with Adam.
    #[serde(rename = "sqrt")]
    SquareRoot,
    /// 1.
    None,
}

impl RateRule {
    /// What the learning rate is multiplied by when `from` samples become `to`. Exactly rounded:
    /// the same bits everywhere.
    pub fn factor(self, from: u64, to: u64) -> f64 {
        let growth = to as f64 / from.max(1) as f64;
        match self {
            RateRule::Linear => growth,
            RateRule::SquareRoot => growth.sqrt(),
            RateRule::None => 1.0,
        }
    }
}

impl Plan {
    /// Samples of the steps that the plan counts: those of its own mini-batch, or of the one that the
    /// job was planned with.
    pub fn planned_batch(&self) -> u64 {
        self.resized.map_or(self.mini_batch, |resized| resized.mini_batch)
    }

    /// Samples of the whole training.
    pub fn samples_total(&self) -> u64 {
        self.steps.saturating_mul(self.planned_batch())
    }

    /// What the learning rate is multiplied by because the mini-batch is not the planned one.
    pub fn rate_factor(&self) -> f64 {
        self.resized.map_or(1.0, |resized| resized.rate.factor(resized.mini_batch, self.mini_batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_the_mini_batch() {
        assert_eq!(RateRule::Linear.factor(8192, 4096), 0.5);
        assert_eq!(RateRule::SquareRoot.factor(64, 256), 2.0);
        assert_eq!(RateRule::None.factor(64, 256), 1.0);
    }

    #[test]
    fn rules_are_words() {
        for (rate, text) in
            [(RateRule::Linear, "linear"), (RateRule::SquareRoot, "sqrt"), (RateRule::None, "none")]
        {
            let resized = Resized { mini_batch: 32, rate };
            let json = format!(r#"{{"mini_batch":32,"rate":"{text}"}}"#);
            assert_eq!(serde_json::to_string(&resized).expect("plain data"), json);
            assert_eq!(serde_json::from_str::<Resized>(&json).expect("it was written"), resized);
        }
    }
}
