//! Every operation on the emulator beside the processor's kernel, in every storage type.

use super::memory::{numbers, on_the_emulator, stored};
use crate::case::{Case, Launch, Noise};
use crate::emulator;
use crate::nodes::{self, SMALL, Sizes};
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_kernels::cpu;
use pipewright_kernels::{Call, Draw, Operands, Shard};
use pipewright_runner::device::cuda::kernels::{Source, Storage};

/// Larger than a block and no multiple of anything.
const ODD: Sizes = Sizes { samples: 3, image: [8, 13, 11], sequence: [67, 40] };

/// One of everything.
const ONE: Sizes = Sizes { samples: 1, image: [4, 5, 6], sequence: [5, 8] };

pub(super) const STORAGES: [Storage; 3] = [Storage::F32, Storage::Bf16, Storage::F16];

pub(super) fn tolerance(storage: Storage) -> f32 {
    match storage {
        Storage::F32 => 2e-5,
        Storage::Bf16 => 2e-2,
        Storage::F16 => 3e-3,
    }
}

/// As it is after being stored: both devices begin with the same numbers.
pub(super) fn round(storage: Storage, values: &mut [f32]) {
    let rounded = numbers(storage, &stored(storage, values));
    values.copy_from_slice(&rounded);
}

pub(super) fn close((storage, within): (Storage, f32), what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        // A half has no such numbers.
        let beyond = storage == Storage::F16 && b.abs() > 65504.0 && a.is_infinite();
        // Gradients of targets are nobody's: as both began.
        let same = beyond || a.is_nan() && b.is_nan() || (a - b).abs() <= within * largest;
        assert!(same, "{what} [{i}] of {}: {a}, expected {b} (largest {largest})", got.len());
    }
}

/// Saved indexes are compared as they are; the others as numbers.
fn close_saved(of: (Storage, f32), what: &str, case: &Case, got: &[f32], expected: &[f32]) {
    if matches!(case.op, Op::MaxPool2d { .. }) {
        let bits = |x: &[f32]| -> Vec<u32> { x.iter().map(|x| x.to_bits()).collect() };
        return assert_eq!(bits(got), bits(expected), "{what}");
    }
    close(of, what, got, expected);
}

pub fn compare(storage: Storage, case: Case, seed: u64) {
    let run = &mut |call: &Call, operands: Operands| on_the_emulator(storage, call, operands);
    compare_by(storage, case, seed, run);
}

/// As [`compare`], with what runs on the emulator.
pub fn compare_by(storage: Storage, case: Case, seed: u64, run: Launch) {
    compare_within(tolerance(storage), storage, case, seed, run);
}

/// As [`compare_by`], within a part of a tensor's largest number.
pub fn compare_within(within: f32, storage: Storage, mut case: Case, seed: u64, run: Launch) {
    let of = (storage, within);
    case.fill(seed);
    for (values, spec) in case.inputs.iter_mut().zip(&case.specs) {
        if spec.dtype == DType::F32 {
            round(storage, values);
        }
    }
    case.params.iter_mut().for_each(|values| round(storage, values));
    let what = format!("{:?} {:?} {:?}", storage, case.op, case.specs);
    let mut own = case.clone();
    let expected = case.forward(&mut |call, operands| cpu::launch(call, operands));
    let got = own.forward(run);
    close(of, &what, &got.output, &expected.output);
    for (own, expected) in own.params.iter().zip(&case.params) {
        close(of, &format!("{what} statistics"), own, expected);
    }
    if let (Some(got), Some(expected)) = (&got.saved, &expected.saved) {
        close_saved(of, &format!("{what} saved"), &case, got, expected);
    }
    // The processor's results go on, as they are stored, so that errors do not add up.
    let mut forward = expected;
    round(storage, &mut forward.output);
    let mut gradient = Noise(seed + 1).vec(forward.output.len());
    round(storage, &mut gradient);
    let expected =
        case.backward(&mut |call, operands| cpu::launch(call, operands), &forward, &gradient);
    let got = own.backward(run, &forward, &gradient);
    for (i, (got, expected)) in got.inputs.iter().zip(&expected.inputs).enumerate() {
        close(of, &format!("{what} gradient {i}"), got, expected);
    }
    for (i, (got, expected)) in got.params.iter().zip(&expected.params).enumerate() {
        close(of, &format!("{what} parameter {i}"), got, expected);
    }
    // A loss has a gradient of its prediction alone.
    let inputs = if case.op.is_loss() { 1 } else { case.specs.len() };
    for input in 0..inputs {
        let Some(alone) = own.one_gradient(run, &forward, &gradient, input) else { continue };
        assert_eq!(alone, got.inputs[input], "{what}: gradient {input} alone");
    }
}

fn all(storage: Storage) {
    if !emulator::is_there() {
        return;
    }
    for (seed, sizes) in (1..).zip([ONE, SMALL, ODD]) {
        for case in nodes::every(sizes) {
            compare(storage, case, seed);
        }
    }
    for case in losses() {
        compare(storage, case, 7);
    }
}

fn losses() -> Vec<Case> {
    let classes = |shape: Vec<u64>| TensorSpec { shape, dtype: DType::U32 };
    let entropy = |smoothing| Op::SoftmaxCrossEntropy { label_smoothing: smoothing };
    let floats = |shape: &[u64]| TensorSpec::f32(shape.to_vec());
    vec![
        Case::new(entropy(0.0), vec![floats(&[10]), classes(vec![])], 5),
        Case::new(entropy(0.1), vec![floats(&[7, 1300]), classes(vec![7])], 3),
        Case::new(Op::SigmoidCrossEntropy, vec![floats(&[33]), classes(vec![33])], 4),
        Case::new(Op::MeanSquaredError, vec![floats(&[33]), floats(&[33])], 4),
    ]
}

#[test]
fn in_single_precision() {
    all(Storage::F32);
}

#[test]
fn in_bfloat16() {
    all(Storage::Bf16);
}

#[test]
fn in_half_precision() {
    all(Storage::F16);
}

/// The C struct of every kernel is as large as the bytes that it is given; see `arguments.rs`, which
/// makes both from one declaration.
#[test]
fn every_kernel_exists() {
    if !emulator::is_there() {
        return;
    }
    for source in Source::ALL {
        let kernels = source.kernels();
        assert!(!kernels.is_empty());
        for kernel in kernels {
            assert!(emulator::size(source, &kernel).is_multiple_of(8), "{kernel}");
        }
    }
}

/// The same elements are dropped, in the forward pass and in the backward one.
#[test]
fn dropout_to_the_bit() {
    if !emulator::is_there() {
        return;
    }
    let draw = Draw { seed: 11, step: (3 << 32) + 5, node: 4, first_sample: 1000 };
    // Of whole samples, and of slices that begin anywhere.
    let ranks = [(0, 1), (1, 2), (2, 4)];
    for (elements, (tensor_rank, degree)) in
        [1, 60, 255, 256, 1301].into_iter().flat_map(|elements| ranks.map(|rank| (elements, rank)))
    {
        let shard = Shard { tensor_rank, degree, vocabulary: 0 };
        let op = Op::Dropout { probability: 0.3 };
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![elements])], 3);
        case.fill(elements);
        let expected = case.forward(&mut |call, operands| {
            cpu::launch(&Call { draw, shard, ..*call }, operands);
        });
        let got = case.forward(&mut |call, operands| {
            on_the_emulator(Storage::F32, &Call { draw, shard, ..*call }, operands);
        });
        assert_eq!(got, expected, "{elements} elements, rank {tensor_rank} of {degree}");
    }
}
