//! Rows that begin at no whole access of 16 bytes, and widths around what a thread, a warp and a block take.

use super::like_the_processor::compare;
use super::memory::on_the_emulator;
use crate::case::Case;
use crate::emulator;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::Storage;

const STORAGES: [Storage; 3] = [Storage::F32, Storage::Bf16, Storage::F16];

/// Every residue of the elements of an access, and those around 32 and 256 accesses.
const WIDTHS: [u64; 18] =
    [1, 2, 3, 4, 5, 7, 8, 9, 14, 31, 127, 128, 129, 255, 257, 1023, 2048, 2051];

fn entropy(n: u64, samples: u64, smoothing: f32) -> Case {
    let targets = TensorSpec { shape: vec![], dtype: DType::U32 };
    let op = Op::SoftmaxCrossEntropy { label_smoothing: smoothing };
    Case::new(op, vec![TensorSpec::f32(vec![n]), targets], samples)
}

#[test]
fn softmax_and_its_loss() {
    if !emulator::is_there() {
        return;
    }
    for (seed, n) in (1..).zip(WIDTHS) {
        for storage in STORAGES {
            let smoothing = if seed % 3 == 0 { 0.1 } else { 0.0 };
            compare(storage, entropy(n, 9, smoothing), seed);
            for op in [Op::Softmax, Op::LogSoftmax] {
                compare(storage, Case::new(op, vec![TensorSpec::f32(vec![5, n])], 2), seed);
            }
        }
    }
}

/// Rows that have blocks of a thousand threads.
#[test]
fn a_large_vocabulary() {
    if !emulator::is_there() {
        return;
    }
    for (storage, n) in STORAGES.into_iter().zip([16387, 16393, 20001]) {
        compare(storage, entropy(n, 3, 0.0), n);
    }
}

/// Many rows a part, parts of columns, and with what a norm saved.
#[test]
fn norms_and_sums_of_columns() {
    if !emulator::is_there() {
        return;
    }
    for (seed, n) in (1..).zip(WIDTHS) {
        for storage in STORAGES {
            let rows = vec![TensorSpec::f32(vec![67, n])];
            compare(storage, Case::new(Op::LayerNorm { eps: 1e-5 }, rows.clone(), 2), seed);
            compare(storage, Case::new(Op::RmsNorm { eps: 1e-5 }, rows.clone(), 1), seed);
            let layer = Op::Linear { out_features: n.min(300), bias: true };
            compare(storage, Case::new(layer, vec![TensorSpec::f32(vec![131, 3])], 2), seed);
        }
    }
}

/// A row's bits do not follow from where it begins.
#[test]
fn the_same_row_everywhere() {
    if !emulator::is_there() {
        return;
    }
    for storage in STORAGES {
        for n in [77, 2051] {
            let mut case = entropy(n, 8, 0.0);
            case.fill(5);
            let (first, rest) = case.inputs[0].split_at_mut(n as usize);
            rest.chunks_exact_mut(n as usize).for_each(|row| row.copy_from_slice(first));
            let run = &mut |call: &Call, operands: Operands| {
                on_the_emulator(storage, call, operands);
            };
            case.inputs[1].fill(f32::from_bits(3));
            let forward = case.forward(run);
            let gradients = case.backward(run, &forward, &[]).inputs.remove(0);
            let saved = forward.saved.expect("statistics are saved");
            for (all, width) in [(saved, 2), (gradients, n as usize)] {
                let rows: Vec<&[f32]> = all.chunks_exact(width).collect();
                assert_eq!(rows.len(), 8);
                assert!(rows.iter().all(|row| *row == rows[0]), "{storage:?}, {n}");
            }
        }
    }
}

/// What has overflowed stays no number, and does not hide among those that have not.
#[test]
fn rows_with_infinities() {
    if !emulator::is_there() {
        return;
    }
    let loss_of = |at: usize, value: f32| {
        let mut case = entropy(21, 1, 0.0);
        case.fill(3);
        case.inputs[0][at] = value;
        case.inputs[1].fill(f32::from_bits(3));
        let run = &mut |call: &Call, operands: Operands| {
            on_the_emulator(Storage::F32, call, operands);
        };
        let forward = case.forward(run);
        let gradients = case.backward(run, &forward, &[]).inputs.remove(0);
        (forward.output[0], gradients[at])
    };
    for at in [0, 8, 20] {
        for value in [f32::INFINITY, f32::NAN] {
            assert!(loss_of(at, value).0.is_nan(), "{value} at {at}");
        }
        let target = loss_of(at, f32::NEG_INFINITY);
        assert_eq!(target.1, 0.0, "-inf at {at}");
        assert!(!target.0.is_nan(), "-inf at {at}");
    }
}

/// More tokens than a block looks through at a time, each of them many times, or one alone.
#[test]
fn tokens_that_come_again() {
    if !emulator::is_there() {
        return;
    }
    let tokens = TensorSpec { shape: vec![300], dtype: DType::U32 };
    for (seed, entries) in (1..).zip([1, 3, 256, 50_000]) {
        for storage in STORAGES {
            let op = Op::Embedding { entries, features: 5, positions: 300, kinds: 0 };
            compare(storage, Case::new(op, vec![tokens.clone()], 3), seed);
        }
    }
}
