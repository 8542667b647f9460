//! A chain of fully connected layers, its passes and their gradients, sample after sample.
//!
//! Gradients are added sample by sample in their order, so how many samples a micro-batch has changes
//! no bit of a sum. Tanh and exponentials come from `libm`: the same bits in the browser and natively.

use super::dice::Dice;
use std::ops::Range;

/// What stands behind every layer but the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// The rectifier.
    Relu,
}

/// Where a layer's parameters lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Values that come in.
    pub inputs: usize,
    /// Values that go out.
    pub outputs: usize,
    /// By output, by input.
    pub weights: Range<usize>,
    /// By output.
    pub biases: Range<usize>,
}

/// The layers, the last of which gives a score for each class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// From points to scores.
    pub layers: Vec<Layer>,
    /// Between the layers.
    pub activation: Activation,
}

/// Classes of a point.
pub const CLASSES: usize = 2;

impl Network {
    /// A network with hidden layers of these widths.
    pub fn new(hidden: &[usize], activation: Activation) -> Self {
        let widths: Vec<usize> =
            [2].into_iter().chain(hidden.iter().copied()).chain([CLASSES]).collect();
        let mut at = 0;
        let mut take = |count: usize| {
            at += count;
            at - count..at
        };
        let layer = |pair: &[usize]| Layer {
            inputs: pair[0],
            outputs: pair[1],
            weights: take(pair[0] * pair[1]),
            biases: take(pair[1]),
        };
        Self { layers: widths.windows(2).map(layer).collect(), activation }
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.biases.end)
    }

    /// First parameters: weights of the deviation that keeps values of one size, biases 0.
    pub fn first(&self, seed: u64) -> Vec<f32> {
        let mut dice = Dice::new(seed, 77);
        let mut parameters = vec![0.0; self.parameters()];
        let gain: f64 = if self.activation == Activation::Relu { 2.0 } else { 1.0 };
        for layer in &self.layers {
            let deviation = (gain / layer.inputs as f64).sqrt();
            for weight in &mut parameters[layer.weights.clone()] {
                *weight = (deviation * dice.normal()) as f32;
            }
        }
        parameters
    }

    /// What layer `at` makes of `x`; the activation is in it.
    pub fn forward(&self, at: usize, parameters: &[f32], x: &[f32], y: &mut Vec<f32>) {
        let layer = &self.layers[at];
        let (weights, biases) =
            (&parameters[layer.weights.clone()], &parameters[layer.biases.clone()]);
        let last = at + 1 == self.layers.len();
        y.clear();
        for x in x.chunks_exact(layer.inputs) {
            for (row, bias) in weights.chunks_exact(layer.inputs).zip(biases) {
                let sum = row.iter().zip(x).fold(*bias, |sum, (w, x)| sum + w * x);
                y.push(match self.activation {
                    _ if last => sum,
                    Activation::Tanh => libm::tanhf(sum),
                    Activation::Relu => sum.max(0.0),
                });
            }
        }
    }

    /// From the gradient of what a hidden layer gave, `y`, to that of what its activation got, in place.
    pub fn through_activation(&self, y: &[f32], gradient: &mut [f32]) {
        for (gradient, y) in gradient.iter_mut().zip(y) {
            *gradient *= match self.activation {
                Activation::Tanh => 1.0 - y * y,
                Activation::Relu => f32::from(*y > 0.0),
            };
        }
    }

    /// The gradient of a layer's input, from that of its sums.
    pub fn back(&self, at: usize, parameters: &[f32], sums: &[f32], x: &mut Vec<f32>) {
        let layer = &self.layers[at];
        let weights = &parameters[layer.weights.clone()];
        x.clear();
        for sums in sums.chunks_exact(layer.outputs) {
            let from = x.len();
            x.resize(from + layer.inputs, 0.0);
            for (row, gradient) in weights.chunks_exact(layer.inputs).zip(sums) {
                x[from..].iter_mut().zip(row).for_each(|(x, w)| *x += w * gradient);
            }
        }
    }

    /// Adds a layer's gradients to those of all parameters.
    pub fn add(&self, at: usize, x: &[f32], sums: &[f32], gradients: &mut [f32]) {
        let layer = &self.layers[at];
        for (x, sums) in x.chunks_exact(layer.inputs).zip(sums.chunks_exact(layer.outputs)) {
            let rows = gradients[layer.weights.clone()].chunks_exact_mut(layer.inputs);
            for (row, gradient) in rows.zip(sums) {
                row.iter_mut().zip(x).for_each(|(sum, x)| *sum += gradient * x);
            }
            let biases = &mut gradients[layer.biases.clone()];
            biases.iter_mut().zip(sums).for_each(|(bias, gradient)| *bias += gradient);
        }
    }

    /// The class that scores are for, of each sample, and how sure: the share of class 1. `room` is
    /// for what lies between.
    pub fn shares(&self, parameters: &[f32], points: &[f32], room: &mut [Vec<f32>; 2]) -> Vec<f32> {
        let [now, next] = room;
        now.clear();
        now.extend_from_slice(points);
        for at in 0..self.layers.len() {
            self.forward(at, parameters, now, next);
            std::mem::swap(now, next);
        }
        // The logistic function of the difference is the softmax of two.
        now.chunks_exact(CLASSES).map(|s| 1.0 / (1.0 + libm::expf(s[0] - s[1]))).collect()
    }
}

