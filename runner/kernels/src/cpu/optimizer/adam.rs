//! Adam and AdamW.

use super::chunks;
use crate::{Parameter, Rule, Update};
use pipewright_core::plan::Optimizer;

/// Numbers of a step, as PyTorch's single-tensor code has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Factor of the weight: below 1 with decoupled decay.
    keep: f32,
    /// Share of the weight added to its gradient.
    weight_decay: f32,
    /// `1 - beta1`.
    new_mean: f32,
    beta2: f32,
    /// `1 - beta2`.
    new_square: f32,
    /// `sqrt(1 - beta2^t)`.
    root_correction: f32,
    eps: f32,
    /// `rate / (1 - beta1^t)`.
    size: f32,
    /// Factor of the gradient.
    scale: f32,
}

impl Step {
    pub fn new(rule: &Rule, update: &Update, eps: f32) -> Self {
        let power = |base: f64| base.powi(i32::try_from(update.number).unwrap_or(i32::MAX));
        let decoupled = matches!(rule.optimizer, Optimizer::AdamW { .. });
        Self {
            keep: if decoupled { (1.0 - update.rate * rule.decay) as f32 } else { 1.0 },
            weight_decay: if decoupled { 0.0 } else { rule.decay as f32 },
            new_mean: (1.0 - rule.beta1) as f32,
            beta2: rule.beta2 as f32,
            new_square: (1.0 - rule.beta2) as f32,
            root_correction: (1.0 - power(rule.beta2)).sqrt() as f32,
            eps,
            size: (update.rate / (1.0 - power(rule.beta1))) as f32,
            scale: update.scale,
        }
    }

    pub fn update(self, update: &Update, parameter: Parameter) {
        let Parameter { weight, gradient, state, .. } = parameter;
        let [mean, square] = state else {
            unreachable!("the state was counted");
        };
        let threads = chunks::worth(update.threads, weight.len());
        let items = weight.len().div_ceil(chunks::ELEMENTWISE);
        let parts = [weight, gradient, mean, square].map(|t| (t, chunks::ELEMENTWISE));
        chunks::for_each_item(threads, items, parts, (&mut [], 0), |_, [w, g, m, s], _| {
            self.part(w, g, m, s);
        });
    }

    fn part(self, weight: &mut [f32], gradient: &mut [f32], mean: &mut [f32], square: &mut [f32]) {
        for (((w, g), m), s) in weight.iter_mut().zip(gradient).zip(mean).zip(square) {
            let kept = *w * self.keep;
            let d = *g * self.scale + self.weight_decay * kept;
            *m += (d - *m) * self.new_mean;
            *s = *s * self.beta2 + self.new_square * d * d;
            let root = s.sqrt() / self.root_correction + self.eps;
            *w = kept - self.size * (*m / root);
            *g = 0.0;
        }
    }
}
