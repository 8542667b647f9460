//! Small networks with every chain of computations that a device does together, on images whose channels are
//! and are not whole runs of sixteen bytes.

use pipewright_core::graph::{Conv, Function, Graph, GraphBuilder, Op, Window};
use pipewright_core::ids::NodeId;

/// All of them.
pub fn all() -> Vec<Graph> {
    vec![residual(), plain(), blocks()]
}

fn conv(
    g: &mut GraphBuilder,
    name: &str,
    x: NodeId,
    channels: u64,
    [kernel, stride]: [u64; 2],
) -> NodeId {
    let name = format!("{name}.conv");
    g.conv(&name, x, channels, Conv { kernel, stride, padding: kernel / 2, bias: false })
}

fn norm(g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
    g.add(format!("{name}.bn"), Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, &[x])
}

/// A residual network: blocks that leave their input as it is, that project it, and that normalise first.
pub fn residual() -> Graph {
    let mut g = GraphBuilder::new("residual");
    g.layer("stem");
    let x = g.input(vec![3, 12, 12]);
    let x = conv(&mut g, "stem", x, 8, [3, 1]);
    let x = norm(&mut g, "stem", x);
    let x = g.relu("stem.relu", x);
    let mut x = g.max_pool("stem.pool", x, 3, 2);
    for (name, channels, stride) in [("same", 8, 1), ("half", 6, 2)] {
        g.layer(name);
        let part = |end: &str| format!("{name}.{end}");
        let y = conv(&mut g, &part("a"), x, channels, [3, stride]);
        let y = norm(&mut g, &part("a"), y);
        let y = g.relu(&part("relu"), y);
        let y = conv(&mut g, &part("b"), y, channels, [3, 1]);
        let y = norm(&mut g, &part("b"), y);
        if stride > 1 {
            x = conv(&mut g, &part("skip"), x, channels, [1, stride]);
            x = norm(&mut g, &part("skip"), x);
        }
        x = g.add(part("add"), Op::Add, &[y, x]);
        x = g.relu(&part("out"), x);
    }
    g.layer("first");
    // Two readers of a norm, and a sum that is read besides its ReLU.
    let y = norm(&mut g, "first", x);
    let z = conv(&mut g, "first", y, 6, [3, 1]);
    let sum = g.add("first.add", Op::Add, &[z, y]);
    let x = g.relu("first.relu", sum);
    let x = g.add("first.more", Op::Add, &[x, sum]);
    g.layer("head");
    let x = g.add("head.pool", Op::GlobalAvgPool, &[x]);
    let x = g.add("head.flatten", Op::Flatten, &[x]);
    let x = g.linear("head.fc", x, 10);
    g.loss(x, 10);
    g.finish().expect("a network")
}

/// Convolutions with biases, ReLUs and poolings.
pub fn plain() -> Graph {
    let mut g = GraphBuilder::new("plain");
    g.layer("a");
    let x = g.input(vec![3, 9, 9]);
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: true };
    let x = g.conv("a.conv", x, 6, shape);
    let x = g.relu("a.relu", x);
    let x = g.max_pool("a.pool", x, 2, 2);
    g.layer("b");
    let x = g.conv("b.conv", x, 6, shape);
    let x = g.relu("b.relu", x);
    let window = Window { kernel: [2; 2], stride: [2; 2], padding: [0; 2], ceil_mode: false };
    let x = g.add("b.pool", Op::AvgPool2d { window, count_padding: false }, &[x]);
    g.layer("head");
    let x = g.add("head.flatten", Op::Flatten, &[x]);
    let x = g.linear("head.fc1", x, 12);
    let x = g.relu("head.relu", x);
    let x = g.linear("head.fc2", x, 10);
    g.loss(x, 10);
    g.finish().expect("a network")
}

/// A transformer's blocks, GPT-2's and with LLaMA's norms.
pub fn blocks() -> Graph {
    let mut g = GraphBuilder::new("blocks");
    g.layer("embedding");
    let (length, vocabulary, features) = (6, 20, 16);
    let tokens = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features, positions: length, kinds: 0 };
    let mut x = g.add("embedding", table, &[tokens]);
    for (name, centred) in [("gpt", true), ("llama", false)] {
        g.layer(name);
        let part = |end: &str| format!("{name}.{end}");
        let norm = || match centred {
            true => Op::LayerNorm { eps: 1e-5 },
            false => Op::RmsNorm { eps: 1e-5 },
        };
        let linear = |out_features| Op::Linear { out_features, bias: centred };
        let y = g.add(part("norm1"), norm(), &[x]);
        let y = g.add(part("qkv"), linear(3 * features), &[y]);
        let attention = Op::Attention { heads: 2, kv_heads: 2, causal: true };
        let y = g.add(part("attention"), attention, &[y]);
        let y = g.add(part("proj"), linear(features), &[y]);
        x = g.add(part("add1"), Op::Add, &[y, x]);
        let y = g.add(part("norm2"), norm(), &[x]);
        let y = g.add(part("up"), linear(4 * features), &[y]);
        let y = g.activation(&part("gelu"), Function::GeluTanh, y);
        let y = g.add(part("down"), linear(features), &[y]);
        x = g.add(part("add2"), Op::Add, &[x, y]);
    }
    g.layer("head");
    let x = g.add("head.norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
    let x = g.add("head", Op::Linear { out_features: vocabulary, bias: false }, &[x]);
    g.losses(x, length, vocabulary);
    g.finish().expect("a network")
}
