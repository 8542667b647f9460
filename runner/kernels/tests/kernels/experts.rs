//! Choice of experts, tokens as their rows and rows as tokens, against loops that say what is meant, and divided
//! among ranks against whole.

use super::training::{call, close, noise};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_kernels::cpu::launch;
use pipewright_kernels::{Call, Operands, Shard};

const SAMPLES: usize = 3;
const TOKENS: usize = 29;
const EXPERTS: usize = 6;
const CAPACITY: usize = 7;
const FEATURES: usize = 10;

fn spec(shape: &[usize]) -> TensorSpec {
    TensorSpec::f32(shape.iter().map(|size| *size as u64).collect())
}

/// Runs a computation with scratch, on what was never written.
fn run(call: &Call, reads: &[&[f32]], sizes: &[usize]) -> Vec<Vec<f32>> {
    let mut written: Vec<Vec<f32>> = sizes.iter().map(|size| vec![f32::NAN; *size]).collect();
    let mut writes: Vec<&mut [f32]> = written.iter_mut().map(|w| &mut w[..]).collect();
    let mut workspace = vec![f32::NAN; SAMPLES * TOKENS * EXPERTS];
    let operands = Operands {
        reads,
        writes: &mut writes,
        params: &mut [],
        gradients: &mut [],
        deferred: &mut [],
        workspace: &mut workspace,
    };
    launch(&Call { samples: SAMPLES as u64, ..*call }, operands);
    written
}

/// Logits with ties, and shares that are zero for most experts.
fn shares(k: u64, normalize: bool) -> (Vec<f32>, Vec<f32>) {
    let rounded = |x: f32| (2.0 * x).round() / 2.0;
    let logits: Vec<f32> = noise(5, SAMPLES * TOKENS * EXPERTS).into_iter().map(rounded).collect();
    let (op, row) = (Op::TopKSoftmax { k, normalize }, spec(&[TOKENS, EXPERTS]));
    let shares = run(&call(&op, &[&row], &row), &[&logits], &[logits.len()]).remove(0);
    (logits, shares)
}

#[test]
fn the_largest_have_shares_and_the_first_of_equals() {
    for (k, normalize) in [(1, false), (2, true), (3, false), (6, true)] {
        let (logits, shares) = shares(k, normalize);
        for (x, y) in logits.chunks_exact(EXPERTS).zip(shares.chunks_exact(EXPERTS)) {
            let mut order: Vec<usize> = (0..EXPERTS).collect();
            order.sort_by(|a, b| x[*b].partial_cmp(&x[*a]).expect("numbers"));
            let (taken, left) = order.split_at(k as usize);
            assert!(left.iter().all(|at| y[*at] == 0.0), "{x:?}: {y:?}");
            let exp = |at: &usize| f64::from(x[*at]).exp();
            let all: f64 = if normalize { taken } else { &order[..] }.iter().map(exp).sum();
            taken.iter().for_each(|at| close(f64::from(y[*at]), exp(at) / all, "share"));
        }
    }
}

/// By sample, expert and row the token there.
fn routes(shares: &[f32]) -> Vec<[usize; 4]> {
    let mut found = vec![];
    for sample in 0..SAMPLES {
        for expert in 0..EXPERTS {
            let mut row = 0;
            for token in 0..TOKENS {
                let share = shares[(sample * TOKENS + token) * EXPERTS + expert];
                if share != 0.0 && row < CAPACITY {
                    found.push([sample, expert, row, token]);
                    row += 1;
                }
            }
        }
    }
    found
}

const ROW_WORDS: usize = SAMPLES * EXPERTS * CAPACITY * FEATURES;
const TOKEN_WORDS: usize = SAMPLES * TOKENS * FEATURES;

/// Where a route's row begins, its token, its share.
fn places([sample, expert, row, token]: [usize; 4]) -> [usize; 3] {
    let (of_row, token) = ((sample * EXPERTS + expert) * CAPACITY + row, sample * TOKENS + token);
    [of_row * FEATURES, token * FEATURES, token * EXPERTS + expert]
}

#[test]
fn rows_are_of_tokens_in_their_order_as_long_as_there_are_rows() {
    let (_, shares) = shares(2, true);
    let x = noise(6, TOKEN_WORDS);
    let (op, specs) = dispatch(EXPERTS);
    let inputs = [&specs[0], &specs[1]];
    let forward = call(&op, &inputs, &specs[2]);
    let rows = run(&forward, &[&x, &shares], &[ROW_WORDS]).remove(0);
    let backward = Call { kind: ComputationKind::InputGradient, wanted: 1, ..forward };
    let gy = noise(7, ROW_WORDS);
    let gx = run(&backward, &[&shares, &gy], &[TOKEN_WORDS]).remove(0);
    let (mut expected, mut gradient) = (vec![0.0; ROW_WORDS], vec![0.0; TOKEN_WORDS]);
    let routes = routes(&shares);
    assert!(routes.len() < 2 * SAMPLES * TOKENS, "some have no row");
    for [row, token, _] in routes.into_iter().map(places) {
        expected[row..][..FEATURES].copy_from_slice(&x[token..][..FEATURES]);
        for at in 0..FEATURES {
            gradient[token + at] += gy[row + at];
        }
    }
    assert_eq!(rows, expected);
    assert_eq!(gx, gradient);
}

