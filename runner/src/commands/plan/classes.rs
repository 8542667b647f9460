//! The classes of an image network: those of its data set, or as many as are asked for.

use crate::args::PlanArgs;
use crate::data;
use crate::failure::Failure;
use pipewright_core::graph::TargetSpec;
use pipewright_core::plan::Model;

/// The model with the classes of the data set, where it can have another number of them.
pub(super) fn follow(args: &PlanArgs, model: Model) -> Result<Model, Failure> {
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    let target = graph.sample().map(|sample| sample.target);
    let own = match target {
        Some(TargetSpec::Classes { count: 1, classes }) => classes,
        _ if args.classes.is_some() => {
            let name = graph.name();
            return Err(Failure::usage(format!("--classes: {name} does not classify samples")));
        }
        _ => return Ok(model),
    };
    // Files need not be here: a run looks at all of them.
    let found = data::classes(&args.data).ok().flatten();
    let named = args.model.contains("classes=").then_some(own);
    let asked = args.classes.or(named);
    if let (Some(asked), Some(found)) = (asked, found)
        && asked < found
    {
        return Err(Failure::usage(format!(
            "{} classes are asked for, {} has {found}",
            asked, args.data
        )));
    }
    let Some(wanted) = asked.or(found).filter(|wanted| *wanted != own) else { return Ok(model) };
    let changed = match model {
        Model::Preset(preset) => preset.with_classes(wanted),
        Model::Graph(_) => None,
    };
    match changed {
        Some(preset) => {
            if args.classes.is_none() {
                note!("{} has {wanted} classes, and so has {preset}", args.data);
            }
            Ok(Model::Preset(preset))
        }
        None if args.classes.is_some() => Err(Failure::usage(format!(
            "--classes {wanted}: {} tells {own} classes apart, and no other number of them",
            graph.name()
        ))),
        None if wanted > own => Err(Failure::usage(format!(
            "{} has {wanted} classes, {} tells {own} apart",
            args.data,
            graph.name()
        ))),
        None => Ok(model),
    }
}
