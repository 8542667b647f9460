//! Encodings of the gradients and activations that ranks send each other.

use super::PlanError;
use super::training::is_default;
use crate::compress::{CodecKind, Reduction};
use crate::ids::StageId;
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// Among which to choose, the more precise first; `buckets`, where there are some, are one more.
    pub candidates: Vec<Reduction>,
}

/// What all gradients do in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradientReduction {
    /// The same.
    All(Reduction),
    /// Each bucket what [`Communication::buckets`] says.
    Adaptive,
}

impl fmt::Display for GradientReduction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            GradientReduction::All(reduction) => write!(f, "{reduction}"),
            GradientReduction::Adaptive => write!(f, "adaptive"),
        }
    }
}

impl Communication {
    /// The ways that gradients may take in the course of the training. Without [`Choose`] it is one.
    pub fn gradient_reductions(&self) -> Vec<GradientReduction> {
        let adaptive = (!self.buckets.is_empty()).then_some(GradientReduction::Adaptive);
        match &self.choose {
            None => vec![adaptive.unwrap_or(GradientReduction::All(self.gradients))],
            Some(choose) => {
                let all =
                    choose.candidates.iter().map(|candidate| GradientReduction::All(*candidate));
                all.chain(adaptive).collect()
            }
        }
    }

    /// Whether gradients are encoded in one of the ways, at least.
    pub fn encodes(&self) -> bool {
        let coded = |reduction: &Reduction| !reduction.is_plain();
        self.gradient_reductions().iter().any(|way| match way {
            GradientReduction::All(reduction) => coded(reduction),
            GradientReduction::Adaptive => {
                coded(&self.gradients) || self.buckets.iter().flatten().any(coded)
            }
        })
    }

    /// How a bucket of a stage is summed when gradients take `way`.
    pub fn reduction(&self, way: GradientReduction, stage: StageId, bucket: usize) -> Reduction {
        match way {
            GradientReduction::All(reduction) => reduction,
            GradientReduction::Adaptive => self.bucket(stage, bucket),
        }
    }

    /// How a bucket of a stage is summed at first.
    pub fn bucket(&self, stage: StageId, bucket: usize) -> Reduction {
        let exception = self.buckets.get(stage.index()).and_then(|stage| stage.get(bucket));
        exception.copied().unwrap_or(self.gradients)
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
            if self.gradient_reductions().len() < 2 {
                let count = choose.candidates.len().to_string();
                let must = "two or more, or one and `buckets`";
                return refuse("communication.choose.candidates", count, must);
            }
        }
        Ok(())
    }
}
