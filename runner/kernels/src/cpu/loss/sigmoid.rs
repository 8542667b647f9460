//! Binary cross entropy of logits, as PyTorch's `BCEWithLogitsLoss`:
//!
//! ```text
//! loss = max(x, 0) - x t + log(1 + exp(-|x|))      g = (sigmoid(x) - t) loss_scale / elements
//! ```
//!
//! `logits` and `target` (u32, 0 or 1) have equally many elements; the loss of a sample is the mean
//! over them. A prediction is correct when the logit's sign says the class.

use super::super::chunks;
use super::{PADDING, tally, write};
use crate::{Call, Operands};

pub fn forward(call: &Call, operands: Operands) {
    let elements = call.inputs[0].elements() as usize;
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let [loss, probabilities] = operands.writes else {
        unreachable!("a loss writes itself and the probabilities");
    };
    let (sum, correct) = tally(call.threads, probabilities, elements, |sample, probabilities| {
        let part = sample * elements..(sample + 1) * elements;
        let (mut sum, mut correct) = (0.0f64, 0);
        let pairs = logits[part.clone()].iter().zip(&targets[part]);
        for (p, (&x, &target)) in probabilities.iter_mut().zip(pairs) {
            let small = (-x.abs()).exp();
            *p = if x < 0.0 { small } else { 1.0 } / (1.0 + small);
            if target != PADDING {
                let hit = if target == 1 { x } else { 0.0 };
                sum += f64::from(x.max(0.0) - hit + small.ln_1p());
                correct += u32::from((x > 0.0) == (target == 1));
            }
        }
        (sum, correct)
    });
    write(loss, (sum / elements as f64, correct));
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let [probabilities, targets] = operands.reads else {
        unreachable!("a loss's gradient reads probabilities and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let scale = call.loss_scale / call.inputs[0].elements() as f32;
    let threads = chunks::worth(call.threads, probabilities.len());
    chunks::for_each(threads, operands.writes[0], chunks::ELEMENTWISE, |i, g| {
        let part = i * chunks::ELEMENTWISE..i * chunks::ELEMENTWISE + g.len();
        for ((g, p), &target) in g.iter_mut().zip(&probabilities[part.clone()]).zip(&targets[part])
        {
            let expected = if target == 1 { 1.0 } else { 0.0 };
            *g = if target == PADDING { 0.0 } else { (p - expected) * scale };
        }
    });
}
