//! `runner plan`: makes a plan from the command line.

mod automatic;
mod classes;
mod codec;
mod cuts;
mod divided;
mod order;
mod question;
mod rank;
mod recompute;
mod search;

use super::cluster::read_cluster;
use super::figures::{self, Figures};
use super::model::{is_onnx, priced, read_model, without};
use super::words::{copies, counted};
use crate::args::{BUDGET, Forms, Order, Parallel, PlanArgs, Split, TensorDegree};
use crate::failure::Failure;
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Graph;
use pipewright_core::onnx::module_of_node;
use pipewright_core::partition;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Plan, ScheduleText};
use pipewright_core::predict::search::Encoding;
use pipewright_core::predict::{Prediction, Steady, steady};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};
pub(super) use question::Question;
pub(super) use rank::Ranked;
pub(super) use recompute::too_full;
pub(super) use search::{degrees, find, find_among};
use serde::Serialize;
use std::path::Path;

/// The split that begins with the balanced one and is made better by simulation.
const EXACT: &str = Split::Exact.name();

/// What stands in place of a file of weights to have them drawn from the seed.
const SEED: &str = "seed";

/// Runs the command.
pub fn plan(args: &PlanArgs) -> Result<(), Failure> {
    if args.json && args.output == Path::new("-") {
        let message = "--json prints figures where the plan would be printed: name a file for the plan, -o FILE";
        return Err(Failure::usage(message));
    }
    let mut cluster = read_cluster(&args.cluster, &args.changes)?;
    let model = read_model(&args.model, &args.onnx, &mut cluster)?;
    let model = args.training.model(classes::follow(args, model)?)?;
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    priced(&args.model, &graph, &args.onnx)?;
    let orders = order::own(args, &graph, &cluster)?;
    let mut draft = Draft::new(model, cluster, vec![]);
    let micro_batches = orders.first().map(|own| own.micro_batches).or(args.micro_batches);
    draft.micro_batches = micro_batches.unwrap_or(1);
    draft.mini_batch = args.mini_batch;
    draft.data = args.data.clone();
    draft.shuffle = !args.no_shuffle;
    (draft.seed, draft.steps) = (args.seed, args.steps);
    draft.data_parallel = data_parallel(args);
    (draft.tensor, draft.sequence_parallel) = args.tensor.given_with(args.sequence_parallel);
    draft.communication = codec::asked(&args.communication, &draft)?;
    draft.optimizer = args.training.optimizer()?;
    draft.training = args.training.training();
    // Numbers that no plan has are refused before anything is searched.
    draft.check().map_err(|e| Failure::usage(e.to_string()))?;
    recompute::can(args.recompute(), &graph)?;
    let question = Question::of(args, &draft.cluster);
    let given = given_best(args, &question, orders, &graph, &draft)?;
    let (mut plan, mut prediction, said, searched) = match given {
        Some((plan, prediction, said)) => (plan, prediction, said, None),
        None => {
            let (best, searched) = search::search(args, &question, &graph, &draft)?;
            (best.plan, best.prediction, cuts::Said::default(), Some(searched))
        }
    };
    if searched.is_none() {
        without_search(args, &plan)?;
    }
    // A codec that is chosen later makes another step.
    let full = steady(&plan, &prediction.timeline)?;
    let step = full.map_or(prediction.timeline.step, |full| full.step);
    let before = plan.communication.clone();
    codec::choose(&args.communication, &mut plan, &mut prediction)?;
    let said = said.of(&plan, plan.communication != before);
    codec::in_vain(&args.communication, &plan, &prediction);
    plan.weights = match args.weights.as_deref() {
        Some(SEED) => None,
        // An ONNX file brings its weights.
        None if is_onnx(Path::new(&args.model)) => Some(args.model.clone()),
        given => given.map(str::to_owned),
    };
    super::write_text(&args.output, &plan.to_json())?;
    absent(&plan);
    if args.json {
        let figures = Figures::new(&plan, &prediction);
        let steady_ns = full.map(|full| full.step);
        let staleness = full.map(|full| full.staleness);
        let made = Made { figures, steady_ns, staleness, cuts: &said, search: searched };
        figures::print(&made);
    }
    report(&args.model, &plan, &prediction, full);
    said.report(&plan, step);
    Ok(())
}