/// The loss of scores, summed over samples, and its gradient: cross entropy after softmax. Gradients
/// are scaled by `share`.
pub fn loss(scores: &[f32], classes: &[u8], share: f32, gradient: &mut Vec<f32>) -> f64 {
    gradient.clear();
    let mut loss = 0.0;
    for (scores, class) in scores.chunks_exact(CLASSES).zip(classes) {
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = scores.iter().map(|s| libm::expf(s - most)).sum();
        loss += f64::from(libm::logf(sum) + most - scores[usize::from(*class)]);
        for (at, score) in scores.iter().enumerate() {
            let wanted = if at == usize::from(*class) { 1.0 } else { 0.0 };
            gradient.push((libm::expf(score - most) / sum - wanted) * share);
        }
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loss and gradients of all parameters, straight through all layers.
    fn whole(network: &Network, parameters: &[f32], x: &[f32], classes: &[u8]) -> (f64, Vec<f32>) {
        let mut kept = vec![x.to_vec()];
        for at in 0..network.layers.len() {
            let mut y = vec![];
            network.forward(at, parameters, &kept[at], &mut y);
            kept.push(y);
        }
        let (mut sums, mut gradients) = (vec![], vec![0.0; parameters.len()]);
        let share = 1.0 / classes.len() as f32;
        let total = loss(&kept[network.layers.len()], classes, share, &mut sums);
        for at in (0..network.layers.len()).rev() {
            network.add(at, &kept[at], &sums, &mut gradients);
            let mut before = vec![];
            network.back(at, parameters, &sums, &mut before);
            if at > 0 {
                network.through_activation(&kept[at], &mut before);
            }
            sums = before;
        }
        (total / classes.len() as f64, gradients)
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for activation in [Activation::Tanh, Activation::Relu] {
            let network = Network::new(&[5, 4], activation);
            let mut parameters = network.first(3);
            // Away from the rectifier's kink, where there is no slope.
            parameters.iter_mut().for_each(|p| *p += 0.05);
            let (x, classes) = ([0.3, -0.7, 0.9, 0.2, -0.4, -0.5], [0, 1, 1]);
            let (_, gradients) = whole(&network, &parameters, &x, &classes);
            assert!(gradients.iter().all(|g| g.is_finite()) && gradients.len() == 49);
            for at in 0..parameters.len() {
                let (now, by) = (parameters[at], 2e-3);
                let mut at_shift = |shift: f32| {
                    parameters[at] = now + shift;
                    whole(&network, &parameters, &x, &classes).0
                };
                let slope = (at_shift(by) - at_shift(-by)) / (2.0 * f64::from(by));
                parameters[at] = now;
                let off = (slope - f64::from(gradients[at])).abs();
                assert!(off < 2e-4, "{activation:?} {at}: {slope} and {}", gradients[at]);
            }
        }
    }

    #[test]
    fn shares_are_those_of_the_softmax() {
        let network = Network::new(&[3], Activation::Tanh);
        let parameters = network.first(1);
        let (x, mut hidden, mut scores) = ([0.5, -0.25], vec![], vec![]);
        network.forward(0, &parameters, &x, &mut hidden);
        network.forward(1, &parameters, &hidden, &mut scores);
        let share = libm::expf(scores[1]) / (libm::expf(scores[0]) + libm::expf(scores[1]));
        let found = network.shares(&parameters, &x, &mut [vec![], vec![]]);
        assert!((found[0] - share).abs() < 1e-6);
    }
}
