//! Convolutional networks.

use crate::graph::{Conv, Graph, GraphBuilder, GraphError, Op};
use crate::ids::NodeId;

/// Configuration D of Simonyan and Zisserman 2015. Every module of torchvision's lists is a layer
/// of its own, as Takisawa counts them: rectifiers and pools too.
pub(super) fn vgg16() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("vgg16");
    g.layer("features.0");
    let mut x = g.input(vec![3, 224, 224]);
    let mut index = 0;
    let name = |g: &mut GraphBuilder, index: &mut u32| {
        let name = format!("features.{index}");
        if *index > 0 {
            g.layer(&name);
        }
        *index += 1;
        name
    };
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: true };
    for (channels, repeat) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..repeat {
            let conv = name(&mut g, &mut index);
            x = g.conv(&conv, x, channels, shape);
            let relu = name(&mut g, &mut index);
            x = g.relu(&relu, x);
        }
        let pool = name(&mut g, &mut index);
        x = g.max_pool(&pool, x, 2, 2);
    }
    // torchvision's avgpool to 7 x 7 changes nothing at this image size; its dropouts are left out.
    for (index, features) in [(0, 4096), (3, 4096), (6, 1000)] {
        let name = format!("classifier.{index}");
        g.layer(&name);
        if index == 0 {
            x = g.add("flatten", Op::Flatten, &[x]);
        }
        x = g.linear(&name, x, features);
        if index < 6 {
            let name = format!("classifier.{}", index + 1);
            g.layer(&name);
            x = g.relu(&name, x);
        }
    }
    g.loss(x, 1000);
    g.finish()
}

/// He et al. 2016 as in torchvision (stride in the 3 x 3 convolution).
pub(super) fn resnet50() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("resnet50");
    g.layer("stem");
    let x = g.input(vec![3, 224, 224]);
    let stem = Conv { kernel: 7, stride: 2, padding: 3, bias: false };
    let x = g.conv("conv1", x, 64, stem);
    let x = batch_norm(&mut g, "bn1", x);
    let x = g.relu("relu", x);
    let mut x = g.max_pool("maxpool", x, 3, 2);
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            g.layer(&name);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = bottleneck(&mut g, &name, x, width, stride, block == 0);
        }
    }
    g.layer("fc");
    let x = g.add("avgpool", Op::GlobalAvgPool, &[x]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 1000);
    g.loss(x, 1000);
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

/// Three convolutions and two dense layers on 1 x 8 x 8 images. No batch norm: its statistics
/// depend on the size of the micro-batch, and this network shows that pipelining changes nothing.
pub(super) fn digits_cnn() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("digits-cnn");
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: true };
    g.layer("conv1");
    let x = g.input(vec![1, 8, 8]);
    let x = g.conv("conv1", x, 32, shape);
    let x = g.relu("relu1", x);
    g.layer("conv2");
    let x = g.conv("conv2", x, 32, shape);
    let x = g.relu("relu2", x);
    g.layer("pool1");
    let x = g.max_pool("pool1", x, 2, 2);
    g.layer("conv3");
    let x = g.conv("conv3", x, 64, shape);
    let x = g.relu("relu3", x);
    g.layer("pool2");
    let x = g.max_pool("pool2", x, 2, 2);
    g.layer("fc1");
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc1", x, 128);
    let x = g.relu("relu4", x);
    g.layer("fc2");
    let x = g.linear("fc2", x, 10);
    g.loss(x, 10);
    g.finish()
}
