//! Networks by name, shape-exact, with torchvision's parameter names where it has the model.

mod convolutional;
mod dense;

use super::{Graph, GraphError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A network that the planner knows by name. Prints and parses as `fc32:512`, `vgg16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub enum Preset {
    /// 3072-3072-3072-3072-10 on CIFAR-10 images (Takisawa 2022, section 4).
    Mlp4,
    /// 32 fully connected layers, the last with 10 outputs (Takisawa 2022, section 5).
    Fc32 {
        /// Inputs of every layer; the paper's "data size" is 5,000.
        width: u64,
    },
    /// VGG16 for 224 x 224 images, 1,000 classes; without dropout.
    Vgg16,
    /// ResNet-50 for 224 x 224 images, 1,000 classes; a bottleneck block is one layer.
    Resnet50,
    /// A small convolutional network for 8 x 8 images of digits.
    DigitsCnn,
}

/// All presets with their usual sizes, in the order in which they are offered.
pub const PRESETS: [Preset; 5] = [
    Preset::Vgg16,
    Preset::Resnet50,
    Preset::Fc32 { width: 5000 },
    Preset::Mlp4,
    Preset::DigitsCnn,
];

/// Why a text is no preset.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no model is called `{given}`; known: mlp4, fc32:WIDTH, vgg16, resnet50, digits-cnn")]
pub struct UnknownPreset {
    /// The text.
    pub given: String,
}

impl Preset {
    /// Builds the graph.
    ///
    /// # Errors
    /// Only for sizes that make no network, such as width 0.
    pub fn graph(self) -> Result<Graph, GraphError> {
        match self {
            Preset::Mlp4 => dense::mlp4(),
            Preset::Fc32 { width } => dense::fc32(width),
            Preset::Vgg16 => convolutional::vgg16(),
            Preset::Resnet50 => convolutional::resnet50(),
            Preset::DigitsCnn => convolutional::digits_cnn(),
        }
    }
}

impl TryFrom<String> for Preset {
    type Error = UnknownPreset;
    fn try_from(text: String) -> Result<Self, UnknownPreset> {
        text.parse()
    }
}

impl From<Preset> for String {
    fn from(preset: Preset) -> Self {
        preset.to_string()
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preset::Mlp4 => write!(f, "mlp4"),
            Preset::Fc32 { width } => write!(f, "fc32:{width}"),
            Preset::Vgg16 => write!(f, "vgg16"),
            Preset::Resnet50 => write!(f, "resnet50"),
            Preset::DigitsCnn => write!(f, "digits-cnn"),
        }
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        let unknown = || UnknownPreset { given: text.into() };
        match text.split_once(':') {
            None => match text {
                "mlp4" => Ok(Preset::Mlp4),
                "fc32" => Ok(Preset::Fc32 { width: 5000 }),
                "vgg16" => Ok(Preset::Vgg16),
                "resnet50" => Ok(Preset::Resnet50),
                "digits-cnn" => Ok(Preset::DigitsCnn),
                _ => Err(unknown()),
            },
            Some(("fc32", width)) => {
                let width = width.parse().map_err(|_| unknown())?;
                // 2^16 squared still counts in u64 with room; zero is no layer.
                (1..=65_536).contains(&width).then_some(Preset::Fc32 { width }).ok_or_else(unknown)
            }
            Some(_) => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        let count = |p: Preset| p.graph().unwrap().trainable_elements();
        // torchvision: 138,357,544 and 25,557,032.
        assert_eq!(count(Preset::Vgg16), 138_357_544);
        assert_eq!(count(Preset::Resnet50), 25_557_032);
        assert_eq!(count(Preset::Mlp4), 3 * (3072 * 3072 + 3072) + 3072 * 10 + 10);
        assert_eq!(count(Preset::Fc32 { width: 50 }), 31 * (50 * 50 + 50) + 50 * 10 + 10);
    }

    #[test]
    fn forward_work_is_the_published_one() {
        // Multiply-adds: 15.47 G for VGG16, 4.09 G for ResNet-50 (torchvision's GFLOPS column).
        let giga = |p: Preset| p.graph().unwrap().forward_flops() as f64 / 2e9;
        assert!((giga(Preset::Vgg16) - 15.47).abs() < 0.05, "{}", giga(Preset::Vgg16));
        assert!((giga(Preset::Resnet50) - 4.09).abs() < 0.09, "{}", giga(Preset::Resnet50));
    }

    #[test]
    fn parameters_have_torchvisions_names() {
        let names = |p: Preset| -> Vec<String> {
            p.graph().unwrap().params().iter().map(|p| p.name.clone()).collect()
        };
        let vgg = names(Preset::Vgg16);
        for name in ["features.0.weight", "features.28.bias", "classifier.0.weight"] {
            assert!(vgg.iter().any(|n| n == name), "{name}");
        }
        let resnet = names(Preset::Resnet50);
        for name in ["conv1.weight", "bn1.running_mean", "layer1.0.downsample.1.bias"] {
            assert!(resnet.iter().any(|n| n == name), "{name}");
        }
        assert_eq!(resnet.last().unwrap(), "fc.bias");
    }

    #[test]
    fn layers_are_what_takisawa_counts() {
        let layers = |p: Preset| p.graph().unwrap().layers().len();
        assert_eq!(layers(Preset::Fc32 { width: 8 }), 32);
        assert_eq!(layers(Preset::Mlp4), 4);
        assert_eq!(layers(Preset::Resnet50), 1 + 16 + 1);
    }

    #[test]
    fn names_round_trip() {
        for preset in PRESETS {
            assert_eq!(preset.to_string().parse(), Ok(preset));
        }
        for bad in ["fc32:0", "fc32:-1", "fc32:99999999999", "alexnet", "vgg16:3", ""] {
            assert!(bad.parse::<Preset>().is_err(), "{bad}");
        }
    }
}
