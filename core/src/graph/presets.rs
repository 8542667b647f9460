//! Networks by name, shape-exact, with torchvision's parameter names where it has the model.
//!
//! ```
//! use pipewright_core::graph::presets::Preset;
//!
//! let graph = Preset::Resnet50.graph()?;
//! assert_eq!(graph.trainable_elements(), 25_557_032, "as torchvision's");
//! # Ok::<(), pipewright_core::graph::GraphError>(())
//! ```

mod amoebanet;
mod convolutional;
mod dense;
mod fault;
mod googlenet;
mod residual;
mod resizable;
#[cfg(test)]
mod tests;
mod transformer;
mod unet;

pub use resizable::Resizable;
pub use transformer::Transformer;

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
    /// A small convolutional network for 8 x 8 images of digits.
    DigitsCnn,
    /// CaffeNet's layers, few channels: 32 x 32 images of 16 classes.
    CaffenetMini,
    /// GoogLeNet's modules as first published, few channels: the same images.
    GooglenetMini,
    /// AlexNet as torchvision has it, 224 x 224 images, 1,000 classes, like all that follow.
    Alexnet,
    /// AlexNet as Caffe has it: groups and local response normalisation, 227 x 227 images.
    Caffenet,
    /// GoogLeNet without auxiliary classifiers; an inception module is one layer.
    Googlenet,
    /// VGG16 without dropout.
    Vgg16,
    /// VGG19 without dropout.
    Vgg19,
    /// ResNet-18; a residual block is one layer, as in the other ResNets.
    Resnet18,
    /// ResNet-50.
    Resnet50,
    /// ResNet-101.
    Resnet101,
    /// ResNet-152.
    Resnet152,
    /// torchgpipe's U-Net for 192 x 192 images.
    Unet {
        /// Convolutions of each level.
        blocks: u32,
        /// Channels of the first level; even.
        channels: u64,
    },
    /// torchgpipe's AmoebaNet-D; a cell is one layer.
    AmoebanetD {
        /// Normal cells, a multiple of 3.
        layers: u32,
        /// Filters, a multiple of 16.
        filters: u64,
    },
    /// BERT base, uncased, 512 tokens, with a classifier of two classes.
    BertBase,
    /// BERT large, likewise.
    BertLarge,
    /// GPT-2 small, 1,024 tokens; a block is one layer, as in all transformers here.
    Gpt2,
    /// GPT-2 medium.
    Gpt2Medium,
    /// GPT-2 large.
    Gpt2Large,
    /// GPT-2 XL.
    Gpt2Xl,
    /// GPT-3 with 175 billion parameters (Brown et al. 2020), 2,048 tokens, dense attention.
    Gpt3,
    /// LLaMA 7B, 2,048 tokens.
    Llama7b,
    /// LLaMA 13B, 2,048 tokens.
    Llama13b,
    /// LLaMA-2 70B, 4,096 tokens.
    Llama70b,
    /// Mixtral 8x7B (Jiang et al. 2024), 4,096 tokens, whose experts have a capacity.
    Mixtral8x7b,
    /// Mixtral's blocks with little in them: 128 tokens, 256 different ones.
    MixtralMini,
    /// A decoder by numbers.
    Transformer(Transformer),
    /// One of the networks above for square images of another size, or for other classes:
    /// `vgg16:32`, `resnet18:32,classes=10`.
    Resized {
        /// The network.
        network: Resizable,
        /// Pixels of an edge; a multiple of 32.
        size: u64,
        /// What it tells apart.
        classes: u64,
    },
}

/// Presets with their usual sizes, in the order in which they are offered.
pub const PRESETS: [Preset; 28] = [
    Preset::Vgg16,
    Preset::Resnet50,
    Preset::Gpt2,
    Preset::BertLarge,
    Preset::Llama7b,
    Preset::Gpt3,
    Preset::Unet { blocks: 6, channels: 72 },
    Preset::AmoebanetD { layers: 18, filters: 208 },
    Preset::Alexnet,
    Preset::Caffenet,
    Preset::Googlenet,
    Preset::Vgg19,
    Preset::Resnet18,
    Preset::Resnet101,
    Preset::Resnet152,
    Preset::BertBase,
    Preset::Gpt2Medium,
    Preset::Gpt2Large,
    Preset::Gpt2Xl,
    Preset::Llama13b,
    Preset::Llama70b,
    Preset::Mixtral8x7b,
    Preset::MixtralMini,
    Preset::Fc32 { width: 5000 },
    Preset::Mlp4,
    Preset::DigitsCnn,
    Preset::CaffenetMini,
    Preset::GooglenetMini,
];

