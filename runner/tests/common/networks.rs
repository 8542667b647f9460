//! Small networks that together have every operation the runner executes, with values that several
//! stages read. What a test shows of them it shows of every family of operations.

use pipewright_core::graph::{Conv, Function, Graph, GraphBuilder, Interpolation, Op, Window};
use pipewright_core::ids::NodeId;

/// All of them.
pub fn all() -> Vec<Graph> {
    vec![images(), sequence(), values(), pixels(), sentence(), experts()]
}

fn conv(channels: u64, kernel: u64, groups: u64) -> Op {
    let (stride, dilation) = ([1; 2], [1; 2]);
    let (kernel, padding) = ([kernel; 2], [kernel / 2; 2]);
    Op::Conv2d { out_channels: channels, kernel, stride, padding, dilation, groups, bias: true }
}

/// Convolutions of every kind, pooling, all normalisations of images, squeeze and excitation,
/// dropout; a class.
pub fn images() -> Graph {
    let mut g = GraphBuilder::new("images");
    g.layer("stem");
    let x = g.input(vec![4, 12, 12]);
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: false };
    let x = g.conv("stem.conv", x, 8, shape);
    let x = g.add("stem.bn", Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, &[x]);
    let stem = g.relu("stem.relu", x);
    g.layer("depthwise");
    let x = g.add("depthwise.conv", conv(8, 3, 8), &[stem]);
    let x = g.add("depthwise.norm", Op::GroupNorm { groups: 2, eps: 1e-5 }, &[x]);
    let x = g.activation("depthwise.act", Function::HardSwish, x);
    let x = g.add("pointwise.conv", conv(8, 1, 1), &[x]);
    let x = g.add("depthwise.drop", Op::Dropout { probability: 0.2 }, &[x]);
    let x = g.add("depthwise.add", Op::Add, &[x, stem]);
    let x = squeeze_and_excite(&mut g, x);
    let x = pools(&mut g, x, stem);
    g.layer("up");
    let up = Op::ConvTranspose2d {
        out_channels: 8,
        kernel: [2; 2],
        stride: [2; 2],
        padding: [0; 2],
        output_padding: [0; 2],
        groups: 1,
        bias: true,
    };
    let y = g.add("up.conv", up, &[x]);
    let y = g.add("up.norm", Op::InstanceNorm2d { eps: 1e-5 }, &[y]);
    let x = g.add("up.sample", Op::Upsample { factor: 2, mode: Interpolation::Bilinear }, &[x]);
    let x = g.add("up.conv1", conv(8, 1, 1), &[x]);
    let x = g.add("up.clip", Op::Clip { min: -2.0, max: 2.0 }, &[x]);
    let x = g.add("up.add", Op::Add, &[x, y]);
    g.layer("head");
    let mean = g.add("head.mean", Op::ReduceMean { axes: vec![1, 2], keep: true }, &[x]);
    let x = g.add("head.centred", Op::Subtract, &[x, mean]);
    let x = g.activation("head.square", Function::Square, x);
    let x = g.add("head.pool", Op::GlobalAvgPool, &[x]);
    let x = g.add("head.flatten", Op::Flatten, &[x]);
    let x = g.linear("head.fc", x, 10);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.1 }, &[x, target]);
    g.finish().expect("a network")
}

/// Every channel times a share that the whole image decides (Hu et al. 2018).
fn squeeze_and_excite(g: &mut GraphBuilder, x: NodeId) -> NodeId {
    g.layer("excite");
    let s = g.add("excite.pool", Op::GlobalAvgPool, &[x]);
    let s = g.add("excite.conv", conv(8, 1, 1), &[s]);
    let s = g.activation("excite.sigmoid", Function::Sigmoid, s);
    g.add("excite.multiply", Op::Multiply, &[x, s])
}

