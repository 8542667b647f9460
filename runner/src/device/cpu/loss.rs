//! Softmax cross entropy: `-log softmax(logits)[target]`.
//!
//! `logits [samples, classes]`, `target [samples]` as u32. The loss is two words for the whole
//! micro-batch: the sum over its samples (f32) and the number of correct predictions (u32).
//! Micro-batches of one step can thus be added up; the gradient carries the division by the
//! mini-batch in `loss_scale`.

use super::{Call, Operands};

/// Target of a sample that only fills up a micro-batch: no loss, no prediction, no gradient.
const PADDING: u32 = u32::MAX;

pub fn forward(call: &Call, operands: Operands) {
    let classes = call.inputs[0].elements() as usize;
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let [loss, probabilities] = operands.writes else {
        unreachable!("a loss writes itself and the probabilities");
    };
    let (mut sum, mut correct) = (0.0f64, 0u32);
    let samples = logits.chunks_exact(classes).zip(probabilities.chunks_exact_mut(classes));
    for ((logits, probabilities), &target) in samples.zip(targets) {
        let (prediction, max, total) = softmax(logits, probabilities);
        if target != PADDING {
            let target = target as usize;
            sum += total.ln() - f64::from(logits[target] - max);
            correct += u32::from(prediction == target);
        }
    }
    loss[0] = sum as f32;
    bytemuck::cast_slice_mut::<f32, u32>(loss)[1] = correct;
}

/// Writes the probabilities; returns the class of the largest logit (the first of equals), that
/// logit, and the sum of `exp(logit - max)`.
fn softmax(logits: &[f32], probabilities: &mut [f32]) -> (usize, f32, f64) {
    let (mut prediction, mut max) = (0, f32::NEG_INFINITY);
    for (class, &logit) in logits.iter().enumerate() {
        if logit > max {
            (prediction, max) = (class, logit);
        }
    }
    let mut total = 0.0f64;
    for (p, &logit) in probabilities.iter_mut().zip(logits) {
        *p = (logit - max).exp();
        total += f64::from(*p);
    }
    let scale = (1.0 / total) as f32;
    probabilities.iter_mut().for_each(|p| *p *= scale);
    (prediction, max, total)
}

/// `g = (p - onehot(target)) loss_scale`
pub fn input_gradient(call: &Call, operands: Operands) {
    let classes = call.inputs[0].elements() as usize;
    let [probabilities, targets] = operands.reads else {
        unreachable!("a loss's gradient reads probabilities and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let samples = operands.writes[0].chunks_exact_mut(classes);
    for ((g, p), &target) in samples.zip(probabilities.chunks_exact(classes)).zip(targets) {
        if target == PADDING {
            g.fill(0.0);
            continue;
        }
        g.iter_mut().zip(p).for_each(|(g, p)| *g = p * call.loss_scale);
        g[target as usize] = (p[target as usize] - 1.0) * call.loss_scale;
    }
}
