//! Options of `runner export`.

use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;

/// Formats of other runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The schedule as torch.distributed.pipelining reads it: a row a rank.
    PytorchCsv,
    /// The same with sends and receives.
    PytorchCsvMessages,
    /// The cuts as PyTorch's split_spec.
    SplitPoints,
    /// The module names of each stage as JSON, torchtitan's module_fqns_per_model_part.
    Modules,
    /// Megatron-LM's --pipeline-model-parallel-layout.
    MegatronLayout,
    /// Of --weights: names and shapes of Hugging Face's transformers.
    Hf,
    /// Of --weights: names of PyTorch's state dict.
    Torch,
    /// Of --weights: names of the plan's parameters.
    Pipewright,
}

impl ExportFormat {
    /// Whether it is one of weights, not of plans.
    pub fn is_of_weights(self) -> bool {
        matches!(self, Self::Hf | Self::Torch | Self::Pipewright)
    }
}

/// `runner export`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["format", "weights", "tensorboard", "csv"])))]
pub struct ExportArgs {
    /// A plan with --format; a run's folder with --tensorboard and --csv; a run or a checkpoint with
    /// --weights.
    #[arg(required_unless_present = "weights")]
    pub source: Option<PathBuf>,
    /// The plan in the format of another runtime, or weights under the names of one: hf, torch, or
    /// pipewright, which is what is open.
    #[arg(long, value_enum, conflicts_with_all = ["tensorboard", "csv"])]
    pub format: Option<ExportFormat>,
    /// The trained weights of a checkpoint, or of the newest one of a run, as one safetensors file
    /// that PyTorch loads. As two names, --weights RUN FILE, it needs no SOURCE.
    #[arg(long, num_args = 1..=2, value_name = "FILE", conflicts_with_all = ["tensorboard", "csv"])]
    pub weights: Option<Vec<PathBuf>>,
    /// Loss, accuracy, step time, bubble and learning rate of every step, as an event file of
    /// TensorBoard in that folder.
    #[arg(long, value_name = "DIR", conflicts_with = "csv")]
    pub tensorboard: Option<PathBuf>,
    /// The same as comma-separated values; `-` prints them.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The file for --format; `-` prints it.
    #[arg(short, long, default_value = "-")]
    pub output: PathBuf,
    /// Print one JSON object that says what was written: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}
