//! Sources of training samples.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The data set of a plan. Prints and parses as `synthetic`, `shapes` or `KIND:PATH`, as in `idx:DIR`. Paths
/// are relative to where the runner starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Data {
    /// Samples drawn from the plan's seed, with a structure that the network can learn.
    Synthetic {
        /// Samples to train on.
        train: u64,
        /// Samples to test on.
        test: u64,
    },
    /// Images of 16 classes of shapes, drawn from the plan's seed; harder than `synthetic`.
    Shapes {
        /// Images to train on.
        train: u64,
        /// Images to test on.
        test: u64,
    },
    /// Images and labels in MNIST's file layout and names, in one folder.
    Idx {
        /// The folder.
        dir: String,
    },
    /// CIFAR-10's binary batches, in one folder.
    Cifar10 {
        /// The folder.
        dir: String,
    },
    /// CIFAR-100's binary files, in one folder; the classes are the fine labels.
    Cifar100 {
        /// The folder.
        dir: String,
    },
    /// JPEG and PNG files, a folder a class, below `train` and `test` (or `val`) where there are
    /// such folders.
    Images {
        /// The folder.
        dir: String,
    },
    /// Tokens as 16-bit numbers, little-endian.
    Tokens16 {
        /// A file to train on, or a folder with `train.bin` and perhaps `val.bin`.
        path: String,
    },
    /// Tokens as 32-bit numbers, little-endian.
    Tokens32 {
        /// A file to train on, or a folder with `train.bin` and perhaps `val.bin`.
        path: String,
    },
    /// NumPy arrays `x.npy` and `y.npy`, and perhaps `x_test.npy` and `y_test.npy`, in one folder.
    Npy {
        /// The folder.
        dir: String,
    },
    /// Tensors `x` and `y`, and perhaps `x_test` and `y_test`, of a safetensors file.
    Safetensors {
        /// The file.
        file: String,
    },
}

/// What may be asked for, in messages and help.
const DATA_KINDS: &str = "synthetic, shapes, idx:DIR, cifar10:DIR, cifar100:DIR, images:DIR, \
                              tokens16:PATH, tokens32:PATH, npy:DIR or safetensors:FILE";

impl Data {
    /// Samples to train and to test on, of the kinds that are drawn.
    pub fn drawn(&self) -> Option<(u64, u64)> {
        match self {
            Data::Synthetic { train, test } | Data::Shapes { train, test } => Some((*train, *test)),
            _ => None,
        }
    }

    /// The file or folder that it names; none where samples are drawn.
    pub fn path(&self) -> Option<&str> {
        self.parts().1
    }

    /// The kind's name and, for all kinds with files, where it lies.
    fn parts(&self) -> (&'static str, Option<&str>) {
        let (kind, path) = match self {
            Data::Synthetic { .. } => return ("synthetic", None),
            Data::Shapes { .. } => return ("shapes", None),
            Data::Idx { dir } => ("idx", dir),
            Data::Cifar10 { dir } => ("cifar10", dir),
            Data::Cifar100 { dir } => ("cifar100", dir),
            Data::Images { dir } => ("images", dir),
            Data::Tokens16 { path } => ("tokens16", path),
            Data::Tokens32 { path } => ("tokens32", path),
            Data::Npy { dir } => ("npy", dir),
            Data::Safetensors { file } => ("safetensors", file),
        };
        (kind, Some(path))
    }
}

impl Default for Data {
    fn default() -> Self {
        Data::Synthetic { train: 8192, test: 1024 }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (kind, None) => write!(f, "{kind}"),
            (kind, Some(path)) => write!(f, "{kind}:{path}"),
        }
    }
}

impl FromStr for Data {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is no data set; use {DATA_KINDS}");
        let Some((kind, path)) = text.split_once(':') else {
            return match text {
                "synthetic" => Ok(Data::default()),
                "shapes" => Ok(Data::Shapes { train: 8192, test: 1024 }),
                _ => Err(refuse()),
            };
        };
        if path.is_empty() {
            return Err(refuse());
        }
        let path = path.to_owned();
        Ok(match kind {
            "idx" => Data::Idx { dir: path },
            "cifar10" => Data::Cifar10 { dir: path },
            "cifar100" => Data::Cifar100 { dir: path },
            "images" => Data::Images { dir: path },
            "tokens16" => Data::Tokens16 { path },
            "tokens32" => Data::Tokens32 { path },
            "npy" => Data::Npy { dir: path },
            "safetensors" => Data::Safetensors { file: path },
            _ => return Err(refuse()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_prints_as_it_parses() {
        let kinds = DATA_KINDS.replace(" or ", ", ");
        let kinds: Vec<&str> = kinds.split(", ").map(str::trim).collect();
        assert_eq!(kinds.len(), 10);
        for text in kinds {
            let data: Data = text.parse().unwrap();
            assert_eq!(data.to_string(), text);
            let json = serde_json::to_string(&data).unwrap();
            let kind = text.split_once(':').map_or(text, |(kind, _)| kind);
            assert!(json.contains(&format!("\"kind\":\"{kind}\"")), "{json}");
            assert_eq!(serde_json::from_str::<Data>(&json).unwrap(), data);
        }
    }

    #[test]
    fn other_texts_are_refused_with_all_that_there_are() {
        for text in ["", "idx", "idx:", "mnist:DIR", "synthetic:3", "tokens:f.bin"] {
            let error = text.parse::<Data>().unwrap_err();
            assert!(error.ends_with(DATA_KINDS), "{error}");
        }
    }
}
