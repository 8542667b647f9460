//! One golden vector: a file of tensors and what operation they belong to.

use crate::case::Case;
use pipewright_core::graph::{DType, Function, Interpolation, Op, TensorSpec, Window};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::PathBuf;

/// Where the vectors are: below the package that was built, or that this test has been taken to.
/// That is the kernels', or the runner's around it, which tests other devices by the same vectors.
pub fn folder() -> PathBuf {
    let built = || env!("CARGO_MANIFEST_DIR").into();
    let package = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| built()));
    let own = package.join("tests/vectors");
    if own.is_dir() { own } else { package.join("kernels/tests/vectors") }
}

pub struct Vector<'a> {
    pub name: String,
    /// How far numbers may be off, as a share of the largest of their tensor.
    pub tolerance: f32,
    pub op: String,
    pub attrs: Value,
    tensors: SafeTensors<'a>,
}

impl<'a> Vector<'a> {
    pub fn new(name: &str, bytes: &'a [u8]) -> Self {
        let (_, metadata) = SafeTensors::read_metadata(bytes).expect("header");
        let metadata = metadata.metadata().clone().expect("metadata");
        let attrs = serde_json::from_str(&metadata["attrs"]).expect("attrs");
        let tensors = SafeTensors::deserialize(bytes).expect("tensors");
        let (name, op) = (name.into(), metadata["op"].clone());
        Self { name, tolerance: 1e-4, op, attrs, tensors }
    }

    /// A tensor's numbers; indexes as the bits of u32.
    pub fn floats(&self, key: &str) -> Vec<f32> {
        let tensor = self.tensors.tensor(key).expect(key);
        // 64-bit indexes, little-endian: they fit the first half.
        let size = if tensor.dtype() == Dtype::I64 { 8 } else { 4 };
        let word = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        tensor.data().chunks_exact(size).map(word).collect()
    }

    pub fn shape(&self, key: &str) -> Vec<u64> {
        self.tensors.tensor(key).expect(key).shape().iter().map(|n| *n as u64).collect()
    }

