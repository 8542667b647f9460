//! Graphs to work on: stages of plans, and files.

use pipewright_core::ids::StageId;
use pipewright_core::plan::{Plan, StageProblem};
use pipewright_core::predict::PlannedStage;
use pipewright_core::recompute::Problem;
use pipewright_core::recompute::file::{Label, read};

/// A problem with everything that is said of it.
pub struct Work {
    pub title: String,
    pub problem: Problem,
    pub labels: Vec<Label>,
    /// Nanoseconds of the problem's unit of time.
    pub unit: f64,
    /// Bytes that its device has for it.
    pub room: Option<u64>,
    /// The stage of a plan that it is.
    pub stage: Option<(u32, StageProblem)>,
}

/// A stage of a plan.
///
/// # Errors
/// A sentence for the person.
pub fn stage(text: &str, stage: u32) -> Result<Work, String> {
    let plan = Plan::from_json(text).map_err(|e| e.to_string())?;
    let stages = plan.stages();
    if stage >= stages {
        return Err(format!("The plan has {stages} stages, so no stage {stage}; choose another."));
    }
    let planned = PlannedStage::new(&plan, StageId(stage)).map_err(|e| e.to_string())?;
    Ok(Work {
        title: format!("stage {stage} of {stages}"),
        problem: planned.stage.problem.clone(),
        labels: planned.labels,
        unit: 1.0,
        room: Some(planned.room),
        stage: Some((stage, planned.stage)),
    })
}

/// A file of a graph, unpacked.
///
/// # Errors
/// A sentence for the person.
pub fn file(name: &str, text: &[u8]) -> Result<Work, String> {
    let file = read(text).map_err(|e| format!("{name}: {e}."))?;
    let title = if file.model.is_empty() { name.to_owned() } else { file.model };
    let (problem, labels) = (file.problem, file.labels);
    Ok(Work { title, problem, labels, unit: 1e3, room: None, stage: None })
}
