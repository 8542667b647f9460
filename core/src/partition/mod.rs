//! Where to cut: which layers become which stage.

mod balanced;
mod moves;
mod uniform;

pub use balanced::{balanced, layer_times};
pub use moves::moves;
pub use uniform::uniform;

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
    /// No stage at all.
    #[error("a pipeline needs at least 1 stage")]
    NoStage,
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
