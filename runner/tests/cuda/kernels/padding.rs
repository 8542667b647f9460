//! Linear layers whose outputs are no whole accesses of 16 bytes, whose rows go through scratch.

use super::layers::call;
use super::like_the_processor::compare_by;
use super::memory::{Tensor, on_the_emulator_by, run};
use crate::case::{Case, Noise};
use crate::emulator;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::padding::{PaddingLimits, padded};
use pipewright_runner::device::cuda::kernels::{
    Buffers, DevicePtr, ProductStep, Step, Storage, steps,
};
use std::cell::Cell;

const STORAGES: [Storage; 3] = [Storage::F32, Storage::Bf16, Storage::F16];

/// A layer over `rows` rows of 24 inputs.
fn linear(rows: u64, outputs: u64, bias: bool) -> Case {
    let op = Op::Linear { out_features: outputs, bias };
    Case::new(op, vec![TensorSpec::f32(vec![rows, 24])], 1)
}

/// Limits that any layer is beyond, with room for so many rows of at most 64 outputs.
fn room(rows: u64, storage: Storage) -> PaddingLimits {
    PaddingLimits { multiplications: 0, inputs: 1, room: 64 * storage.bytes() * rows }
}

/// A step whose products are padded; how many of them are made in place of one.
fn run_padded(step: &Step, storage: Storage, limits: &PaddingLimits) -> usize {
    let Step::Product(product) = step else {
        run(step, storage);
        return 0;
    };
    // TF32 is what pays in single precision.
    let product = ProductStep { tf32: storage == Storage::F32, ..*product };
    let needed = padded(&product, storage, DevicePtr::NULL, limits).expect("it is padded").scratch;
    let mut scratch = Tensor::new(needed as usize);
    let all = padded(&product, storage, scratch.at(), limits).expect("it is padded").steps;
    all.iter().for_each(|step| run(step, storage));
    scratch.bytes();
    all.iter().filter(|step| matches!(step, Step::Product(_))).count()
}

/// Rows that begin at every even place, in one part and in several, the last of which is smaller.
#[test]
fn layers_of_odd_outputs() {
    if !emulator::is_there() {
        return;
    }
    let widths = [1, 2, 3, 5, 6, 7, 9, 12, 15, 33, 58, 63];
    for (seed, outputs) in (1..).zip(widths) {
        for storage in STORAGES {
            if outputs % (16 / storage.bytes()) == 0 {
                continue;
            }
            for rows in [17, 5, 3] {
                let (limits, most) = (room(rows, storage), Cell::new(0));
                let padded = |step: &Step| {
                    most.set(run_padded(step, storage, &limits).max(most.get()));
                };
                let run = &mut |call: &Call, operands: Operands| {
                    on_the_emulator_by(storage, call, operands, &padded);
                };
                compare_by(storage, linear(17, outputs, seed % 2 == 0), seed, run);
                assert_eq!(most.get() as u64, 17_u64.div_ceil(rows));
            }
        }
    }
}

/// Zeros behind a row change no bit, nor do parts but where sums go over rows. The last outputs' weights are
/// summed up in an order of their own.
#[test]
fn the_same_bits() {
    if !emulator::is_there() {
        return;
    }
    for (storage, rows) in [Storage::Bf16, Storage::F16].into_iter().flat_map(|s| [(s, 9), (s, 2)])
    {
        let results = [false, true].map(|pads| {
            let mut case = linear(9, 45, true);
            case.fill(4);
            let limits = room(rows, storage);
            let perform = |step: &Step| match pads {
                true => drop(run_padded(step, storage, &limits)),
                false => run(step, storage),
            };
            let by = &mut |call: &Call, operands: Operands| {
                on_the_emulator_by(storage, call, operands, &perform);
            };
            let forward = case.forward(by);
            let gradient = Noise(8).vec(forward.output.len());
            let backward = case.backward(by, &forward, &gradient);
            (forward.output, backward.inputs, backward.params)
        });
        let [(y, gx, weights), (padded_y, padded_gx, padded_weights)] = results;
        assert_eq!((y, gx), (padded_y, padded_gx), "{storage:?} by {rows} rows");
        assert_eq!(weights.len(), 2);
        if rows == 9 {
            let whole = 40 * 24;
            assert_eq!(weights[0][..whole], padded_weights[0][..whole], "{storage:?}");
            assert_eq!(weights[1], padded_weights[1], "{storage:?}: of the bias");
        }
    }
}