/// Presets that are a name and nothing else.
const NAMED: [(&str, Preset); 25] = [
    ("mlp4", Preset::Mlp4),
    ("digits-cnn", Preset::DigitsCnn),
    ("caffenet-mini", Preset::CaffenetMini),
    ("googlenet-mini", Preset::GooglenetMini),
    ("alexnet", Preset::Alexnet),
    ("caffenet", Preset::Caffenet),
    ("googlenet", Preset::Googlenet),
    ("vgg16", Preset::Vgg16),
    ("vgg19", Preset::Vgg19),
    ("resnet18", Preset::Resnet18),
    ("resnet50", Preset::Resnet50),
    ("resnet101", Preset::Resnet101),
    ("resnet152", Preset::Resnet152),
    ("bert-base", Preset::BertBase),
    ("bert-large", Preset::BertLarge),
    ("gpt2", Preset::Gpt2),
    ("gpt2-medium", Preset::Gpt2Medium),
    ("gpt2-large", Preset::Gpt2Large),
    ("gpt2-xl", Preset::Gpt2Xl),
    ("gpt3-175b", Preset::Gpt3),
    ("llama-7b", Preset::Llama7b),
    ("llama-13b", Preset::Llama13b),
    ("llama-70b", Preset::Llama70b),
    ("mixtral-8x7b", Preset::Mixtral8x7b),
    ("mixtral-mini", Preset::MixtralMini),
];

/// Why a text is no preset.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no model is called `{given}`; known: mlp4, fc32:WIDTH, vgg16, resnet50, digits-cnn, caffenet-mini, googlenet-mini, alexnet, \
     caffenet, googlenet, vgg19, resnet18, resnet101, resnet152, unet:BLOCKS,CHANNELS, \
     amoebanet-d:LAYERS,FILTERS, bert-base, bert-large, gpt2, gpt2-medium, gpt2-large, gpt2-xl, \
     gpt3-175b, llama-7b, llama-13b, llama-70b, mixtral-8x7b, mixtral-mini, transformer:layers=24,hidden=1024,heads=16,\
     sequence=1024,vocabulary=50257 (also kv=, ffn=, tied, gated, experts=, top_k=, capacity=); vgg and resnet \
     take a size of images, a multiple of 32, as in vgg16:32, and like alexnet, caffenet and googlenet \
     a number of classes, as in resnet18:32,classes=10"
)]
pub struct UnknownPreset {
    /// The text.
    pub given: String,
}

impl Preset {
    /// The same network for so many classes; none where it cannot have another number of them.
    pub fn with_classes(self, classes: u64) -> Option<Self> {
        let (network, size) = match self {
            Preset::Resized { network, size, .. } => (network, size),
            usual => Resizable::of(usual).map(|network| (network, network.usual_size()))?,
        };
        Some(network.preset(size, classes))
    }

