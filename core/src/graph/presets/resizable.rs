//! Networks of ImageNet for images of another size, or for other classes.

use super::{Preset, convolutional, googlenet, number, residual};
use crate::graph::{Graph, GraphError};

/// Classes of ImageNet.
pub(super) const CLASSES: u64 = 1000;

/// Networks that classify images. VGG and ResNet take images of any size; VGG's first dense layer
/// grows with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resizable {
    /// AlexNet, of one size.
    Alexnet,
    /// CaffeNet, of one size.
    Caffenet,
    /// GoogLeNet, of one size.
    Googlenet,
    /// VGG16.
    Vgg16,
    /// VGG19.
    Vgg19,
    /// ResNet-18.
    Resnet18,
    /// ResNet-50.
    Resnet50,
    /// ResNet-101.
    Resnet101,
    /// ResNet-152.
    Resnet152,
}

impl Resizable {
    const ALL: [(Self, Preset); 9] = [
        (Self::Alexnet, Preset::Alexnet),
        (Self::Caffenet, Preset::Caffenet),
        (Self::Googlenet, Preset::Googlenet),
        (Self::Vgg16, Preset::Vgg16),
        (Self::Vgg19, Preset::Vgg19),
        (Self::Resnet18, Preset::Resnet18),
        (Self::Resnet50, Preset::Resnet50),
        (Self::Resnet101, Preset::Resnet101),
        (Self::Resnet152, Preset::Resnet152),
    ];

    /// The network of ImageNet.
    pub fn usual(self) -> Preset {
        let found = Self::ALL.iter().find(|(network, _)| *network == self);
        found.expect("all are in the list").1
    }

    /// The network that a preset is.
    pub(super) fn of(preset: Preset) -> Option<Self> {
        Self::ALL.iter().find(|(_, usual)| *usual == preset).map(|(network, _)| *network)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, preset)| preset.to_string() == name);
        found.map(|(network, _)| *network)
    }

    /// Pixels of an edge of its usual images.
    pub(super) fn usual_size(self) -> u64 {
        if self == Self::Caffenet { 227 } else { 224 }
    }

    /// Whether its images may have other sizes.
    pub(super) fn takes_any_size(self) -> bool {
        !matches!(self, Self::Alexnet | Self::Caffenet | Self::Googlenet)
    }

    /// The preset of that size and so many classes, in its shortest form.
    pub(super) fn preset(self, size: u64, classes: u64) -> Preset {
        match (size, classes) {
            (size, CLASSES) if size == self.usual_size() => self.usual(),
            _ => Preset::Resized { network: self, size, classes },
        }
    }

    /// Reads `32`, `32,classes=10` or `classes=10`.
    pub(super) fn parse(self, text: &str) -> Option<Preset> {
        let (size, classes) = match text.split_once(',') {
            Some((size, classes)) => (Some(size), Some(classes)),
            None if text.starts_with("classes=") => (None, Some(text)),
            None => (Some(text), None),
        };
        let any_size = self.takes_any_size();
        let fits = |size: &u64| *size == self.usual_size() || any_size && size.is_multiple_of(32);
        let size = size.map_or(Some(self.usual_size()), |text| number(text, 4096).filter(fits))?;
        let classes = match classes {
            Some(text) => number(text.strip_prefix("classes=")?, 1 << 20)?,
            None => CLASSES,
        };
        Some(Preset::Resized { network: self, size, classes })
    }

    pub(super) fn graph(self, name: &str, size: u64, classes: u64) -> Result<Graph, GraphError> {
        match self {
            Self::Alexnet => convolutional::alexnet(name, classes),
            Self::Caffenet => convolutional::caffenet(name, classes),
            Self::Googlenet => googlenet::googlenet(name, classes),
            Self::Vgg16 => convolutional::vgg(name, [2, 2, 3, 3, 3], size, classes),
            Self::Vgg19 => convolutional::vgg(name, [2, 2, 4, 4, 4], size, classes),
            Self::Resnet18 => {
                residual::resnet(name, residual::Blocks::basic([2, 2, 2, 2]), size, classes)
            }
            Self::Resnet50 => {
                residual::resnet(name, residual::Blocks::deep([3, 4, 6, 3]), size, classes)
            }
            Self::Resnet101 => {
                residual::resnet(name, residual::Blocks::deep([3, 4, 23, 3]), size, classes)
            }
            Self::Resnet152 => {
                residual::resnet(name, residual::Blocks::deep([3, 8, 36, 3]), size, classes)
            }
        }
    }
}
