//! Orders of actions that are no schedule by name: PyTorch's CSV of one, stages with replicas.

use crate::args::{Order, PlanArgs, StageReplicas};
use crate::failure::Failure;
use pipewright_core::cost::{Cluster, Costs, Link, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::partition::{self, Hybrid, Level, Placement};
use pipewright_core::plan::ScheduleText;
use pipewright_core::schedule::{Schedule, ScheduleKind, Updates};
use std::path::Path;

/// An order that is given, and what follows from it.
pub(super) struct Own {
    pub text: ScheduleText,
    pub stages: u32,
    pub lanes: u32,
    pub micro_batches: u32,
}

/// The order that is no schedule's by name, if one is asked for; it agrees with the other flags. Several
/// where the fastest of them is asked for.
pub(super) fn own(args: &PlanArgs, graph: &Graph, cluster: &Cluster) -> Result<Vec<Own>, Failure> {
    match &args.stage_replicas {
        None => of_file(args).map(Vec::from_iter),
        Some(StageReplicas::Given(counts)) => Ok(vec![replicated(args, counts)?]),
        Some(StageReplicas::Best) => {
            let counts = best(args, graph, cluster)?;
            counts.iter().map(|counts| replicated(args, counts)).collect()
        }
    }
}

/// 1F1B with so many replicas of each stage.
fn replicated(args: &PlanArgs, counts: &[u32]) -> Result<Own, Failure> {
    let refuse = |why: String| Failure::usage(format!("--stage-replicas: {why}"));
    let (stages, lanes) = (counts.len() as u32, counts.iter().sum());
    let cuts = args.cuts.len() as u32 + 1;
    if !args.cuts.is_empty() && cuts != stages {
        return Err(refuse(format!("it has {stages} stages, --cuts asks for {cuts}")));
    }
    // Every replica of every stage has the same number of them.
    let even = counts.iter().fold(1, |all, count| all / divisor(all, *count) * count);
    let micro_batches = args.micro_batches.unwrap_or(even * stages.div_ceil(even).max(1) * 2);
    let schedule = Schedule::replicated(counts, micro_batches, Updates::Synchronous);
    let schedule = schedule.map_err(|e| refuse(e.to_string()))?;
    let words: Vec<String> = counts.iter().map(u32::to_string).collect();
    let name = format!("1f1b with {} replicas", words.join("-"));
    let text = ScheduleText { name, lanes: schedule.lines() };
    Ok(Own { text, stages, lanes, micro_batches })
}

/// The largest number that divides both.
fn divisor(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Replicas of the stages whose slowest is fastest, of as many machines as there are ranks: where each
/// micro-batch sums gradients, as PipeDream counts, and where a step sums them once and devices have
/// their memory, as Piper does.
fn best(args: &PlanArgs, graph: &Graph, cluster: &Cluster) -> Result<Vec<Vec<u32>>, Failure> {
    let Some(ranks) = args.ranks else {
        return Err(Failure::usage("--stage-replicas best: say among how many --ranks"));
    };
    let micro_batches = args.micro_batches.unwrap_or(ranks);
    let samples = (args.mini_batch / u64::from(micro_batches)).max(1);
    let precision = args.training.precision();
    let costs = Costs::new(graph, cluster, samples, precision);
    let work = Workload::of_training(graph, &costs, precision);
    let level = |machines, link: &Link| Level { machines, bytes_per_sec: link.bytes_per_sec };
    let near = cluster.ranks_per_node.min(ranks);
    let levels = match ranks.is_multiple_of(near) && ranks > near {
        true => vec![level(near, &cluster.local), level(ranks / near, &cluster.network)],
        false => vec![level(ranks, &cluster.local)],
    };
    let placement = partition::replicated(&work, &levels);
    let placement = placement.map_err(|e| Failure::usage(e.to_string()))?;
    let on = Hybrid {
        devices: ranks,
        memory: cluster.device.memory,
        micro_batches,
        bytes_per_sec: levels[levels.len() - 1].bytes_per_sec,
    };
    // What fits no device by these counts may fit with recomputation, so it is no error here.
    let others = partition::hybrid(&work, &on).ok();
    let replicas = |found: &Placement| found.stages.iter().map(|stage| stage.replicas).collect();
    let mut counts: Vec<Vec<u32>> = [&placement].into_iter().chain(&others).map(replicas).collect();
    counts.dedup();
    Ok(counts)
}

/// The order of the file that `--schedule` names, if it names one.
fn of_file(args: &PlanArgs) -> Result<Option<Own>, Failure> {
    let Some(Order::File(path)) = &args.schedule else { return Ok(None) };
    let text = crate::commands::read_text(path)?;
    let file = path.display();
    let refuse = |why: String| Failure::usage(format!("--schedule {file}: {why}"));
    let schedule = Schedule::from_csv(&text).map_err(|e| refuse(e.to_string()))?;
    let (stages, lanes) = (schedule.stages(), schedule.lanes.len() as u32);
    let micro_batches = schedule.micro_batches;
    let cuts = match args.cuts.len() {
        0 => None,
        cuts => Some(cuts as u32 + 1),
    };
    for (flag, asked, has, what) in [
        ("--stages", args.stages, stages, "stages"),
        ("--cuts", cuts, stages, "stages"),
        ("--micro-batches", args.micro_batches, micro_batches, "micro-batches"),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            return Err(refuse(format!("it has {has} {what}, {flag} asks for {asked}")));
        }
    }
    let name = known(&schedule).map_or_else(|| file_name(path), |kind| kind.to_string());
    let text = ScheduleText { name, lanes: schedule.lines() };
    Ok(Some(Own { text, stages, lanes, micro_batches }))
}

/// The schedule by name that has this order. Which update a micro-batch belongs to is not in the file: it
/// is taken for one with a flush.
fn known(schedule: &Schedule) -> Option<ScheduleKind> {
    let (stages, lanes) = (schedule.stages(), schedule.lanes.len() as u32);
    let chunks = stages.checked_div(lanes)?;
    let numbered = |kind: ScheduleKind| match kind {
        ScheduleKind::Hanayo { .. } => kind.with_number(chunks / 2),
        kind => kind.with_number(chunks).or(Some(kind)),
    };
    ScheduleKind::ALL.into_iter().filter_map(numbered).find(|kind| {
        kind.updates() == Updates::Synchronous
            && kind.lanes(stages) == Ok(lanes)
            && kind.generate(stages, schedule.micro_batches).is_ok_and(|own| own == *schedule)
    })
}

/// The end of a path, which is no schedule's name as it has an ending.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
