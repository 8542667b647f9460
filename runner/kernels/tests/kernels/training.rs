//! Losses, dropout and deferred batch normalisation against slow twins that follow the definitions
//! element by element in f64.

use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_kernels::cpu::launch;
use pipewright_kernels::{Call, Draw, Operands, Phase, Shard, Turn};

/// Runs one computation on a single thread and on three; both must give the same bits.
pub(super) fn run(call: &Call, reads: &[&[f32]], sizes: &[usize]) -> Vec<Vec<f32>> {
    let empty: Vec<Vec<f32>> = sizes.iter().map(|size| vec![f32::NAN; *size]).collect();
    run_over(call, reads, &empty)
}

/// [`run`], with numbers where results will lie.
fn run_over(call: &Call, reads: &[&[f32]], before: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    let with = |threads| {
        let mut written = before.to_vec();
        let mut writes: Vec<&mut [f32]> = written.iter_mut().map(|w| &mut w[..]).collect();
        let operands = Operands {
            reads,
            writes: &mut writes,
            params: &mut [],
            gradients: &mut [],
            deferred: &mut [],
            workspace: &mut [],
        };
        pool.install(|| launch(&Call { threads, ..*call }, operands));
        written
    };
    let (alone, together) = (with(1), with(3));
    let bits = |all: &[Vec<f32>]| all.concat().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&alone), bits(&together), "threads change the result");
    alone
}

/// The gradient of what a loss judges, in memory of its own and over what is judged.
pub(super) fn gradient(call: &Call, reads: &[&[f32]]) -> Vec<f32> {
    let judged = reads[0];
    let apart = run(call, reads, &[judged.len()]).remove(0);
    let reads = [&[&[][..]], &reads[1..]].concat();
    let over = run_over(call, &reads, &[judged.to_vec()]).remove(0);
    let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&apart), bits(&over), "over what is judged");
    apart
}

pub(super) fn call<'a>(
    op: &'a Op,
    inputs: &'a [&'a TensorSpec],
    output: &'a TensorSpec,
) -> Call<'a> {
    Call {
        op,
        kind: ComputationKind::Forward,
        inputs,
        output,
        samples: 1,
        wanted: 0,
        phase: Phase::Train,
        loss_scale: 1.0,
        threads: 1,
        draw: Draw::default(),
        turn: Turn::default(),
        shard: Shard::default(),
        precision: Precision::F32,
    }
}

/// Numbers without a pattern, between -4 and 4.
pub(super) fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 21) as f32 - 4.0
    };
    (0..count).map(|_| next()).collect()
}

pub(super) fn close(got: f64, expected: f64, what: &str) {
    assert!((got - expected).abs() <= 2e-5 * expected.abs().max(1.0), "{what}: {got}, {expected}");
}

pub(super) const PADDING: u32 = u32::MAX;

/// `-Σ q log p` with `q = (1 - e) onehot + e / classes`, and its gradient, for one row.
fn smoothed(logits: &[f32], target: usize, e: f64) -> (f64, Vec<f64>) {
    let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
    let p = |class: usize| f64::from(logits[class]).exp() / total;
    let even = e / logits.len() as f64;
    let q = |class: usize| even + if class == target { 1.0 - e } else { 0.0 };
    let classes = 0..logits.len();
    let loss = -classes.clone().map(|class| q(class) * p(class).ln()).sum::<f64>();
    (loss, classes.map(|class| p(class) - q(class)).collect())
}

