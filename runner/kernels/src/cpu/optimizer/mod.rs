//! Updates of parameters by PyTorch's formulas, see [`Optimizer`].
//!
//! Element-wise but for the two lengths that LARS needs: loops over equal slices that the compiler
//! turns into vector code. Nothing is allocated.

mod adam;
mod lars;
mod sgd;
#[cfg(test)]
mod tests;

use super::chunks;
use crate::{Parameter, Rule, Update};
use pipewright_core::plan::Optimizer;

impl Rule {
    /// Changes a parameter by its gradient, which is zero afterwards.
    ///
    /// # Panics
    /// When slices differ in length or the state is not the optimizer's.
    pub fn update(&self, update: &Update, parameter: Parameter) {
        let length = parameter.weight.len();
        assert_eq!(parameter.gradient.len(), length, "one gradient per weight");
        assert_eq!(parameter.state.len(), self.optimizer.state_tensors(), "its own state");
        for state in parameter.state.iter() {
            assert_eq!(state.len(), length, "one number of the state per weight");
        }
        match self.optimizer {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                let step = sgd::Step { momentum, nesterov, weight_decay, local: 1.0 };
                step.update(update, parameter);
            }
            Optimizer::Lars { momentum, weight_decay, trust, .. } => {
                lars::step(update, momentum, weight_decay, trust, &parameter)
                    .update(update, parameter);
            }
            Optimizer::Adam { eps, .. } | Optimizer::AdamW { eps, .. } => {
                adam::Step::new(self, update, eps).update(update, parameter);
            }
        }
    }
}

/// Runs `work` on equal chunks of weight, gradient and one tensor of state.
fn for_each_three(
    threads: usize,
    (weight, gradient, state): (&mut [f32], &mut [f32], &mut [f32]),
    work: impl Fn(&mut [f32], &mut [f32], &mut [f32]) + Sync,
) {
    let threads = chunks::worth(threads, weight.len());
    let items = weight.len().div_ceil(chunks::ELEMENTWISE);
    let parts = [weight, gradient, state].map(|tensor| (tensor, chunks::ELEMENTWISE));
    chunks::for_each_item(threads, items, parts, (&mut [], 0), |_, [w, g, s], _| work(w, g, s));
}
