//! Options of `runner forms`, `calibrate`, `profile` and `devices`.

use super::{AlgorithmsArgs, ClusterChanges, DeviceKind, OnnxArgs};
use clap::Args;
use std::path::PathBuf;

/// `runner forms`.
#[derive(Debug, Args)]
pub struct FormsArgs {
    /// A model by name, an ONNX file or a profile file, as for `runner plan`.
    #[arg(long)]
    pub model: String,
    /// What an ONNX file leaves open.
    #[command(flatten)]
    pub onnx: OnnxArgs,
    /// Devices.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub devices: u32,
    /// Pipelines side by side in the hybrid form; divides the devices.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: u32,
    /// Samples of an optimizer step.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub mini_batch: u64,
    /// Parts of a mini-batch in pipelines.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub micro_batches: u32,
    /// The machine: a preset, all of which `runner cluster` lists, or a file, such as `runner profile`
    /// writes.
    #[arg(long, default_value = "dgx-a100")]
    pub cluster: String,
    /// What differs in it.
    #[command(flatten)]
    pub changes: ClusterChanges,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

/// `runner calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Lines of m,d,seconds (micro-batches, stages, time of a step), or a run's trace.json.
    pub file: PathBuf,
    /// Layers of the network, for points.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub layers: Option<u64>,
    /// The plan whose run the trace shows; with -o.
    #[arg(long, requires = "output")]
    pub plan: Option<PathBuf>,
    /// Writes the plan's cluster with the trace's times, to plan with: runner plan --cluster FILE.
    #[arg(short, long, requires = "plan", value_name = "CLUSTER")]
    pub output: Option<PathBuf>,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

/// `runner profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The plan whose model and micro-batch size are measured.
    pub plan: PathBuf,
    /// The cluster file; `-` prints it.
    #[arg(short, long, default_value = "-")]
    pub output: PathBuf,
    /// Times each operation is measured.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: u32,
    /// What computes: cpu or cuda.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceKind,
    #[command(flatten)]
    pub algorithms: AlgorithmsArgs,
    /// Threads that each rank computes with, as of a run; 0 shares the cores among the plan's ranks.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

/// `runner devices`.
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}