/// Half as many pixels, by maximum and by mean, side by side.
fn pools(g: &mut GraphBuilder, x: NodeId, skip: NodeId) -> NodeId {
    g.layer("pools");
    let window = Window { kernel: [3; 2], stride: [2; 2], padding: [1; 2], ceil_mode: false };
    let x = g.add("pools.max", Op::MaxPool2d { window }, &[x]);
    let response = Op::LocalResponseNorm { size: 3, alpha: 1e-2, beta: 0.75, k: 1.0 };
    let x = g.add("pools.lrn", response, &[x]);
    let y = g.add("pools.mean", Op::AvgPool2d { window, count_padding: false }, &[skip]);
    g.add("pools.concat", Op::Concat { axis: 0 }, &[x, y])
}

const LENGTH: u64 = 12;
const FEATURES: u64 = 16;

/// A plain and a gated block of a transformer and one whose attention is spelt out, with dropout
/// and a tied output layer; the next token.
pub fn sequence() -> Graph {
    let mut g = GraphBuilder::new("sequence");
    g.layer("embedding");
    let (length, vocabulary, features) = (LENGTH, 40, FEATURES);
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features, positions: length, kinds: 0 };
    let embedding = g.add("embedding", table, &[tokens]);
    let mut x = g.add("drop", Op::Dropout { probability: 0.1 }, &[embedding]);
    for (gated, name) in [(false, "plain"), (true, "gated")] {
        g.layer(name);
        x = block(&mut g, name, x, gated);
    }
    x = spelt_out(&mut g, x);
    g.layer("head");
    let x = g.add("head.norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
    let tied = Op::TiedLinear { weight: g.weight(embedding), out_features: vocabulary };
    let x = g.add("head", tied, &[x]);
    g.losses(x, length, vocabulary);
    g.finish().expect("a network")
}

fn dense(g: &mut GraphBuilder, name: &str, x: NodeId, out_features: u64, bias: bool) -> NodeId {
    g.add(name, Op::Linear { out_features, bias }, &[x])
}

/// One block, GPT-2's or LLaMA's.
fn block(g: &mut GraphBuilder, name: &str, x: NodeId, gated: bool) -> NodeId {
    let part = |end: &str| format!("{name}.{end}");
    let norm = |gated| match gated {
        true => Op::RmsNorm { eps: 1e-5 },
        false => Op::LayerNorm { eps: 1e-5 },
    };
    let y = g.add(part("norm1"), norm(gated), &[x]);
    let y = dense(g, &part("qkv"), y, 2 * FEATURES, !gated);
    let y = g.add(part("attention"), Op::Attention { heads: 2, kv_heads: 1, causal: true }, &[y]);
    let y = dense(g, &part("out"), y, FEATURES, !gated);
    let y = g.add(part("drop"), Op::Dropout { probability: 0.1 }, &[y]);
    let x = g.add(part("add1"), Op::Add, &[x, y]);
    let y = g.add(part("norm2"), norm(gated), &[x]);
    let up = dense(g, &part("up"), y, 2 * FEATURES, !gated);
    let y = if gated {
        let gate = dense(g, &part("gate"), y, 2 * FEATURES, false);
        g.add(part("swiglu"), Op::SwiGlu, &[gate, up])
    } else {
        g.activation(&part("gelu"), Function::Gelu, up)
    };
    let y = dense(g, &part("down"), y, FEATURES, !gated);
    g.add(part("add2"), Op::Add, &[x, y])
}

