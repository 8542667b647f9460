//! JSON files of people: an error says at which key it is.

use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Plan, PlanError};
use serde::de::DeserializeOwned;

/// Reads a value.
///
/// # Errors
/// The path of what is wrong, `device.memory: invalid type ..`, and its line.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| said::<T>(text).unwrap_or_else(|| e.to_string()))
}

/// Reads and checks a plan.
///
/// # Errors
/// As [`Plan::from_json`] says, with the path where it is a key's value that is wrong.
pub(super) fn read_plan(text: &str) -> Result<Plan, PlanError> {
    Plan::from_json(text).map_err(|error| match error {
        // What has no line is said by the check of versions, which has read less than the plan.
        PlanError::Json(told) if told.contains(" at line ") => {
            PlanError::Json(said::<Plan>(text).unwrap_or(told))
        }
        other => other,
    })
}

/// Why a text is no `T`, read once more and slower.
fn said<T: DeserializeOwned>(text: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(&mut reader).err()?;
    let path = error.path().to_string();
    let inner = error.into_inner().to_string();
    // An unknown field is said with its name.
    let path = path.trim_end_matches('?').trim_end_matches('.');
    let why = network(text, path).map_or(inner.clone(), |why| {
        let place = inner.rfind(" at line ").map_or("", |at| &inner[at..]);
        format!("{why}{place}")
    });
    Some(if path.is_empty() { why } else { format!("{path}: {why}") })
}

/// What is wrong with the numbers of a known network.
fn network(text: &str, path: &str) -> Option<String> {
    let keys = path.strip_suffix("preset")?;
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let model = keys.trim_end_matches('.').split('.').try_fold(&value, |at, key| at.get(key))?;
    Preset::fault(model.get("preset")?.as_str()?)
}
