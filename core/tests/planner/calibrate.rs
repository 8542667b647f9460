//! Calibration against synthetic truth: known parameters, noise, and what must be refused.

use pipewright_core::cost::calibrate::{
    CalibrateError, MessageSample, Parameter, Point, SpanSample, fit, link, pipeline, stages,
};
use pipewright_core::cost::takisawa::t_total_with_overhead;
use pipewright_core::ids::StageId;
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

const LAYERS: u64 = 32;

/// Uniform noise of mean 0 and standard deviation 1, the same at every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * 12f64.sqrt()
    }
}

fn points(truth: [f64; 4], spread: f64, seed: u64, ds: &[u64]) -> Vec<Point> {
    let mut noise = Noise(seed);
    let mut points = vec![];
    for d in ds.iter().copied() {
        for m in [1, 2, 3, 5, 8, 12, 20, 40, 80] {
            let message = if d == 1 { 0.0 } else { truth[1] + truth[2] / m as f64 };
            let exact = t_total_with_overhead(m, d, truth[0], message, LAYERS, truth[3]);
            points.push(Point { m, d, time: exact * (1.0 + spread * noise.next()) });
        }
    }
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn exact_points_give_the_truth_back(
        t_comp in 0.05f64..5.0, t0 in 1e-4f64..5e-3, transfer in 0.005f64..0.1, k in 1e-4f64..5e-3,
    ) {
        let truth = [t_comp, t0, transfer, k];
        let found = pipeline(LAYERS, &points(truth, 0.0, 1, &[1, 2, 4, 8, 16])).unwrap();
        for (found, truth) in found.fit.values().into_iter().zip(truth) {
            prop_assert!((found / truth - 1.0).abs() < 1e-4, "{found} for {truth}");
        }
    }

    #[test]
    fn noisy_points_give_it_back_within_the_stated_uncertainty(seed in 0u64..1_000_000) {
        let truth = [1.0, 0.00094, 0.0329, 0.00142];
        let found = pipeline(LAYERS, &points(truth, 0.02, seed, &[1, 2, 4, 8, 16, 32])).unwrap();
        for (e, truth) in found.fit.estimates.iter().zip(truth) {
            let deviation = e.deviation.unwrap();
            // 5 deviations: once in two million for each number.
            prop_assert!((e.value - truth).abs() < 5.0 * deviation, "{} {}", e.name, e.value);
            prop_assert!(deviation < 0.5 * truth, "{} is uncertain by {deviation}", e.name);
        }
        prop_assert!(found.fit.mean_error() < 0.04);
    }
}

#[test]
fn stated_deviations_are_honest() {
    // Over many seeds two thirds of the errors must lie within one deviation; and not all of
    // them, or the deviation would be too generous.
    let truth = [1.0, 0.00094, 0.0329, 0.00142];
    let (mut within, mut all) = (0, 0);
    for seed in 0..100 {
        let found = pipeline(LAYERS, &points(truth, 0.02, seed, &[1, 2, 4, 8, 16, 32])).unwrap();
        for (e, truth) in found.fit.estimates.iter().zip(truth) {
            all += 1;
            within += usize::from((e.value - truth).abs() < e.deviation.unwrap());
        }
    }
    let share = within as f64 / all as f64;
    assert!((0.55..0.80).contains(&share), "{share}");
}

#[test]
fn one_process_count_does_not_determine_four_parameters() {
    let refused = pipeline(LAYERS, &points([1.0, 1e-3, 0.03, 1e-3], 0.0, 1, &[16])).unwrap_err();
    let message = refused.to_string();
    assert!(matches!(refused, CalibrateError::Undetermined { .. }), "{message}");
    assert!(message.contains("apart from") && message.contains("process counts"), "{message}");
    let refused = pipeline(LAYERS, &points([1.0, 1e-3, 0.03, 1e-3], 0.0, 1, &[1])).unwrap_err();
    assert!(refused.to_string().contains("process counts"), "{refused}");
}

#[test]
fn too_few_points_and_bad_numbers_are_refused() {
    let all = points([1.0, 1e-3, 0.03, 1e-3], 0.0, 1, &[2, 8]);
    let refused = pipeline(LAYERS, &all[..4]).unwrap_err();
    assert_eq!(refused, CalibrateError::TooFew { points: 4, parameters: 4 });
    assert_eq!(refused.to_string(), "4 points for 4 parameters: measure at least 5");
    let mut bad = all;
    bad[3].time = 0.0;
    let refused = pipeline(LAYERS, &bad).unwrap_err();
    assert_eq!(refused, CalibrateError::Measured { point: 3, value: 0.0 });
    assert!(pipeline(LAYERS, &[]).is_err());
}

fn two(low: [f64; 2], high: [f64; 2]) -> [Parameter; 2] {
    let parameter = |name, i: usize| Parameter {
        name,
        start: 0.5 * (low[i] + high[i]),
        low: low[i],
        high: high[i],
        advice: "measure more",
    };
    [parameter("a", 0), parameter("b", 1)]
}

