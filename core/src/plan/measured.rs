//! Evidence that a plan carries: steps that were measured of it and of the plan that it came from.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// What measuring found when the plan was tuned, on the machine of its cluster; a record that no run reads.
/// Steps are medians of those after the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// A step of this plan.
    pub step_ns: Nanos,
    /// A step of the plan that tuning began with.
    pub first_step_ns: Nanos,
    /// Different plans that were measured, the first one included.
    pub plans: u32,
}
