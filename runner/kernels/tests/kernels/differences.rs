//! Gradients against central finite differences, on random shapes and data.
//!
//! The function that is differentiated is `f(θ) = Σ r_i y_i(θ)` with random `r`, whose gradient
//! in θ is what the backward pass makes of the upstream gradient `r`. Outputs are single
//! precision: the sum is double, the step large, the tolerance wide enough for rounding.

use crate::case::{Case, Forward, Launch, Noise};
use crate::nodes;
use pipewright_core::graph::{DType, Function, Op, TensorSpec, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const STEP: f32 = 1.0 / 128.0;

/// Random nodes of every differentiable operation.
pub fn suite(launch: Launch) {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let runner = &mut TestRunner::new_with_rng(config.clone(), rng(&config));
    // A launch function may change its device; proptest wants closures that change nothing.
    let launch = std::cell::RefCell::new(launch);
    let result = runner.run(&(node(), 1u64..4, any::<u64>()), |((op, specs), samples, seed)| {
        let refs: Vec<&TensorSpec> = specs.iter().collect();
        prop_assume!(op.infer(&refs).is_ok());
        check(Case::new(op, specs, samples), seed, &mut **launch.borrow_mut());
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Every operation on small shapes, with several seeds.
pub fn every_operation(launch: Launch) {
    for case in nodes::every(nodes::SMALL) {
        for seed in 0..3 {
            check(case.clone(), seed, launch);
        }
    }
}

/// The same cases on every run: a test that fails must fail again.
fn rng(config: &Config) -> proptest::test_runner::TestRng {
    proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm)
}

fn node() -> impl Strategy<Value = (Op, Vec<TensorSpec>)> {
    let image = || (1u64..4, 3u64..8, 3u64..8).prop_map(|(c, h, w)| TensorSpec::f32(vec![c, h, w]));
    let linear = (prop::collection::vec(1u64..6, 1..3), 1u64..6, any::<bool>()).prop_map(
        |(shape, out_features, bias)| {
            (Op::Linear { out_features, bias }, vec![TensorSpec::f32(shape)])
        },
    );
    let pool = (window(), image(), any::<bool>()).prop_map(|(window, image, max)| {
        let op = if max {
            Op::MaxPool2d { window }
        } else {
            Op::AvgPool2d { window, count_padding: true }
        };
        (op, vec![image])
    });
    let plain = (image(), 0..3).prop_map(|(image, which)| match which {
        0 => (Op::Relu, vec![image]),
        1 => (Op::GlobalAvgPool, vec![image]),
        _ => (Op::BatchNorm2d { eps: 1e-3, momentum: 0.1 }, vec![image]),
    });
    let loss = (2u64..9).prop_map(|classes| {
        let target = TensorSpec { shape: vec![], dtype: DType::U32 };
        (
            Op::SoftmaxCrossEntropy { label_smoothing: 0.0 },
            vec![TensorSpec::f32(vec![classes]), target],
        )
    });
    prop_oneof![linear, convolution(), pool, plain, loss]
}

fn pair(range: std::ops::Range<u64>) -> impl Strategy<Value = [u64; 2]> {
    (range.clone(), range).prop_map(|(a, b)| [a, b])
}

fn window() -> impl Strategy<Value = Window> {
    (pair(1..4), pair(1..4), any::<bool>()).prop_flat_map(|(kernel, stride, ceil_mode)| {
        // As in PyTorch: padding of at most half the kernel, so that no window is padding only.
        (0..=kernel[0] / 2, 0..=kernel[1] / 2).prop_map(move |(top, left)| Window {
            kernel,
            stride,
            padding: [top, left],
            ceil_mode,
        })
    })
}

fn convolution() -> impl Strategy<Value = (Op, Vec<TensorSpec>)> {
    let channels = (1u64..4, 1u64..3, 1u64..3);
    let geometry = (pair(1..4), pair(1..4), pair(0..3), pair(1..3));
    (channels, geometry, pair(3..8), any::<bool>()).prop_map(
        |((groups, inputs, outputs), (kernel, stride, padding, dilation), size, bias)| {
            let out_channels = groups * outputs;
            let op = Op::Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias };
            (op, vec![TensorSpec::f32(vec![groups * inputs, size[0], size[1]])])
        },
    )
}

fn check(mut case: Case, seed: u64, launch: Launch) {
    case.fill(seed);
    avoid_kinks(&mut case, seed);
    let noise = &mut Noise(seed ^ 1);
    let forward = case.forward(launch);
    let direction = match case.op {
        Op::SoftmaxCrossEntropy { .. } => vec![1.0],
        _ => noise.vec(forward.output.len()),
    };
    case.loss_scale = 1.0;
    let backward = case.backward(launch, &forward, &direction);
    for (input, gradient) in backward.inputs.iter().enumerate() {
        for (i, &analytic) in gradient.iter().enumerate() {
            let difference =
                difference(&mut case, launch, &direction, |case| &mut case.inputs[input][i]);
            compare(&case, "input", i, analytic, difference);
        }
    }
    for (p, gradient) in backward.params.iter().enumerate() {
        for (i, &analytic) in gradient.iter().enumerate() {
            let difference =
                difference(&mut case, launch, &direction, |case| &mut case.params[p][i]);
            compare(&case, "parameter", i, analytic, difference);
        }
    }
}

/// Moves inputs away from where a function has no derivative, or a steep one: zero for relu, the
/// ends of clips, ties for maxima, zero below a fraction.
fn avoid_kinks(case: &mut Case, seed: u64) {
    let away_from = |x: &mut f32, kink: f32| {
        if (*x - kink).abs() < 4.0 * STEP {
            *x = kink + 4.0 * STEP * (*x - kink).signum();
        }
    };
    match &case.op {
        Op::Relu | Op::Activation { function: Function::LeakyRelu } => {
            case.inputs[0].iter_mut().for_each(|x| away_from(x, 0.0));
        }
        Op::Clip { min, max } => {
            let (min, max) = (*min, *max);
            case.inputs[0].iter_mut().for_each(|x| {
                away_from(x, min);
                away_from(x, max);
            });
        }
        Op::Activation { function: Function::Reciprocal } => {
            case.inputs[0].iter_mut().for_each(|x| *x += 2.0);
        }
        Op::Divide => case.inputs[1].iter_mut().for_each(|x| *x += 2.5),
        Op::MaxPool2d { .. } | Op::TopKSoftmax { .. } => staircase(&mut case.inputs[0], seed),
        // Without a share there is no row.
        Op::Dispatch { .. } => case.inputs[1].iter_mut().for_each(|x| away_from(x, 0.0)),
        Op::Combine => case.inputs[0].iter_mut().for_each(|x| away_from(x, 0.0)),
        _ => {}
    }
}

/// Any two values are at least four steps apart, in no order.
fn staircase(input: &mut [f32], seed: u64) {
    let mut order: Vec<usize> = (0..input.len()).collect();
    let mut noise = Noise(seed);
    for i in (1..order.len()).rev() {
        order.swap(i, (noise.bits() % (i as u64 + 1)) as usize);
    }
    for (x, rank) in input.iter_mut().zip(order) {
        *x = 4.0 * STEP * rank as f32;
    }
}

/// `(f(θ + step) - f(θ - step)) / 2 step`
fn difference(
    case: &mut Case,
    launch: Launch,
    direction: &[f32],
    value: impl Fn(&mut Case) -> &mut f32,
) -> f32 {
    let original = *value(case);
    let mut at = |x: f32| {
        *value(case) = x;
        let Forward { output, .. } = case.forward(launch);
        let terms = output.iter().zip(direction).map(|(y, r)| f64::from(*y) * f64::from(*r));
        terms.sum::<f64>()
    };
    let (above, below) = (at(original + STEP), at(original - STEP));
    *value(case) = original;
    ((above - below) / (2.0 * f64::from(STEP))) as f32
}

fn compare(case: &Case, what: &str, i: usize, analytic: f32, difference: f32) {
    let tolerance = 2e-3 * (1.0 + analytic.abs());
    assert!(
        (analytic - difference).abs() <= tolerance,
        "{:?} of {:?}, {} samples: {what}[{i}] has gradient {analytic}, differences say \
         {difference}",
        case.op,
        case.specs,
        case.samples
    );
}
