//! `runner recompute`: less memory for a graph's values, some of which are computed again.

mod input;
mod output;
mod plot;
mod progress;
mod search;

use super::cluster::read_cluster;
use crate::args::{ClusterChanges, RecomputeArgs};
use crate::failure::{Code, Failure};
use crate::notes;
use output::Context;
use pipewright_core::cost::{CLUSTERS, Cluster};
use pipewright_core::recompute::file::GraphFile;
use pipewright_core::recompute::{Answer, Goal, cost, least_peak, without_recomputation};
use pipewright_core::units::Bytes;
use progress::{Progress, percent};
use search::{Effort, search};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time to search when nothing is said.
const SECONDS: f64 = 10.0;

/// Runs the command.
pub fn recompute(args: &RecomputeArgs) -> Result<(), Failure> {
    let begun = Instant::now();
    let stop = super::run::stop_flag()?;
    let graph = input::read_graph(&args.graph)?;
    let problem = &graph.problem;
    let sequence = without_recomputation(problem);
    let without = Answer { cost: cost(problem, &sequence), sequence };
    let goal = goal(args, &graph, without.cost.peak)?;
    let seconds = args.seconds.or(args.moves.is_none().then_some(SECONDS));
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let effort = Effort {
        until: seconds.map(|seconds| begun + Duration::from_secs_f64(seconds)),
        moves: args.moves,
        seed: args.seed,
        threads: args.threads.unwrap_or_else(|| if args.moves.is_some() { 1 } else { cores() }),
        stop: stop.clone(),
    };
    let bound = least_peak(problem);
    if let Goal::Budget(limit) = goal
        && limit < bound
    {
        return Err(impossible(limit, &without, bound));
    }
    let quiet =
        args.json || notes::are_unwanted() || args.output.as_deref() == Some(Path::new("-"));
    let mut progress = Progress::new(quiet, effort.threads, goal, without.cost, bound);
    let found = search(problem, &graph.forward(), goal, &effort, &mut progress);
    progress.finish();
    let context = Context { args, graph: &graph, without: &without, bound, begun, found: &found };
    match goal {
        Goal::Front => context.front()?,
        Goal::Budget(limit) => context.budget(limit)?,
    }
    if stop.load(Ordering::Relaxed) {
        let message = "interrupted; what is shown is the best that was found until then";
        return Err(Failure::new(Code::Interrupted, message));
    }
    match goal {
        Goal::Budget(limit) => within(limit, found.within(limit), &without, bound),
        Goal::Front => Ok(()),
    }
}

/// What the command line asks for.
fn goal(args: &RecomputeArgs, graph: &GraphFile, peak: u64) -> Result<Goal, Failure> {
    if let Some(budget) = args.budget {
        return Ok(Goal::Budget(budget.bytes(peak)));
    }
    let Some(name) = &args.device else { return Ok(Goal::Front) };
    let cluster = device(name)?;
    let (memory, resident) = (cluster.device.memory, Bytes(graph.resident));
    let device = &cluster.device.name;
    let Some(left) = memory.0.checked_sub(resident.0) else {
        let message = format!(
            "{device} has {memory}, and parameters, inputs and results alone take {resident}; \
             divide the model first (runner plan), or choose a larger device"
        );
        return Err(Failure::new(Code::Hardware, message));
    };
    note!(
        "{device}: {memory} less {resident} of parameters, inputs and results leaves {}",
        Bytes(left)
    );
    Ok(Goal::Budget(left))
}

/// A cluster by name or file, or the preset whose name, or whose device's name, has these letters.
fn device(name: &str) -> Result<Cluster, Failure> {
    if Path::new(name).exists() || CLUSTERS.contains(&name) {
        return read_cluster(name, &ClusterChanges::default());
    }
    let letters = name.to_lowercase();
    let presets = CLUSTERS.into_iter().filter_map(|preset| Cluster::preset(preset).ok());
    let has = |text: &str| !letters.is_empty() && text.to_lowercase().contains(&letters);
    let mut like: Vec<Cluster> =
        presets.filter(|cluster| has(&cluster.name) || has(&cluster.device.name)).collect();
    match like.len() {
        1 => Ok(like.remove(0)),
        _ => Err(Failure::usage(format!(
            "--device {name}: {} devices are called that; known: {}, or a cluster's file",
            if like.is_empty() { "no" } else { "several" },
            CLUSTERS.join(", ")
        ))),
    }
}

/// No sequence can be within the limit: nothing is searched.
fn impossible(limit: u64, without: &Answer, bound: u64) -> Failure {
    let share = |bytes: u64| percent(bytes as f64, without.cost.peak as f64);
    let message = format!(
        "the budget of {} ({}) cannot be met: no sequence needs less than {} ({}); give more memory",
        Bytes(limit),
        share(limit),
        Bytes(bound),
        share(bound)
    );
    Failure::new(Code::Hardware, message)
}

/// Whether the best answer is within the limit.
fn within(limit: u64, best: &Answer, without: &Answer, bound: u64) -> Result<(), Failure> {
    if best.cost.peak <= limit {
        return Ok(());
    }
    let share = |bytes: u64| percent(bytes as f64, without.cost.peak as f64);
    let found = best.cost.peak;
    let message = format!(
        "the budget of {} ({}) was not met: the least memory found is {} ({}), and no sequence \
         needs less than {} ({}). Give more memory, or more --seconds; nothing was written",
        Bytes(limit),
        share(limit),
        Bytes(found),
        share(found),
        Bytes(bound),
        share(bound)
    );
    Err(Failure::new(Code::Hardware, message))
}
