//! A plan with everything that is predicted of it.

use super::inputs::Inputs;
use pipewright_core::plan::Plan;
use pipewright_core::predict::Prediction;

/// The plan that is shown, with everything that is predicted of it.
#[derive(Debug)]
pub struct Ready {
    pub plan: Plan,
    pub prediction: Prediction,
}

impl Ready {
    /// What follows from the choices.
    ///
    /// # Errors
    /// What contradicts itself in them.
    pub fn new(inputs: &Inputs) -> Result<Self, String> {
        let (plan, prediction) = inputs.plan()?;
        Ok(Self { plan, prediction })
    }
}
