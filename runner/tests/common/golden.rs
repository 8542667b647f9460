//! Training runs of PyTorch (tests/data/golden/train): ONNX files, data, optimizers and the losses
//! that came out.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::onnx::{Loss, Options};
use pipewright_core::plan::{Data, DataParallel, Draft, Model, Optimizer, Plan};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::onnx::OnnxFile;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Their folders.
pub const NAMES: [&str; 7] =
    ["mlp4", "minivgg", "minicaffe", "minigoogle", "miniresnet", "miniunet", "minigpt"];

/// Whether an element of a tensor is a bias of minigpt's keys. They cancel in the softmax: their
/// gradient is zero but for rounding, which Adam makes a step of.
pub fn is_key_bias(tensor: &str, index: usize, len: usize) -> bool {
    tensor.ends_with("qkv.bias") && (len / 3..2 * len / 3).contains(&index)
}

/// `expected.json`.
#[derive(Deserialize)]
pub struct Expected {
    loss: String,
    optimizer: Sketch,
    batch: u64,
    pub steps: u64,
    /// By number of micro-batches.
    pub runs: BTreeMap<u32, Losses>,
}

#[derive(Deserialize)]
struct Sketch {
    kind: String,
    lr: f32,
    #[serde(default)]
    momentum: f32,
    #[serde(default)]
    betas: [f32; 2],
    #[serde(default)]
    eps: f32,
    weight_decay: f32,
}

#[derive(Deserialize)]
pub struct Losses {
    pub loss_f64: Vec<f64>,
}

/// One of [`NAMES`].
pub struct Golden {
    pub name: String,
    pub folder: PathBuf,
    pub graph: Graph,
    pub expected: Expected,
}

impl Golden {
    pub fn open(name: &str) -> Self {
        let built = || env!("CARGO_MANIFEST_DIR").into();
        // Where it was built, or where this test has been taken to.
        let package = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| built());
        let data = Path::new(&package).join("../tests/data/golden/train");
        let folder = data.join(name).canonicalize().unwrap();
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let loss = match expected.loss.as_str() {
            "mse" => Loss::MeanSquaredError,
            _ => Loss::CrossEntropy,
        };
        let options = Options { loss, ..Options::default() };
        let file = OnnxFile::open(&folder.join("model.onnx"), &options).unwrap();
        assert!(file.imported().unsupported.is_empty(), "{:?}", file.imported().unsupported);
        let graph = file.imported().graph.clone();
        Self { name: name.into(), folder, graph, expected }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().into()
    }

    /// A plan, with cuts anywhere: as many nodes in each stage.
    pub fn plan(&self, kind: ScheduleKind, stages: u32, m: u32, replicas: u32) -> Plan {
        let nodes = self.graph.nodes().len() as u32;
        let cuts = (1..stages).map(|i| (i * nodes / stages).max(i)).collect();
        let cluster = Cluster::preset("laptop").unwrap();
        let mut draft = Draft::new(Model::Graph(self.graph.clone()), cluster, cuts);
        (draft.schedule, draft.micro_batches) = (kind, m);
        draft.data_parallel = DataParallel::ddp(replicas);
        (draft.mini_batch, draft.steps) = (self.expected.batch, self.expected.steps);
        (draft.data, draft.shuffle) =
            (Data::Safetensors { file: self.file("data.safetensors") }, false);
        let Sketch { kind, lr, momentum, betas, eps, weight_decay } = &self.expected.optimizer;
        draft.optimizer = match kind.as_str() {
            "sgd" => Optimizer::Sgd {
                learning_rate: *lr,
                momentum: *momentum,
                weight_decay: *weight_decay,
                nesterov: false,
            },
            _ => Optimizer::AdamW {
                learning_rate: *lr,
                beta1: betas[0],
                beta2: betas[1],
                eps: *eps,
                weight_decay: *weight_decay,
            },
        };
        let name = format!("{} {stages}", draft.schedule);
        let mut plan = draft.plan().unwrap_or_else(|e| panic!("{name}: {e}")).0;
        plan.weights = Some(self.file("model.onnx"));
        plan
    }
}
