//! Models and clusters to choose from: by name, or with a plan.

use crate::base::shared::Shared;
use crate::base::texts::tr;
use pipewright_core::cost::{CLUSTERS, Cluster};
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::Model;
use std::cell::RefCell;

/// A model by name, or one that came with a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelChoice {
    Preset(Preset),
    File(Shared<Graph>),
}

/// A cluster by name, or one that came with a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterChoice {
    Preset(&'static str),
    File(Shared<Cluster>),
}

impl ModelChoice {
    pub fn graph(&self) -> Shared<Graph> {
        match self {
            ModelChoice::Preset(preset) => preset_graph(*preset),
            ModelChoice::File(graph) => graph.clone(),
        }
    }

    /// The value of the select's option.
    pub fn key(&self) -> String {
        match self {
            ModelChoice::Preset(p) => p.to_string(),
            ModelChoice::File(_) => "file".into(),
        }
    }

    /// The name for people.
    pub fn title(&self) -> String {
        match self {
            ModelChoice::Preset(p) => preset_title(*p),
            ModelChoice::File(graph) => tr!("{name} (from a file)", name = graph.name()),
        }
    }

    /// Whether `graph` is what [`Self::graph`] would build.
    pub fn graph_is(&self, graph: &Shared<Graph>) -> bool {
        match self {
            ModelChoice::Preset(p) => p.to_string() == graph.name(),
            ModelChoice::File(own) => own == graph,
        }
    }

    /// The name by which profiles know it.
    pub fn name(&self) -> String {
        match self {
            ModelChoice::Preset(p) => p.to_string(),
            ModelChoice::File(graph) => graph.name().into(),
        }
    }

    /// What a plan says of it.
    pub fn model(&self) -> Model {
        match self {
            ModelChoice::Preset(p) => Model::Preset(*p),
            ModelChoice::File(graph) => Model::Graph((**graph).clone()),
        }
    }
}

/// The network of a preset; the one that was asked for last is kept, as every link asks again.
fn preset_graph(preset: Preset) -> Shared<Graph> {
    thread_local! {
        static LAST: RefCell<Option<(Preset, Shared<Graph>)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some((known, graph)) if *known == preset => graph.clone(),
        _ => {
            // Sizes that make no network are refused where texts are parsed.
            let graph = Shared::new(preset.graph().expect("presets make networks"));
            *last = Some((preset, graph.clone()));
            graph
        }
    })
}

/// The name for people.
pub fn preset_title(preset: Preset) -> String {
    let title = match preset {
        Preset::Mlp4 => "MLP, 4 layers",
        Preset::Fc32 { width } => return format!("FC 32 × {width}"),
        Preset::DigitsCnn => "Digits CNN · 8 px",
        Preset::CaffenetMini => "CaffeNet mini · 32 px",
        Preset::GooglenetMini => "GoogLeNet mini · 32 px",
        Preset::Alexnet => "AlexNet · 224 px",
        Preset::Caffenet => "CaffeNet · 227 px",
        Preset::Googlenet => "GoogLeNet · 224 px",
        Preset::Vgg16 => "VGG16 · 224 px",
        Preset::Vgg19 => "VGG19 · 224 px",
        Preset::Resnet18 => "ResNet-18 · 224 px",
        Preset::Resnet50 => "ResNet-50 · 224 px",
        Preset::Resnet101 => "ResNet-101 · 224 px",
        Preset::Resnet152 => "ResNet-152 · 224 px",
        Preset::Resized { network, size, classes } => {
            let usual = preset_title(network.usual());
            let name = usual.split(" · ").next().unwrap_or(&usual);
            return match classes {
                1000 => format!("{name} · {size} px"),
                _ => format!("{name} · {size} px · {classes} classes"),
            };
        }
        Preset::Unet { blocks, channels } => return format!("U-Net ({blocks}, {channels})"),
        Preset::AmoebanetD { layers, filters } => {
            return format!("AmoebaNet-D ({layers}, {filters})");
        }
        Preset::BertBase => "BERT base · 512 tokens",
        Preset::BertLarge => "BERT large · 512 tokens",
        Preset::Gpt2 => "GPT-2 · 1024 tokens",
        Preset::Gpt2Medium => "GPT-2 medium · 1024 tokens",
        Preset::Gpt2Large => "GPT-2 large · 1024 tokens",
        Preset::Gpt2Xl => "GPT-2 XL · 1024 tokens",
        Preset::Gpt3 => "GPT-3 175B · 2048 tokens",
        Preset::Llama7b => "LLaMA 7B · 2048 tokens",
        Preset::Llama13b => "LLaMA 13B · 2048 tokens",
        Preset::Llama70b => "LLaMA-2 70B · 4096 tokens",
        Preset::Mixtral8x7b => "Mixtral 8x7B · 4096 tokens",
        Preset::MixtralMini => "Mixtral mini · 128 tokens",
        Preset::Transformer(t) => {
            return format!("Transformer {} × {} · {} tokens", t.layers, t.hidden, t.sequence);
        }
    };
    title.into()
}

impl ClusterChoice {
    pub fn by_name(name: &str) -> Option<Self> {
        CLUSTERS.into_iter().find(|known| *known == name).map(ClusterChoice::Preset)
    }

    pub fn cluster(&self) -> Shared<Cluster> {
        match self {
            ClusterChoice::Preset(name) => {
                Shared::new(Cluster::preset(name).expect("only names of presets get here"))
            }
            ClusterChoice::File(cluster) => cluster.clone(),
        }
    }

    /// Whether `cluster` is what [`Self::cluster`] would give.
    pub fn cluster_is(&self, cluster: &Shared<Cluster>) -> bool {
        match self {
            ClusterChoice::Preset(name) => *name == cluster.name,
            ClusterChoice::File(own) => own == cluster,
        }
    }

    /// The value of the select's option.
    pub fn key(&self) -> String {
        match self {
            ClusterChoice::Preset(name) => (*name).into(),
            ClusterChoice::File(_) => "file".into(),
        }
    }
}

/// The name for people.
pub fn cluster_title(name: &str) -> String {
    match name {
        "reedbush-l" => "Reedbush-L · P100".into(),
        "laptop" => "Laptop · CPU cores".into(),
        "rtx4090" => "1 × RTX 4090 · 24 GB".into(),
        "a100" => "1 × A100 · 80 GB".into(),
        "h100" => "1 × H100 · 80 GB".into(),
        "8x-rtx4090" => "8 × RTX 4090 · 24 GB".into(),
        "8x-l4" => "8 × L4 · 24 GB".into(),
        "8x-a10" => "8 × A10 · 24 GB".into(),
        "4x-gh200" => "4 × GH200 · 96 GB".into(),
        "dgx-1-p100" => "DGX-1 · P100 16 GB".into(),
        "dgx-2" => "DGX-2 · V100 32 GB".into(),
        "dgx-a100-40gb" => "DGX A100 · 40 GB".into(),
        "dgx-a100" => "DGX A100 · 80 GB".into(),
        "dgx-h100" => "DGX H100 · 80 GB".into(),
        "hgx-h200" => "HGX H200 · 141 GB".into(),
        "hgx-b200" => "HGX B200 · 180 GB".into(),
        other => other.into(),
    }
}
