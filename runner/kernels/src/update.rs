//! Update: by which rule and with which numbers a parameter follows its gradient.

use pipewright_core::plan::Optimizer;

/// An optimizer with its numbers as PyTorch computes with them: the decimal numbers of the plan in
/// f64, rounded to f32 where they meet a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub(crate) optimizer: Optimizer,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) decay: f64,
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
    /// Threads of the caller's thread pool that may take part; 0 and 1 both mean the caller alone.
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
}

/// The decimal number that an f32 was written as: 0.9 and not 0.89999998.
pub fn decimal(value: f32) -> f64 {
    value.to_string().parse().expect("numbers print as numbers")
}
