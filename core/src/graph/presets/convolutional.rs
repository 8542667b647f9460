//! Chains of convolutions.

use crate::graph::{Conv, Graph, GraphBuilder, GraphError, Op, Window};
use crate::ids::NodeId;

/// Simonyan and Zisserman 2015, with as many convolutions per block (D: VGG16, E: VGG19). Every module of torchvision's lists is a layer
/// of its own, as Takisawa counts them: rectifiers and pools too.
pub(super) fn vgg(
    name: &str,
    repeats: [u32; 5],
    size: u64,
    classes: u64,
) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(name);
    g.layer("features.0");
    let mut x = g.input(vec![3, size, size]);
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
    for (channels, repeat) in [64, 128, 256, 512, 512].into_iter().zip(repeats) {
        for _ in 0..repeat {
            let conv = name(&mut g, &mut index);
            x = g.conv(&conv, x, channels, shape);
            let relu = name(&mut g, &mut index);
            x = g.relu(&relu, x);
        }
        let pool = name(&mut g, &mut index);
        x = g.max_pool(&pool, x, 2, 2);
    }
    // torchvision's avgpool to 7 x 7 changes nothing at 224 pixels and is left out at other sizes,
    // as its dropouts are.
    for (index, features) in [(0, 4096), (3, 4096), (6, classes)] {
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
    g.loss(x, classes);
    g.finish()
}

/// Krizhevsky et al. 2012 on one device, as torchvision has it (Krizhevsky 2014); without dropout.
pub(super) fn alexnet(name: &str, classes: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(name);
    g.layer("conv1");
    let x = g.input(vec![3, 224, 224]);
    let shape = |kernel, stride, padding| Conv { kernel, stride, padding, bias: true };
    let x = g.conv("features.0", x, 64, shape(11, 4, 2));
    let x = g.relu("features.1", x);
    let x = pool(&mut g, "features.2", x);
    g.layer("conv2");
    let x = g.conv("features.3", x, 192, shape(5, 1, 2));
    let x = g.relu("features.4", x);
    let mut x = pool(&mut g, "features.5", x);
    for (layer, index, channels) in [("conv3", 6, 384), ("conv4", 8, 256), ("conv5", 10, 256)] {
        g.layer(layer);
        x = g.conv(&format!("features.{index}"), x, channels, shape(3, 1, 1));
        x = g.relu(&format!("features.{}", index + 1), x);
    }
    let x = pool(&mut g, "features.12", x);
    dense(g, x, [("classifier.1", 4096), ("classifier.4", 4096), ("classifier.6", classes)])
}

/// AlexNet as Caffe has it: two groups of channels, normalisation over neighbouring channels after
/// pooling; without dropout.
pub(super) fn caffenet(name: &str, classes: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(name);
    let convs = [
        [96, 11, 4, 0, 1],
        [256, 5, 1, 2, 2],
        [384, 3, 1, 1, 1],
        [384, 3, 1, 1, 2],
        [256, 3, 1, 1, 2],
    ];
    let x = caffe_convs(&mut g, 227, convs);
    dense(g, x, [("fc6", 4096), ("fc7", 4096), ("fc8", classes)])
}

/// The same layers for small images, so that most of the parameters lie in dense layers and most of
/// the work in convolutions, as there.
pub(super) fn caffenet_mini() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("caffenet-mini");
    let convs =
        [[16, 5, 1, 2, 1], [32, 5, 1, 2, 2], [48, 3, 1, 1, 1], [48, 3, 1, 1, 2], [32, 3, 1, 1, 2]];
    let x = caffe_convs(&mut g, 32, convs);
    dense(g, x, [("fc6", 1024), ("fc7", 1024), ("fc8", 16)])
}

/// Five convolutions, each as channels, kernel, stride, padding, groups.
fn caffe_convs(g: &mut GraphBuilder, size: u64, convs: [[u64; 5]; 5]) -> NodeId {
    g.layer("conv1");
    let mut x = g.input(vec![3, size, size]);
    for (i, [out_channels, kernel, stride, padding, groups]) in (1..).zip(convs) {
        if i > 1 {
            g.layer(format!("conv{i}"));
        }
        let op = Op::Conv2d {
            out_channels,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            groups,
            bias: true,
        };
        x = g.add(format!("conv{i}"), op, &[x]);
        x = g.relu(&format!("relu{i}"), x);
        if i != 3 && i != 4 {
            x = pool(g, &format!("pool{i}"), x);
        }
        if i < 3 {
            x = g.add(
                format!("norm{i}"),
                Op::LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 1.0 },
                &[x],
            );
        }
    }
    x
}

/// Overlapping windows without border.
fn pool(g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
    let window = Window { kernel: [3; 2], stride: [2; 2], padding: [0; 2], ceil_mode: false };
    g.add(name, Op::MaxPool2d { window }, &[x])
}

/// Dense layers by name and outputs; the last one's are the classes.
fn dense(
    mut g: GraphBuilder,
    mut x: NodeId,
    layers: [(&str, u64); 3],
) -> Result<Graph, GraphError> {
    for (i, (name, features)) in layers.into_iter().enumerate() {
        g.layer(name);
        if i == 0 {
            x = g.add("flatten", Op::Flatten, &[x]);
        }
        x = g.linear(name, x, features);
        if i < 2 {
            x = g.relu(&format!("{name}.relu"), x);
        }
    }
    g.loss(x, layers[2].1);
    g.finish()
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
