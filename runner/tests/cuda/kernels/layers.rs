//! Layers of convolutional networks and of transformers in small, and what makes kernels take several
//! parts, samples or tiles at a time.

use super::like_the_processor::{STORAGES, compare, compare_by};
use super::memory::{
    Tensor, numbers, on_blocks_of, on_the_emulator, on_the_emulator_by, run, stored,
};
use crate::case::Case;
use crate::emulator;
use pipewright_core::graph::autodiff::{BackwardStyle, ComputationKind, training_graph};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_core::ids::StageId;
use pipewright_core::plan::Precision;
use pipewright_kernels::{Call, Draw, Operands, Phase, Shard, Turn};
use pipewright_runner::device::cuda::kernels::{
    Buffers, ConvolutionPass, ConvolutionStep, DevicePtr, Step, Storage, missing, steps,
};
use std::cell::RefCell;

/// Outputs, kernel, stride, groups, bias; padding keeps the size but for the stride.
fn conv(out_channels: u64, kernel: [u64; 2], stride: u64, groups: u64, bias: bool) -> Op {
    Op::Conv2d {
        out_channels,
        kernel,
        stride: [stride; 2],
        padding: kernel.map(|size| size / 2),
        dilation: [1; 2],
        groups,
        bias,
    }
}

fn image(channels: u64, rows: u64, columns: u64) -> Vec<TensorSpec> {
    vec![TensorSpec::f32(vec![channels, rows, columns])]
}

/// Of ResNet-50, VGG, MobileNet, ResNeXt, Inception and a dilated network, and a transposed one.
pub fn convolutions() -> Vec<Case> {
    let dilated = Op::Conv2d {
        out_channels: 6,
        kernel: [3, 2],
        stride: [1, 2],
        padding: [2, 1],
        dilation: [2, 3],
        groups: 1,
        bias: true,
    };
    let transposed = |out_channels, groups| Op::ConvTranspose2d {
        out_channels,
        kernel: [3, 2],
        stride: [2, 3],
        padding: [1, 0],
        output_padding: [1, 2],
        groups,
        bias: true,
    };
    vec![
        Case::new(conv(8, [7, 7], 2, 1, false), image(3, 22, 18), 3),
        Case::new(conv(16, [1, 1], 1, 1, false), image(8, 8, 8), 5),
        Case::new(conv(8, [3, 3], 1, 1, false), image(8, 8, 8), 3),
        Case::new(conv(12, [1, 1], 2, 1, false), image(8, 9, 7), 4),
        Case::new(conv(8, [3, 3], 1, 1, true), image(3, 10, 12), 3),
        Case::new(conv(6, [3, 3], 1, 6, false), image(6, 9, 10), 3),
        Case::new(conv(12, [3, 3], 2, 6, true), image(6, 9, 10), 3),
        Case::new(conv(12, [3, 3], 2, 3, false), image(6, 7, 8), 3),
        Case::new(conv(5, [1, 7], 1, 1, true), image(4, 6, 11), 3),
        Case::new(conv(5, [1, 3], 2, 1, true), image(4, 1, 23), 3),
        Case::new(dilated, image(4, 9, 12), 3),
        Case::new(transposed(6, 1), image(4, 5, 4), 3),
        Case::new(transposed(4, 4), image(4, 5, 4), 3),
    ]
}

#[test]
fn convolutions_like_the_processor() {
    if !emulator::is_there() {
        return;
    }
    for (seed, case) in (1..).zip(convolutions()) {
        for storage in STORAGES {
            compare(storage, case.clone(), seed);
        }
    }
}

/// Images too large to be unfolded all at once: fewer at a time, the last time what is left.
#[test]
fn some_samples_at_a_time() {
    if !emulator::is_there() {
        return;
    }
    for together in [1, 2] {
        for (seed, case) in (1..).zip(convolutions()) {
            let fewer = |step: &Step| match step {
                Step::Convolution(step) => {
                    assert_eq!(step.together, step.shape.samples, "small images have room");
                    run(&Step::Convolution(ConvolutionStep { together, ..*step }), Storage::F32);
                }
                other => run(other, Storage::F32),
            };
            let run = &mut |call: &Call, operands: Operands| {
                on_the_emulator_by(Storage::F32, call, operands, &fewer);
            };
            compare_by(Storage::F32, case, seed, run);
        }
    }
}

