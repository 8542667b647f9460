//! Golden vectors: what PyTorch computes in double precision (see `tests/data/ops`).

use crate::case::{Case, Launch};
use pipewright_core::graph::{DType, Op, TensorSpec, Window};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

/// Largest difference allowed, as a share of the largest expected number of a tensor.
const TOLERANCE: f32 = 1e-4;

/// The vectors of the operations that a graph can contain.
const VECTORS: [&str; 17] = [
    "linear",
    "linear_3d_nobias",
    "conv2d_s1p1",
    "conv2d_s2p1",
    "conv2d_s2p3k7",
    "conv2d_d2",
    "conv2d_g4",
    "conv2d_dw",
    "conv2d_k1",
    "relu",
    "maxpool_k2s2",
    "maxpool_k3s2p1",
    "maxpool_ceil",
    "avgpool_k3s1p1",
    "global_avgpool",
    "batchnorm_train",
    "cross_entropy",
];

/// Compares output, input gradient and parameter gradients of every vector.
pub fn suite(launch: Launch) {
    for name in VECTORS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ops");
        let bytes = std::fs::read(path.join(format!("{name}.safetensors"))).expect(name);
        check(name, &bytes, launch);
    }
}

fn check(name: &str, bytes: &[u8], launch: Launch) {
    let vector = Vector::new(bytes);
    let mut case = vector.case();
    let mut forward = case.forward(launch);
    if let Op::SoftmaxCrossEntropy { .. } = case.op {
        // The vector has the mean; the kernel gives the sum and leaves the mean to the scale.
        case.loss_scale = vector.floats("gout.0")[0] / case.samples as f32;
        forward.output[0] /= case.samples as f32;
        close(name, "out.0", &forward.output[..1], &vector.floats("out.0"));
    } else {
        close(name, "out.0", &forward.output, &vector.floats("out.0"));
    }
    let backward = case.backward(launch, &forward, &vector.floats("gout.0"));
    close(name, "gin.x", &backward.input, &vector.floats("gin.x"));
    for (key, gradient) in ["gin.w", "gin.b"].iter().zip(&backward.params) {
        close(name, key, gradient, &vector.floats(key));
    }
}

fn close(name: &str, key: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{name} {key}");
    let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= TOLERANCE * largest, "{name} {key}[{i}]: {a}, expected {b}");
    }
}

struct Vector<'a> {
    tensors: SafeTensors<'a>,
    op: String,
    attrs: Value,
}

impl<'a> Vector<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (_, metadata) = SafeTensors::read_metadata(bytes).expect("header");
        let metadata = metadata.metadata().clone().expect("metadata");
        let attrs = serde_json::from_str(&metadata["attrs"]).expect("attrs");
        let tensors = SafeTensors::deserialize(bytes).expect("tensors");
        Self { tensors, op: metadata["op"].clone(), attrs }
    }

    fn floats(&self, key: &str) -> Vec<f32> {
        let words = self.tensors.tensor(key).expect(key).data().chunks_exact(4);
        words.map(|word| f32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    }

    fn shape(&self, key: &str) -> Vec<u64> {
        self.tensors.tensor(key).expect(key).shape().iter().map(|n| *n as u64).collect()
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.attrs.get(name).and_then(Value::as_u64).unwrap_or(default)
    }

    fn pair(&self, name: &str, default: u64) -> [u64; 2] {
        [self.number(name, default); 2]
    }

    fn has_bias(&self) -> bool {
        self.tensors.tensor("in.b").is_ok()
    }

    fn window(&self) -> Window {
        let ceil_mode = self.attrs.get("ceil_mode").and_then(Value::as_bool).unwrap_or(false);
        let (kernel, padding) = (self.pair("kernel", 1), self.pair("padding", 0));
        Window { kernel, stride: self.pair("stride", 1), padding, ceil_mode }
    }

    fn op(&self) -> Op {
        match self.op.as_str() {
            "linear" => Op::Linear { out_features: self.shape("in.w")[0], bias: self.has_bias() },
            "conv2d" => {
                let weight = self.shape("in.w");
                Op::Conv2d {
                    out_channels: weight[0],
                    kernel: [weight[2], weight[3]],
                    stride: self.pair("stride", 1),
                    padding: self.pair("padding", 0),
                    dilation: self.pair("dilation", 1),
                    groups: self.number("groups", 1),
                    bias: self.has_bias(),
                }
            }
            "relu" => Op::Relu,
            "maxpool2d" => Op::MaxPool2d { window: self.window() },
            "avgpool2d" => Op::AvgPool2d { window: self.window(), count_padding: true },
            "global_avgpool" => Op::GlobalAvgPool,
            "batchnorm2d" => {
                let eps = self.attrs["eps"].as_f64().expect("eps") as f32;
                Op::BatchNorm2d { eps, momentum: 0.1 }
            }
            "cross_entropy" => Op::SoftmaxCrossEntropy { label_smoothing: 0.0 },
            other => panic!("no operation for vectors of {other}"),
        }
    }

    fn case(&self) -> Case {
        let shape = self.shape("in.x");
        let mut specs = vec![TensorSpec::f32(shape[1..].to_vec())];
        let op = self.op();
        if let Op::SoftmaxCrossEntropy { .. } = op {
            specs.push(TensorSpec { shape: vec![], dtype: DType::U32 });
        }
        let mut case = Case::new(op, specs, shape[0]);
        case.inputs[0] = self.floats("in.x");
        if let Some(targets) = case.inputs.get_mut(1) {
            let classes = self.tensors.tensor("in.t").expect("targets").data().chunks_exact(8);
            // 64-bit, little-endian: a class fits the first half.
            let class = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            *targets = classes.map(|word| f32::from_bits(class(word))).collect();
        }
        for (key, param) in ["in.w", "in.b"].iter().zip(&mut case.params) {
            *param = self.floats(key);
        }
        case
    }
}
