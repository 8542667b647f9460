//! `runner scale`.

use super::{ClusterChanges, OnnxArgs, Order, Recompute, TensorDegree, TrainingArgs};
use clap::Args;
use pipewright_core::predict::{Price, Sizes, amount};
use std::path::PathBuf;

/// `runner scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner scale --model gpt2 --devices 8,16,32 --mini-batch 256 --price 2.5/h --tokens 10e9
  runner scale --model vgg16 --devices 1,2,4 --svg scale.svg -o plans

Every figure is of a plan that the search of `runner plan` finds for exactly so many ranks and that is then
simulated. Hosts of the cluster are as many as the devices need. The mini-batch is the same for all sizes
(strong scaling), so that all of them train the same.")]
pub struct ScaleArgs {
    /// A model by name, an ONNX file, hf:config.json or a profile file, as for `runner plan`.
    #[arg(long)]
    pub model: String,
    /// What an ONNX file leaves open.
    #[command(flatten)]
    pub onnx: OnnxArgs,
    /// Numbers of devices: powers of two from one number to another, 8..1024, or a list, 8,16,24.
    #[arg(long, value_name = "SIZES")]
    pub devices: Sizes,
    /// The machine, whose hosts become as many as are needed: a preset, all of which `runner cluster` lists,
    /// or a file.
    #[arg(long, default_value = "dgx-a100")]
    pub cluster: String,
    /// What differs in it.
    #[command(flatten)]
    pub changes: ClusterChanges,
    /// Samples of an optimizer step; default: as many as the most devices, and at least 32.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub mini_batch: Option<u64>,
    /// The schedule by name, or automatic; default: the fastest by name.
    #[arg(long)]
    pub schedule: Option<Order>,
    /// Ranks that divide the work of every lane (tensor parallelism); auto: as many of a host's as are fastest, with
    /// --sequence-parallel or without.
    #[arg(long, value_name = "DEGREE|auto", default_value = "1")]
    pub tensor: TensorDegree,
    /// Ranks of a tensor group take a slice of the sequence each where nothing else is divided.
    #[arg(long)]
    pub sequence_parallel: bool,
    /// What stages compute again; default: nothing, or, where that does not fit, as little as does.
    #[arg(long, value_enum)]
    pub recompute: Option<Recompute>,
    /// What a device costs an hour, such as 2.5/h, in any currency.
    #[arg(long, value_name = "PRICE")]
    pub price: Option<Price>,
    /// Tokens to train on, such as 300e9: days and cost are of so many.
    #[arg(long, value_name = "TOKENS", value_parser = amount, conflicts_with = "samples")]
    pub tokens: Option<f64>,
    /// Samples to train on, such as 90 epochs of 1.28e6: 115.2e6.
    #[arg(long, value_name = "SAMPLES", value_parser = amount)]
    pub samples: Option<f64>,
    /// Plans to try at most for each size.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: u64,
    /// How parameters change, and how training goes.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Folder for the plans, plan-8.json for 8 devices.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// A picture: throughput over devices, beside the line of ideal scaling.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}
