//! Where training samples come from.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The data set of a plan. Prints and parses as `synthetic`, `idx:DIR`, `cifar10:DIR`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Data {
    /// Samples drawn from the plan's seed: a random centre per class plus noise.
    Synthetic {
        /// Samples to train on.
        train: u64,
        /// Samples to test on.
        test: u64,
    },
    /// Images and labels in MNIST's file layout and names, in one folder.
    Idx {
        /// The folder, relative to where the runner starts.
        dir: String,
    },
    /// CIFAR-10's binary batches, in one folder.
    Cifar10 {
        /// The folder, relative to where the runner starts.
        dir: String,
    },
}

impl Default for Data {
    fn default() -> Self {
        Data::Synthetic { train: 8192, test: 1024 }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Synthetic { .. } => write!(f, "synthetic"),
            Data::Idx { dir } => write!(f, "idx:{dir}"),
            Data::Cifar10 { dir } => write!(f, "cifar10:{dir}"),
        }
    }
}

impl FromStr for Data {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "synthetic" => Ok(Data::default()),
            Some(("idx", dir)) if !dir.is_empty() => Ok(Data::Idx { dir: dir.into() }),
            Some(("cifar10", dir)) if !dir.is_empty() => Ok(Data::Cifar10 { dir: dir.into() }),
            _ => Err(format!("`{text}` is no data set; use synthetic, idx:DIR or cifar10:DIR")),
        }
    }
}
