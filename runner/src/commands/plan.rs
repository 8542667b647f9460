//! `runner plan`: makes a plan from the command line.

mod classes;
mod codec;
mod rank;
mod recompute;
mod search;

use super::cluster::read_cluster;
use super::model::{is_onnx, priced, read_model, without};
use crate::args::{Parallel, PlanArgs, Split};
use crate::failure::Failure;
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Graph;
use pipewright_core::onnx::module_of_node;
use pipewright_core::partition;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::predict::search::Encoding;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

/// What stands in place of a file of weights to have them drawn from the seed.
const SEED: &str = "seed";

/// Runs the command.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let mut cluster = read_cluster(&args.cluster, &args.changes)?;
    let model = read_model(&args.model, &args.onnx, &mut cluster)?;
    let model = args.training.model(classes::follow(args, model)?)?;
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    priced(&args.model, &graph, &args.onnx)?;
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
    let (mut plan, mut prediction) = match given(args, &graph, &draft.cluster)? {
        Some(chosen) => as_given(args, &draft, &chosen)?,
        None => search::search(args, &graph, &draft)?,
    };
    codec::choose(&args.communication, &mut plan, &mut prediction)?;
    plan.weights = match args.weights.as_deref() {
        Some(SEED) => None,
        // An ONNX file brings its weights.
        None if is_onnx(Path::new(&args.model)) => Some(args.model.clone()),
        given => given.map(str::to_owned),
    };
    super::write_text(&args.output, &plan.to_json())?;
    absent(&plan);
    let timeline = &prediction.timeline;
    eprintln!(
        "{} on {}, {}, {}: predicted {} per step{}, bubble {:.1} %",
        args.model,
        counted(plan.ranks(), "rank", "ranks"),
        plan.schedule.name,
        counted(plan.micro_batches, "micro-batch", "micro-batches"),
        timeline.step,
        without(&graph),
        100.0 * timeline.bubble()
    );
    eprintln!("{}", plan.throughput(&prediction.graph, timeline.step));
    recompute::report(&plan, &prediction);
    Ok(())
}

/// Warns of what a run needs and is not here: it may be where the plan runs.
fn absent(plan: &Plan) {
    for (flag, path) in [("--data", plan.data.path()), ("--weights", plan.weights.as_deref())] {
        if let Some(path) = path.filter(|path| !Path::new(path).exists()) {
            eprintln!("warning: {flag}: {path} is not here; the plan runs where it is");
        }
    }
}

fn counted(count: u32, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// The plan of what the command line says.
fn as_given(
    args: &PlanArgs,
    draft: &Draft,
    chosen: &Chosen,
) -> Result<(Plan, Prediction), Failure> {
    // What does not fit together here is the command line, not a file.
    let (plan, prediction) =
        chosen.draft(draft).plan().map_err(|e| Failure::usage(e.to_string()))?;
    recompute::recompute(args, plan, prediction, recompute::EFFORT)
        .map_err(|error| recompute::failure(&error))
}

/// What makes a plan of a network and a machine.
struct Chosen {
    cuts: Vec<u32>,
    schedule: ScheduleKind,
    micro_batches: u32,
    replicas: u32,
    /// How ranks send, where that was searched.
    encoding: Option<Encoding>,
    /// For people, where it was searched.
    words: String,
    /// Whether by the estimates nothing is better in time, memory and traffic, with the recomputation that
    /// they count on.
    on_front: bool,
}

impl Chosen {
    /// What the command line says of everything else, with this choice.
    fn draft(&self, draft: &Draft) -> Draft {
        let mut draft = draft.clone();
        draft.cuts.clone_from(&self.cuts);
        (draft.schedule, draft.micro_batches) = (self.schedule, self.micro_batches);
        if let Some(encoding) = self.encoding {
            draft.communication.gradients = encoding.gradients;
            draft.communication.hierarchical = encoding.by_hosts;
            draft.communication.edges = encoding.edges;
        }
        draft.data_parallel.replicas = self.replicas;
        draft
    }
}

/// What the command line says of a pipeline; none where something is left open that is searched.
fn given(args: &PlanArgs, graph: &Graph, cluster: &Cluster) -> Result<Option<Chosen>, Failure> {
    if let Some(stages) = args.stages {
        partition::uniform(graph, stages).map_err(|e| Failure::usage(e.to_string()))?;
    }
    let whole = args.stages.is_some() && args.schedule.is_some() && args.micro_batches.is_some();
    if !whole && args.cuts.is_empty() && args.split.is_none() {
        return Ok(None);
    }
    let schedule = args.schedule.unwrap_or(ScheduleKind::OneFOneB);
    let micro_batches = args.micro_batches.unwrap_or(4);
    let named = named_cuts(&args.cuts, graph)?;
    let stages = args.stages.unwrap_or(named.len() as u32 + 1);
    let lanes = schedule.lanes(stages).map_err(|e| Failure::usage(e.to_string()))?;
    let replicas = replicas(args, lanes)?;
    let cuts = match args.stages {
        Some(stages) => {
            let parts = u64::from(micro_batches) * u64::from(replicas);
            split(args, graph, cluster, stages, (args.mini_batch / parts).max(1))?
        }
        None => named,
    };
    let words = String::new();
    Ok(Some(Chosen {
        cuts,
        schedule,
        micro_batches,
        replicas,
        encoding: None,
        words,
        on_front: true,
    }))
}

/// Replicas of a pipeline of so many lanes: as asked for, else as many as make the ranks, else one.
fn replicas(args: &PlanArgs, lanes: u32) -> Result<u32, Failure> {
    let Some(ranks) = args.ranks else { return Ok(args.replicas.unwrap_or(1)) };
    let replicas = args.replicas.unwrap_or(ranks / lanes);
    if lanes.checked_mul(replicas) != Some(ranks) {
        let replicas = args.replicas.map_or(String::new(), |r| format!(" x {r} replicas"));
        return Err(Failure::usage(format!(
            "--ranks {ranks}: {lanes} lanes{replicas} do not make {ranks} ranks; leave one of them open"
        )));
    }
    Ok(replicas)
}

fn split(
    args: &PlanArgs,
    graph: &Graph,
    cluster: &Cluster,
    stages: u32,
    samples: u64,
) -> Result<Vec<u32>, Failure> {
    let cuts = match args.split.unwrap_or(Split::Balanced) {
        Split::Uniform => partition::uniform(graph, stages),
        Split::Balanced => {
            let costs = Costs::new(graph, cluster, samples, args.training.precision());
            partition::balanced(graph, &costs, stages)
        }
    };
    cuts.map_err(|e| Failure::usage(e.to_string()))
}

/// A layer by its name; a node, which cuts inside of a layer; a node by its name in the ONNX file.
fn named_cuts(names: &[String], graph: &Graph) -> Result<Vec<u32>, Failure> {
    let find = |name: &String| {
        let module = module_of_node(name);
        let called = |own: &str| own == name || module.as_deref() == Some(own);
        let layer = graph.layers().iter().find(|layer| called(&layer.name));
        let node = || graph.nodes().iter().position(|node| called(&node.name));
        layer.map(|layer| layer.first_node.0).or_else(|| node().map(|n| n as u32)).ok_or_else(
            || {
                let layers: Vec<&str> = graph.layers().iter().map(|l| l.name.as_str()).collect();
                let layers = layers.join(", ");
                Failure::usage(format!(
                    "--cuts: no layer or node is called `{name}`; layers: {layers}; `runner show \
                     --layers MODEL` lists them with their sizes"
                ))
            },
        )
    };
    names.iter().map(find).collect()
}