    /// Names of the node's inputs, in its order.
    pub fn inputs(&self) -> &'static [&'static str] {
        match self.op.as_str() {
            "embedding" => &["i"],
            "matmul" | "add" | "sub" | "mul" => &["a", "b"],
            "concat" => &["a", "b", "c"],
            "attention" => &["q", "k", "v"],
            "swiglu" => &["g_", "x"],
            "cross_entropy" | "mse_loss" => &["x", "t"],
            _ => &["x"],
        }
    }

    /// The node with the vector's inputs and parameters.
    pub fn case(&self) -> Case {
        let keys: Vec<String> = self.inputs().iter().map(|name| format!("in.{name}")).collect();
        // Where an input lacks the batch axis, the batch is part of the shapes.
        let whole = self.name == "add_broadcast";
        let samples = if whole { 1 } else { self.shape(&keys[0])[0] };
        let spec = |key: &String| {
            let indexes = self.tensors.tensor(key).expect(key).dtype() == Dtype::I64;
            let shape = self.shape(key)[usize::from(!whole)..].to_vec();
            TensorSpec { shape, dtype: if indexes { DType::U32 } else { DType::F32 } }
        };
        let mut case = Case::new(self.node(), keys.iter().map(spec).collect(), samples);
        for (input, key) in case.inputs.iter_mut().zip(&keys) {
            *input = self.floats(key);
        }
        let params = ["in.w", "in.b"].iter().filter(|key| self.tensors.tensor(key).is_ok());
        for (key, param) in params.zip(&mut case.params) {
            *param = self.floats(key);
        }
        case
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.attrs.get(name).and_then(Value::as_u64).unwrap_or(default)
    }

    fn float(&self, name: &str) -> f32 {
        self.attrs[name].as_f64().expect(name) as f32
    }

    fn flag(&self, name: &str) -> bool {
        self.attrs.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn pair(&self, name: &str, default: u64) -> [u64; 2] {
        [self.number(name, default); 2]
    }

    /// Axes of a sample: the vectors count the batch too.
    fn axes(&self) -> Vec<u64> {
        let axes = self.attrs["axes"].as_array().expect("axes").iter();
        axes.map(|axis| axis.as_u64().expect("an axis")).filter(|a| *a > 0).map(|a| a - 1).collect()
    }

    fn axis(&self) -> u64 {
        self.number("axis", 0) - 1
    }

    fn has_bias(&self) -> bool {
        self.tensors.tensor("in.b").is_ok()
    }

    fn window(&self) -> Window {
        let (kernel, padding) = (self.pair("kernel", 1), self.pair("padding", 0));
        Window {
            kernel,
            stride: self.pair("stride", 1),
            padding,
            ceil_mode: self.flag("ceil_mode"),
        }
    }

    fn convolution(&self) -> Op {
        let weight = self.shape("in.w");
        let (kernel, bias) = ([weight[2], weight[3]], self.has_bias());
        let (stride, padding) = (self.pair("stride", 1), self.pair("padding", 0));
        let groups = self.number("groups", 1);
        if self.op == "conv2d" {
            let (out_channels, dilation) = (weight[0], self.pair("dilation", 1));
            return Op::Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias };
        }
        let (out_channels, output_padding) = (groups * weight[1], self.pair("output_padding", 0));
        Op::ConvTranspose2d { out_channels, kernel, stride, padding, output_padding, groups, bias }
    }

    fn function(&self) -> Option<Function> {
        Some(match self.op.as_str() {
            "sigmoid" => Function::Sigmoid,
            "tanh" => Function::Tanh,
            "silu" => Function::Silu,
            "gelu" if self.attrs.get("approximate").is_some() => Function::GeluTanh,
            "gelu" => Function::Gelu,
            "exp" => Function::Exp,
            "hardswish" => Function::HardSwish,
            _ => return None,
        })
    }

    fn node(&self) -> Op {
        if let Some(function) = self.function() {
            return Op::Activation { function };
        }
        match self.op.as_str() {
            "linear" => Op::Linear { out_features: self.shape("in.w")[0], bias: self.has_bias() },
            "conv2d" | "conv_transpose2d" => self.convolution(),
            "matmul" => Op::MatMul { transpose_b: false },
            "relu" => Op::Relu,
            "clip" => Op::Clip { min: self.float("min"), max: self.float("max") },
            "maxpool2d" => Op::MaxPool2d { window: self.window() },
            "avgpool2d" => {
                let count_padding = self.flag("count_include_pad");
                Op::AvgPool2d { window: self.window(), count_padding }
            }
            "global_avgpool" => Op::GlobalAvgPool,
            "batchnorm2d" => Op::BatchNorm2d { eps: self.float("eps"), momentum: 0.1 },
            "layernorm" => Op::LayerNorm { eps: self.float("eps") },
            "rmsnorm" => Op::RmsNorm { eps: self.float("eps") },
            "groupnorm" => {
                Op::GroupNorm { groups: self.number("groups", 1), eps: self.float("eps") }
            }
            "lrn" => Op::LocalResponseNorm {
                size: self.number("size", 1),
                alpha: self.float("alpha"),
                beta: self.float("beta"),
                k: self.float("k"),
            },
            "softmax" => Op::Softmax,
            "log_softmax" => Op::LogSoftmax,
            "add" => Op::Add,
            "sub" => Op::Subtract,
            "mul" => Op::Multiply,
            "concat" => Op::Concat { axis: self.axis() },
            "slice" => {
                let [start, end, step] = ["start", "end", "step"].map(|n| self.number(n, 1));
                Op::Slice { axis: self.axis(), start, end, step }
            }
            "permute" => Op::Permute { axes: self.axes() },
            "reshape" => Op::Reshape { shape: self.shape("out.0")[1..].to_vec() },
            "reduce_mean" => Op::ReduceMean { axes: self.axes(), keep: self.flag("keepdims") },
            "embedding" => {
                let weight = self.shape("in.w");
                Op::Embedding { entries: weight[0], features: weight[1], positions: 0, kinds: 0 }
            }
            "upsample" if self.attrs["mode"] == "nearest" => {
                Op::Upsample { factor: self.number("scale", 1), mode: Interpolation::Nearest }
            }
            "upsample" => {
                Op::Upsample { factor: self.number("scale", 1), mode: Interpolation::Bilinear }
            }
            "attention" => {
                let d = *self.shape("in.q").last().expect("features") as f32;
                Op::ScaledDotProduct { scale: 1.0 / d.sqrt(), causal: self.flag("causal") }
            }
            "rope" => Op::Rope { base: self.float("base"), scaling: None },
            "swiglu" => Op::SwiGlu,
            "cross_entropy" => Op::SoftmaxCrossEntropy { label_smoothing: 0.0 },
            "mse_loss" => Op::MeanSquaredError,
            other => panic!("no operation for vectors of {other}"),
        }
    }
}