/// Attention as exporters write it: once from separate tensors, once as two products and a softmax.
fn spelt_out(g: &mut GraphBuilder, x: NodeId) -> NodeId {
    g.layer("spelt");
    let qkv = dense(g, "spelt.qkv", x, 3 * FEATURES, false);
    let head = |g: &mut GraphBuilder, name: &str, part: u64| {
        let (start, end) = (part * FEATURES, (part + 1) * FEATURES);
        let x = g.add(format!("{name}.slice"), Op::Slice { axis: 1, start, end, step: 1 }, &[qkv]);
        let shape = vec![LENGTH, 2, FEATURES / 2];
        let x = g.add(format!("{name}.heads"), Op::Reshape { shape }, &[x]);
        g.add(format!("{name}.permute"), Op::Permute { axes: vec![1, 0, 2] }, &[x])
    };
    let [q, k, v] = [("spelt.q", 0), ("spelt.k", 1), ("spelt.v", 2)].map(|(n, i)| head(g, n, i));
    let q = g.add("spelt.q.rope", Op::Rope { base: 100.0, scaling: None }, &[q]);
    let k = g.add("spelt.k.rope", Op::Rope { base: 100.0, scaling: None }, &[k]);
    let scale = (FEATURES as f32 / 2.0).sqrt().recip();
    let fused = Op::ScaledDotProduct { scale, causal: true };
    let fused = g.add("spelt.fused", fused, &[q, k, v]);
    let y = g.add("spelt.scores", Op::MatMul { transpose_b: true }, &[q, k]);
    let y = g.add("spelt.scaled", Op::Affine { scale, shift: 0.0 }, &[y]);
    let y = g.add("spelt.softmax", Op::Softmax, &[y]);
    let y = g.add("spelt.mixed", Op::MatMul { transpose_b: false }, &[y, v]);
    let y = g.add("spelt.both", Op::Add, &[y, fused]);
    let y = g.add("spelt.together", Op::Permute { axes: vec![1, 0, 2] }, &[y]);
    let y = g.add("spelt.joined", Op::Reshape { shape: vec![LENGTH, FEATURES] }, &[y]);
    let y = dense(g, "spelt.out", y, FEATURES, true);
    g.add("spelt.add", Op::Add, &[x, y])
}

