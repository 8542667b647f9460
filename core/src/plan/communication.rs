//! How what ranks send each other is encoded.

use super::PlanError;
use super::training::is_default;
use crate::compress::{CodecKind, Reduction};
use crate::ids::StageId;
use serde::{Deserialize, Serialize};

/// What a plan file may leave out; then everything travels as it is computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Communication {
    /// How replicas sum their gradients.
    #[serde(skip_serializing_if = "is_default")]
    pub gradients: Reduction,
    /// By stage, then bucket: exceptions from `gradients`, where each bucket goes the way that is
    /// fastest for it (Oyama's "adaptive"). Stages and buckets beyond the lists have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Vec<Reduction>>,
    /// Whether ranks of one host first sum in single precision, so that encoded values travel between
    /// hosts only.
    #[serde(skip_serializing_if = "is_default")]
    pub hierarchical: bool,
    /// How activations, and their gradients, travel between stages.
    #[serde(skip_serializing_if = "is_default")]
    pub edges: Edges,
    /// Whether `gradients` is chosen anew while training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choose: Option<Choose>,
}

/// How values travel between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Edges {
    /// Between ranks of one node of the plan's cluster.
    #[serde(skip_serializing_if = "is_default")]
    pub within: CodecKind,
    /// Between nodes.
    #[serde(skip_serializing_if = "is_default")]
    pub across: CodecKind,
}

/// How the way of gradients is chosen while training (Oyama 2017): from time to time a few steps are
/// tried with each candidate from the same state, learning curves foretell the accuracy of each, and
/// the one with the largest gain per second goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Choose {
    /// Steps between two choices.
    pub every: u64,
    /// Steps of each trial.
    pub trial: u64,
    /// Among which to choose.
    pub candidates: Vec<Reduction>,
}

impl Communication {
    /// How a bucket of a stage is summed.
    pub fn bucket(&self, stage: StageId, bucket: usize) -> Reduction {
        let exception = self.buckets.get(stage.index()).and_then(|stage| stage.get(bucket));
        exception.copied().unwrap_or(self.gradients)
    }

    /// Every way that a bucket may take in the course of the training; its first one first.
    pub fn ways(&self, stage: StageId, bucket: usize) -> Vec<Reduction> {
        let mut ways = vec![self.bucket(stage, bucket)];
        for candidate in self.choose.iter().flat_map(|choose| &choose.candidates) {
            if !ways.contains(candidate) {
                ways.push(*candidate);
            }
        }
        ways
    }

    /// The first number or setting that makes no sense: field, value, what may stand there.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let refuse = |field, value: String, must| Err(PlanError::Value { field, value, must });
        let choose = self.choose.iter();
        let reductions = [("communication.gradients", &self.gradients)].into_iter();
        let exceptions = self.buckets.iter().flatten().map(|r| ("communication.buckets", r));
        let candidates = choose.flat_map(|choose| &choose.candidates);
        let candidates = candidates.map(|r| ("communication.choose.candidates", r));
        for (field, reduction) in reductions.chain(exceptions).chain(candidates) {
            if let Some(what) = reduction.fault() {
                return Err(PlanError::Reduction { field, reduction: reduction.to_string(), what });
            }
        }
        for (field, codec) in [
            ("communication.edges.within", self.edges.within),
            ("communication.edges.across", self.edges.across),
        ] {
            if !codec.is_stateless() || matches!(codec, CodecKind::TopK { .. }) {
                let must = "a codec of all values that keeps nothing, such as bf16 or fp8-e4m3";
                return refuse(field, codec.to_string(), must);
            }
        }
        if let Some(choose) = &self.choose {
            if choose.trial == 0 {
                return refuse("communication.choose.trial", "0".into(), "at least 1 step");
            }
            if choose.every < choose.trial {
                let must = "at least as many steps as a trial";
                return refuse("communication.choose.every", choose.every.to_string(), must);
            }
            if choose.candidates.len() < 2 {
                let count = choose.candidates.len().to_string();
                return refuse("communication.choose.candidates", count, "at least two of them");
            }
            if !self.buckets.is_empty() {
                let must = "empty where `gradients` is chosen while training";
                return refuse("communication.buckets", "not empty".into(), must);
            }
        }
        Ok(())
    }
}
