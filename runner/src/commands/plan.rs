//! `runner plan`: makes a plan from the command line.

mod codec;
mod recompute;
mod search;

use super::model::{is_onnx, read_model};
use crate::args::{Parallel, PlanArgs, Recompute, Split};
use crate::failure::{Code, Failure};
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Graph;
use pipewright_core::partition;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Plan};
use pipewright_core::predict::search::Encoding;
use pipewright_core::predict::{FitError, Prediction};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

/// What stands in place of a file of weights to have them drawn from the seed.
const SEED: &str = "seed";

/// Runs the command.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let mut cluster = read_cluster(&args.cluster)?;
    cluster.device.memory = args.memory.unwrap_or(cluster.device.memory);
    let model = args.training.model(read_model(&args.model, &args.onnx, &mut cluster)?)?;
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    let mut draft = Draft::new(model, cluster, vec![]);
    draft.micro_batches = args.micro_batches.unwrap_or(1);
    draft.mini_batch = args.mini_batch;
    draft.data = args.data.clone();
    draft.shuffle = !args.no_shuffle;
    draft.seed = args.seed;
    draft.steps = args.steps;
    draft.data_parallel = DataParallel {
        replicas: args.replicas.unwrap_or(1),
        mode: match args.data_parallel {
            Parallel::Ddp => DataParallelMode::Ddp,
            Parallel::Dp => DataParallelMode::Dp,
        },
        bucket: Bytes(args.bucket_mib << 20),
    };
    draft.communication = codec::asked(&args.communication)?;
    draft.optimizer = args.training.optimizer()?;
    draft.training = args.training.training();
    // Numbers that no plan has are refused before anything is searched.
    draft.check().map_err(|e| Failure::usage(e.to_string()))?;
    let chosen = choose(args, &graph, &draft.cluster)?;
    let (mut plan, mut prediction) = fastest_that_fits(args, &draft, chosen)?;
    codec::choose(&args.communication, &mut plan, &mut prediction)?;
    plan.weights = match args.weights.as_deref() {
        Some(SEED) => None,
        // An ONNX file brings its weights.
        None if is_onnx(Path::new(&args.model)) => Some(args.model.clone()),
        given => given.map(str::to_owned),
    };
    super::write_text(&args.output, &plan.to_json())?;
    let timeline = &prediction.timeline;
    eprintln!(
        "{} on {} ranks, {}, {} micro-batches: predicted {} per step, bubble {:.1} %",
        args.model,
        plan.ranks(),
        plan.schedule.name,
        plan.micro_batches,
        timeline.step,
        100.0 * timeline.bubble()
    );
    recompute::report(&plan, &prediction);
    Ok(())
}

