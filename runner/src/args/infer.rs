//! Options of `runner eval` and `runner predict`.

use clap::{Args, ValueEnum};
use pipewright_core::plan::Data;
use std::path::PathBuf;

/// Half of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamedSplit {
    /// What is trained on.
    Train,
    /// What is tested on.
    Test,
}

/// A network with weights, and samples for it.
#[derive(Debug, Args)]
pub struct InferArgs {
    /// The plan, whose stages are divided among ranks as in training.
    pub plan: PathBuf,
    /// The weights in place of the plan's: the folder of a run, a checkpoint, a .safetensors file or
    /// model.safetensors.index.json.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The data set in place of the plan's, as for `runner plan`.
    #[arg(long)]
    pub data: Option<Data>,
    /// Which half of the data set; default: test where it has one, else train.
    #[arg(long, value_enum)]
    pub split: Option<NamedSplit>,
    /// Only so many samples, the first ones.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Threads that each rank computes with; 0 shares the cores among the ranks.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `runner eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// What is evaluated.
    #[command(flatten)]
    pub network: InferArgs,
}

/// `runner predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// What predicts. Of samples only `x` is needed.
    #[command(flatten)]
    pub network: InferArgs,
    /// The outputs, a row a sample: a .npy file, or `y` of a .safetensors file. They are what the loss
    /// is computed from: logits, where there are classes.
    #[arg(short, long, required_unless_present = "prompt")]
    pub output: Option<PathBuf>,
    /// Continue a text instead: token numbers such as 1,2,3, or tokens16:FILE, tokens32:FILE. Each new
    /// token is computed from the whole window of the plan's length.
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["output", "data", "split", "samples"])]
    pub prompt: Option<String>,
    /// New tokens.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, requires = "prompt", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub tokens: u64,
    /// Draw tokens by their probabilities, of logits divided by this; 0 takes the likeliest.
    #[arg(long, default_value_t = 0.0, requires = "prompt", value_parser = temperature)]
    pub temperature: f64,
    /// Draw among so many of the likeliest tokens.
    #[arg(long, value_name = "NUMBER", requires = "temperature", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,
    /// Seed of what is drawn.
    #[arg(long, default_value_t = 1, requires = "temperature")]
    pub seed: u64,
}

/// A finite number that is not negative.
fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "give a number from 0 on, such as 0.8".into())
}
