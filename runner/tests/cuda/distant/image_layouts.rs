//! Layouts of images that follow from a program: which of them lie with their channels innermost.

use crate::common::{chains, draft_of};
use pipewright_core::graph::autodiff::ComputationKind::{Forward, InputGradient, SumGradients};
use pipewright_core::graph::{Conv, Graph, GraphBuilder, Op};
use pipewright_core::plan::{Kernel, Program};
use pipewright_core::predict::predict;
use pipewright_runner::execute::ImageLayouts;

fn programs(graph: Graph, stages: u32) -> (Graph, Vec<Program>) {
    let mut draft = draft_of(graph, stages);
    (draft.mini_batch, draft.micro_batches) = (4, 2);
    let prediction = predict(&draft.plan().unwrap().0).unwrap();
    (prediction.graph, prediction.programs)
}

/// Kernels with an image whose channels are innermost, as text: each operand, behind `>` what is written.
/// `l` lies so, `f` otherwise, `.` has one order.
fn found(graph: &Graph, program: &Program) -> Vec<String> {
    let (layouts, mut all) = (ImageLayouts::of(graph, program), vec![]);
    for stage in &program.stages {
        for (at, kernel) in stage.kernels.iter().enumerate() {
            let mark = |operand| match layouts.at(stage.stage, at, operand) {
                Some(image) if image.channels_last => 'l',
                Some(_) => 'f',
                None => '.',
            };
            let Kernel { reads, writes, .. } = kernel;
            let read: String = (0..reads.len()).map(mark).collect();
            let written: String = (reads.len()..reads.len() + writes.len()).map(mark).collect();
            if read.contains('l') || written.contains('l') {
                let kind = match kernel.kind {
                    Forward => "",
                    SumGradients => "sum of ",
                    InputGradient => "gradient of ",
                    _ => "weights of ",
                };
                let name = &graph.node(kernel.node).name;
                all.push(format!("{kind}{name} {read}>{written}"));
            }
        }
    }
    all
}

#[test]
fn convolutions_and_poolings() {
    let (graph, programs) = programs(chains::plain(), 1);
    // Samples come as everywhere, and what is flattened is made so.
    let expected = [
        "a.conv f>l",
        "a.relu l>l",
        "a.pool l>ll",
        "b.conv l>l",
        "b.relu l>l",
        "b.pool l>f",
        "gradient of b.pool f>l",
        "gradient of b.relu ll>l",
        "gradient of b.conv l>l",
        "weights of b.conv ll>",
        "gradient of a.pool ll>l",
        "gradient of a.relu ll>l",
        "weights of a.conv fl>",
    ];
    assert_eq!(found(&graph, &programs[0]), expected);
}

/// All of a residual network, but samples.
#[test]
fn a_residual_network() {
    let (graph, programs) = programs(chains::residual(), 1);
    let all = found(&graph, &programs[0]);
    let firsts: Vec<_> = all.iter().filter(|kernel| kernel.contains('f')).collect();
    // (The letter is in names as well.)
    let marks = |kernel: &&&String| kernel.rsplit(' ').next().unwrap().contains('f');
    let firsts: Vec<_> = firsts.iter().filter(marks).collect();
    assert_eq!(firsts, [&"stem.conv f>l", &"weights of stem.conv fl>"]);
    let images = ["Conv2d", "BatchNorm2d", "MaxPool2d", "GlobalAvgPool", "Relu", "Add"];
    let is_image = |kernel: &&Kernel| {
        let op = format!("{:?}", graph.node(kernel.node).op);
        images.iter().any(|name| op.starts_with(name))
    };
    assert_eq!(all.len(), programs[0].stages[0].kernels.iter().filter(is_image).count());
}

/// What goes to another stage lies as everywhere there and here, the rest does not mind.
#[test]
fn stages() {
    let (graph, programs) = programs(chains::residual(), 2);
    let all: Vec<_> = programs.iter().map(|program| found(&graph, program)).collect();
    assert!(all.iter().all(|kernels| kernels.len() > 8), "{all:#?}");
    for kernels in &all {
        let marks = kernels.iter().map(|kernel| kernel.rsplit(' ').next().unwrap());
        let firsts = marks.filter(|marks| marks.contains('f')).count();
        // What crosses and samples, each with its readers and writers.
        assert!(firsts > 0 && firsts < kernels.len() / 2, "{kernels:#?}");
    }
}

/// Operations without kernels hold what they touch, and what that is added to; networks without convolutions
/// have nothing to gain.
#[test]
fn what_stays_as_everywhere() {
    let conv = |g: &mut GraphBuilder, name: &str, x| {
        g.conv(name, x, 6, Conv { kernel: 3, stride: 1, padding: 1, bias: false })
    };
    let mut g = GraphBuilder::new("joined");
    g.layer("all");
    let x = g.input(vec![3, 9, 9]);
    let a = conv(&mut g, "a", x);
    let b = g.relu("b", a);
    let c = conv(&mut g, "c", b);
    let d = g.relu("d", c);
    let e = g.add("e", Op::Concat { axis: 0 }, &[d, d]);
    let x = g.add("pool", Op::GlobalAvgPool, &[e]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 10);
    g.loss(x, 10);
    let (graph, programs) = programs(g.finish().unwrap(), 1);
    let expected = [
        "a f>l",
        "b l>l",
        "c l>f",
        "gradient of c f>l",
        "weights of c lf>",
        "gradient of b ll>l",
        "weights of a fl>",
    ];
    assert_eq!(found(&graph, &programs[0]), expected);

    let mut g = GraphBuilder::new("none");
    g.layer("all");
    let x = g.input(vec![3, 9, 9]);
    let x = g.max_pool("pool", x, 3, 2);
    let x = g.relu("relu", x);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 10);
    g.loss(x, 10);
    let (graph, programs) = self::programs(g.finish().unwrap(), 1);
    assert!(found(&graph, &programs[0]).is_empty());
}
