//! What the Run screen shows: why a measured step differs from the predicted one, times that fit,
//! and how a training went.

pub mod drift;
pub mod fit;
pub mod metrics;

use crate::planner::inputs::Inputs;
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
