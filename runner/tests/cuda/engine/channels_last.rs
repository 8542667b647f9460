//! Images with their channels innermost: every computation that has kernels for them gives what it gives
//! otherwise, and networks train as they do otherwise.

use super::golden::compute_images;
use super::{Emulated, Make, emulated, first_gpu, train, train_and, trains_like_the_processor};
use crate::case::{Case, Noise};
use crate::common::{chains, draft_of};
use crate::emulator;
use crate::kernels::like_the_processor::compare_by;
use crate::nodes::{self, SMALL, Sizes};
use crate::vectors;
use pipewright_core::graph::autodiff::ComputationKind::{Forward, WeightGradient};
use pipewright_core::graph::{Op, TensorSpec, Window};
use pipewright_core::plan::{Precision, Program};
use pipewright_kernels::{Call, Operands, cpu};
use pipewright_runner::device::cuda::kernels::{ImageOrder, Operand, Storage};
use pipewright_runner::device::cuda::{Backend, Driver, Engine};
use pipewright_runner::device::{Accelerator, Image};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::local::LocalTransport;
use std::sync::Mutex;

pub fn emulated_last(program: &Program) -> Box<dyn Accelerator> {
    let engine = Engine::new(Emulated::default(), program.tensors(), "a rank").unwrap();
    Box::new(engine.with_images(ImageOrder::ChannelsLast))
}

/// Which of a computation's images have their channels innermost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    All,
    Reads,
    Writes,
}

/// Channels and positions of an operand that is an image.
fn size(call: &Call, operands: &Operands, operand: Operand) -> Option<[u64; 2]> {
    let (spec, len) = match (call.kind, operand) {
        (Forward, Operand::Read(at)) => (call.inputs[at], operands.reads[at].len()),
        (Forward, Operand::Write(at)) => (call.output, operands.writes[at].len()),
        (WeightGradient, Operand::Read(0)) => (call.inputs[0], operands.reads[0].len()),
        (_, Operand::Read(at)) => (call.output, operands.reads[at].len()),
        (_, Operand::Write(at)) => (call.inputs[at], operands.writes[at].len()),
        (_, Operand::Param(_)) => return None,
    };
    match spec.shape[..] {
        [channels, rows, columns] if call.samples * spec.elements() == len as u64 => {
            Some([channels, rows * columns]).filter(|size| size.iter().all(|n| *n > 1))
        }
        _ => None,
    }
}

/// Images in the other order.
fn turned(values: &[f32], [channels, plane]: [u64; 2], to_last: bool) -> Vec<f32> {
    let [outer, inner] = if to_last { [channels, plane] } else { [plane, channels] };
    let [outer, inner] = [outer as usize, inner as usize];
    let sample = |sample: &[f32]| -> Vec<f32> {
        (0..outer * inner).map(|i| sample[i % outer * inner + i / outer]).collect()
    };
    values.chunks_exact(outer * inner).flat_map(sample).collect()
}

fn borrowed<'a>(list: &'a mut [&mut [f32]]) -> Vec<&'a mut [f32]> {
    list.iter_mut().map(|values| &mut **values).collect()
}

fn compute<B: Backend>(
    make: impl Fn() -> B,
    (lie, storage): (Lie, Storage),
    call: &Call,
    operands: Operands,
) {
    let precision = match storage {
        Storage::F32 => Precision::F32,
        Storage::Bf16 => Precision::Bf16,
        Storage::F16 => Precision::F16,
    };
    let is_last = |operand| match operand {
        Operand::Read(_) => matches!(lie, Lie::All | Lie::Reads),
        Operand::Write(_) => matches!(lie, Lie::All | Lie::Writes),
        Operand::Param(_) => false,
    };
    let of = |operand| size(call, &operands, operand);
    let reads: Vec<Option<[u64; 2]>> =
        (0..operands.reads.len()).map(|at| of(Operand::Read(at))).collect();
    let writes: Vec<Option<[u64; 2]>> =
        (0..operands.writes.len()).map(|at| of(Operand::Write(at))).collect();
    let image = |operand: Operand| {
        let size = match operand {
            Operand::Read(at) => reads[at],
            Operand::Write(at) => writes[at],
            Operand::Param(_) => None,
        };
        let [channels, plane] = size?;
        Some(Image { channels, plane, channels_last: is_last(operand) })
    };
    let lies: Vec<Vec<f32>> = (operands.reads.iter().zip(&reads))
        .map(|(values, size)| match size.filter(|_| is_last(Operand::Read(0))) {
            Some(size) => turned(values, size, true),
            None => values.to_vec(),
        })
        .collect();
    let lies: Vec<&[f32]> = lies.iter().map(|values| &values[..]).collect();
    let Operands { writes: written, params, gradients, deferred, workspace, .. } = operands;
    let own = Operands {
        reads: &lies,
        writes: &mut borrowed(written),
        params: &mut borrowed(params),
        gradients: &mut borrowed(gradients),
        deferred: &mut borrowed(deferred),
        workspace,
    };
    compute_images(make, precision, call, own, &image);
    for (values, size) in written.iter_mut().zip(&writes) {
        if let Some(size) = size.filter(|_| is_last(Operand::Write(0))) {
            values.copy_from_slice(&turned(values, size, false));
        }
    }
}

