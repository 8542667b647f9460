//! Softmax cross entropy with label smoothing `e` (Szegedy et al. 2016), as PyTorch defines it:
//!
//! ```text
//! loss = -(1 - e) log p[target] - e / classes Σ log p
//! g    = (p - (1 - e) onehot(target) - e / classes) loss_scale / positions
//! ```
//!
//! `logits [samples, positions.., classes]`, `target [samples, positions..]` as u32.

use super::super::chunks;
use super::super::softmax::{row_exp, row_max, row_scale};
use super::{PADDING, tally, write};
use crate::{Call, Operands};

pub fn forward(call: &Call, smoothing: f32, operands: Operands) {
    let Rows { classes, positions } = Rows::new(call);
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let [loss, probabilities] = operands.writes else {
        unreachable!("a loss writes itself and the probabilities");
    };
    let smoothing = f64::from(smoothing);
    let (sum, correct) = tally(call.threads, probabilities, classes, |row, probabilities| {
        let logits = &logits[row * classes..][..classes];
        let (prediction, max, total) = softmax(logits, probabilities);
        let target = targets[row];
        if target == PADDING {
            return (0.0, 0);
        }
        let target = target as usize;
        let mut expected = f64::from(logits[target] - max);
        if smoothing > 0.0 {
            let all: f64 = logits.iter().map(|logit| f64::from(logit - max)).sum();
            expected = (1.0 - smoothing) * expected + smoothing * all / classes as f64;
        }
        (total.ln() - expected, u32::from(prediction == target))
    });
    write(loss, (sum / positions as f64, correct));
}

/// Sizes of one sample.
struct Rows {
    classes: usize,
    positions: usize,
}

impl Rows {
    fn new(call: &Call) -> Self {
        let logits = call.inputs[0];
        let classes = *logits.shape.last().expect("logits have classes") as usize;
        Self { classes, positions: logits.elements() as usize / classes }
    }
}

/// Writes the probabilities; returns the class of the largest logit (the first of equals), that
/// logit, and the sum of `exp(logit - max)`.
fn softmax(logits: &[f32], probabilities: &mut [f32]) -> (usize, f32, f64) {
    let max = row_max(logits);
    let prediction = logits.iter().position(|logit| *logit == max).unwrap_or(0);
    let total = row_exp(probabilities, logits, 1.0, max);
    row_scale(probabilities, 1.0 / total);
    (prediction, max, f64::from(total))
}

pub fn input_gradient(call: &Call, smoothing: f32, operands: Operands) {
    let Rows { classes, positions } = Rows::new(call);
    let [probabilities, targets] = operands.reads else {
        unreachable!("a loss's gradient reads probabilities and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let scale = call.loss_scale / positions as f32;
    let (spread, on_target) = (smoothing / classes as f32, 1.0 - smoothing);
    let threads = chunks::worth(call.threads, probabilities.len());
    chunks::for_each(threads, operands.writes[0], classes, |row, g| {
        let p = &probabilities[row * classes..][..classes];
        let target = targets[row];
        if target == PADDING {
            g.fill(0.0);
            return;
        }
        g.iter_mut().zip(p).for_each(|(g, p)| *g = (p - spread) * scale);
        g[target as usize] = (p[target as usize] - on_target - spread) * scale;
    });
}
