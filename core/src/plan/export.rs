//! A division into stages in the words of other runtimes.
//!
//! - [`megatron`]: the string of Megatron-LM's `--pipeline-model-parallel-layout`;
//! - [`split_points`]: PyTorch's `split_spec`, and the modules of each stage.

mod kinds;
pub mod megatron;
mod split_points;

pub use kinds::{NotMegatron, layer_kinds};
pub use megatron::Layout;
pub use split_points::{SplitPointError, modules_by_stage, split_points};