    /// Builds the graph.
    ///
    /// # Errors
    /// Only for sizes that make no network, such as width 0.
    pub fn graph(self) -> Result<Graph, GraphError> {
        let name = self.to_string();
        match self {
            Preset::Mlp4 => dense::mlp4(),
            Preset::Fc32 { width } => dense::fc32(width),
            Preset::DigitsCnn => convolutional::digits_cnn(),
            Preset::CaffenetMini => convolutional::caffenet_mini(),
            Preset::GooglenetMini => googlenet::googlenet_mini(),
            Preset::Alexnet
            | Preset::Caffenet
            | Preset::Googlenet
            | Preset::Vgg16
            | Preset::Vgg19
            | Preset::Resnet18
            | Preset::Resnet50
            | Preset::Resnet101
            | Preset::Resnet152 => {
                let network = Resizable::of(self).expect("they are all in its list");
                network.graph(&name, network.usual_size(), resizable::CLASSES)
            }
            Preset::Resized { network, size, classes } => network.graph(&name, size, classes),
            Preset::Unet { blocks, channels } => unet::unet(blocks, channels),
            Preset::AmoebanetD { layers, filters } => amoebanet::amoebanet_d(layers, filters),
            Preset::BertBase => transformer::bert(&name, 12, 768, 12),
            Preset::BertLarge => transformer::bert(&name, 24, 1024, 16),
            Preset::Gpt2 => Transformer::gpt(12, 768, 12, 1024).graph(name),
            Preset::Gpt2Medium => Transformer::gpt(24, 1024, 16, 1024).graph(name),
            Preset::Gpt2Large => Transformer::gpt(36, 1280, 20, 1024).graph(name),
            Preset::Gpt2Xl => Transformer::gpt(48, 1600, 25, 1024).graph(name),
            Preset::Gpt3 => Transformer::gpt(96, 12_288, 96, 2048).graph(name),
            Preset::Llama7b => Transformer::llama(32, 4096, [32, 32], 11_008).graph(name),
            Preset::Llama13b => Transformer::llama(40, 5120, [40, 40], 13_824).graph(name),
            Preset::Llama70b => Transformer::llama(80, 8192, [64, 8], 28_672).graph(name),
            Preset::Mixtral8x7b => {
                Transformer::llama(32, 4096, [32, 8], 14_336).mixture().graph(name)
            }
            Preset::MixtralMini => Transformer::mixtral_mini().graph(name),
            Preset::Transformer(numbers) => numbers.graph(name),
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
            Preset::Fc32 { width } => write!(f, "fc32:{width}"),
            Preset::Unet { blocks, channels } => write!(f, "unet:{blocks},{channels}"),
            Preset::AmoebanetD { layers, filters } => write!(f, "amoebanet-d:{layers},{filters}"),
            Preset::Transformer(numbers) => write!(f, "transformer:{numbers}"),
            Preset::Resized { network, size, classes } => {
                write!(f, "{}:{size}", network.usual())?;
                match *classes {
                    resizable::CLASSES => Ok(()),
                    other => write!(f, ",classes={other}"),
                }
            }
            named => {
                let known = NAMED.iter().find(|(_, preset)| preset == named);
                write!(f, "{}", known.expect("every other preset is a name").0)
            }
        }
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        let unknown = || UnknownPreset { given: text.into() };
        let Some((family, sizes)) = text.split_once(':') else {
            let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, preset)| *preset);
            return named
                .or(match text {
                    "fc32" => Some(Preset::Fc32 { width: 5000 }),
                    "unet" => Some(Preset::Unet { blocks: 6, channels: 72 }),
                    "amoebanet-d" => Some(Preset::AmoebanetD { layers: 18, filters: 208 }),
                    _ => None,
                })
                .ok_or_else(unknown);
        };
        match family {
            // 2^16 squared still counts in u64 with room; zero is no layer.
            "fc32" => number(sizes, 65_536).map(|width| Preset::Fc32 { width }),
            "unet" => pair(sizes, [256, 4096])
                .filter(|(_, channels)| channels.is_multiple_of(2))
                .map(|(blocks, channels)| Preset::Unet { blocks, channels }),
            "amoebanet-d" => pair(sizes, [3 * 256, 1 << 14])
                .filter(|(layers, filters)| layers.is_multiple_of(3) && filters.is_multiple_of(16))
                .map(|(layers, filters)| Preset::AmoebanetD { layers, filters }),
            "transformer" => Transformer::parse(sizes).map(Preset::Transformer),
            other => Resizable::named(other).and_then(|network| network.parse(sizes)),
        }
        .ok_or_else(unknown)
    }
}

/// A number from 1 to `max`.
fn number(text: &str, max: u64) -> Option<u64> {
    text.parse().ok().filter(|n| (1..=max).contains(n))
}

/// `6,72`.
fn pair(text: &str, max: [u64; 2]) -> Option<(u32, u64)> {
    let (a, b) = text.split_once(',')?;
    Some((number(a, max[0])? as u32, number(b, max[1])?))
}
