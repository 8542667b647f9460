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
use pipewright_core::plan::Optimizer;

/// An optimizer with its numbers as PyTorch computes with them: the decimal numbers of the plan in
/// f64, rounded to f32 where they meet a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    optimizer: Optimizer,
    beta1: f64,
    beta2: f64,
    decay: f64,
}

/// What differs from one update to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Learning rate of the step.
    pub rate: f64,
    /// Updates of the parameter so far, this one included: from 1.
    pub number: u64,
    /// Factor of the gradient: below 1 when it is clipped.
    pub scale: f32,
    /// Threads of the caller's team that may take part; 0 and 1 both mean the caller alone.
    pub threads: usize,
}

/// A parameter with what belongs to it; all slices have one length.
#[derive(Debug)]
pub struct Parameter<'a, 't> {
    /// Its values.
    pub weight: &'a mut [f32],
    /// Its gradient; zero afterwards, ready for the next mini-batch.
    pub gradient: &'a mut [f32],
    /// What the optimizer keeps, in the order of [`Optimizer::state_names`].
    pub state: &'a mut [&'t mut [f32]],
    /// Axes of its shape.
    pub axes: usize,
}

impl Rule {
    /// The rule of an optimizer. Allocates a few bytes: make it once.
    pub fn new(optimizer: Optimizer) -> Self {
        let (beta1, beta2, decay) = match optimizer {
            Optimizer::Adam { beta1, beta2, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, weight_decay, .. } => (beta1, beta2, weight_decay),
            Optimizer::Sgd { weight_decay, .. } | Optimizer::Lars { weight_decay, .. } => {
                (0.0, 0.0, weight_decay)
            }
        };
        Self { optimizer, beta1: decimal(beta1), beta2: decimal(beta2), decay: decimal(decay) }
    }

    /// Which optimizer.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

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
                lars::step(update, (momentum, weight_decay, trust), &parameter)
                    .update(update, parameter);
            }
            Optimizer::Adam { eps, .. } | Optimizer::AdamW { eps, .. } => {
                adam::Step::new(self, update, eps).update(update, parameter);
            }
        }
    }
}

/// The decimal number that an f32 was written as: 0.9 and not 0.89999998.
pub fn decimal(value: f32) -> f64 {
    value.to_string().parse().expect("numbers print as numbers")
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
