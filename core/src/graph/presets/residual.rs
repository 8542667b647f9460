//! Residual networks.

use crate::graph::{Conv, Graph, GraphBuilder, GraphError, Op};
use crate::ids::NodeId;

/// Blocks of the four stages of a network.
pub(super) struct Blocks {
    counts: [u32; 4],
    /// Bottlenecks of three convolutions; the others have two.
    deep: bool,
}

impl Blocks {
    /// Blocks of two convolutions.
    pub(super) fn basic(counts: [u32; 4]) -> Self {
        Self { counts, deep: false }
    }

    /// Bottlenecks.
    pub(super) fn deep(counts: [u32; 4]) -> Self {
        Self { counts, deep: true }
    }
}

/// He et al. 2016 as in torchvision (stride in the 3 x 3 convolution).
pub(super) fn resnet(
    name: &str,
    Blocks { counts, deep }: Blocks,
    size: u64,
    classes: u64,
) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(name);
    g.layer("stem");
    let x = g.input(vec![3, size, size]);
    let stem = Conv { kernel: 7, stride: 2, padding: 3, bias: false };
    let x = g.conv("conv1", x, 64, stem);
    let x = batch_norm(&mut g, "bn1", x);
    let x = g.relu("relu", x);
    let mut x = g.max_pool("maxpool", x, 3, 2);
    for (stage, (width, blocks)) in [64, 128, 256, 512].into_iter().zip(counts).enumerate() {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            g.layer(&name);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = match deep {
                true => bottleneck(&mut g, &name, x, width, stride, block == 0),
                false => basic(&mut g, &name, x, width, stride),
            };
        }
    }
    g.layer("fc");
    let x = g.add("avgpool", Op::GlobalAvgPool, &[x]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, classes);
    g.loss(x, classes);
    g.finish()
}

fn batch_norm(g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
    g.add(name, Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, &[x])
}

fn bottleneck(
    g: &mut GraphBuilder,
    name: &str,
    x: NodeId,
    width: u64,
    stride: u64,
    downsample: bool,
) -> NodeId {
    let point = Conv { kernel: 1, stride: 1, padding: 0, bias: false };
    let wide = Conv { kernel: 3, stride, padding: 1, bias: false };
    let part = |suffix: &str| format!("{name}.{suffix}");
    let mut y = x;
    for (i, (channels, shape)) in [(width, point), (width, wide)].into_iter().enumerate() {
        y = g.conv(&part(&format!("conv{}", i + 1)), y, channels, shape);
        y = batch_norm(g, &part(&format!("bn{}", i + 1)), y);
        y = g.relu(&part(&format!("relu{}", i + 1)), y);
    }
    y = g.conv(&part("conv3"), y, 4 * width, point);
    y = batch_norm(g, &part("bn3"), y);
    let mut skip = x;
    if downsample {
        skip = g.conv(&part("downsample.0"), x, 4 * width, Conv { stride, ..point });
        skip = batch_norm(g, &part("downsample.1"), skip);
    }
    let sum = g.add(part("add"), Op::Add, &[y, skip]);
    g.relu(&part("relu3"), sum)
}

fn basic(g: &mut GraphBuilder, name: &str, x: NodeId, width: u64, stride: u64) -> NodeId {
    let part = |end: &str| format!("{name}.{end}");
    let conv = |stride| Conv { kernel: 3, stride, padding: 1, bias: false };
    let y = g.conv(&part("conv1"), x, width, conv(stride));
    let y = batch_norm(g, &part("bn1"), y);
    let y = g.relu(&part("relu1"), y);
    let y = g.conv(&part("conv2"), y, width, conv(1));
    let y = batch_norm(g, &part("bn2"), y);
    let mut skip = x;
    if stride > 1 {
        let point = Conv { kernel: 1, stride, padding: 0, bias: false };
        skip = g.conv(&part("downsample.0"), x, width, point);
        skip = batch_norm(g, &part("downsample.1"), skip);
    }
    let sum = g.add(part("add"), Op::Add, &[y, skip]);
    g.relu(&part("relu2"), sum)
}