/// Channels of several parts, of runs of sixteen, eight and four bytes, and of single elements.
#[test]
fn norms_of_large_channels() {
    if !emulator::is_there() {
        return;
    }
    let images = [
        (5, image(3, 32, 40)),
        (4, image(2, 37, 41)),
        (3, image(1, 3, 7)),
        (6, image(3, 14, 14)),
        (5, image(2, 7, 38)),
    ];
    for (samples, size) in images {
        for storage in STORAGES {
            let op = Op::BatchNorm2d { eps: 1e-3, momentum: 0.1 };
            compare(storage, Case::new(op, size.clone(), samples), samples);
        }
    }
}

/// Numbers far from zero whose distances are small: their squares must not cancel. And the same bits in
/// every run.
#[test]
fn statistics_far_from_zero() {
    if !emulator::is_there() {
        return;
    }
    let op = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
    let mut case = Case::new(op, image(2, 40, 50), 4);
    case.fill(3);
    case.inputs[0].iter_mut().for_each(|x| *x = 1000.0 + *x / 16.0);
    let plane = 40 * 50;
    let channel = |channel: usize| {
        let planes = (0..4).map(move |sample| (sample * 2 + channel) * plane);
        let of = |from: usize| case.inputs[0][from..from + plane].iter().map(|x| f64::from(*x));
        planes.flat_map(of).collect::<Vec<f64>>()
    };
    let expected: Vec<[f64; 2]> = [0, 1]
        .map(|which| {
            let values = channel(which);
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
            [mean, 1.0 / (variance + 1e-5).sqrt()]
        })
        .into();
    let forward = || {
        case.clone().forward(&mut |call, operands| on_the_emulator(Storage::F32, call, operands))
    };
    let found = forward();
    assert_eq!(found, forward(), "the same bits");
    let saved = found.saved.unwrap();
    for (which, [mean, scale]) in expected.into_iter().enumerate() {
        let far = [f64::from(saved[which]) / mean, f64::from(saved[2 + which]) / scale];
        assert!(far.iter().all(|ratio| (ratio - 1.0).abs() < 1e-6), "channel {which}: {far:?}");
    }
}

/// GPUs of little shared memory have fewer rows a block, and the same bits.
#[test]
fn attention_in_little_shared_memory() {
    if !emulator::is_there() {
        return;
    }
    let tokens = TensorSpec::f32(vec![37, 9 * 72]);
    let op = Op::Attention { heads: 3, kv_heads: 3, causal: true };
    let wide = Case::new(op, vec![tokens], 2);
    let results = [96, 45, 32, 26].map(|kib| {
        let mut case = wide.clone();
        case.fill(5);
        let blocks = RefCell::new(vec![]);
        let see = |step: &Step| {
            if let Step::Kernel(launch) = step {
                assert!(launch.shared <= kib << 10, "{} asks for {}", launch.kernel, launch.shared);
                blocks.borrow_mut().push(launch.block);
            }
            run(step, Storage::F32);
        };
        let run = &mut |call: &Call, operands: Operands| {
            assert_eq!(missing(call, kib << 10), None);
            let too_little = missing(call, 25 << 10);
            assert_eq!(too_little.is_some(), call.kind != ComputationKind::Forward);
            on_blocks_of(kib << 10, Storage::F32, call, operands, &see);
        };
        let forward = case.forward(run);
        let gradient = forward.output.clone();
        let backward = case.backward(run, &forward, &gradient);
        (forward, backward.inputs, blocks.into_inner())
    });
    for (forward, gradients, _) in &results[1..] {
        assert_eq!((forward, gradients), (&results[0].0, &results[0].1));
    }
    // Threads of the forward pass, of the gradient of queries and of that of keys and values.
    let blocks = results.map(|(.., blocks)| blocks);
    assert_eq!(blocks, [[256; 3], [256, 128, 128], [128, 64, 64], [64, 32, 32]]);
}

/// All orders of three axes, larger than tiles and no multiples of them; whole runs of sixteen bytes.
#[test]
fn permutations() {
    if !emulator::is_there() {
        return;
    }
    let orders = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (seed, axes) in (1..).zip(orders) {
        for shape in [vec![9, 35, 41], vec![40, 3, 16], vec![2, 64, 8]] {
            for storage in STORAGES {
                let op = Op::Permute { axes: axes.to_vec() };
                compare(storage, Case::new(op, vec![TensorSpec::f32(shape.clone())], 2), seed);
            }
        }
    }
}