fn has_kernels(case: &Case) -> bool {
    let is_image = |spec: &TensorSpec| spec.shape.len() == 3;
    let alike = case.specs.iter().all(|spec| spec.shape == case.specs[0].shape);
    case.specs.first().is_some_and(is_image)
        && match case.op {
            Op::Conv2d { groups, .. } => groups == 1,
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide => alike,
            Op::BatchNorm2d { .. }
            | Op::MaxPool2d { .. }
            | Op::AvgPool2d { .. }
            | Op::GlobalAvgPool
            | Op::Relu
            | Op::Activation { .. }
            | Op::Clip { .. }
            | Op::Affine { .. } => true,
            _ => false,
        }
}

/// PyTorch's golden vectors of images, which it computes in the other order.
fn golden<B: Backend>(make: impl Fn() -> B, storage: Storage, tolerance: f32) {
    let mut images = 0;
    vectors::within(tolerance, &mut |call, operands| {
        let has_kernels = matches!(
            call.op,
            Op::Conv2d { groups: 1, .. }
                | Op::BatchNorm2d { .. }
                | Op::MaxPool2d { .. }
                | Op::AvgPool2d { .. }
                | Op::GlobalAvgPool
                | Op::Relu
        );
        if !has_kernels || call.inputs[0].shape.len() != 3 {
            return cpu::launch(call, operands);
        }
        images += 1;
        compute(&make, (Lie::All, storage), call, operands);
    });
    assert!(images > 20, "vectors are of images, of {images} computations");
}

#[test]
fn golden_on_the_emulator() {
    if emulator::is_there() {
        golden(Emulated::default, Storage::F32, 1e-4);
        golden(Emulated::default, Storage::Bf16, 1e-2);
    }
}

#[test]
fn golden_on_a_gpu() {
    let Some(gpu) = first_gpu() else { return };
    golden(|| Driver::open(&gpu).unwrap(), Storage::F32, 1e-4);
    golden(|| Driver::open(&gpu).unwrap(), Storage::Bf16, 1e-2);
}

/// Channels of one run and of many, strips that are not whole, planes of several blocks.
fn more() -> Vec<Case> {
    let image = |channels, rows, columns| vec![TensorSpec::f32(vec![channels, rows, columns])];
    let norm = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
    let window = Window { kernel: [3, 2], stride: [2, 1], padding: [1, 0], ceil_mode: true };
    let conv = |out_channels, kernel: u64, bias| Op::Conv2d {
        out_channels,
        kernel: [kernel; 2],
        stride: [1; 2],
        padding: [kernel / 2; 2],
        dilation: [1; 2],
        groups: 1,
        bias,
    };
    vec![
        Case::new(norm.clone(), image(264, 3, 5), 2),
        Case::new(norm.clone(), image(16, 50, 41), 3),
        Case::new(norm, image(7, 30, 9), 2),
        Case::new(Op::MaxPool2d { window }, image(16, 9, 7), 3),
        Case::new(Op::AvgPool2d { window, count_padding: false }, image(24, 9, 7), 2),
        Case::new(Op::GlobalAvgPool, image(24, 7, 7), 2),
        Case::new(conv(16, 3, true), image(24, 6, 5), 2),
        Case::new(conv(12, 1, true), image(16, 6, 5), 2),
    ]
}

fn cases() -> Vec<Case> {
    let odd = Sizes { samples: 3, image: [8, 13, 11], sequence: [67, 40] };
    let all = [SMALL, odd].into_iter().flat_map(nodes::every).filter(has_kernels);
    all.chain(more()).collect()
}

#[test]
fn operations_like_the_processor() {
    if !emulator::is_there() {
        return;
    }
    for (seed, case) in (1..).zip(cases()) {
        let lies = [Lie::All, Lie::Reads, Lie::Writes];
        for (at, storage) in [Storage::F32, Storage::Bf16, Storage::F16].into_iter().enumerate() {
            let lie = lies[(at + seed as usize) % 3];
            for lie in [Lie::All, lie] {
                let run = &mut |call: &Call, operands: Operands| {
                    compute(Emulated::default, (lie, storage), call, operands);
                };
                compare_by(storage, case.clone(), seed, run);
            }
        }
    }
}

/// With cuDNN, where it is there.
#[test]
fn operations_on_a_gpu() {
    let Some(gpu) = first_gpu() else { return };
    let make = || Driver::open(&gpu).unwrap();
    for (seed, case) in (1..).zip(more()) {
        for storage in [Storage::F32, Storage::Bf16] {
            let run = &mut |call: &Call, operands: Operands| {
                compute(make, (Lie::All, storage), call, operands);
            };
            compare_by(storage, case.clone(), seed, run);
        }
    }
}

