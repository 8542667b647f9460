//! Mean squared error: `loss = mean (x - t)²`, `g = 2 (x - t) loss_scale / elements`, where a sample
//! has so many elements. Prediction and target have one shape.

use super::super::chunks;
use super::super::sums::sum_of;
use super::{PADDING, bring, write};
use crate::{Call, Operands};

/// Whether a sample's target says that there is no sample.
fn is_padding(target: &[f32]) -> bool {
    target.first().is_some_and(|first| first.to_bits() == PADDING)
}

pub fn forward(call: &Call, operands: Operands) {
    let elements = call.inputs[0].elements() as usize;
    let [prediction, target] = operands.reads else {
        unreachable!("a loss reads prediction and target");
    };
    let samples = prediction.chunks_exact(elements).zip(target.chunks_exact(elements));
    let mut sum = 0.0f64;
    for (prediction, target) in samples.filter(|(_, target)| !is_padding(target)) {
        // In pieces: a long sum in f32 would round too much away.
        let pieces = prediction.chunks(chunks::ELEMENTWISE).zip(target.chunks(chunks::ELEMENTWISE));
        let square = |x: f32, t: f32| (x - t) * (x - t);
        sum += pieces.map(|(x, t)| f64::from(sum_of(x, t, square))).sum::<f64>();
    }
    write(operands.writes[0], (sum / elements as f64, 0));
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let elements = call.inputs[0].elements() as usize;
    let [prediction, target] = operands.reads else {
        unreachable!("a loss's gradient reads prediction and target");
    };
    let scale = 2.0 * call.loss_scale / elements as f32;
    let g = &mut *operands.writes[0];
    let threads = chunks::worth(call.threads, g.len());
    chunks::for_each(threads, g, elements, |sample, g| {
        let target = &target[sample * elements..][..elements];
        if is_padding(target) {
            g.fill(0.0);
            return;
        }
        bring(prediction, sample * elements, g);
        for (g, t) in g.iter_mut().zip(target) {
            *g = (*g - t) * scale;
        }
    });
}
