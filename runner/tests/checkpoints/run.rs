//! Common runs: plans that are one training under several divisions, and the files that runs leave.

pub use crate::common::tensors;

use crate::common::{digits, draft, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::Plan;
use pipewright_core::schedule::ScheduleKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Steps of an uninterrupted run.
pub const STEPS: u64 = 8;

/// digits-cnn, always the same training, divided in one way.
pub fn plan(stages: u32, schedule: ScheduleKind) -> Plan {
    let mut draft = draft(Preset::DigitsCnn, stages);
    (draft.schedule, draft.data, draft.steps) = (schedule, digits(), STEPS);
    draft.plan().unwrap().0
}

/// Writes that plan and returns its file.
pub fn plan_file(dir: &Path, stages: u32, schedule: ScheduleKind) -> String {
    let name = format!("{stages}-{}.json", schedule.to_string().replace(':', "-"));
    write(dir, &name, plan(stages, schedule).to_json());
    name
}

/// The steps of a run's checkpoints, ascending; nothing else may lie in their folder.
#[track_caller]
pub fn checkpoints(out: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(out.join("checkpoints")).unwrap();
    let step = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let step = name.strip_prefix("step-").and_then(|step| step.parse().ok());
        step.unwrap_or_else(|| panic!("{name} is left in the folder of checkpoints"))
    };
    let mut steps: Vec<u64> = entries.map(step).collect();
    steps.sort_unstable();
    steps
}

/// A checkpoint's folder.
pub fn at(out: &Path, step: u64) -> PathBuf {
    out.join(format!("checkpoints/step-{step}"))
}

/// Waits until `done` gives something, for as long as a crowded machine may need.
#[track_caller]
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a run has saved a checkpoint of at least that step.
pub fn saved(out: &Path, step: u64) -> Option<()> {
    let entries = std::fs::read_dir(out.join("checkpoints")).ok()?;
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let steps = entries.filter_map(|entry| name(entry.ok()?).strip_prefix("step-")?.parse().ok());
    steps.max().filter(|newest: &u64| *newest >= step).map(|_| ())
}
