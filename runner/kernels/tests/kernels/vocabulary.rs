//! Tables and losses that a tensor group divides by entries, against whole ones.

use super::training::{PADDING, call, close, gradient, noise, run};
use pipewright_core::graph::autodiff::{ComputationKind, PARTIAL_LOSS_WORDS};
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_kernels::cpu::launch;
use pipewright_kernels::{Call, Operands, Shard};

fn indexes(count: u64) -> TensorSpec {
    TensorSpec { shape: vec![count], dtype: DType::U32 }
}

/// Columns `from` to before `to` of rows of `width`, zeros beyond it.
fn columns(rows: &[f32], width: usize, [from, to]: [usize; 2]) -> Vec<f32> {
    let of_row = |row: &[f32]| -> Vec<f32> {
        (from..to).map(|at| row.get(at).copied().unwrap_or(0.0)).collect()
    };
    rows.chunks_exact(width).flat_map(of_row).collect()
}

fn divided_loss_is_the_whole_one(smoothing: f32, degree: u32, classes: usize) {
    let what = format!("smoothing {smoothing}, {degree} ranks, {classes} classes");
    let (samples, positions) = (6usize, 3usize);
    let rows = samples * positions;
    let logits = noise(3, rows * classes);
    let mut targets: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
    targets[rows - positions..].fill(PADDING);
    let words: Vec<f32> = targets.iter().map(|t| f32::from_bits(*t)).collect();
    let op = Op::SoftmaxCrossEntropy { label_smoothing: smoothing };
    let (target, output) = (indexes(positions as u64), TensorSpec::f32(vec![]));
    let whole = TensorSpec::f32(vec![positions as u64, classes as u64]);
    let inputs = [&whole, &target];
    let forward = Call { samples: samples as u64, ..call(&op, &inputs, &output) };
    let backward = Call { kind: ComputationKind::InputGradient, ..forward };
    let expected = run(&forward, &[&logits, &words], &[2, 2 * rows]);
    let whole_gradient = gradient(&backward, &[&logits, &words, &expected[1]]);

    let own = classes.div_ceil(degree as usize);
    let part = TensorSpec::f32(vec![positions as u64, own as u64]);
    let inputs = [&part, &target];
    let ranks: Vec<(Shard, Vec<f32>)> = (0..degree)
        .map(|tensor_rank| {
            let first = tensor_rank as usize * own;
            let shard = Shard { tensor_rank, degree, vocabulary: classes as u64 };
            (shard, columns(&logits, classes, [first, first + own]))
        })
        .collect();
    let of = |shard: Shard| Call { samples: samples as u64, shard, ..call(&op, &inputs, &output) };
    let numbers = degree as usize * rows * PARTIAL_LOSS_WORDS as usize;
    let mut told = vec![0.0; numbers];
    for (shard, logits) in &ranks {
        let partial = Call { kind: ComputationKind::PartialLoss, ..of(*shard) };
        let own = run(&partial, &[logits, &words], &[numbers]).remove(0);
        told.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    let mut losses = vec![];
    for (shard, logits) in &ranks {
        let out = run(&of(*shard), &[logits, &words, &told], &[2, 2 * rows]);
        losses.push([out[0][0].to_bits(), out[0][1].to_bits()]);
        let backward = Call { kind: ComputationKind::InputGradient, ..of(*shard) };
        let found = gradient(&backward, &[logits, &words, &out[1]]);
        let first = shard.tensor_rank as usize * own;
        let expected = columns(&whole_gradient, classes, [first, first + own]);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{what}: {found} instead of {expected}");
        }
    }
    assert!(losses.iter().all(|words| *words == losses[0]), "{what}: all ranks have one loss");
    close(f64::from(f32::from_bits(losses[0][0])), f64::from(expected[0][0]), &what);
    assert_eq!(losses[0][1], expected[0][1].to_bits(), "{what}: correct predictions");
}

#[test]
fn divided_losses_are_whole_ones() {
    for smoothing in [0.0, 0.1] {
        // Even parts, a last one that is shorter, and one without any.
        for (degree, classes) in [(2, 300), (4, 301), (4, 5)] {
            divided_loss_is_the_whole_one(smoothing, degree, classes);
        }
    }
}

/// What a rank writes and what it adds to the gradients of its tables.
fn looked_up(
    call: &Call,
    words: &[f32],
    (gy, mut tables): (&[f32], Vec<Vec<f32>>),
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let mut gradients: Vec<Vec<f32>> = tables.iter().map(|table| vec![0.0; table.len()]).collect();
    let mut out = vec![f32::NAN; gy.len()];
    for kind in [ComputationKind::Forward, ComputationKind::WeightGradient] {
        let is_forward = kind == ComputationKind::Forward;
        let reads = [words, gy];
        let mut params: Vec<&mut [f32]> = tables.iter_mut().map(|table| &mut table[..]).collect();
        let mut of_tables: Vec<&mut [f32]> = gradients.iter_mut().map(|g| &mut g[..]).collect();
        let mut writes: Vec<&mut [f32]> = vec![&mut out];
        let operands = Operands {
            reads: if is_forward { &reads[..1] } else { &reads },
            writes: if is_forward { &mut writes } else { &mut [] },
            params: &mut params,
            gradients: &mut of_tables,
            deferred: &mut [],
            workspace: &mut [],
        };
        launch(&Call { kind, ..*call }, operands);
    }
    (out, gradients)
}

/// The sum over ranks is the whole; each row of the table has its gradient on one rank, positions on all.
#[test]
fn divided_tables_are_whole_ones() {
    let (samples, length, features, entries) = (3u64, 4u64, 5u64, 7u64);
    let spec = indexes(length);
    let output = TensorSpec::f32(vec![length, features]);
    let tokens: Vec<f32> = (0..12u32).map(|i| f32::from_bits(i * 5 % 7)).collect();
    let gy = noise(4, (samples * length * features) as usize);
    let table = noise(5, (entries * features) as usize);
    let others = [noise(6, (length * features) as usize), noise(7, 2 * features as usize)];
    let embedding = |entries| Op::Embedding { entries, features, positions: length, kinds: 2 };
    let (op, inputs) = (embedding(entries), [&spec]);
    let whole = Call { samples, ..call(&op, &inputs, &output) };
    let tables = |own: Vec<f32>| [&[own][..], &others].concat();
    let (expected, gradients) = looked_up(&whole, &tokens, (&gy, tables(table.clone())));
    let (degree, op) = (4, embedding(2));
    let mut sum = vec![0.0; expected.len()];
    for tensor_rank in 0..degree {
        let shard = Shard { tensor_rank, degree, vocabulary: entries };
        let part = (tensor_rank * 10) as usize..((tensor_rank + 1) * 10).min(35) as usize;
        let mut own = vec![0.0; 10];
        own[..part.len()].copy_from_slice(&table[part.clone()]);
        let of_rank = Call { samples, shard, ..call(&op, &inputs, &output) };
        let (out, found) = looked_up(&of_rank, &tokens, (&gy, tables(own)));
        sum.iter_mut().zip(out).for_each(|(sum, own)| *sum += own);
        assert_eq!(found[0][..part.len()], gradients[0][part], "rank {tensor_rank}");
        assert_eq!(found[1..], gradients[1..], "rank {tensor_rank}");
    }
    for (sum, expected) in sum.iter().zip(expected) {
        assert!((sum - expected).abs() < 1e-6, "{sum} instead of {expected}");
    }
}
