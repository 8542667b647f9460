//! Computations of ranks of a tensor group on the emulator beside the processor's: entries of a table, experts, classes
//! of a loss, positions of a sample.

use super::layers::call;
use super::like_the_processor::{STORAGES, close, round, tolerance};
use super::memory::on_the_emulator;
use crate::case::Noise;
use crate::emulator;
use pipewright_core::graph::autodiff::{ComputationKind, PARTIAL_LOSS_WORDS};
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_kernels::{Call, Operands, Shard, cpu};
use pipewright_runner::device::cuda::kernels::{Operand, Storage, is_stored};

const SAMPLES: u64 = 4;

/// What a computation is given: what it reads, its parameters, and the sizes of what it writes.
#[derive(Clone, Default)]
struct Given {
    reads: Vec<Vec<f32>>,
    params: Vec<Vec<f32>>,
    writes: Vec<usize>,
}

impl Given {
    /// What is written, and gradients after something was added to them.
    fn to(&self, call: &Call, run: &mut dyn FnMut(&Call, Operands)) -> Vec<Vec<f32>> {
        let adds = call.kind == ComputationKind::WeightGradient;
        let gradients = if adds { &self.params[..] } else { &[] };
        let mut gradients: Vec<Vec<f32>> = gradients.iter().map(|p| vec![0.5; p.len()]).collect();
        let mut written: Vec<Vec<f32>> = self.writes.iter().map(|n| vec![f32::NAN; *n]).collect();
        let mut params = self.params.clone();
        let reads: Vec<&[f32]> = self.reads.iter().map(|read| &read[..]).collect();
        let mut writes: Vec<&mut [f32]> = written.iter_mut().map(|w| &mut w[..]).collect();
        let mut of_params: Vec<&mut [f32]> = params.iter_mut().map(|p| &mut p[..]).collect();
        let mut of_gradients: Vec<&mut [f32]> = gradients.iter_mut().map(|g| &mut g[..]).collect();
        let operands = Operands {
            reads: &reads,
            writes: &mut writes,
            params: &mut of_params,
            gradients: &mut of_gradients,
            deferred: &mut [],
            workspace: &mut [f32::NAN; 4096],
        };
        run(call, operands);
        [written, gradients].concat()
    }

    /// By the emulator what the processor gives, which is returned.
    #[track_caller]
    fn alike(mut self, storage: Storage, what: &str, call: &Call) -> [Vec<Vec<f32>>; 2] {
        let stored = |operand| is_stored(call, operand);
        let reads = self.reads.iter_mut().enumerate().filter(|(i, _)| stored(Operand::Read(*i)));
        reads.for_each(|(_, values)| round(storage, values));
        let params = self.params.iter_mut().enumerate().filter(|(i, _)| stored(Operand::Param(*i)));
        params.for_each(|(_, values)| round(storage, values));
        let expected = self.to(call, &mut |call, operands| cpu::launch(call, operands));
        let run = &mut |call: &Call, operands: Operands| on_the_emulator(storage, call, operands);
        let found = self.to(call, run);
        for (found, expected) in found.iter().zip(&expected) {
            close_to((storage, what), found, expected);
        }
        [expected, found]
    }
}

/// Of an empty row both have the same largest number: none.
#[track_caller]
fn close_to((storage, what): (Storage, &str), found: &[f32], expected: &[f32]) {
    let finite = |value: f32, other: f32| {
        let none = value == f32::NEG_INFINITY && other == f32::NEG_INFINITY;
        if none { 0.0 } else { value }
    };
    let pairs = || found.iter().zip(expected);
    let own: Vec<f32> = pairs().map(|(a, b)| finite(*a, *b)).collect();
    let other: Vec<f32> = pairs().map(|(a, b)| finite(*b, *a)).collect();
    close((storage, tolerance(storage)), &format!("{what}, {storage:?}"), &own, &other);
}

fn spec(shape: &[u64]) -> TensorSpec {
    TensorSpec::f32(shape.to_vec())
}

fn indexes(count: u64) -> TensorSpec {
    TensorSpec { shape: vec![count], dtype: DType::U32 }
}