/// A computation whose tensors are somewhere, but all at once.
fn steps_of(call: &Call) -> Vec<Step> {
    let somewhere = [DevicePtr(64); 8];
    let buffers = Buffers {
        reads: &somewhere[..2],
        writes: &somewhere[..2],
        params: &somewhere[..call.op.params(call.inputs).len()],
        gradients: &somewhere[..call.op.params(call.inputs).len().min(2)],
        deferred: &[],
        scratch: somewhere[0],
        most_shared: 96 << 10,
        matrix_units: true,
        step: somewhere[0],
        channels_last: false,
        ..Buffers::default()
    };
    steps(call, &buffers, Storage::F32).steps
}

/// Transposes go through tiles, and what stays together in runs goes in runs.
#[test]
fn moves_that_are_taken() {
    let kernel = |axes: [u64; 3], shape: [u64; 3]| {
        let (op, input) = (Op::Permute { axes: axes.to_vec() }, TensorSpec::f32(shape.to_vec()));
        let output = op.infer(&[&input]).unwrap();
        let steps = steps_of(&call(&op, ComputationKind::Forward, &[&input], &output));
        let [Step::Kernel(launch)] = &steps[..] else { panic!("a copy is one launch: {steps:?}") };
        launch.kernel.clone()
    };
    assert_eq!(kernel([1, 0, 2], [12, 100, 64]), "strided_words", "heads before positions");
    assert_eq!(kernel([0, 2, 1], [12, 100, 64]), "transposed_f32", "keys for a product");
    assert_eq!(kernel([1, 0, 2], [12, 100, 63]), "strided_f32");
    assert_eq!(kernel([0, 2, 1], [12, 100, 3]), "strided_f32", "too narrow for tiles");
}

/// A computation of training, of four samples in single precision.
pub fn call<'a>(
    op: &'a Op,
    kind: ComputationKind,
    inputs: &'a [&'a TensorSpec],
    output: &'a TensorSpec,
) -> Call<'a> {
    Call {
        op,
        kind,
        inputs,
        output,
        samples: 4,
        phase: Phase::Train,
        loss_scale: 1.0,
        wanted: 1,
        threads: 1,
        draw: Draw::default(),
        turn: Turn::default(),
        shard: Shard::default(),
        precision: Precision::F32,
    }
}

/// ResNet-50 has 53 convolutions; the image's own gradient is nobody's. Every pass of each is one step
/// that the library is asked for.
#[test]
fn every_convolution_of_resnet50_is_a_step() {
    let graph = "resnet50".parse::<Preset>().unwrap().graph().unwrap();
    let division = graph.division(&[]);
    let training = training_graph(&graph, &division, StageId(0), BackwardStyle::Fused);
    let mut passes = [0; 3];
    for computation in &training.computations {
        let node = graph.node(computation.node);
        if !matches!(node.op, Op::Conv2d { .. })
            || computation.kind == ComputationKind::SumGradients
        {
            continue;
        }
        let inputs: Vec<&TensorSpec> =
            node.inputs.iter().map(|id| &graph.node(*id).output).collect();
        let steps = steps_of(&call(&node.op, computation.kind, &inputs, &node.output));
        let [Step::Convolution(step)] = &steps[..] else {
            panic!("{:?} of `{}` is {steps:?}", computation.kind, node.name);
        };
        passes[step.pass as usize] += 1;
        let whole = u64::from(step.shape.groups) * u64::from(step.shape.channels);
        assert_eq!(whole, inputs[0].shape[0], "{}", node.name);
    }
    assert_eq!(passes, [53, 52, 53]);
    assert_eq!(ConvolutionPass::WeightGradient as usize, 2);
}

/// A library adds to no gradient in single precision what it computes of halves.
#[test]
fn gradients_of_halves_are_added() {
    if !emulator::is_there() {
        return;
    }
    let (op, image) = (conv(5, [3, 3], 1, 1, false), image(7, 4, 4));
    let inputs = [&image[0]];
    let output = op.infer(&inputs).unwrap();
    let call = call(&op, ComputationKind::WeightGradient, &inputs, &output);
    for storage in STORAGES {
        let values: Vec<f32> = (0..5 * 7 * 9).map(|i| i as f32 / 8.0 - 20.0).collect();
        let mut gradient = Tensor::from(&stored(storage, &values));
        let mut sum = Tensor::from(&stored(Storage::F32, &vec![0.5; values.len()]));
        let step = ConvolutionStep { weight: sum.at(), ..ConvolutionStep::new(&call, storage) };
        run(&Step::Kernel(step.add_gradient(gradient.at(), storage)), storage);
        let rounded = numbers(storage, gradient.bytes());
        let expected: Vec<f32> = rounded.iter().map(|x| x + 0.5).collect();
        assert_eq!(numbers(Storage::F32, sum.bytes()), expected, "{storage:?}");
    }
}
