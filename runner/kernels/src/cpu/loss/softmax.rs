//! Softmax cross entropy with label smoothing `e` (Szegedy et al. 2016), as PyTorch defines it:
//!
//! ```text
//! loss = -(1 - e) log p[target] - e / classes Σ log p
//! g    = (p - (1 - e) onehot(target) - e / classes) loss_scale / positions
//! ```
//!
//! `logits [samples, positions.., classes]`, `target [samples, positions..]` as u32.

use super::super::chunks;
use super::super::softmax::{row_exp_in_place, row_exp_sum, row_max};
use super::super::vector::vectorised;
use super::{PADDING, bring, tally_and_keep, write};
use crate::{Call, Operands};

vectorised! {
    /// From probabilities before they are divided by their sum: `g = (p factor - spread) scale`
    pub fn row_gradient(g: &mut [f32], factor: f32, spread: f32, scale: f32) {
        for g in g.iter_mut() {
            *g = (*g * factor - spread) * scale;
        }
    }
}

pub fn forward(call: &Call, smoothing: f32, operands: Operands) {
    let Rows { classes, positions } = Rows::new(call);
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let [loss, statistics] = operands.writes else {
        unreachable!("a loss writes itself and statistics");
    };
    let smoothing = f64::from(smoothing);
    let (sum, correct) = tally_and_keep(call.threads, classes, statistics, |row, statistics| {
        let logits = &logits[row * classes..][..classes];
        let max = row_max(logits);
        let total = row_exp_sum(logits, max);
        *statistics = [max, 1.0 / total];
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
        // The first of the largest; of what is not a number none is.
        let prediction = logits.iter().position(|logit| *logit == max).unwrap_or(0);
        (f64::from(total).ln() - expected, u32::from(prediction == target))
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

pub fn input_gradient(call: &Call, smoothing: f32, operands: Operands) {
    let Rows { classes, positions } = Rows::new(call);
    let [logits, targets, statistics] = operands.reads else {
        unreachable!("a loss's gradient reads logits, targets and statistics");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let (statistics, _) = statistics.as_chunks::<2>();
    let scale = call.loss_scale / positions as f32;
    let (spread, on_target) = (smoothing / classes as f32, 1.0 - smoothing);
    let g = &mut *operands.writes[0];
    let threads = chunks::worth(call.threads, g.len());
    chunks::for_each(threads, g, classes, |row, g| {
        if targets[row] == PADDING {
            g.fill(0.0);
            return;
        }
        bring(logits, row * classes, g);
        let (target, [max, factor]) = (targets[row] as usize, statistics[row]);
        row_exp_in_place(g, 1.0, max);
        let probability = g[target] * factor;
        row_gradient(g, factor, spread, scale);
        g[target] = (probability - on_target - spread) * scale;
    });
}