fn words(indexes: &[u32]) -> Vec<f32> {
    indexes.iter().map(|index| f32::from_bits(*index)).collect()
}

/// Tokens of other ranks, and a last rank with one entry that is nobody's.
#[test]
fn entries_of_a_table() {
    if !emulator::is_there() {
        return;
    }
    let (length, features, entries, degree) = (5, 9, 2, 4);
    let op = Op::Embedding { entries, features, positions: length, kinds: 2 };
    let (tokens, output) = (indexes(length), spec(&[length, features]));
    let inputs = [&tokens];
    let rows = SAMPLES * length;
    let read: Vec<u32> = (0..rows as u32).map(|i| i * 5 % 7).collect();
    for (tensor_rank, storage) in (0..degree).flat_map(|rank| STORAGES.map(|s| (rank, s))) {
        let shard = Shard { tensor_rank, degree, vocabulary: 7 };
        let mut noise = Noise(u64::from(tensor_rank) + 3);
        let params: Vec<Vec<f32>> =
            [entries, length, 2].map(|rows| noise.vec((rows * features) as usize)).to_vec();
        let given = Given { reads: vec![words(&read)], params, writes: vec![] };
        let size = (rows * features) as usize;
        let forward = Call { shard, ..call(&op, ComputationKind::Forward, &inputs, &output) };
        let of_forward = Given { writes: vec![size], ..given.clone() };
        of_forward.alike(storage, &format!("embedding, rank {tensor_rank}"), &forward);
        let weights = Call { kind: ComputationKind::WeightGradient, ..forward };
        let reads = vec![words(&read), noise.vec(size)];
        let of_weights = Given { reads, ..given };
        of_weights.alike(storage, &format!("its gradient, rank {tensor_rank}"), &weights);
    }
}

/// Shares that are zero for most experts; more tokens have some than there are rows.
#[test]
fn tokens_of_some_experts() {
    if !emulator::is_there() {
        return;
    }
    let (tokens, all, capacity, features) = (29, 6, 4, 10);
    let (x, shares) = (spec(&[tokens, features]), spec(&[tokens, all]));
    for (degree, tensor_rank, storage) in
        [(2, 0), (2, 1), (3, 1), (6, 5)].into_iter().flat_map(|(d, r)| STORAGES.map(|s| (d, r, s)))
    {
        let own = all / u64::from(degree);
        let rows = spec(&[own, capacity, features]);
        let shard = Shard { tensor_rank, degree, vocabulary: 0 };
        let mut noise = Noise(u64::from(degree * 10 + tensor_rank));
        let mut of = |spec: &TensorSpec| noise.vec((SAMPLES * spec.elements()) as usize);
        let [given_x, given_rows, gy, grows] = [&x, &rows, &x, &rows].map(&mut of);
        let share = |v: f32| if v > 0.3 { v } else { 0.0 };
        let given_shares: Vec<f32> = of(&shares).into_iter().map(share).collect();
        let what = format!("rank {tensor_rank} of {degree}");
        let dispatch = Op::Dispatch { experts: own, capacity };
        let inputs = [&x, &shares];
        let forward = Call { shard, ..call(&dispatch, ComputationKind::Forward, &inputs, &rows) };
        let (reads, writes) = (vec![given_x, given_shares.clone()], vec![given_rows.len()]);
        let params = vec![];
        Given { reads, writes, params }.alike(storage, &format!("dispatch, {what}"), &forward);
        let backward = Call { kind: ComputationKind::InputGradient, ..forward };
        let (reads, writes) = (vec![given_shares.clone(), grows], vec![gy.len()]);
        let params = vec![];
        Given { reads, writes, params }.alike(storage, &format!("its gradient, {what}"), &backward);
        let inputs = [&shares, &rows];
        let forward = Call { shard, ..call(&Op::Combine, ComputationKind::Forward, &inputs, &x) };
        let reads = vec![given_shares.clone(), given_rows.clone()];
        let (writes, params) = (vec![gy.len()], vec![]);
        Given { reads, writes, params }.alike(storage, &format!("combine, {what}"), &forward);
        let backward = Call { kind: ComputationKind::InputGradient, wanted: 3, ..forward };
        let writes = vec![given_shares.len(), given_rows.len()];
        let (reads, params) = (vec![given_shares, given_rows, gy], vec![]);
        Given { reads, writes, params }.alike(
            storage,
            &format!("its gradients, {what}"),
            &backward,
        );
    }
}

