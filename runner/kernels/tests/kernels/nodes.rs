//! Nodes of every operation, small or large enough that work is split.

use crate::case::Case;
use pipewright_core::graph::{DType, Function, Interpolation, Op, RopeScaling, TensorSpec, Window};
use pipewright_core::ids::ParamId;

/// How large the nodes are.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub samples: u64,
    /// Channels, rows, columns; the channels are even.
    pub image: [u64; 3],
    /// Positions and features; the features are a multiple of 8.
    pub sequence: [u64; 2],
}

/// A few numbers a tensor.
#[allow(dead_code)] // Not every test that includes this file takes both.
pub const SMALL: Sizes = Sizes { samples: 2, image: [4, 5, 6], sequence: [5, 8] };

/// Tens of thousands.
#[allow(dead_code)] // As above.
pub const LARGE: Sizes = Sizes { samples: 3, image: [16, 41, 39], sequence: [150, 96] };

const FUNCTIONS: [Function; 14] = [
    Function::Gelu,
    Function::Silu,
    Function::Tanh,
    Function::LeakyRelu,
    Function::GeluTanh,
    Function::Sigmoid,
    Function::Exp,
    Function::Log,
    Function::HardSwish,
    Function::HardSigmoid,
    Function::Erf,
    Function::Square,
    Function::Sqrt,
    Function::Reciprocal,
];

fn spec(shape: &[u64]) -> TensorSpec {
    TensorSpec::f32(shape.to_vec())
}

/// Every operation with parameters or an input gradient, except losses and dropout.
pub fn every(sizes: Sizes) -> Vec<Case> {
    let nodes = [images(sizes), element_wise(sizes), layouts(sizes), sequences(sizes)].concat();
    nodes.into_iter().map(|(op, specs)| Case::new(op, specs, sizes.samples)).collect()
}

/// Convolutions that are computed in tiles: a block that is a part of an image, and one of several images.
#[allow(dead_code)] // As above.
pub fn in_tiles() -> Vec<Case> {
    [([64, 41, 39], 3), ([64, 14, 13], 10)]
        .map(|(image, samples): ([u64; 3], u64)| {
            let op = Op::Conv2d {
                out_channels: 64,
                kernel: [3; 2],
                stride: [1; 2],
                padding: [1; 2],
                dilation: [1; 2],
                groups: 1,
                bias: true,
            };
            Case::new(op, vec![TensorSpec::f32(image.to_vec())], samples)
        })
        .to_vec()
}

type Node = (Op, Vec<TensorSpec>);

fn images(sizes: Sizes) -> Vec<Node> {
    let [c, ..] = sizes.image;
    let pool = Window { kernel: [3; 2], stride: [2; 2], padding: [1; 2], ceil_mode: true };
    let conv = |kernel: u64, stride: u64, groups: u64| Op::Conv2d {
        out_channels: 2 * c,
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [kernel / 2; 2],
        dilation: [1; 2],
        groups,
        bias: true,
    };
    let transposed = |kernel: u64, padding: u64, groups: u64| Op::ConvTranspose2d {
        out_channels: c / 2,
        kernel: [kernel, kernel.min(2)],
        stride: [kernel.min(2); 2],
        padding: [padding, 0],
        output_padding: [padding, 0],
        groups,
        bias: true,
    };
    let response = |size, beta| Op::LocalResponseNorm { size, alpha: 0.5, beta, k: 1.0 };
    let ops = [
        conv(3, 1, 1),
        conv(3, 2, 2),
        conv(1, 1, 1),
        conv(3, 1, c),
        transposed(3, 1, 2),
        transposed(2, 0, 1),
        transposed(1, 0, 1),
        Op::MaxPool2d { window: pool },
        Op::AvgPool2d { window: pool, count_padding: true },
        Op::AvgPool2d { window: pool, count_padding: false },
        Op::GlobalAvgPool,
        Op::Upsample { factor: 2, mode: Interpolation::Nearest },
        Op::Upsample { factor: 3, mode: Interpolation::Bilinear },
        Op::BatchNorm2d { eps: 1e-3, momentum: 0.1 },
        Op::GroupNorm { groups: 2, eps: 1e-3 },
        Op::InstanceNorm2d { eps: 1e-3 },
        response(3, 0.75),
        response(4, 0.5),
    ];
    ops.into_iter().map(|op| (op, vec![spec(&sizes.image)])).collect()
}

