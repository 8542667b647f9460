//! A division into stages in the words of other runtimes.
//!
//! - [`megatron_layout`]: the string of Megatron-LM's `--pipeline-model-parallel-layout`;
//! - [`split_points`]: PyTorch's `split_spec`, and the modules of each stage.
//!
//! ```
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::export::split_points;
//!
//! let graph = Preset::Vgg16.graph()?;
//! let python = split_points(&graph, &[graph.layers()[4].first_node.0])?;
//! assert!(python.contains("SplitPoint.BEGINNING"), "for torch.distributed.pipelining");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod kinds;
pub mod megatron;
mod split_points;

pub use kinds::{NotMegatron, layer_kinds};
pub use megatron::Layout;
pub use split_points::{SplitPointError, modules_by_stage, split_points};

use crate::graph::Graph;
use megatron::LayoutError;
use thiserror::Error;

/// Why Megatron-LM cannot run a division.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MegatronError {
    /// A layer that it does not have.
    #[error(transparent)]
    Layer(#[from] NotMegatron),
    /// A cut that is no border of layers.
    #[error(
        "the cut at node {0} is inside of a layer; Megatron splits between layers, as --split balanced does"
    )]
    Inside(u32),
    /// An order or a number of stages that it refuses.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// The layout of a division of `graph` before the nodes `cuts`, for `lanes` pipeline ranks.
///
/// # Errors
/// What Megatron-LM would refuse.
pub fn megatron_layout(graph: &Graph, cuts: &[u32], lanes: u32) -> Result<Layout, MegatronError> {
    let kinds = layer_kinds(graph)?;
    let layers = graph.layers();
    let layer_at = |&node: &u32| {
        let layer = layers.iter().position(|layer| layer.first_node.0 == node);
        layer.ok_or(MegatronError::Inside(node))
    };
    let cuts = cuts.iter().map(layer_at).collect::<Result<Vec<usize>, _>>()?;
    let layout = Layout::new(&kinds, &cuts)?;
    layout.chunks(lanes)?;
    Ok(layout)
}