fn data_parallel(args: &PlanArgs) -> DataParallel {
    DataParallel {
        replicas: args.replicas.unwrap_or(1),
        mode: match args.data_parallel {
            Parallel::Ddp => DataParallelMode::Ddp,
            Parallel::Dp => DataParallelMode::Dp,
        },
        bucket: Bytes(args.bucket_mib << 20),
        zero: args.training.zero,
        expert_parallel: args.expert_parallel,
    }
}

/// What is said of the plan that was made.
fn report(model: &str, plan: &Plan, prediction: &Prediction, full: Option<Steady>) {
    let timeline = &prediction.timeline;
    let copies = match plan.mesh().copies() {
        1 => String::new(),
        _ => format!(" ({})", copies(plan)),
    };
    note!(
        "{model} on {}{copies}, {}, {}: predicted {} per step{}, bubble {:.1} %",
        counted(plan.ranks(), "rank"),
        plan.schedule.name,
        counted(plan.micro_batches, "micro-batch"),
        timeline.step,
        without(&prediction.graph),
        100.0 * timeline.bubble()
    );
    note!("{}", plan.throughput(&prediction.graph, timeline.step));
    if let Some(Steady { step, staleness }) = full {
        let updates = counted(staleness, "update");
        note!(
            "{step} per step of a pipeline that is never flushed, weights up to {updates} old; \
             `runner run` flushes after each mini-batch"
        );
    }
    super::show::experts(plan, prediction).iter().for_each(|line| note!("{line}"));
    recompute::report(plan, prediction);
}

/// Refuses what is asked of a search where there is none.
fn without_search(args: &PlanArgs, plan: &Plan) -> Result<(), Failure> {
    if let Some(devices) = args.devices.filter(|most| plan.ranks() > *most) {
        let ranks = counted(plan.ranks(), "rank");
        return Err(Failure::usage(format!("--devices {devices}: what is given makes {ranks}")));
    }
    if args.row != 1 {
        let why = "nothing is searched here; leave schedule or micro-batches open, or --row out";
        return Err(Failure::usage(format!("--row {}: {why}", args.row)));
    }
    for (flag, given) in
        [("--budget", args.budget != BUDGET), ("--forms", args.forms == Forms::All)]
    {
        if given {
            warn!("{flag}: nothing is left open here, so nothing is searched");
        }
    }
    Ok(())
}