/// The fastest plan of all choices that fit the memory of its devices; the first that fits where
/// nothing is found out by recomputation. Choices come with estimates: what recomputation takes is
/// known once sequences are found, so a short search for each says which is worth a long one.
fn fastest_that_fits(
    args: &PlanArgs,
    draft: &Draft,
    chosen: Vec<Chosen>,
) -> Result<(Plan, Prediction), Failure> {
    let trials = args.recompute() == Recompute::Auto && chosen.len() > 1;
    let effort = if trials { recompute::GLANCE } else { recompute::EFFORT };
    let mut refused = None;
    let mut best: Option<(Plan, Prediction)> = None;
    for Chosen { cuts, schedule, micro_batches, replicas, encoding } in chosen {
        let mut draft = Draft { cuts, schedule, micro_batches, ..draft.clone() };
        if let Some(encoding) = encoding {
            draft.communication.gradients = encoding.gradients;
            draft.communication.hierarchical = encoding.by_hosts;
            draft.communication.edges = encoding.edges;
        }
        draft.data_parallel.replicas = replicas;
        // What does not fit together here is the command line, not a file.
        let (plan, prediction) = draft.plan().map_err(|e| Failure::usage(e.to_string()))?;
        match recompute::recompute(args, plan, prediction, effort) {
            Ok(made) if !trials => return Ok(made),
            Ok(made) => {
                let step = |made: &(Plan, Prediction)| made.1.timeline.step;
                if best.as_ref().is_none_or(|best| step(&made) < step(best)) {
                    best = Some(made);
                }
            }
            Err(error @ (FitError::Memory { .. } | FitError::AsItIs { .. })) => {
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(recompute::failure(&error)),
        }
    }
    let Some((plan, prediction)) = best else {
        return Err(recompute::failure(&refused.expect("there is a choice")));
    };
    let (short, step) = (plan.clone(), prediction.timeline.step);
    match recompute::recompute(args, plan, prediction.clone(), recompute::EFFORT) {
        Ok(made) if made.1.timeline.step <= step => Ok(made),
        // A longer search has other luck.
        _ => Ok((short, prediction)),
    }
}

/// What makes a plan of a network and a machine.
struct Chosen {
    cuts: Vec<u32>,
    schedule: ScheduleKind,
    micro_batches: u32,
    replicas: u32,
    /// How ranks send, where that was searched.
    encoding: Option<Encoding>,
}

/// What the command line says; what it leaves open is searched. The best choice first, at least one.
fn choose(args: &PlanArgs, graph: &Graph, cluster: &Cluster) -> Result<Vec<Chosen>, Failure> {
    if let Some(stages) = args.stages {
        partition::uniform(graph, stages).map_err(|e| Failure::usage(e.to_string()))?;
    }
    let whole = args.stages.is_some() && args.schedule.is_some() && args.micro_batches.is_some();
    if !whole && args.cuts.is_empty() && args.split.is_none() {
        return search::search(args, graph, cluster);
    }
    let schedule = args.schedule.unwrap_or(ScheduleKind::OneFOneB);
    let micro_batches = args.micro_batches.unwrap_or(4);
    let cuts = match args.stages {
        Some(stages) => split(args, graph, cluster, stages, micro_batches)?,
        None => named_cuts(&args.cuts, graph)?,
    };
    let stages = cuts.len() as u32 + 1;
    let replicas = args.replicas.unwrap_or(1);
    let lanes = schedule.lanes(stages).map_err(|e| Failure::usage(e.to_string()))?;
    let needed = lanes.saturating_mul(replicas);
    if let Some(ranks) = args.ranks.filter(|ranks| *ranks != needed) {
        return Err(Failure::usage(format!(
            "--ranks {ranks}: {schedule} with {stages} stages and {replicas} replicas has {needed}; \
             leave one of them open"
        )));
    }
    Ok(vec![Chosen { cuts, schedule, micro_batches, replicas, encoding: None }])
}

fn split(
    args: &PlanArgs,
    graph: &Graph,
    cluster: &Cluster,
    stages: u32,
    micro_batches: u32,
) -> Result<Vec<u32>, Failure> {
    let parts = u64::from(micro_batches.max(1)) * u64::from(args.replicas.unwrap_or(1));
    let samples = (args.mini_batch / parts).max(1);
    let cuts = match args.split.unwrap_or(Split::Balanced) {
        Split::Uniform => partition::uniform(graph, stages),
        Split::Balanced => {
            let costs = Costs::new(graph, cluster, samples, args.training.precision());
            partition::balanced(graph, &costs, stages)
        }
    };
    cuts.map_err(|e| Failure::usage(e.to_string()))
}

/// A node's name is how one asks for a cut inside of a block.
fn named_cuts(names: &[String], graph: &Graph) -> Result<Vec<u32>, Failure> {
    let all = || graph.layers().iter().map(|l| l.name.as_str()).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let layer = graph.layers().iter().find(|layer| layer.name == *name);
        let node = || graph.nodes().iter().position(|node| node.name == *name);
        layer.map(|layer| layer.first_node.0).or_else(|| node().map(|n| n as u32)).ok_or_else(
            || {
                let layers = all();
                Failure::usage(format!(
                    "--cuts: no layer or node is called `{name}`; layers: {layers}"
                ))
            },
        )
    };
    names.iter().map(find).collect()
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
