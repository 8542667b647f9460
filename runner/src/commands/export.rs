//! `runner export`: plans for other runtimes, trained weights and metrics for other programs.

mod metrics;
mod weights;

use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use pipewright_core::plan::export::{megatron_layout, modules_by_stage, split_points};
use std::fmt::Display;
use std::path::Path;

/// Runs the command.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    if let Some([checkpoint, file]) = args.weights.as_deref() {
        let format = args.format.unwrap_or(ExportFormat::Pipewright);
        return match format.is_of_weights() {
            true => weights::weights(checkpoint, file, format),
            false => Err(Failure::usage("--weights goes with --format hf, torch or pipewright")),
        };
    }
    let missing = || Failure::usage("name a plan with --format, or the folder of a run");
    let source = args.source.as_deref().ok_or_else(missing)?;
    match (args.format, &args.tensorboard, &args.csv) {
        (Some(format), ..) => plan(source, format, &args.output),
        (_, Some(folder), _) => metrics::tensorboard(source, folder),
        (_, _, Some(file)) => metrics::csv(source, file),
        (None, None, None) => Err(missing()),
    }
}

/// A plan in the format of another runtime.
fn plan(source: &Path, format: ExportFormat, output: &Path) -> Result<(), Failure> {
    let plan = super::read_plan(source)?;
    // Reading checked all of it; what is refused below is the combination of plan and format.
    let (graph, schedule) = plan.check().map_err(refused)?;
    let text = match format {
        ExportFormat::PytorchCsv => schedule.to_csv(),
        ExportFormat::PytorchCsvMessages => schedule.to_csv_with_messages().map_err(refused)?,
        ExportFormat::SplitPoints => split_points(&graph, &plan.cuts).map_err(refused)?,
        ExportFormat::Modules => {
            let modules = modules_by_stage(&graph, &plan.cuts).map_err(refused)?;
            serde_json::to_string_pretty(&modules).expect("plain data")
        }
        ExportFormat::MegatronLayout => {
            megatron_layout(&graph, &plan.cuts, plan.ranks()).map_err(refused)?.to_string()
        }
        ExportFormat::Hf | ExportFormat::Torch | ExportFormat::Pipewright => {
            return Err(Failure::usage("that is a format of weights: --weights RUN FILE"));
        }
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    super::write_text(output, &format!("{text}{end}"))
}

fn refused(error: impl Display) -> Failure {
    Failure::usage(error.to_string())
}