/// Whatever goes over elements, poolings, convolutions but for the gradients of their biases: the same bits.
#[test]
fn operations_have_the_same_bits() {
    if !emulator::is_there() {
        return;
    }
    let is_sum = |case: &Case| matches!(case.op, Op::BatchNorm2d { .. } | Op::GlobalAvgPool);
    for (seed, case) in (1..).zip(cases()).filter(|(_, case)| !is_sum(case)) {
        for storage in [Storage::F32, Storage::Bf16] {
            let [expected, found] = [Lie::None, Lie::All].map(|lie| {
                let run = &mut |call: &Call, operands: Operands| {
                    compute(Emulated::default, (lie, storage), call, operands);
                };
                let mut case = case.clone();
                case.fill(seed);
                let forward = case.forward(run);
                let gradient = Noise(seed).vec(forward.output.len());
                let backward = case.backward(run, &forward, &gradient);
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let weights = backward.params.first().map(|values| bits(values));
                let inputs: Vec<_> = backward.inputs.iter().map(|values| bits(values)).collect();
                let saved = forward.saved.as_ref().map(|values| bits(values));
                (bits(&forward.output), saved, inputs, weights)
            });
            assert!(expected == found, "{storage:?} {:?}", case.op);
        }
    }
}

#[test]
fn every_network_like_the_processor() {
    if emulator::is_there() {
        trains_like_the_processor(&emulated_last);
    }
}

/// Losses and parameters, which lie as everywhere whatever images do.
#[test]
fn networks_of_images_train_alike() {
    if !emulator::is_there() {
        return;
    }
    for graph in [chains::residual(), chains::plain()] {
        for (stages, precision, most) in
            [(1, Precision::F32, 1e-4), (2, Precision::F32, 1e-4), (3, Precision::Bf16, 2e-2)]
        {
            let mut draft = draft_of(graph.clone(), stages);
            (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 3);
            draft.optimizer = "sgd:lr=0.01,momentum=0.9".parse().unwrap();
            draft.training.precision = precision;
            let plan = draft.plan().unwrap().0;
            let makes: [&Make; 2] = [&emulated, &emulated_last];
            let [first, last] = makes.map(|make| train(&plan, Some(make)));
            for ((losses, values), (found, of_last)) in first.iter().zip(&last) {
                for (loss, found) in losses.iter().zip(found) {
                    assert!((loss - found).abs() <= most * loss.abs(), "{loss} {found}");
                }
                for ((name, values), (_, found)) in values.iter().zip(of_last) {
                    let largest = values.iter().fold(1e-3_f32, |most, x| most.max(x.abs()));
                    let far = values.iter().zip(found).map(|(a, b)| (a - b).abs());
                    let far = far.fold(0.0, f32::max) / largest;
                    let what = format!("{}, {stages} stages, {precision:?}", graph.name());
                    assert!(f64::from(far) <= 10.0 * most, "{what}: `{name}` is {far} off");
                }
            }
        }
    }
}

/// A run goes on where one with the other order was, as from a checkpoint: by what the host reads and writes.
#[test]
fn going_on_in_the_other_order() {
    if !emulator::is_there() {
        return;
    }
    let makes: [&Make; 2] = [&emulated, &emulated_last];
    for precision in [Precision::F32, Precision::Bf16] {
        let mut draft = draft_of(chains::residual(), 1);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 4);
        draft.optimizer = "sgd:lr=0.01,momentum=0.9".parse().unwrap();
        draft.training.precision = precision;
        let plan = draft.plan().unwrap().0;
        for (before, after) in [(0, 1), (1, 0)] {
            let saved = Mutex::new(vec![]);
            let save = |rank: &mut Rank<LocalTransport>, step: u64| {
                if step == 2 {
                    rank.fetch_persistent_state();
                    let all = rank.persistent_state();
                    *saved.lock().unwrap() = all.iter().map(|t| rank.values(t).to_vec()).collect();
                }
            };
            let expected = train_and(&plan, Some(makes[before]), &save).remove(0).0;
            // Those of its own two steps are not these.
            let load = |rank: &mut Rank<LocalTransport>, step: u64| {
                let all = rank.persistent_state().into_iter().filter(|_| step == 2);
                for (tensor, values) in all.zip(saved.lock().unwrap().iter()) {
                    rank.values_mut(&tensor).copy_from_slice(values);
                }
                if step == 0 {
                    let first = &rank.persistent_state()[0];
                    rank.values_mut(first).iter_mut().for_each(|value| *value *= -2.0);
                }
            };
            let found = train_and(&plan, Some(makes[after]), &load).remove(0).0;
            let off = |step: usize| (found[step] / expected[step] - 1.0).abs();
            let most = if precision == Precision::F32 { 1e-4 } else { 1e-2 };
            assert!(off(0) > most && off(2) < most && off(3) < most, "{expected:?} {found:?}");
        }
    }
}
