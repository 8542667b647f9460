//! `runner export`: plans for other runtimes, trained weights and metrics for other programs.

mod metrics;
mod weights;

use super::figures;
use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use clap::ValueEnum;
use pipewright_core::ids::StageId;
use pipewright_core::plan::export::{megatron_layout, modules_by_stage, split_points};
use pipewright_core::schedule::Schedule;
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let prints = match (args.format, &args.csv) {
        (_, Some(file)) => file == Path::new("-"),
        (Some(format), None) => !format.is_of_weights() && args.output == Path::new("-"),
        (None, None) => false,
    };
    if args.json && prints {
        let message = "--json says what was written: name a file, -o FILE or --csv FILE";
        return Err(Failure::usage(message));
    }
    let written = write(args)?;
    for warning in &written.warnings {
        warn!("{warning}");
    }
    if args.json {
        figures::print(&written);
    } else if !prints {
        note!("wrote {} to {}", written.what, written.file.display());
    }
    Ok(())
}

/// What was exported.
#[derive(Serialize)]
struct Written {
    what: String,
    file: PathBuf,
    warnings: Vec<String>,
}

impl Written {
    fn new(what: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        Self { what: what.into(), file: file.into(), warnings: vec![] }
    }
}

fn write(args: &ExportArgs) -> Result<Written, Failure> {
    let missing = || Failure::usage("name a plan with --format, or the folder of a run");
    if let Some(named) = args.weights.as_deref() {
        let (checkpoint, file) = match (&args.source, named) {
            (Some(source), [file]) => (source, file),
            (None, [checkpoint, file]) => (checkpoint, file),
            (Some(_), _) => {
                return Err(Failure::usage("--weights FILE is enough where the run is named"));
            }
            (None, _) => {
                return Err(Failure::usage("whose weights? runner export RUN --weights FILE"));
            }
        };
        let format = args.format.unwrap_or(ExportFormat::Pipewright);
        if !format.is_of_weights() {
            return Err(Failure::usage("--weights goes with --format hf, torch or pipewright"));
        }
        weights::weights(checkpoint, file, format)?;
        return Ok(Written::new("weights", file));
    }
    let source = args.source.as_deref().ok_or_else(missing)?;
    match (args.format, &args.tensorboard, &args.csv) {
        (Some(format), ..) => plan(source, format, &args.output),
        (_, Some(folder), _) => {
            Ok(Written::new("metrics for TensorBoard", metrics::tensorboard(source, folder)?))
        }
        (_, _, Some(file)) => {
            metrics::csv(source, file)?;
            Ok(Written::new("metrics", file))
        }
        (None, None, None) => Err(missing()),
    }
}

/// A plan in the format of another runtime.
fn plan(source: &Path, format: ExportFormat, output: &Path) -> Result<Written, Failure> {
    if format.is_of_weights() {
        let how = "that is a format of weights: runner export RUN --format FORMAT --weights FILE";
        return Err(Failure::usage(how));
    }
    let plan = super::read_plan(source)?;
    // Reading checked all of it; what is refused below is the combination of plan and format.
    let (graph, schedule) = plan.check().map_err(refused)?;
    let mut warnings = vec![];
    let text = match format {
        ExportFormat::PytorchCsv => {
            warnings.extend(pytorch_refuses(&schedule));
            schedule.to_csv()
        }
        ExportFormat::PytorchCsvMessages => {
            warnings.extend(pytorch_refuses(&schedule));
            schedule.to_csv_with_messages().map_err(refused)?
        }
        ExportFormat::SplitPoints => split_points(&graph, &plan.cuts).map_err(refused)?,
        ExportFormat::Modules => {
            let modules = modules_by_stage(&graph, &plan.cuts).map_err(refused)?;
            serde_json::to_string_pretty(&modules).expect("plain data")
        }
        ExportFormat::MegatronLayout => {
            megatron_layout(&graph, &plan.cuts, plan.lanes()).map_err(refused)?.to_string()
        }
        ExportFormat::Hf | ExportFormat::Torch | ExportFormat::Pipewright => {
            unreachable!("formats of weights are refused above")
        }
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    super::write_text(output, &format!("{text}{end}"))?;
    let name = format.to_possible_value().map_or(String::new(), |value| value.get_name().into());
    Ok(Written { warnings, ..Written::new(name, output) })
}

/// Why PyTorch does not take the file of a schedule.
fn pytorch_refuses(schedule: &Schedule) -> Option<String> {
    let lanes = |stage: StageId| {
        let mut lanes: Vec<u32> = schedule.routes.iter().map(|r| r[stage.index()].0).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    };
    let shared = (0..schedule.stages()).map(StageId).find(|stage| lanes(*stage).len() > 1);
    if let Some(stage) = shared {
        let ranks: Vec<String> = lanes(stage).iter().map(u32::to_string).collect();
        let ranks = ranks.join(" and ");
        return Some(format!(
            "PyTorch refuses this schedule: stage {stage} is on ranks {ranks}, there it has one rank"
        ));
    }
    let overlaps = schedule.overlaps.iter().any(|lane| !lane.is_empty());
    overlaps.then(|| "PyTorch 2.8 refuses this schedule: it does not read OVERLAP_F_B".into())
}

fn refused(error: impl Display) -> Failure {
    Failure::usage(error.to_string())
}
