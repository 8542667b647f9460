//! Cuts and orders that take a search: made at once, in the worker, so that the page stays live.

use crate::protocol::{Made, Make};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Borders, USUAL, automatic_plan, best_split};

/// Makes what is asked for of a plan's text.
///
/// # Errors
/// A sentence for the person.
pub fn make(plan: &str, what: Make) -> Result<Made, String> {
    let plan = Plan::from_json(plan).map_err(|e| e.to_string())?;
    match what {
        Make::Cuts => {
            let draft = plan.draft();
            let found = best_split(&draft, &plan.schedule, Borders::Nodes, USUAL);
            let found = found.map_err(|e| e.to_string())?;
            Ok(Made {
                cuts: found.cuts,
                schedule: plan.schedule,
                step: found.step.0,
                bound: Some(found.bound.0),
                before: found.balanced.0,
            })
        }
        Make::Order => {
            let found = automatic_plan(&plan.draft(), plan.lanes()).map_err(|e| e.to_string())?;
            let step = found.prediction.timeline.step.0;
            Ok(Made {
                cuts: found.plan.cuts,
                schedule: found.plan.schedule,
                step,
                bound: found.bound.map(|bound| bound.0),
                before: found.named.map_or(step, |(_, step)| step.0),
            })
        }
    }
}