const PADDING: u32 = u32::MAX;

/// What all ranks of a group tell each other is the processor's; all come to one loss.
fn classes(storage: Storage, smoothing: f32, degree: u32, classes: u64) {
    let positions = 3;
    let rows = SAMPLES * positions;
    let own = classes.div_ceil(u64::from(degree));
    let op = Op::SoftmaxCrossEntropy { label_smoothing: smoothing };
    let (logits, target, output) = (spec(&[positions, own]), indexes(positions), spec(&[]));
    let inputs = [&logits, &target];
    let mut targets: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
    targets[rows as usize - 2..].fill(PADDING);
    let targets = words(&targets);
    let numbers = (u64::from(degree) * rows * PARTIAL_LOSS_WORDS) as usize;
    let (mut told, mut losses) = (vec![0.0; numbers], vec![]);
    let each = |tensor_rank: u32| {
        let shard = Shard { tensor_rank, degree, vocabulary: classes };
        let kind = ComputationKind::Forward;
        let forward = Call { shard, ..call(&op, kind, &inputs, &output) };
        let what = format!("{classes} classes, smoothing {smoothing}, {tensor_rank} of {degree}");
        let x = Noise(u64::from(tensor_rank) + classes).vec((rows * own) as usize);
        (forward, what, x.into_iter().map(|x| 4.0 * x).collect::<Vec<f32>>())
    };
    for tensor_rank in 0..degree {
        let (forward, what, x) = each(tensor_rank);
        let partial = Call { kind: ComputationKind::PartialLoss, ..forward };
        let (reads, params) = (vec![x, targets.clone()], vec![]);
        let given = Given { reads, params, writes: vec![numbers] };
        let what = format!("what is told, {what}");
        let [expected, found] = given.alike(storage, &what, &partial);
        for word in 0..PARTIAL_LOSS_WORDS as usize {
            let of = |all: &[f32]| -> Vec<f32> {
                all.chunks(PARTIAL_LOSS_WORDS as usize).map(|numbers| numbers[word]).collect()
            };
            close_to((storage, &what), &of(&found[0]), &of(&expected[0]));
        }
        told.iter_mut().zip(&found[0]).for_each(|(sum, own)| *sum += own);
    }
    for tensor_rank in 0..degree {
        let (forward, what, x) = each(tensor_rank);
        let size = x.len();
        let (reads, params) = (vec![x.clone(), targets.clone(), told.clone()], vec![]);
        let given = Given { reads, params, writes: vec![2, 2 * rows as usize] };
        let [expected, found] = given.alike(storage, &format!("loss, {what}"), &forward);
        assert_eq!(found[0][1].to_bits(), expected[0][1].to_bits(), "{what}: right predictions");
        losses.push([found[0][0].to_bits(), found[0][1].to_bits()]);
        let backward = Call { kind: ComputationKind::InputGradient, loss_scale: 0.5, ..forward };
        let (reads, params) = (vec![x, targets.clone(), expected[1].clone()], vec![]);
        let given = Given { reads, params, writes: vec![size] };
        given.alike(storage, &format!("its gradient, {what}"), &backward);
    }
    assert!(losses.iter().all(|words| *words == losses[0]), "all ranks have one loss");
}

/// Even parts, a last one that is shorter, and one without any.
#[test]
fn classes_of_a_loss() {
    if !emulator::is_there() {
        return;
    }
    for storage in STORAGES {
        for (degree, all) in [(2, 1300), (4, 301), (4, 5)] {
            // The last number is told for smoothed labels alone.
            classes(storage, 0.1, degree, all);
        }
    }
}
