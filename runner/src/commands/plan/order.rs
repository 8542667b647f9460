//! The order of actions that a plan takes from PyTorch's CSV of a schedule.

use crate::args::{Order, PlanArgs};
use crate::failure::Failure;
use pipewright_core::plan::ScheduleText;
use pipewright_core::schedule::{Schedule, ScheduleKind, Updates};
use std::path::Path;

/// An order from a file, and what follows from it.
pub(super) struct Own {
    pub text: ScheduleText,
    pub stages: u32,
    pub lanes: u32,
    pub micro_batches: u32,
}

/// The order of the file that `--schedule` names, if it names one; it agrees with the other flags.
pub(super) fn own(args: &PlanArgs) -> Result<Option<Own>, Failure> {
    let Some(Order::File(path)) = &args.schedule else { return Ok(None) };
    let text = crate::commands::read_text(path)?;
    let file = path.display();
    let refuse = |why: String| Failure::usage(format!("--schedule {file}: {why}"));
    let schedule = Schedule::from_csv(&text).map_err(|e| refuse(e.to_string()))?;
    let (stages, lanes) = (schedule.stages(), schedule.lanes.len() as u32);
    let micro_batches = schedule.micro_batches;
    let cuts = match args.cuts.len() {
        0 => None,
        cuts => Some(cuts as u32 + 1),
    };
    for (flag, asked, has, what) in [
        ("--stages", args.stages, stages, "stages"),
        ("--cuts", cuts, stages, "stages"),
        ("--micro-batches", args.micro_batches, micro_batches, "micro-batches"),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            return Err(refuse(format!("it has {has} {what}, {flag} asks for {asked}")));
        }
    }
    let name = known(&schedule).map_or_else(|| file_name(path), |kind| kind.to_string());
    let text = ScheduleText { name, lanes: schedule.lines() };
    Ok(Some(Own { text, stages, lanes, micro_batches }))
}

/// The schedule by name that has this order. Which update a micro-batch belongs to is not in the file: it
/// is taken for one with a flush.
fn known(schedule: &Schedule) -> Option<ScheduleKind> {
    let (stages, lanes) = (schedule.stages(), schedule.lanes.len() as u32);
    let chunks = stages.checked_div(lanes)?;
    let numbered = |kind: ScheduleKind| match kind {
        ScheduleKind::Hanayo { .. } => kind.with_number(chunks / 2),
        kind => kind.with_number(chunks).or(Some(kind)),
    };
    ScheduleKind::ALL.into_iter().filter_map(numbered).find(|kind| {
        kind.updates() == Updates::Synchronous
            && kind.lanes(stages) == Ok(lanes)
            && kind.generate(stages, schedule.micro_batches).is_ok_and(|own| own == *schedule)
    })
}

/// The end of a path, which is no schedule's name as it has an ending.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
