//! `runner plan`: makes a plan from the command line.

use crate::args::{PlanArgs, Split};
use crate::failure::{Code, Failure};
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition;
use pipewright_core::plan::{Draft, Model, Optimizer};
use std::path::Path;

/// Runs the command.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let preset: Preset = args.model.parse().map_err(|e| Failure::usage(format!("{e}")))?;
    let model = Model::Preset(preset);
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    let cluster = read_cluster(&args.cluster)?;
    let cuts = cuts(args, &graph, &cluster)?;
    let mut draft = Draft::new(model, cluster, cuts);
    draft.schedule = args.schedule;
    draft.mini_batch = args.mini_batch;
    draft.micro_batches = args.micro_batches;
    draft.data = args.data.clone();
    draft.seed = args.seed;
    draft.steps = args.steps;
    draft.optimizer = Optimizer::Sgd {
        learning_rate: args.learning_rate,
        momentum: args.momentum,
        weight_decay: args.weight_decay,
    };
    // What does not fit together here is the command line, not a file.
    let (plan, prediction) = draft.plan().map_err(|e| Failure::usage(e.to_string()))?;
    super::write_text(&args.output, &plan.to_json())?;
    let timeline = &prediction.timeline;
    eprintln!(
        "{} on {} ranks, {}: predicted {} per step, bubble {:.1} %",
        args.model,
        plan.ranks(),
        plan.schedule.name,
        timeline.step,
        100.0 * timeline.bubble()
    );
    Ok(())
}

fn cuts(args: &PlanArgs, graph: &Graph, cluster: &Cluster) -> Result<Vec<u32>, Failure> {
    if args.cuts.is_empty() {
        let samples = args.mini_batch / u64::from(args.micro_batches.max(1));
        let cuts = match args.split {
            Split::Uniform => partition::uniform(graph, args.stages),
            Split::Balanced => {
                let costs = Costs::new(graph, cluster, samples);
                partition::balanced(graph, &costs, args.stages)
            }
        };
        return cuts.map_err(|e| Failure::usage(e.to_string()));
    }
    let names = || graph.layers().iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", ");
    // A node's name is how one asks for a cut inside of a block.
    let find = |name: &String| {
        let layer = graph.layers().iter().find(|layer| layer.name == *name);
        let node = || graph.nodes().iter().position(|node| node.name == *name);
        layer.map(|layer| layer.first_node.0).or_else(|| node().map(|n| n as u32)).ok_or_else(
            || {
                let layers = names();
                Failure::usage(format!(
                    "--cuts: no layer or node is called `{name}`; layers: {layers}"
                ))
            },
        )
    };
    args.cuts.iter().map(find).collect()
}

/// A preset's name or a cluster file.
pub(super) fn read_cluster(name: &str) -> Result<Cluster, Failure> {
    if !Path::new(name).exists() {
        return Cluster::preset(name).map_err(|e| Failure::usage(e.to_string()));
    }
    let text = std::fs::read_to_string(name).map_err(|e| Failure::file(Path::new(name), &e))?;
    let cluster: Cluster = serde_json::from_str(&text)
        .map_err(|e| Failure::new(Code::Usage, format!("{name}: not a cluster: {e}")))?;
    cluster.check().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    Ok(cluster)
}
