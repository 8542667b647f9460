//! The mini-batch under another number of replicas.

use crate::plan::{Plan, RateRule};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How a mini-batch is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Samples of an optimizer step.
    pub mini_batch: u64,
    /// Micro-batches of each replica.
    pub micro_batches: u32,
    /// Copies of the pipeline.
    pub replicas: u32,
}

/// What stays when the number of replicas changes. Prints and parses as `keep`, `scale:linear`,
/// `scale:sqrt` and `scale:none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BatchRule {
    /// The mini-batch: each replica accumulates over more micro-batches, or fewer. Training goes
    /// on as if nothing had happened, up to the order of sums.
    #[default]
    Keep,
    /// A replica's share: the mini-batch grows and shrinks with the replicas, and the learning
    /// rate follows.
    Scale(RateRule),
}

/// Why a mini-batch cannot be divided over so many replicas.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResizeError {
    /// Nobody to train.
    #[error("training needs at least 1 replica")]
    NoReplica,
    /// Replicas would differ.
    #[error("a mini-batch of {mini_batch} samples does not divide over {replicas} replicas")]
    Indivisible {
        /// Samples.
        mini_batch: u64,
        /// Replicas asked for.
        replicas: u32,
    },
    /// Beyond what a plan may have.
    #[error("{replicas} replicas would make a mini-batch of {mini_batch} samples, 2^32 at most")]
    TooLarge {
        /// Samples.
        mini_batch: u64,
        /// Replicas asked for.
        replicas: u32,
    },
}

impl Batch {
    /// That of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            mini_batch: plan.mini_batch,
            micro_batches: plan.micro_batches,
            replicas: plan.data_parallel.replicas,
        }
    }

    /// Samples of a micro-batch.
    pub fn samples(self) -> u64 {
        let parts = u64::from(self.micro_batches) * u64::from(self.replicas);
        self.mini_batch / parts.max(1)
    }

    /// All ways to divide this over so many replicas, best first: micro-batches as large as they
    /// are now, then smaller ones, which need less memory each. Never larger ones. O(√ samples).
    ///
    /// # Errors
    /// When there is none.
    pub fn resized(self, replicas: u32, rule: BatchRule) -> Result<Vec<Self>, ResizeError> {
        if replicas == 0 {
            return Err(ResizeError::NoReplica);
        }
        if rule != BatchRule::Keep {
            let mini_batch = (self.mini_batch / u64::from(self.replicas.max(1)))
                .saturating_mul(u64::from(replicas));
            return match mini_batch <= 1 << 32 {
                true => Ok(vec![Self { mini_batch, replicas, ..self }]),
                false => Err(ResizeError::TooLarge { mini_batch, replicas }),
            };
        }
        let mini_batch = self.mini_batch;
        if !mini_batch.is_multiple_of(u64::from(replicas)) {
            return Err(ResizeError::Indivisible { mini_batch, replicas });
        }
        let share = mini_batch / u64::from(replicas);
        let divided = |samples: u64| {
            let micro_batches = u32::try_from(share / samples).ok()?;
            Some(Self { mini_batch, micro_batches, replicas })
        };
        let sizes = divisors(share).into_iter().rev().filter(|size| *size <= self.samples());
        Ok(sizes.filter_map(divided).collect())
    }
}

/// Ascending. O(√n).
fn divisors(n: u64) -> Vec<u64> {
    let small: Vec<u64> =
        (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let large: Vec<u64> = small.iter().rev().map(|d| n / d).filter(|d| d * d > n).collect();
    [small, large].concat()
}

impl fmt::Display for BatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BatchRule::Keep => "keep",
            BatchRule::Scale(RateRule::Linear) => "scale:linear",
            BatchRule::Scale(RateRule::SquareRoot) => "scale:sqrt",
            BatchRule::Scale(RateRule::None) => "scale:none",
        })
    }
}