/// The class of a sentence by one of its positions: tokens are read by the first stage and the last.
pub fn sentence() -> Graph {
    let mut g = GraphBuilder::new("sentence");
    g.layer("embedding");
    let tokens = g.add("tokens", Op::Tokens { length: LENGTH, vocabulary: 9 }, &[]);
    let table = Op::Embedding { entries: 9, features: FEATURES, positions: LENGTH, kinds: 0 };
    let x = g.add("embedding", table, &[tokens]);
    g.layer("block");
    let x = block(&mut g, "block", x, false);
    g.layer("pool");
    let x = g.add("pool.norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
    let end = g.add("pool.end", Op::TokenPosition { token: None }, &[x, tokens]);
    let one = g.add("pool.one", Op::TokenPosition { token: Some(1) }, &[x, tokens]);
    g.layer("head");
    let x = g.add("head.add", Op::Add, &[end, one]);
    let x = g.linear("head.fc", x, 5);
    let target = g.add("target", Op::Target { classes: 5 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    g.finish().expect("a network")
}

/// A mixture of experts by two shares of each token and one by the largest, with too few rows for all; the next token.
pub fn experts() -> Graph {
    let mut g = GraphBuilder::new("experts");
    g.layer("embedding");
    let (length, vocabulary, features) = (LENGTH, 40, FEATURES);
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features, positions: length, kinds: 0 };
    let mut x = g.add("embedding", table, &[tokens]);
    for (name, k) in [("two", 2), ("one", 1)] {
        g.layer(name);
        x = block(&mut g, name, x, true);
        g.layer(format!("{name}.moe"));
        x = mixture(&mut g, &format!("{name}.moe"), x, k);
    }
    g.layer("head");
    let x = g.add("head.norm", Op::RmsNorm { eps: 1e-5 }, &[x]);
    let x = dense(&mut g, "head", x, vocabulary, false);
    g.losses(x, length, vocabulary);
    g.finish().expect("a network")
}

/// Four experts, of which a token takes `k`.
fn mixture(g: &mut GraphBuilder, name: &str, x: NodeId, k: u64) -> NodeId {
    let part = |end: &str| format!("{name}.{end}");
    let y = g.add(part("norm"), Op::RmsNorm { eps: 1e-5 }, &[x]);
    // What mostly decides is a table that stays as it is: rounding must not choose between experts that are alike.
    let logits = dense(g, &part("router"), y, 4, false);
    let logits = g.add(part("little"), Op::Affine { scale: 0.0625, shift: 0.0 }, &[logits]);
    let table = Op::Parameter { shape: vec![LENGTH, 4], trainable: false };
    let table = g.add(part("table"), table, &[]);
    let table = g.add(part("much"), Op::Affine { scale: 4.0, shift: 0.0 }, &[table]);
    let logits = g.add(part("logits"), Op::Add, &[logits, table]);
    let shares = g.add(part("shares"), Op::TopKSoftmax { k, normalize: k > 1 }, &[logits]);
    let dispatch = Op::Dispatch { experts: 4, capacity: LENGTH * k / 4 };
    let rows = g.add(part("dispatch"), dispatch, &[y, shares]);
    let up = g.add(part("up"), Op::GroupedLinear { out_features: 2 * FEATURES }, &[rows]);
    let gate = g.add(part("gate"), Op::GroupedLinear { out_features: 2 * FEATURES }, &[rows]);
    let gate = g.activation(&part("silu"), Function::Silu, gate);
    let rows = g.add(part("multiply"), Op::Multiply, &[gate, up]);
    let rows = g.add(part("down"), Op::GroupedLinear { out_features: FEATURES }, &[rows]);
    let y = g.add(part("combine"), Op::Combine, &[shares, rows]);
    g.add(part("add"), Op::Add, &[x, y])
}

/// Learnt tensors broadcast into element-wise operations; values.
pub fn values() -> Graph {
    let mut g = GraphBuilder::new("values");
    g.layer("in");
    let x = g.input(vec![6, 8]);
    let x = g.linear("in.fc", x, FEATURES);
    let skip = g.activation("in.tanh", Function::Tanh, x);
    g.layer("class");
    let learnt = |shape: Vec<u64>| Op::Parameter { shape, trainable: true };
    let class = g.add("class.token", learnt(vec![1, FEATURES]), &[]);
    let x = g.add("class.concat", Op::Concat { axis: 0 }, &[class, skip]);
    let x = g.linear("class.mix", x, FEATURES);
    g.layer("scale");
    let scale = g.add("scale.scale", learnt(vec![7, 1]), &[]);
    let x = g.add("scale.multiply", Op::Multiply, &[scale, x]);
    let width = g.activation("scale.silu", Function::Silu, x);
    let width = g.activation("scale.sigmoid", Function::Sigmoid, width);
    let width = g.add("scale.width", Op::Affine { scale: 1.0, shift: 0.5 }, &[width]);
    let x = g.add("scale.divide", Op::Divide, &[x, width]);
    g.layer("shares");
    let y = g.linear("shares.fc", x, FEATURES);
    let y = g.add("shares.log", Op::LogSoftmax, &[y]);
    let x = g.add("shares.add", Op::Add, &[x, y]);
    let x = g.add("shares.first", Op::FirstPosition, &[x]);
    g.layer("out");
    let mean = g.add("out.mean", Op::ReduceMean { axes: vec![0], keep: false }, &[skip]);
    let x = g.add("out.add", Op::Add, &[x, mean]);
    let x = g.linear("out.fc", x, 5);
    let target = g.add("target", Op::TargetValues { shape: vec![5] }, &[]);
    g.add("loss", Op::MeanSquaredError, &[x, target]);
    g.finish().expect("a network")
}

/// A class of two for each pixel.
pub fn pixels() -> Graph {
    let mut g = GraphBuilder::new("pixels");
    g.layer("in");
    let x = g.input(vec![2, 6, 6]);
    let x = g.add("in.conv", conv(6, 3, 2), &[x]);
    let x = g.activation("in.act", Function::LeakyRelu, x);
    g.layer("middle");
    let x = g.add("middle.conv", conv(6, 3, 1), &[x]);
    let x = g.relu("middle.act", x);
    g.layer("out");
    let x = g.add("out.conv", conv(1, 1, 1), &[x]);
    let x = g.add("out.flatten", Op::Flatten, &[x]);
    let target = g.add("target", Op::Targets { count: 36, classes: 2 }, &[]);
    g.add("loss", Op::SigmoidCrossEntropy, &[x, target]);
    g.finish().expect("a network")
}