/// The steps of a layer, and its scratch.
fn plan_of(kind: ComputationKind, sizes: [u64; 3], precision: Precision) -> (Vec<Step>, u64) {
    let [rows, inputs, outputs] = sizes;
    let op = Op::Linear { out_features: outputs, bias: false };
    let (x, y) = (TensorSpec::f32(vec![inputs]), TensorSpec::f32(vec![outputs]));
    let inputs = [&x];
    let call = Call { samples: rows, precision, ..call(&op, kind, &inputs, &y) };
    let somewhere = [DevicePtr(1 << 30); 2];
    let buffers = Buffers {
        reads: &somewhere,
        writes: &somewhere,
        params: &somewhere[..1],
        gradients: &somewhere[..1],
        ..Buffers::default()
    };
    let plan = steps(&call, &buffers, Storage::from(precision));
    (plan.steps, plan.scratch)
}

/// The head of GPT-2: all that the library is asked for has rows of whole accesses, in at most 512 MiB of
/// scratch, and takes every row and every word once.
#[test]
fn a_vocabulary_is_padded() {
    use ComputationKind::{Forward, InputGradient, WeightGradient};
    let (rows, inputs, words) = (16 * 1024, 768, 50257);
    for kind in [Forward, InputGradient, WeightGradient] {
        let (steps, scratch) = plan_of(kind, [rows, inputs, words], Precision::Bf16);
        assert!(scratch > 0 && scratch <= 512 << 20, "{kind:?}: {scratch} bytes of scratch");
        let mut multiplications = 0;
        for step in &steps {
            let Step::Product(product) = step else { continue };
            let args = product.args;
            for stride in [args.a_strides, args.b_strides, args.c_strides].concat() {
                assert!(stride == 1 || stride % 8 == 0, "{kind:?}: {args:?}");
            }
            assert!([args.a, args.b, args.c].iter().all(|place| place.0 % 16 == 0));
            multiplications += u64::from(args.m) * u64::from(args.n) * u64::from(args.k);
        }
        let columns = if kind == WeightGradient { words - 1 } else { 50304 };
        assert_eq!(multiplications, rows * inputs * columns, "{kind:?}");
        let sums = |step: &&Step| matches!(step, Step::Kernel(l) if l.kernel == "column_sums_bf16");
        let last = usize::from(kind == WeightGradient);
        assert_eq!(steps.iter().filter(sums).count(), last, "{kind:?}");
    }
}

/// What would not gain is one product, as it was.
#[test]
fn others_are_as_they_are() {
    let half = Precision::Bf16;
    let others = [
        ([4096, 768, 50304], half, "whole accesses"),
        ([4096, 768, 50257], Precision::F32, "no matrix units"),
        ([64, 768, 50257], half, "few rows"),
        ([4096, 64, 50257], half, "few inputs"),
        ([4096, 770, 50257], half, "inputs that are none either"),
        ([512, 512, 1001], half, "little to do"),
    ];
    for (sizes, precision, why) in others {
        for kind in [ComputationKind::Forward, ComputationKind::WeightGradient] {
            let (steps, scratch) = plan_of(kind, sizes, precision);
            assert!(matches!(&steps[..], [Step::Product(_)]), "{why}: {} steps", steps.len());
            assert_eq!(scratch, 0, "{why}");
        }
    }
}