#[test]
fn label_smoothing_spreads_the_target_over_positions_and_classes() {
    let (samples, positions, classes) = (40usize, 3usize, 300usize);
    let logits = noise(1, samples * positions * classes);
    let rows = samples * positions;
    let mut targets: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
    // The last sample fills up the micro-batch.
    targets[rows - positions..].fill(PADDING);
    let words: Vec<f32> = targets.iter().map(|t| f32::from_bits(*t)).collect();
    let specs = [
        TensorSpec::f32(vec![positions as u64, classes as u64]),
        TensorSpec { shape: vec![positions as u64], dtype: DType::U32 },
        TensorSpec::f32(vec![]),
    ];
    for smoothing in [0.0f32, 0.1, 0.5] {
        let op = Op::SoftmaxCrossEntropy { label_smoothing: smoothing };
        let inputs = [&specs[0], &specs[1]];
        let forward =
            Call { samples: samples as u64, loss_scale: 0.5, ..call(&op, &inputs, &specs[2]) };
        let out = run(&forward, &[&logits, &words], &[2, 2 * targets.len()]);
        let backward = Call { kind: ComputationKind::InputGradient, ..forward };
        let g = gradient(&backward, &[&logits, &words, &out[1]]);
        let (mut loss, mut correct) = (0.0, 0);
        for (row, logits) in logits.chunks_exact(classes).enumerate() {
            let g = &g[row * classes..][..classes];
            if targets[row] == PADDING {
                assert!(g.iter().all(|g| *g == 0.0));
                continue;
            }
            let (of_row, gradient) = smoothed(logits, targets[row] as usize, f64::from(smoothing));
            loss += of_row / positions as f64;
            let best = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            correct += u32::from(logits[targets[row] as usize] == best);
            for (got, expected) in g.iter().zip(gradient) {
                close(f64::from(*got), expected * 0.5 / positions as f64, "gradient");
            }
        }
        close(f64::from(out[0][0]), loss, "loss");
        assert_eq!(out[0][1].to_bits(), correct);
    }
}

#[test]
fn binary_cross_entropy_of_logits() {
    let (samples, elements) = (70usize, 700usize);
    let logits = noise(2, samples * elements);
    let mut targets: Vec<u32> = (0..logits.len()).map(|i| u32::from(i % 3 == 0)).collect();
    targets[(samples - 1) * elements..].fill(PADDING);
    let words: Vec<f32> = targets.iter().map(|t| f32::from_bits(*t)).collect();
    let specs = [
        TensorSpec::f32(vec![1, 7, 100]),
        TensorSpec { shape: vec![elements as u64], dtype: DType::U32 },
        TensorSpec::f32(vec![]),
    ];
    let inputs = [&specs[0], &specs[1]];
    let forward = Call {
        samples: samples as u64,
        loss_scale: 3.0,
        ..call(&Op::SigmoidCrossEntropy, &inputs, &specs[2])
    };
    let out = run(&forward, &[&logits, &words], &[2]);
    let backward = Call { kind: ComputationKind::InputGradient, ..forward };
    let g = gradient(&backward, &[&logits, &words]);
    let (mut loss, mut correct) = (0.0, 0);
    for ((x, target), g) in logits.iter().zip(&targets).zip(g) {
        if *target == PADDING {
            assert_eq!(g, 0.0);
            continue;
        }
        let p = 1.0 / (1.0 + (-f64::from(*x)).exp());
        let t = f64::from(*target);
        loss -= (t * p.ln() + (1.0 - t) * (1.0 - p).ln()) / elements as f64;
        correct += u32::from((p > 0.5) == (*target == 1));
        close(f64::from(g), (p - t) * 3.0 / elements as f64, "gradient");
    }
    close(f64::from(out[0][0]), loss, "loss");
    assert_eq!(out[0][1].to_bits(), correct);
}

#[test]
fn sigmoid_loss_of_large_logits_stays_finite() {
    let specs = [
        TensorSpec::f32(vec![2]),
        TensorSpec { shape: vec![2], dtype: DType::U32 },
        TensorSpec::f32(vec![]),
    ];
    let inputs = [&specs[0], &specs[1]];
    let forward = call(&Op::SigmoidCrossEntropy, &inputs, &specs[2]);
    let targets = [f32::from_bits(1), f32::from_bits(0)];
    let backward = Call { kind: ComputationKind::InputGradient, ..forward };
    for (logits, loss, expected) in
        [([200.0, -200.0], 0.0, [0.0, 0.0]), ([-200.0, 200.0], 200.0, [-0.5, 0.5])]
    {
        assert_eq!(run(&forward, &[&logits, &targets], &[2])[0][0], loss);
        assert_eq!(gradient(&backward, &[&logits, &targets]), expected);
    }
}