/// Warns of what a run needs and is not here: it may be where the plan runs.
fn absent(plan: &Plan) {
    for (flag, path) in [("--data", plan.data.path()), ("--weights", plan.weights.as_deref())] {
        if let Some(path) = path.filter(|path| !Path::new(path).exists()) {
            warn!("{flag}: {path} is not here; the plan runs where it is");
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    figures: Figures<'a>,
    /// Where the schedule does not flush: a step of a full pipeline, and the age of weights in updates.
    steady_ns: Option<Nanos>,
    staleness: Option<u32>,
    #[serde(flatten)]
    cuts: &'a cuts::Said,
    /// None where nothing was left open.
    search: Option<search::Searched>,
}

/// What makes a plan of a network and a machine.
struct Chosen {
    cuts: Vec<u32>,
    /// How they were chosen, where the command line does not say them.
    split: Option<&'static str>,
    /// Lanes of an order that is made for the plan.
    automatic: Option<u32>,
    schedule: ScheduleKind,
    /// What stands in place of the schedule.
    order: Option<ScheduleText>,
    micro_batches: u32,
    replicas: u32,
    /// How ranks send, where that was searched.
    encoding: Option<Encoding>,
    /// For people, where it was searched.
    words: String,
}

impl Chosen {
    /// The same in an order by name.
    fn in_order(&self, kind: ScheduleKind) -> Self {
        Self {
            automatic: None,
            schedule: kind,
            order: None,
            cuts: self.cuts.clone(),
            words: self.words.clone(),
            ..*self
        }
    }

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
        draft.data_parallel = draft.data_parallel.with_replicas(self.replicas);
        draft
    }
}

/// The plan of what the command line says of a pipeline, with the fastest of the `orders`; none where
/// something is left open that is searched.
fn given_best(
    args: &PlanArgs,
    question: &Question,
    orders: Vec<order::Own>,
    graph: &Graph,
    draft: &Draft,
) -> Result<Option<cuts::Made>, Failure> {
    if orders.is_empty() {
        let chosen = given(args, None, graph, &draft.cluster)?;
        return chosen.map(|chosen| cuts::as_given(question, draft, &chosen)).transpose();
    }
    let plan = |own| {
        let chosen = given(args, Some(own), graph, &draft.cluster)?;
        chosen.map(|chosen| cuts::as_given(question, draft, &chosen)).transpose()
    };
    let step = |made: &Option<cuts::Made>| made.as_ref().map(|made| made.1.timeline.step);
    let mut best = Err(Failure::usage("there is no order"));
    for made in orders.into_iter().map(plan).rev() {
        best = match (best, made) {
            (Ok(best), Ok(made)) if step(&made) > step(&best) => Ok(best),
            (Ok(best), Err(_)) => Ok(best),
            (_, made) => made,
        };
    }
    best
}

/// What the command line says of a pipeline; none where something is left open that is searched.
fn given(
    args: &PlanArgs,
    own: Option<order::Own>,
    graph: &Graph,
    cluster: &Cluster,
) -> Result<Option<Chosen>, Failure> {
    if let Some(stages) = args.stages {
        partition::uniform(graph, stages).map_err(|e| Failure::usage(e.to_string()))?;
    }
    let whole = args.stages.is_some() && args.schedule.is_some() && args.micro_batches.is_some();
    if !whole && own.is_none() && args.cuts.is_empty() && args.split.is_none() {
        return Ok(None);
    }
    if args.tensor == TensorDegree::Auto {
        let fixes = own.is_some() || !args.cuts.is_empty() || args.split.is_some();
        return match fixes {
            false => Ok(None),
            true => Err(Failure::usage(
                "--tensor auto searches, and --cuts, --split, --stage-replicas and files of orders leave nothing to \
                 search: give a number of ranks, or leave those out",
            )),
        };
    }
    let schedule = match args.schedule {
        Some(Order::Kind(kind)) => kind,
        Some(Order::File(_) | Order::Automatic) | None => ScheduleKind::OneFOneB,
    };
    let named = named_cuts(&args.cuts, graph)?;
    let (stages, lanes, micro_batches) = match &own {
        Some(own) => (own.stages, own.lanes, own.micro_batches),
        None => {
            let stages = args.stages.unwrap_or(named.len() as u32 + 1);
            let lanes = schedule.lanes(stages).map_err(|e| Failure::usage(e.to_string()))?;
            (stages, lanes, args.micro_batches.unwrap_or(4))
        }
    };
    let replicas = replicas(args, lanes)?;
    let (cuts, split) = if args.cuts.is_empty() {
        let parts = u64::from(micro_batches) * u64::from(replicas);
        let cuts = split(args, graph, cluster, stages, (args.mini_batch / parts).max(1))?;
        (cuts, Some(args.split.unwrap_or(Split::Exact).name()))
    } else {
        (named, None)
    };
    let automatic = (args.schedule == Some(Order::Automatic)).then_some(lanes);
    let order = own.map(|own| own.text);
    let words = String::new();
    Ok(Some(Chosen {
        cuts,
        split,
        automatic,
        schedule,
        order,
        micro_batches,
        replicas,
        encoding: None,
        words,
    }))
}

/// Replicas of a pipeline of so many lanes: as asked for, else as many as make the ranks, else one.
fn replicas(args: &PlanArgs, lanes: u32) -> Result<u32, Failure> {
    let Some(ranks) = args.ranks else { return Ok(args.replicas.unwrap_or(1)) };
    let tensor = args.tensor.given();
    let each = lanes.saturating_mul(tensor);
    let replicas = args.replicas.unwrap_or(ranks / each);
    if each.checked_mul(replicas) != Some(ranks) || replicas == 0 {
        let mut others = args.replicas.map_or(String::new(), |r| format!(" x {r} replicas"));
        if tensor > 1 {
            others += &format!(" x {tensor} tensor-parallel");
        }
        return Err(Failure::usage(format!(
            "--ranks {ranks}: {lanes} lanes{others} do not make {ranks} ranks; leave one of them open"
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
    let cuts = match args.split.unwrap_or(Split::Exact) {
        Split::Uniform => partition::uniform(graph, stages),
        // The balanced split is where the exact one begins.
        Split::Balanced | Split::Exact => {
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
