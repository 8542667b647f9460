//! `runner export`: plans for other runtimes, trained weights and metrics for other programs.

mod metrics;
mod weights;

use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use pipewright_core::graph::Graph;
use pipewright_core::plan::Plan;
use pipewright_core::plan::export::{Layout, layer_kinds, modules_by_stage, split_points};
use std::fmt::Display;
use std::path::Path;

/// Runs the command.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    if let Some([checkpoint, file]) = args.weights.as_deref() {
        return weights::weights(checkpoint, file);
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
        ExportFormat::MegatronLayout => layout(&plan, &graph)?,
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    super::write_text(output, &format!("{text}{end}"))
}

fn layout(plan: &Plan, graph: &Graph) -> Result<String, Failure> {
    let kinds = layer_kinds(graph).map_err(refused)?;
    let layer_at = |node: &u32| {
        let layer = graph.layers().iter().position(|layer| layer.first_node.0 == *node);
        layer.ok_or_else(|| {
            Failure::usage(format!(
                "the cut at node {node} is inside of a layer; Megatron splits between layers"
            ))
        })
    };
    let cuts = plan.cuts.iter().map(layer_at).collect::<Result<Vec<usize>, Failure>>()?;
    let layout = Layout::new(&kinds, &cuts).map_err(refused)?;
    layout.chunks(plan.ranks()).map_err(refused)?;
    Ok(layout.to_string())
}

fn refused(error: impl Display) -> Failure {
    Failure::usage(error.to_string())
}
