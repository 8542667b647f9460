//! Options for ONNX files.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use pipewright_core::onnx::{Loss, Options};

/// What training makes small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LossKind {
    /// Cross entropy of the output as logits.
    CrossEntropy,
    /// Mean squared error of the output.
    Mse,
}

/// What an ONNX file leaves open.
#[derive(Clone, Debug, Args)]
pub struct OnnxArgs {
    /// The loss on an ONNX file's first output, when the file has none of its own; default: cross
    /// entropy.
    #[arg(long, value_enum)]
    pub loss: Option<LossKind>,
    /// Size of an axis that has a name in the ONNX file, such as sequence=128; the batch stays open.
    /// Of hf:config.json: sequence=128, the tokens of a sample.
    #[arg(long, value_name = "NAME=NUMBER")]
    pub size: Vec<String>,
    /// Go on where sizes do not tell what operations of an ONNX file take: all figures are without them.
    #[arg(long)]
    pub allow_opaque: bool,
    /// Name every operation of an ONNX file that is not supported, not the first ones of a kind.
    #[arg(long)]
    pub verbose: bool,
}

impl OnnxArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.loss.is_some() || !self.size.is_empty()
    }

    /// As the import takes it.
    ///
    /// # Errors
    /// A size that is none.
    pub fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::default();
        if self.loss == Some(LossKind::Mse) {
            options.loss = Loss::MeanSquaredError;
        }
        for text in &self.size {
            let size = text.split_once('=').and_then(|(name, size)| {
                let size = size.parse().ok().filter(|n| (1..1 << 32).contains(n))?;
                Some((name.to_string(), size))
            });
            let (name, size) = size.ok_or_else(|| {
                Failure::usage(format!("--size {text}: not NAME=NUMBER, such as sequence=128"))
            })?;
            options.sizes.insert(name, size);
        }
        Ok(options)
    }
}
