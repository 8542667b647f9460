//! Binary cross entropy of logits, as PyTorch's `BCEWithLogitsLoss`:
//!
//! ```text
//! loss = max(x, 0) - x t + log(1 + exp(-|x|))      g = (sigmoid(x) - t) loss_scale / elements
//! ```
//!
//! `logits` and `target` (u32, 0 or 1) have equally many elements; the loss of a sample is the mean
//! over them. A prediction is correct when the logit's sign says the class.

use super::super::chunks;
use super::{PADDING, bring, tally, write};
use crate::{Call, Operands};

/// `sigmoid(x)`, and `exp(-|x|)` that it is made of.
fn sigmoid(x: f32) -> [f32; 2] {
    let small = (-x.abs()).exp();
    [if x < 0.0 { small } else { 1.0 } / (1.0 + small), small]
}

pub fn forward(call: &Call, operands: Operands) {
    let elements = call.inputs[0].elements() as usize;
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let samples = logits.len() / elements;
    let (sum, correct) = tally(call.threads, samples, elements, |sample| {
        let part = sample * elements..(sample + 1) * elements;
        let (mut sum, mut correct) = (0.0f64, 0);
        for (&x, &target) in logits[part.clone()].iter().zip(&targets[part]) {
            if target != PADDING {
                let [_, small] = sigmoid(x);
                let hit = if target == 1 { x } else { 0.0 };
                sum += f64::from(x.max(0.0) - hit + small.ln_1p());
                correct += u32::from((x > 0.0) == (target == 1));
            }
        }
        (sum, correct)
    });
    write(operands.writes[0], (sum / elements as f64, correct));
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let [logits, targets] = operands.reads else {
        unreachable!("a loss's gradient reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let scale = call.loss_scale / call.inputs[0].elements() as f32;
    let g = &mut *operands.writes[0];
    let threads = chunks::worth(call.threads, g.len());
    chunks::for_each(threads, g, chunks::ELEMENTWISE, |i, g| {
        let start = i * chunks::ELEMENTWISE;
        bring(logits, start, g);
        for (g, &target) in g.iter_mut().zip(&targets[start..]) {
            let expected = if target == 1 { 1.0 } else { 0.0 };
            *g = if target == PADDING { 0.0 } else { (sigmoid(*g)[0] - expected) * scale };
        }
    });
}
