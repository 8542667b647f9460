//! Each rule against a slow twin in f64 that follows the formulas in the order in which the papers
//! write them, and against numbers by hand.

use super::*;
use crate::decimal;

/// One weight and all that its twin keeps.
#[derive(Clone, Copy, Debug)]
struct Twin {
    weight: f64,
    first: f64,
    second: f64,
}

/// A step of the twins, element by element, of a parameter of two axes.
fn twin(optimizer: Optimizer, rate: f64, number: i32, twins: &mut [Twin], gradient: &[f64]) {
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let weights = length(&mut twins.iter().map(|t| t.weight));
    let gradients = length(&mut gradient.iter().copied());
    for (t, &g) in twins.iter_mut().zip(gradient) {
        match optimizer {
            Optimizer::Sgd { momentum, weight_decay, nesterov, .. } => {
                let d = g + decimal(weight_decay) * t.weight;
                t.first = decimal(momentum) * t.first + d;
                let go = if nesterov { d + decimal(momentum) * t.first } else { t.first };
                t.weight -= rate * go;
            }
            Optimizer::Lars { momentum, weight_decay, trust, .. } => {
                let decay = decimal(weight_decay);
                let local = decimal(trust) * weights / (gradients + decay * weights);
                t.first = decimal(momentum) * t.first + local * (g + decay * t.weight);
                t.weight -= rate * t.first;
            }
            Optimizer::Adam { beta1, beta2, eps, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, eps, weight_decay, .. } => {
                let (b1, b2, decay) = (decimal(beta1), decimal(beta2), decimal(weight_decay));
                let mut d = g;
                if matches!(optimizer, Optimizer::AdamW { .. }) {
                    t.weight -= rate * decay * t.weight;
                } else {
                    d += decay * t.weight;
                }
                t.first = b1 * t.first + (1.0 - b1) * d;
                t.second = b2 * t.second + (1.0 - b2) * d * d;
                let mean = t.first / (1.0 - b1.powi(number));
                let square = t.second / (1.0 - b2.powi(number));
                t.weight -= rate * mean / (square.sqrt() + decimal(eps));
            }
        }
    }
}

/// Numbers without a pattern, between -1 and 1.
fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Weights after `steps` steps with changing rates and scales.
fn train(optimizer: Optimizer, count: usize, steps: u32, threads: usize) -> Vec<f32> {
    let rule = Rule::new(optimizer);
    let mut weight = noise(1, count);
    let mut states = vec![vec![0.0; count]; optimizer.state_tensors()];
    for step in 0..steps {
        let mut gradient = noise(2 + step, count);
        let mut state: Vec<&mut [f32]> = states.iter_mut().map(|s| &mut s[..]).collect();
        let update = update(step, threads);
        let (weight, state) = (&mut weight[..], &mut state[..]);
        rule.update(&update, Parameter { weight, gradient: &mut gradient, state, axes: 2 });
        assert!(gradient.iter().all(|g| *g == 0.0), "gradients are ready for the next step");
    }
    weight
}

fn update(step: u32, threads: usize) -> Update {
    let scale = if step.is_multiple_of(2) { 1.0 } else { 0.5 };
    Update { rate: 0.01 / f64::from(step + 1), number: u64::from(step) + 1, scale, threads }
}

const RULES: [&str; 8] = [
    "sgd:momentum=0",
    "sgd:momentum=0,weight_decay=0.1",
    "sgd:weight_decay=0.1",
    "sgd:weight_decay=0.1,nesterov=true",
    "adam",
    "adam:weight_decay=0.1,beta1=0.8,beta2=0.95",
    "adamw:weight_decay=0.1",
    "lars:lr=1,weight_decay=0.1,trust=0.1",
];

#[test]
fn every_rule_follows_its_slow_twin() {
    for text in RULES {
        let optimizer: Optimizer = text.parse().expect(text);
        let (count, steps) = (129, 12);
        let weights = train(optimizer, count, steps, 1);
        let new = |w: &f32| Twin { weight: f64::from(*w), first: 0.0, second: 0.0 };
        let mut twins: Vec<Twin> = noise(1, count).iter().map(new).collect();
        for step in 0..steps {
            let Update { rate, scale, .. } = update(step, 1);
            let scaled = |g: &f32| f64::from(*g) * f64::from(scale);
            let gradient: Vec<f64> = noise(2 + step, count).iter().map(scaled).collect();
            twin(optimizer, rate, step as i32 + 1, &mut twins, &gradient);
        }
        for (w, t) in weights.iter().zip(&twins) {
            assert!((f64::from(*w) - t.weight).abs() < 2e-6, "{text}: {w} is not {}", t.weight);
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for text in RULES {
        let optimizer: Optimizer = text.parse().expect(text);
        assert_eq!(train(optimizer, 70_001, 3, 1), train(optimizer, 70_001, 3, 3), "{text}");
    }
}

/// Two steps of `torch.optim.SGD([2.0], lr=0.1, momentum=0.9, weight_decay=0.5)` with gradients 1
/// and -1, by hand: d = 1 + 1 = 2, w = 1.8; d = -1 + 0.9 = -0.1, buffer = 1.7.
#[test]
fn two_steps_by_hand() {
    let rule = Rule::new("sgd:weight_decay=0.5".parse().expect("an optimizer"));
    let (mut w, mut buffer) = ([2.0], [0.0]);
    for (number, gradient, expected) in [(1, 1.0, 1.8), (2, -1.0, 1.63)] {
        let update = Update { rate: 0.1, number, scale: 1.0, threads: 1 };
        let (mut g, state) = ([gradient], &mut [&mut buffer[..]]);
        rule.update(&update, Parameter { weight: &mut w, gradient: &mut g, state, axes: 2 });
        assert!((w[0] - expected).abs() < 1e-6, "{} is not {expected}", w[0]);
    }
    assert!((buffer[0] - 1.7).abs() < 1e-6);
}

/// Biases neither decay nor get a rate of their own under LARS.
#[test]
fn lars_leaves_parameters_of_one_axis_to_sgd() {
    let rule = Rule::new("lars:momentum=0,weight_decay=0.5".parse().expect("an optimizer"));
    let update = Update { rate: 0.5, number: 1, scale: 1.0, threads: 1 };
    let (mut w, mut g) = ([2.0], [1.0]);
    rule.update(&update, Parameter { weight: &mut w, gradient: &mut g, state: &mut [], axes: 1 });
    assert_eq!((w, g), ([1.5], [0.0]));
}