#[test]
fn tokens_are_sums_of_rows_by_their_shares() {
    let (_, shares) = shares(3, false);
    let (rows, gy) = (noise(8, ROW_WORDS), noise(9, TOKEN_WORDS));
    let specs = combine(EXPERTS);
    let inputs = [&specs[0], &specs[1]];
    let forward = call(&Op::Combine, &inputs, &specs[2]);
    let y = run(&forward, &[&shares, &rows], &[TOKEN_WORDS]).remove(0);
    let backward = Call { kind: ComputationKind::InputGradient, wanted: 3, ..forward };
    let found = run(&backward, &[&shares, &rows, &gy], &[shares.len(), ROW_WORDS]);
    let mut expected = vec![0.0f64; TOKEN_WORDS];
    let mut gradients = [vec![0.0f64; shares.len()], vec![0.0f64; ROW_WORDS]];
    for [row, token, share] in routes(&shares).into_iter().map(places) {
        for at in 0..FEATURES {
            let [value, factor, g] = [rows[row + at], shares[share], gy[token + at]].map(f64::from);
            expected[token + at] += factor * value;
            gradients[0][share] += g * value;
            gradients[1][row + at] = g * factor;
        }
    }
    let all = [(&y, &expected), (&found[0], &gradients[0]), (&found[1], &gradients[1])];
    for (found, expected) in all.into_iter().flat_map(|(a, b)| a.iter().zip(b)) {
        close(f64::from(*found), *expected, "of tokens");
    }
}

fn dispatch(experts: usize) -> (Op, [TensorSpec; 3]) {
    let op = Op::Dispatch { experts: experts as u64, capacity: CAPACITY as u64 };
    let rows = spec(&[experts, CAPACITY, FEATURES]);
    (op, [spec(&[TOKENS, FEATURES]), spec(&[TOKENS, EXPERTS]), rows])
}

fn combine(experts: usize) -> [TensorSpec; 3] {
    let rows = spec(&[experts, CAPACITY, FEATURES]);
    [spec(&[TOKENS, EXPERTS]), rows, spec(&[TOKENS, FEATURES])]
}

/// Of each sample the rows of a rank's experts.
fn of_rank(rows: &[f32], tensor_rank: usize, degree: usize) -> Vec<f32> {
    let part = rows.len() / SAMPLES / degree;
    let samples = rows.chunks_exact(rows.len() / SAMPLES);
    samples.flat_map(|rows| rows[tensor_rank * part..][..part].iter().copied()).collect()
}

#[test]
fn experts_of_ranks_are_all_experts() {
    let (_, shares) = shares(2, true);
    let (x, rows) = (noise(10, TOKEN_WORDS), noise(11, ROW_WORDS));
    // By degree: rows of dispatch, its gradient; tokens of combine, its two gradients.
    let all = |degree: usize| {
        let mut sums = [TOKEN_WORDS, TOKEN_WORDS, shares.len()].map(|len| vec![0.0f32; len]);
        let mut parts = vec![];
        for tensor_rank in 0..degree {
            let own = of_rank(&rows, tensor_rank, degree);
            let shard =
                Shard { tensor_rank: tensor_rank as u32, degree: degree as u32, vocabulary: 0 };
            let (op, specs) = dispatch(EXPERTS / degree);
            let inputs = [&specs[0], &specs[1]];
            let forward = Call { shard, ..call(&op, &inputs, &specs[2]) };
            let given = run(&forward, &[&x, &shares], &[own.len()]).remove(0);
            let backward = Call { kind: ComputationKind::InputGradient, wanted: 1, ..forward };
            let gx = run(&backward, &[&shares, &own], &[x.len()]).remove(0);
            let specs = combine(EXPERTS / degree);
            let inputs = [&specs[0], &specs[1]];
            let forward = Call { shard, ..call(&Op::Combine, &inputs, &specs[2]) };
            let y = run(&forward, &[&shares, &own], &[x.len()]).remove(0);
            let backward = Call { kind: ComputationKind::InputGradient, wanted: 3, ..forward };
            let mut back = run(&backward, &[&shares, &own, &x], &[shares.len(), own.len()]);
            parts.push([given, back.remove(1)]);
            for (sum, part) in sums.iter_mut().zip([&gx, &y, &back[0]]) {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
        }
        (parts, sums)
    };
    let (whole, sums) = all(1);
    for degree in [2, 3] {
        let (parts, partial) = all(degree);
        for (tensor_rank, [rows, grows]) in parts.into_iter().enumerate() {
            assert_eq!(rows, of_rank(&whole[0][0], tensor_rank, degree));
            assert_eq!(grows, of_rank(&whole[0][1], tensor_rank, degree));
        }
        for (partial, sum) in partial.concat().into_iter().zip(sums.concat()) {
            close(f64::from(partial), f64::from(sum), "sum of ranks");
        }
    }
}