/// The vector that PyTorch made: mean over samples and elements.
#[test]
fn mean_squared_error_is_pytorchs() {
    let path = crate::vector::folder().join("mse_loss.safetensors");
    let bytes = std::fs::read(path).expect("the vector");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let floats = |key: &str| -> Vec<f32> {
        let words = tensors.tensor(key).expect(key).data().chunks_exact(4);
        words.map(|word| f32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    };
    let (x, mut t) = (floats("in.x"), floats("in.t"));
    let shape = tensors.tensor("in.x").expect("in.x").shape().to_vec();
    let specs = [TensorSpec::f32(vec![shape[1] as u64]), TensorSpec::f32(vec![])];
    let inputs = [&specs[0], &specs[0]];
    let forward = Call {
        samples: shape[0] as u64,
        loss_scale: floats("gout.0")[0] / shape[0] as f32,
        ..call(&Op::MeanSquaredError, &inputs, &specs[1])
    };
    let loss = run(&forward, &[&x, &t], &[2]).remove(0);
    close(f64::from(loss[0]) / shape[0] as f64, f64::from(floats("out.0")[0]), "loss");
    assert_eq!(loss[1].to_bits(), 0, "nothing is classified");
    let backward = Call { kind: ComputationKind::InputGradient, ..forward };
    let g = gradient(&backward, &[&x, &t]);
    for (got, expected) in g.iter().zip(floats("gin.x")) {
        close(f64::from(*got), f64::from(expected), "gradient");
    }
    // Without its last sample.
    let last = x.len() - shape[1]..x.len();
    t[last.clone()].fill(f32::from_bits(PADDING));
    let shorter = run(&forward, &[&x, &t], &[2]).remove(0)[0];
    let square = |i: usize| f64::from((x[i] - floats("in.t")[i]).powi(2));
    let of_last: f64 = last.clone().map(square).sum::<f64>() / shape[1] as f64;
    close(f64::from(shorter), f64::from(loss[0]) - of_last, "loss without padding");
    let g = gradient(&backward, &[&x, &t]);
    assert!(g[last].iter().all(|g| *g == 0.0));
}

/// What dropout makes of ones.
fn mask(draw: Draw, samples: usize, elements: usize, kind: ComputationKind) -> Vec<f32> {
    let spec = TensorSpec::f32(vec![elements as u64]);
    let op = Op::Dropout { probability: 0.25 };
    let inputs = [&spec];
    let dropout = Call { kind, samples: samples as u64, draw, ..call(&op, &inputs, &spec) };
    run(&dropout, &[&vec![1.0; samples * elements]], &[samples * elements]).remove(0)
}

#[test]
fn dropout_keeps_its_share_and_scales_it() {
    let (samples, elements) = (4, 50_001);
    let draw = Draw { seed: 7, step: 3, node: 5, first_sample: 8 };
    let y = mask(draw, samples, elements, ComputationKind::Forward);
    assert!(y.iter().all(|y| *y == 0.0 || *y == 4.0 / 3.0));
    let kept = y.iter().filter(|y| **y > 0.0).count() as f64 / y.len() as f64;
    // Five standard deviations of a binomial share.
    let deviation = (0.25f64 * 0.75 / y.len() as f64).sqrt();
    assert!((kept - 0.75).abs() < 5.0 * deviation, "{kept} kept");
    let again = mask(draw, samples, elements, ComputationKind::InputGradient);
    assert_eq!(y, again, "the gradient passes where the value passed");
}

#[test]
fn a_mask_depends_on_the_sample_and_not_on_its_micro_batch() {
    let draw = Draw { seed: 7, step: 3, node: 5, first_sample: 8 };
    let elements = 70;
    let whole = mask(draw, 4, elements, ComputationKind::Forward);
    let later = Draw { first_sample: 10, ..draw };
    assert_eq!(whole[2 * elements..], mask(later, 2, elements, ComputationKind::Forward));
    let others = [
        Draw { seed: 8, ..draw },
        Draw { step: 4, ..draw },
        Draw { step: draw.step + (1 << 32), ..draw },
        Draw { node: 6, ..draw },
        Draw { first_sample: 9, ..draw },
    ];
    for other in others {
        assert_ne!(whole, mask(other, 4, elements, ComputationKind::Forward), "{other:?}");
    }
}

/// Masks are part of what a resumed run repeats: they must never change.
#[test]
fn masks_are_fixed_for_ever() {
    let draw = Draw { seed: 1, step: 2, node: 3, first_sample: 4 };
    let bits: String = mask(draw, 1, 300, ComputationKind::Forward)
        .iter()
        .map(|y| if *y > 0.0 { '1' } else { '.' })
        .collect();
    assert_eq!(bits[..48], *"11.111.111.1.11111111111.1.111.111111111.11...11");
    assert_eq!(bits[240..288], *"1.111111111111.1.1.1.1111111.1111111111.11111111");
}

#[test]
fn evaluation_drops_nothing() {
    let spec = TensorSpec::f32(vec![100]);
    let op = Op::Dropout { probability: 0.9 };
    let inputs = [&spec];
    let dropout = Call { phase: Phase::Evaluate, ..call(&op, &inputs, &spec) };
    let x = noise(3, 100);
    assert_eq!(run(&dropout, &[&x], &[100]).remove(0), x);
}

/// Running statistics of two channels after one mini-batch in `turns` micro-batches.
fn running(x: &[f32], turns: u32, deferred: bool) -> [Vec<f32>; 2] {
    let (channels, plane) = (2usize, 6usize);
    let spec = TensorSpec::f32(vec![2, 2, 3]);
    let op = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
    let inputs = [&spec];
    let mut params = [vec![1.0; 2], vec![0.0; 2], vec![0.5, -0.5], vec![2.0, 3.0]];
    let mut sums = vec![vec![0.0; channels]; if deferred { 2 } else { 0 }];
    let part = x.len() / turns as usize;
    for (index, x) in (0..).zip(x.chunks_exact(part)) {
        let (mut y, mut saved) = (vec![0.0; part], vec![0.0; 2 * channels]);
        let samples = (part / (channels * plane)) as u64;
        let turn = Turn { index, count: turns };
        let norm = Call { samples, turn, ..call(&op, &inputs, &spec) };
        let mut params: Vec<&mut [f32]> = params.iter_mut().map(|p| &mut p[..]).collect();
        let mut sums: Vec<&mut [f32]> = sums.iter_mut().map(|p| &mut p[..]).collect();
        let operands = Operands {
            reads: &[x],
            writes: &mut [&mut y, &mut saved],
            params: &mut params,
            gradients: &mut [],
            deferred: &mut sums,
            workspace: &mut [],
        };
        launch(&norm, operands);
    }
    assert!(sums.concat().iter().all(|sum| *sum == 0.0), "ready for the next mini-batch");
    let [_, _, mean, var] = params;
    [mean, var]
}

#[test]
fn deferred_statistics_are_those_of_the_whole_mini_batch() {
    let samples = 12;
    // Far from zero: sums of squares would lose the variance.
    let x: Vec<f32> = noise(4, samples * 12).iter().map(|x| x + 1000.0).collect();
    let whole = running(&x, 1, false);
    for turns in [1, 2, 3, 4, 12] {
        let deferred = running(&x, turns, true);
        for (deferred, whole) in deferred.concat().iter().zip(whole.concat()) {
            close(f64::from(*deferred) / 10.0, f64::from(whole) / 10.0, "running statistics");
        }
    }
    assert_eq!(running(&x, 1, true), whole, "one micro-batch is the mini-batch");
    let [mean, _] = running(&x, 4, false);
    assert!((mean[0] - whole[0][0]).abs() > 1.0, "not deferred, each micro-batch counts");
}
