//! The momentum step, which LARS takes as well.

use super::{chunks, for_each_three};
use crate::{Parameter, Update};

/// Numbers of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Share of the last direction in the next one.
    pub momentum: f32,
    /// Whether to go by the direction that the next step would begin with.
    pub nesterov: bool,
    /// Share of the weight added to its gradient.
    pub weight_decay: f32,
    /// Factor of the direction: LARS's rate of the parameter.
    pub local: f32,
}

impl Step {
    /// Buffers begin as zeros, which makes the first direction the gradient itself, as in PyTorch.
    pub fn update(self, update: &Update, parameter: Parameter) {
        let Parameter { weight, gradient, state, .. } = parameter;
        match state {
            [buffer] => {
                let work = |w: &mut [f32], g: &mut [f32], v: &mut [f32]| {
                    if self.nesterov {
                        self.with_buffer(update, (w, g, v), |d, v| d + self.momentum * v);
                    } else {
                        self.with_buffer(update, (w, g, v), |_, v| v);
                    }
                };
                for_each_three(update.threads, (weight, gradient, buffer), work);
            }
            _ => {
                let threads = chunks::worth(update.threads, weight.len());
                let rate = update.rate as f32;
                let len = (chunks::ELEMENTWISE, chunks::ELEMENTWISE);
                chunks::for_each_pair(threads, (weight, gradient), len, |_, w, g| {
                    for (w, g) in w.iter_mut().zip(g) {
                        *w -= rate * self.direction(*g * update.scale, *w);
                        *g = 0.0;
                    }
                });
            }
        }
    }

    fn direction(self, gradient: f32, weight: f32) -> f32 {
        self.local * (gradient + self.weight_decay * weight)
    }

    fn with_buffer(
        self,
        update: &Update,
        (weight, gradient, buffer): (&mut [f32], &mut [f32], &mut [f32]),
        go: impl Fn(f32, f32) -> f32,
    ) {
        let rate = update.rate as f32;
        for ((w, g), v) in weight.iter_mut().zip(gradient).zip(buffer) {
            let d = self.direction(*g * update.scale, *w);
            *v = self.momentum * *v + d;
            *w -= rate * go(d, *v);
            *g = 0.0;
        }
    }
}
