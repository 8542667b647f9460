//! Copies of the pipeline that share a mini-batch.

use super::Optimizer;
use crate::cost::memory::{Sharding, States};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Replicas of the whole pipeline, each with an equal part of every mini-batch. Who executes what:
/// [`Mesh`](super::Mesh).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DataParallel {
    /// How many; 1 for none.
    pub replicas: u32,
    /// How they keep the same parameters.
    #[serde(default)]
    pub mode: DataParallelMode,
    /// Gradients travel together until they are so many bytes.
    #[serde(default = "bucket")]
    pub bucket: Bytes,
    /// What they divide among themselves, as ZeRO counts it (Rajbhandari et al. 2020): 0 nothing, 1 what the
    /// optimizer keeps and the work of updates, 2 gradients too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zero: u8,
    /// Replicas in a row that divide the experts of mixtures among themselves and send each other rows of tokens
    /// (expert parallelism, GShard); 1: each has all experts. Divides `replicas`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub expert_parallel: u32,
}

fn is_zero(zero: &u8) -> bool {
    *zero == 0
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn one() -> u32 {
    1
}

fn is_one(ranks: &u32) -> bool {
    *ranks == 1
}

/// How replicas keep the same parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DataParallelMode {
    /// As PyTorch's `DistributedDataParallel` (Li et al. 2020): every replica loads its samples
    /// and updates its parameters; gradients are summed by all-reduce, bucket by bucket, while the
    /// backward pass goes on.
    #[default]
    Ddp,
    /// As PyTorch's `DataParallel`: the first replica loads all samples and scatters them,
    /// broadcasts the parameters before each step, gathers losses, reduces gradients and alone
    /// updates. For comparison.
    Dp,
}

fn bucket() -> Bytes {
    DataParallel::default().bucket
}

impl Default for DataParallel {
    /// One replica; buckets of 25 MiB, as PyTorch has them.
    fn default() -> Self {
        let (mode, bucket) = (DataParallelMode::Ddp, Bytes(25 << 20));
        Self { replicas: 1, mode, bucket, zero: 0, expert_parallel: 1 }
    }
}

impl DataParallel {
    /// So many replicas by all-reduce.
    pub fn ddp(replicas: u32) -> Self {
        Self { replicas, ..Self::default() }
    }

    /// So many that divide what the optimizer keeps.
    pub fn zero1(replicas: u32) -> Self {
        Self { zero: 1, ..Self::ddp(replicas) }
    }

    /// So many that divide gradients, too.
    pub fn zero2(replicas: u32) -> Self {
        Self { zero: 2, ..Self::ddp(replicas) }
    }

    /// The same with another number of replicas; expert groups are as many of them as they fall into evenly.
    pub fn with_replicas(self, replicas: u32) -> Self {
        let expert_parallel = gcd(self.expert_parallel, replicas);
        Self { replicas, expert_parallel, ..self }
    }

    /// So many, each expert group of which divides the experts.
    pub fn with_experts(self, expert_parallel: u32) -> Self {
        Self { expert_parallel, ..self }
    }

    /// What parameters take in memory, for searches that do not lower a plan.
    pub fn states(&self, optimizer: Optimizer) -> States {
        let sharding = match self.zero {
            0 => Sharding::Whole,
            1 => Sharding::Optimizer,
            _ => Sharding::Gradients,
        };
        States { sharding, ..optimizer.states() }
    }

    /// Whether each updates a part of the parameters.
    pub fn divides_updates(&self) -> bool {
        self.zero > 0
    }

    /// Whether each keeps a part of the gradients.
    pub fn divides_gradients(&self) -> bool {
        self.zero > 1
    }

    /// Whether the first replica does what the others leave to it.
    pub fn through_first(&self) -> bool {
        self.replicas > 1 && self.mode == DataParallelMode::Dp
    }
}