fn element_wise(sizes: Sizes) -> Vec<Node> {
    let [c, h, w] = sizes.image;
    let [n, d] = sizes.sequence;
    let image = || spec(&sizes.image);
    let mut nodes: Vec<Node> = vec![
        (Op::Relu, vec![image()]),
        (Op::Clip { min: -0.5, max: 0.25 }, vec![image()]),
        (Op::Affine { scale: -2.0, shift: 0.5 }, vec![image()]),
        (Op::SwiGlu, vec![image(), image()]),
    ];
    nodes.extend(FUNCTIONS.map(|function| (Op::Activation { function }, vec![image()])));
    for op in [Op::Add, Op::Subtract, Op::Multiply, Op::Divide] {
        for (a, b) in [
            (image(), image()),
            (image(), spec(&[c, 1, 1])),
            (spec(&[h, w]), spec(&[c, h, 1])),
            (spec(&[n, d]), spec(&[d])),
            (spec(&[n, 1]), spec(&[1, d])),
            (spec(&[1]), spec(&[n, d])),
        ] {
            nodes.push((op.clone(), vec![a, b]));
        }
    }
    nodes
}

fn layouts(sizes: Sizes) -> Vec<Node> {
    let [c, h, w] = sizes.image;
    let image = || vec![spec(&sizes.image)];
    let mut nodes = vec![
        (Op::Slice { axis: 0, start: 1, end: c, step: 2 }, image()),
        (Op::Slice { axis: 1, start: 2, end: 5, step: 1 }, image()),
        (Op::Slice { axis: 2, start: 0, end: w, step: 4 }, image()),
        (Op::Permute { axes: vec![1, 2, 0] }, image()),
        (Op::Permute { axes: vec![1, 0, 2] }, image()),
        (Op::Permute { axes: vec![2, 1, 0] }, image()),
        (Op::Permute { axes: vec![0, 1] }, vec![spec(&[1, 1])]),
        (Op::FirstPosition, image()),
        (Op::Reshape { shape: vec![c * h, w] }, image()),
        (Op::Concat { axis: 0 }, vec![spec(&[c, h, w]), spec(&[1, h, w]), spec(&[2, h, w])]),
        (Op::Concat { axis: 2 }, vec![spec(&[c, h, w]), spec(&[c, h, 3])]),
    ];
    for (axes, keep) in [(vec![0], true), (vec![1, 2], false), (vec![0, 2], false), (vec![2], true)]
    {
        nodes.push((Op::ReduceMean { axes, keep }, image()));
    }
    nodes
}

/// Of the waves of a few positions some are long, some short, some between.
const SCALED: RopeScaling =
    RopeScaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_length: 20.0 };

fn sequences(sizes: Sizes) -> Vec<Node> {
    let [n, d] = sizes.sequence;
    let sequence = || vec![spec(&[n, d])];
    let heads = |length: u64, features: u64| spec(&[2, length, features]);
    let tokens = vec![TensorSpec { shape: vec![n], dtype: DType::U32 }];
    let table = |positions, kinds| Op::Embedding { entries: 7, features: d, positions, kinds };
    let mut nodes = vec![
        (Op::Linear { out_features: 2 * d + 3, bias: true }, sequence()),
        (Op::Linear { out_features: d, bias: false }, sequence()),
        (Op::TiedLinear { weight: ParamId(0), out_features: d + 5 }, sequence()),
        (Op::LayerNorm { eps: 1e-3 }, sequence()),
        (Op::RmsNorm { eps: 1e-3 }, sequence()),
        (Op::Softmax, sequence()),
        (Op::LogSoftmax, sequence()),
        (Op::Rope { base: 100.0, scaling: None }, vec![heads(n, d)]),
        (Op::Rope { base: 100.0, scaling: Some(SCALED) }, vec![heads(n, d)]),
        (Op::Parameter { shape: vec![n, d], trainable: true }, vec![]),
        (table(n + 1, 2), tokens.clone()),
        (table(0, 0), tokens.clone()),
        (Op::TokenPosition { token: None }, [sequence(), tokens.clone()].concat()),
        (Op::TokenPosition { token: Some(3) }, [sequence(), tokens].concat()),
        (Op::TopKSoftmax { k: 3, normalize: false }, sequence()),
        (Op::TopKSoftmax { k: 3, normalize: true }, sequence()),
        (Op::Dispatch { experts: 3, capacity: n - 1 }, vec![spec(&[n, d]), spec(&[n, 3])]),
        (Op::GroupedLinear { out_features: d + 3 }, vec![heads(n, d)]),
        (Op::Combine, vec![spec(&[n, 2]), heads(n - 1, d)]),
        (Op::MatMul { transpose_b: false }, vec![heads(n, d), heads(d, n + 2)]),
        (Op::MatMul { transpose_b: true }, vec![heads(n, d), heads(n + 2, d)]),
    ];
    for causal in [false, true] {
        nodes.push((Op::Attention { heads: 2, kv_heads: 1, causal }, sequence()));
        let separate = Op::ScaledDotProduct { scale: 0.5, causal };
        let inputs = |keys: u64| vec![heads(n, d), heads(keys, d), heads(keys, d / 2)];
        nodes.push((separate.clone(), inputs(n + 3)));
        nodes.push((separate, inputs(n - 2)));
    }
    nodes
}
