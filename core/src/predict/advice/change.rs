//! Changes between two plans of one network, as a person would make them.

use crate::compress::Reduction;
use crate::graph::Precision;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A choice that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Lanes of the pipeline.
    Lanes(u32),
    /// Copies of the pipeline.
    Replicas(u32),
    /// Micro-batches of a replica's step.
    MicroBatches(u32),
    /// The schedule's name.
    Schedule(String),
    /// Other cuts between as many stages.
    Cuts {
        /// How many of them.
        moved: u32,
    },
    /// Stages that compute activations again; none at all for 0.
    Recompute {
        /// How many.
        stages: u32,
    },
    /// Precision of products.
    Precision(Precision),
    /// How gradients are summed.
    Gradients(Reduction),
}

impl Change {
    /// Whether what is trained is not the same bit for bit up to the order of sums: lower precision.
    pub fn alters_training(&self) -> bool {
        matches!(self, Change::Precision(_) | Change::Gradients(_))
    }

    /// Its kind, for comparing what two plans change.
    fn kind(&self) -> u8 {
        match self {
            Change::Lanes(_) => 0,
            Change::Replicas(_) => 1,
            Change::MicroBatches(_) => 2,
            Change::Schedule(_) => 3,
            Change::Cuts { .. } => 4,
            Change::Recompute { .. } => 5,
            Change::Precision(_) => 6,
            Change::Gradients(_) => 7,
        }
    }
}

/// What `other` changes of `plan`, both of one network on one cluster.
pub(super) fn changes(plan: &Plan, other: &Plan) -> Vec<Change> {
    let mut found = vec![];
    let mut differs = |differs: bool, change: Change| {
        if differs {
            found.push(change);
        }
    };
    differs(plan.lanes() != other.lanes(), Change::Lanes(other.lanes()));
    let replicas = other.data_parallel.replicas;
    differs(plan.data_parallel.replicas != replicas, Change::Replicas(replicas));
    let micro_batches = other.micro_batches;
    differs(plan.micro_batches != micro_batches, Change::MicroBatches(micro_batches));
    let name = &other.schedule.name;
    differs(plan.schedule.name != *name, Change::Schedule(name.clone()));
    let same_stages = plan.cuts.len() == other.cuts.len();
    let moved = plan.cuts.iter().zip(&other.cuts).filter(|(a, b)| a != b).count() as u32;
    differs(same_stages && moved > 0, Change::Cuts { moved });
    let again = |plan: &Plan| plan.recompute.iter().filter(|s| !s.0.is_empty()).count() as u32;
    let stages = again(other);
    differs(again(plan) != stages, Change::Recompute { stages });
    let precision = other.training.precision;
    differs(plan.training.precision != precision, Change::Precision(precision));
    let gradients = other.communication.gradients;
    differs(plan.communication.gradients != gradients, Change::Gradients(gradients));
    found
}

/// Whether one changes no kind of choice that the other does not.
pub(super) fn within(some: &[Change], all: &[Change]) -> bool {
    some.iter().all(|change| all.iter().any(|other| other.kind() == change.kind()))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u32, one: &str, several: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {several}"),
        };
        match self {
            Change::Lanes(count) => f.write_str(&counted(*count, "lane", "lanes")),
            Change::Replicas(count) => f.write_str(&counted(*count, "replica", "replicas")),
            Change::MicroBatches(count) => {
                f.write_str(&counted(*count, "micro-batch", "micro-batches"))
            }
            Change::Schedule(name) => f.write_str(name),
            Change::Cuts { moved } => write!(f, "{} moved", counted(*moved, "cut", "cuts")),
            Change::Recompute { stages: 0 } => f.write_str("no recomputation"),
            Change::Recompute { stages } => {
                write!(f, "{} recompute", counted(*stages, "stage", "stages"))
            }
            Change::Precision(precision) => f.write_str(precision.word()),
            Change::Gradients(way) => write!(f, "gradients in {way}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::graph::presets::Preset;
    use crate::plan::{Draft, Model};
    use crate::schedule::ScheduleKind;

    #[test]
    fn all_that_differs_is_named() {
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let draft = Draft::new(Model::Preset(Preset::Vgg16), cluster, vec![10, 20]);
        let plan = draft.clone().plan().unwrap().0;
        assert_eq!(changes(&plan, &plan), []);
        let mut other = Draft { cuts: vec![10, 24], schedule: ScheduleKind::GPipe, ..draft };
        (other.data_parallel.replicas, other.micro_batches, other.mini_batch) = (2, 2, 32);
        other.training.precision = Precision::Bf16;
        let words = |other: Draft| {
            let changes = changes(&plan, &other.plan().unwrap().0);
            changes.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
        };
        let said = words(other.clone());
        assert_eq!(said, "2 replicas, 2 micro-batches, gpipe, 1 cut moved, bf16");
        other.cuts = vec![10];
        assert!(words(other).starts_with("2 lanes, 2 replicas"));
    }
}
