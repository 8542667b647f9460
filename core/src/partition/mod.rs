//! Partitions: which layers become which stage.
//!
//! [`uniform`] and [`balanced`] cut the chain of a graph's layers. [`exact`] is optimal on the graph
//! itself, under memory, with transfers and unlike devices; [`replicated`] adds data parallelism as
//! PipeDream does, [`hybrid`] tensor parallelism and recomputation as Piper does. States of these
//! three are downsets; where there are too many, those of blocks that are better left whole. [`refine`]
//! moves cuts by whatever the caller evaluates: the simulated step of a schedule.
//!
//! ```
//! use pipewright_core::cost::{Cluster, Costs};
//! use pipewright_core::graph::Precision;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::partition::{balanced, uniform};
//!
//! let graph = Preset::Vgg16.graph()?;
//! let costs = Costs::new(&graph, &Cluster::preset("dgx-a100")?, 8, Precision::F32);
//! // The first node of each stage but the first.
//! let cuts = balanced(&graph, &costs, 4)?;
//! assert_eq!(cuts.len(), 3);
//! assert_ne!(cuts, uniform(&graph, 4)?, "layers of VGG are of very different length");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod balanced;
mod blocks;
mod contiguous;
mod exact;
mod hybrid;
mod lattice;
mod moves;
mod placement;
mod polish;
mod refine;
mod replicated;
mod straight;
mod uniform;
mod units;
mod ways;

pub use balanced::{balanced, layer_times, split};
pub use exact::exact;
pub use hybrid::{Hybrid, hybrid};
pub use moves::moves;
pub use placement::{Footprint, Held, Pipeline, PlacedStage, Placement, Statistics, Worker};
pub use refine::{Refined, chunks, refine};
pub use replicated::{Level, replicated};
pub use uniform::uniform;

use crate::units::Bytes;
use thiserror::Error;

/// Why a model cannot be cut that way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartitionError {
    /// A stage would stay empty.
    #[error(
        "{stages} stages need as many layers, `{model}` has {layers}; \
         use at most {layers} stages"
    )]
    TooManyStages {
        /// The model.
        model: String,
        /// Asked for.
        stages: u32,
        /// There are.
        layers: usize,
    },
    /// The devices are too small.
    #[error(
        "`{model}` does not fit into the memory of {devices} devices: each needs {missing} more; \
         use more devices, recomputation, or fewer micro-batches in flight"
    )]
    Memory {
        /// The model.
        model: String,
        /// There are.
        devices: usize,
        /// With so much more memory a device it would fit.
        missing: Bytes,
    },
    /// Nothing can run it.
    #[error("`{item}` runs on a host only and the pipeline has none; add a worker that is one")]
    NoHost {
        /// The item.
        item: String,
    },
    /// No stage at all.
    #[error("a pipeline needs at least 1 stage")]
    NoStage,
    /// A level of the machine with nothing in it.
    #[error("level {level} has no machine or no bandwidth; both must be above 0")]
    Level {
        /// From 0, the innermost.
        level: usize,
    },
}

fn check(graph: &crate::graph::Graph, stages: u32) -> Result<(), PartitionError> {
    let layers = graph.layers().len();
    if stages == 0 {
        return Err(PartitionError::NoStage);
    }
    if stages as usize > layers {
        return Err(PartitionError::TooManyStages { model: graph.name().into(), stages, layers });
    }
    Ok(())
}