impl FromStr for BatchRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(BatchRule::Keep),
            "scale:linear" => Ok(BatchRule::Scale(RateRule::Linear)),
            "scale:sqrt" => Ok(BatchRule::Scale(RateRule::SquareRoot)),
            "scale:none" => Ok(BatchRule::Scale(RateRule::None)),
            _ => {
                let text: String = text.chars().take(40).collect();
                Err(format!(
                    "`{text}` is no rule; use keep, scale:linear, scale:sqrt or scale:none"
                ))
            }
        }
    }
}

impl TryFrom<String> for BatchRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<BatchRule> for String {
    fn from(rule: BatchRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BATCH: Batch = Batch { mini_batch: 96, micro_batches: 4, replicas: 4 };

    fn first(replicas: u32, rule: BatchRule) -> Result<Batch, ResizeError> {
        BATCH.resized(replicas, rule).map(|all| all[0])
    }

    /// Places in the mini-batch that a micro-batch of a replica takes.
    fn places(batch: Batch, replica: u32, micro_batch: u32) -> std::ops::Range<u64> {
        let number = u64::from(replica) * u64::from(batch.micro_batches) + u64::from(micro_batch);
        let samples = batch.samples();
        number * samples..(number + 1) * samples
    }

    #[test]
    fn fewer_replicas_accumulate_more() {
        let keep = |micro_batches, replicas| Ok(Batch { mini_batch: 96, micro_batches, replicas });
        assert_eq!(first(2, BatchRule::Keep), keep(8, 2));
        assert_eq!(first(3, BatchRule::Keep), keep(8, 3), "6 samples do not fit: 4 do");
        assert_eq!(first(8, BatchRule::Keep), keep(2, 8));
        assert_eq!(first(32, BatchRule::Keep), keep(1, 32), "3 samples are left of 6");
        let refused = first(5, BatchRule::Keep).unwrap_err().to_string();
        assert_eq!(refused, "a mini-batch of 96 samples does not divide over 5 replicas");
        assert_eq!(first(0, BatchRule::Keep), Err(ResizeError::NoReplica));
    }

    #[test]
    fn a_share_that_stays_makes_another_mini_batch() {
        let scale = BatchRule::Scale(RateRule::Linear);
        assert_eq!(
            first(5, scale).unwrap(),
            Batch { mini_batch: 120, micro_batches: 4, replicas: 5 }
        );
        assert!(first(u32::MAX, scale).is_err());
    }

    #[test]
    fn rules_print_as_they_parse() {
        for text in ["keep", "scale:linear", "scale:sqrt", "scale:none"] {
            assert_eq!(text.parse::<BatchRule>().unwrap().to_string(), text);
        }
        assert!("scale".parse::<BatchRule>().unwrap_err().contains("use keep"));
    }

    proptest! {
        #[test]
        fn every_place_of_a_mini_batch_is_taken_once(
            samples in 1u64..9, micro_batches in 1u32..9, replicas in 1u32..9, to in 1u32..9,
            keep: bool,
        ) {
            let mini_batch = samples * u64::from(micro_batches * replicas);
            let before = Batch { mini_batch, micro_batches, replicas };
            let rule = if keep { BatchRule::Keep } else { BatchRule::Scale(RateRule::None) };
            for batch in before.resized(to, rule).unwrap_or_default() {
                prop_assert!(batch.samples() <= before.samples());
                prop_assert!(!keep || batch.mini_batch == mini_batch);
                let parts = (0..to).flat_map(|r| (0..batch.micro_batches).map(move |m| (r, m)));
                let places: Vec<u64> = parts.flat_map(|(r, m)| places(batch, r, m)).collect();
                prop_assert!(places.into_iter().eq(0..batch.mini_batch));
            }
        }

        #[test]
        fn divisors_are_all_and_ascend(n in 1u64..2000) {
            let slow: Vec<u64> = (1..=n).filter(|d| n % d == 0).collect();
            prop_assert_eq!(divisors(n), slow);
        }
    }
}