/// The twin: the best of a fine grid.
fn by_grid(low: [f64; 2], high: [f64; 2], cost: impl Fn(&[f64]) -> f64) -> ([f64; 2], f64) {
    let n = 400;
    let at = |i: usize, k: usize| low[i] + (high[i] - low[i]) * k as f64 / n as f64;
    let mut best = ([0.0; 2], f64::INFINITY);
    for (i, j) in (0..=n).flat_map(|i| (0..=n).map(move |j| (i, j))) {
        let x = [at(0, i), at(1, j)];
        let here = cost(&x);
        if here < best.1 {
            best = (x, here);
        }
    }
    best
}

#[test]
fn no_grid_point_is_better() {
    // Curved in b, with noise, once free and once with the optimum outside of the box.
    let mut noise = Noise(7);
    let xs: Vec<f64> = (1..30).map(f64::from).collect();
    let model = |p: &[f64]| xs.iter().map(|x| p[0] * x / (x + p[1]) + 0.1).collect::<Vec<f64>>();
    let measured: Vec<f64> =
        model(&[3.0, 5.0]).into_iter().map(|y| y * (1.0 + 0.05 * noise.next())).collect();
    let cost = |p: &[f64]| {
        model(p).iter().zip(&measured).map(|(y, m)| (y / m - 1.0) * (y / m - 1.0)).sum::<f64>()
    };
    for (low, high) in
        [([0.5, 0.5], [6.0, 20.0]), ([0.5, 0.5], [2.5, 20.0]), ([3.5, 6.5], [9.0, 9.0])]
    {
        let found = fit(&two(low, high), &measured, model).unwrap();
        let (x, best) = by_grid(low, high, cost);
        let ours = cost(&found.values());
        assert!(
            ours <= best * (1.0 + 1e-9),
            "{ours} at {:?}, grid {best} at {x:?}",
            found.values()
        );
        let bound = found.estimates.iter().filter(|e| e.deviation.is_none()).count();
        assert_eq!(bound > 0, high[0] < 3.0 || low[0] > 3.0, "{found}");
    }
}

#[test]
fn a_parameter_without_effect_is_named() {
    let model = |p: &[f64]| (1..9).map(|x| p[0] * f64::from(x)).collect::<Vec<f64>>();
    let refused = fit(&two([1.0, 1.0], [9.0, 9.0]), &model(&[4.0, 1.0]), model).unwrap_err();
    assert_eq!(refused.to_string(), "the points do not determine b: measure more");
    let upside_down = two([9.0, 1.0], [1.0, 9.0]);
    assert!(matches!(
        fit(&upside_down, &model(&[4.0, 1.0]), model),
        Err(CalibrateError::Bounds { parameter: "a", .. })
    ));
    let not_a_number = |_: &[f64]| vec![f64::NAN; 8];
    assert!(matches!(
        fit(&two([1.0, 1.0], [9.0, 9.0]), &model(&[4.0, 1.0]), not_a_number),
        Err(CalibrateError::Model { point: 0, .. })
    ));
}

#[test]
fn a_link_is_found_from_messages_of_several_sizes() {
    let truth = |bytes: u64| 20_000.0 + bytes as f64 / 12.5;
    let mut noise = Noise(3);
    let message = |bytes: u64| MessageSample {
        bytes: Bytes(bytes),
        time: Nanos((truth(bytes) * (1.0 + 0.03 * noise.next())) as u64),
    };
    let messages: Vec<_> = (0..60).map(|i| 1 << (6 + i % 20)).map(message).collect();
    let (found, fit) = link(&messages).unwrap();
    let deviation = |i: usize| fit.estimates[i].deviation.unwrap();
    assert!((found.latency_ns.secs() - 20e-6).abs() < 4.0 * deviation(0), "{fit}");
    assert!((1.0 / found.bytes_per_sec - 0.08e-9).abs() < 4.0 * deviation(1), "{fit}");
    let same = vec![messages[0]; 5];
    assert!(link(&same).unwrap_err().to_string().contains("several sizes"));
    assert!(link(&[]).is_err());
}

#[test]
fn stage_times_are_means_with_their_spread() {
    let sample = |stage, kind, ns| SpanSample { stage: StageId(stage), kind, time: Nanos(ns) };
    let samples = [sample(1, 'F', 10), sample(0, 'F', 4), sample(1, 'F', 14), sample(1, 'B', 30)];
    let found = stages(&samples).unwrap();
    let brief: Vec<_> = found.iter().map(|s| (s.stage.0, s.kind, s.count)).collect();
    assert_eq!(brief, [(0, 'F', 1), (1, 'B', 1), (1, 'F', 2)]);
    assert!((found[2].mean.value - 12e-9).abs() < 1e-15);
    assert!((found[2].mean.deviation.unwrap() - 2e-9).abs() < 1e-15);
    assert_eq!(found[0].mean.deviation, None);
    assert!(stages::<char>(&[]).is_err());
}
