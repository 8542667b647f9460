//! GoogLeNet.

use crate::graph::{Conv, Graph, GraphBuilder, GraphError, Op, Window};
use crate::ids::NodeId;

/// Outputs of an inception module: 1 x 1; 1 x 1 then 3 x 3; 1 x 1 then 3 x 3; pooled, then 1 x 1.
type Inception = (&'static str, [u64; 6]);

const MODULES: [Inception; 9] = [
    ("inception3a", [64, 96, 128, 16, 32, 32]),
    ("inception3b", [128, 128, 192, 32, 96, 64]),
    ("inception4a", [192, 96, 208, 16, 48, 64]),
    ("inception4b", [160, 112, 224, 24, 64, 64]),
    ("inception4c", [128, 128, 256, 24, 64, 64]),
    ("inception4d", [112, 144, 288, 32, 64, 64]),
    ("inception4e", [256, 160, 320, 32, 128, 128]),
    ("inception5a", [256, 160, 320, 32, 128, 128]),
    ("inception5b", [384, 192, 384, 48, 128, 128]),
];

/// Szegedy et al. 2015 as torchvision has it: batch normalisation, the "5 x 5" branch with 3 x 3
/// kernels; without dropout and without the two auxiliary classifiers (a plan has one loss). A
/// module is one layer.
pub(super) fn googlenet(name: &str, classes: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(name);
    g.layer("stem");
    let x = g.input(vec![3, 224, 224]);
    let x = unit(&mut g, "conv1", x, 64, [7, 2, 3]);
    let x = pool(&mut g, "maxpool1", x, [3, 2, 0]);
    let x = unit(&mut g, "conv2", x, 64, [1, 1, 0]);
    let x = unit(&mut g, "conv3", x, 192, [3, 1, 1]);
    let mut x = pool(&mut g, "maxpool2", x, [3, 2, 0]);
    for module in MODULES {
        g.layer(module.0);
        x = match module.0 {
            "inception4a" => pool(&mut g, "maxpool3", x, [3, 2, 0]),
            "inception5a" => pool(&mut g, "maxpool4", x, [2, 2, 0]),
            _ => x,
        };
        x = inception(&mut g, module, x);
    }
    g.layer("fc");
    let x = g.add("avgpool", Op::GlobalAvgPool, &[x]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, classes);
    g.loss(x, classes);
    g.finish()
}

/// Szegedy et al. 2015 in small: 32 x 32 images, local response normalisation in the stem and none
/// elsewhere, biases, 5 x 5 kernels in the third branch, as first published.
pub(super) fn googlenet_mini() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("googlenet-mini");
    g.layer("stem");
    let x = g.input(vec![3, 32, 32]);
    let x = plain(&mut g, "conv1", x, 16, 5);
    let x = pool(&mut g, "maxpool1", x, [3, 2, 0]);
    let x = normalised(&mut g, "norm1", x);
    let x = plain(&mut g, "conv2", x, 16, 1);
    let x = plain(&mut g, "conv3", x, 48, 3);
    let x = normalised(&mut g, "norm2", x);
    let mut x = pool(&mut g, "maxpool2", x, [3, 2, 0]);
    for (name, out) in [
        ("inception3a", [32, 32, 48, 8, 16, 16]),
        ("inception3b", [48, 48, 64, 8, 24, 24]),
        ("inception4a", [64, 64, 96, 16, 32, 32]),
        ("inception4b", [64, 64, 96, 16, 32, 32]),
        ("inception5a", [96, 96, 128, 16, 48, 48]),
    ] {
        g.layer(name);
        x = match name {
            "inception4a" | "inception5a" => pool(&mut g, &format!("{name}.pool"), x, [3, 2, 0]),
            _ => x,
        };
        let part = |end: &str| format!("{name}.{end}");
        let a = plain(&mut g, &part("branch1"), x, out[0], 1);
        let b = plain(&mut g, &part("branch2.0"), x, out[1], 1);
        let b = plain(&mut g, &part("branch2.1"), b, out[2], 3);
        let c = plain(&mut g, &part("branch3.0"), x, out[3], 1);
        let c = plain(&mut g, &part("branch3.1"), c, out[4], 5);
        let d = pool(&mut g, &part("branch4.0"), x, [3, 1, 1]);
        let d = plain(&mut g, &part("branch4.1"), d, out[5], 1);
        x = g.add(part("cat"), Op::Concat { axis: 0 }, &[a, b, c, d]);
    }
    g.layer("fc");
    let x = g.add("avgpool", Op::GlobalAvgPool, &[x]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 16);
    g.loss(x, 16);
    g.finish()
}

/// Convolution that keeps the size, and rectifier.
fn plain(g: &mut GraphBuilder, name: &str, x: NodeId, channels: u64, kernel: u64) -> NodeId {
    let conv = Conv { kernel, stride: 1, padding: kernel / 2, bias: true };
    let x = g.conv(name, x, channels, conv);
    g.relu(&format!("{name}.relu"), x)
}

fn normalised(g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
    let norm = Op::LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 1.0 };
    g.add(name, norm, &[x])
}

fn inception(g: &mut GraphBuilder, (name, out): Inception, x: NodeId) -> NodeId {
    let part = |end: &str| format!("{name}.{end}");
    let point = [1, 1, 0];
    let a = unit(g, &part("branch1"), x, out[0], point);
    let b = unit(g, &part("branch2.0"), x, out[1], point);
    let b = unit(g, &part("branch2.1"), b, out[2], [3, 1, 1]);
    let c = unit(g, &part("branch3.0"), x, out[3], point);
    let c = unit(g, &part("branch3.1"), c, out[4], [3, 1, 1]);
    let d = pool(g, &part("branch4.0"), x, [3, 1, 1]);
    let d = unit(g, &part("branch4.1"), d, out[5], point);
    g.add(part("cat"), Op::Concat { axis: 0 }, &[a, b, c, d])
}

/// Convolution, normalisation, rectifier; `shape` is kernel, stride, padding.
fn unit(g: &mut GraphBuilder, name: &str, x: NodeId, channels: u64, shape: [u64; 3]) -> NodeId {
    let [kernel, stride, padding] = shape;
    let conv = Conv { kernel, stride, padding, bias: false };
    let x = g.conv(&format!("{name}.conv"), x, channels, conv);
    let x = g.add(format!("{name}.bn"), Op::BatchNorm2d { eps: 1e-3, momentum: 0.1 }, &[x]);
    g.relu(&format!("{name}.relu"), x)
}

fn pool(g: &mut GraphBuilder, name: &str, x: NodeId, shape: [u64; 3]) -> NodeId {
    let [kernel, stride, padding] = shape;
    let window =
        Window { kernel: [kernel; 2], stride: [stride; 2], padding: [padding; 2], ceil_mode: true };
    g.add(name, Op::MaxPool2d { window }, &[x])
}
