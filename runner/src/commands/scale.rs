//! `runner scale`: the best plan for each of several numbers of devices, and what it takes and costs.

mod output;

use super::cluster::read_cluster;
use super::model::{priced, read_model};
use super::plan::{Question, Ranked, degrees, find_among};
use crate::args::{Order, Recompute, ScaleArgs};
use crate::failure::{Code, Failure};
use output::{Row, figures};
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Communication, Draft};
use pipewright_core::predict::samples_of;

/// Least default of a mini-batch.
const MINI_BATCH: u64 = 32;

/// Runs the command.
pub fn scale(args: &ScaleArgs) -> Result<(), Failure> {
    if matches!(args.schedule, Some(Order::File(_))) {
        let why = "--schedule: a file has the order of one size; give a name, or automatic";
        return Err(Failure::usage(why));
    }
    if args.changes.nodes.is_some() {
        return Err(Failure::usage("--nodes: how many there are follows from --devices"));
    }
    let mut cluster = read_cluster(&args.cluster, &args.changes)?;
    let model = read_model(&args.model, &args.onnx, &mut cluster)?;
    let model = args.training.model(model)?;
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    priced(&args.model, &graph, &args.onnx)?;
    let goal = goal(args, &graph)?;
    let most = args.devices.0.last().copied().unwrap_or(1);
    let mut draft = Draft::new(model, cluster.clone(), vec![]);
    draft.mini_batch = args.mini_batch.unwrap_or(MINI_BATCH.max(u64::from(most)));
    draft.micro_batches = 1;
    (draft.tensor, draft.sequence_parallel) = args.tensor.given_with(args.sequence_parallel);
    draft.data_parallel.zero = args.training.zero;
    draft.optimizer = args.training.optimizer()?;
    draft.training = args.training.training();
    draft.check().map_err(|e| Failure::usage(e.to_string()))?;
    let mut rows: Vec<Row> = vec![];
    for devices in args.devices.0.iter().copied() {
        let of = |e| Failure::usage(format!("{}: {e}", cluster.name));
        let grown = cluster.grown(devices).map_err(of)?;
        let found = best(args, &graph, &Draft { cluster: grown, ..draft.clone() }, devices);
        if let (Some(folder), Ok(best)) = (&args.output, &found) {
            let path = folder.join(format!("plan-{devices}.json"));
            super::write_text(&path, &best.plan.to_json())?;
        }
        let base = rows.iter().find_map(Row::size);
        let row = Row::new(devices, found.as_ref(), goal, base, args.price);
        rows.push(row);
    }
    if let Some(path) = &args.svg {
        super::write_text(path, &output::picture(&args.model, &cluster, &rows))?;
    }
    match args.json {
        true => super::figures::print(&figures(args, &cluster, draft.mini_batch, &rows)),
        false => output::report(args, &cluster, draft.mini_batch, &rows),
    }
    match rows.iter().any(Row::fits) {
        true => Ok(()),
        false => Err(Failure::new(Code::Hardware, "no size has a plan: its row says why")),
    }
}

/// Samples to train on, where days are wanted.
fn goal(args: &ScaleArgs, graph: &Graph) -> Result<Option<f64>, Failure> {
    let Some(tokens) = args.tokens else {
        if args.price.is_some() && args.samples.is_none() {
            return Err(Failure::usage("--price: say how much is trained, --tokens or --samples"));
        }
        return Ok(args.samples);
    };
    let why = || format!("--tokens: {} does not take tokens; give --samples", graph.name());
    samples_of(graph, tokens).map(Some).ok_or_else(|| Failure::usage(why()))
}

/// The fastest plan for exactly so many ranks.
fn best(args: &ScaleArgs, graph: &Graph, draft: &Draft, devices: u32) -> Result<Ranked, Failure> {
    let question = |recompute| Question {
        ranks: Some(devices),
        schedule: args.schedule.clone(),
        recompute,
        holds_memory: true,
        ..Question::open(&Communication::default(), args.budget)
    };
    let drafts = degrees(args.tensor, args.sequence_parallel, graph, draft);
    let found = match args.recompute {
        Some(recompute) => find_among(&question(recompute), graph, &drafts),
        None => match find_among(&question(Recompute::None), graph, &drafts) {
            Err(failure) if failure.code == Code::Hardware => {
                find_among(&question(Recompute::Auto), graph, &drafts)
            }
            found => found,
        },
    };
    let found = found?.ranked.into_iter().next();
    found.ok_or_else(|| Failure::usage("no choice of the search is a plan"))
}
