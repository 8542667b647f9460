//! What the command line leaves open: tried, compared, printed.

use super::{Chosen, codec};
use crate::args::{Forms, PlanArgs, Recompute};
use crate::failure::{Code, Failure};
use pipewright_core::cost::{Cluster, Costs, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::predict::search::{
    Choice, Fixed, Front, Lanes, Scored, Search, SearchError, Space, Verdicts,
};
use std::time::Instant;

/// Fewer and more lanes that are compared with the best number.
const NEAR: usize = 3;

/// Rows of the table.
const SHOWN: usize = 10;

/// Choices that are offered, as the search only estimates what recomputation saves and takes.
const OFFERED: usize = 8;

/// Of these with one schedule: estimates err alike for alike choices.
const ALIKE: usize = 2;

/// Plans that the runner executes, the fastest first.
pub(super) fn search(
    args: &PlanArgs,
    graph: &Graph,
    cluster: &Cluster,
) -> Result<Vec<Chosen>, Failure> {
    let precision = args.training.precision();
    let model = |samples| Workload::of(graph, &Costs::new(graph, cluster, samples, precision));
    let space = space(args, graph, cluster, &model)?;
    let begin = Instant::now();
    let mut search = Search::new(&space).map_err(failure)?;
    search.advance(args.budget).map_err(failure)?;
    report(&space, &search, begin);
    // Forms that the runner does not execute may be better in everything: then the best of those
    // that it does are looked for alone.
    let known = plain(&space, search.front(), graph);
    if !known.is_empty() {
        return Ok(known);
    }
    let fixed = space.fixed.clone().plain();
    let space = Space { fixed, ..self::space(args, graph, cluster, &model)? };
    let mut search = Search::new(&space).map_err(failure)?;
    search.advance(args.budget).map_err(failure)?;
    Ok(plain(&space, search.front(), graph))
}

/// The fastest choices of a front that the runner executes.
fn plain(space: &Space<'_>, front: &Front, graph: &Graph) -> Vec<Chosen> {
    let first_node = |block: &u32| graph.layers()[*block as usize].first_node.0;
    let chosen = |scored: &Scored| {
        let cuts = scored.choice.starts.iter().map(first_node).collect();
        let Choice { schedule, micro_batches, replicas, encoding, .. } = scored.choice;
        let encoding = encoding.map(|at| space.encodings[at]);
        Chosen { cuts, schedule, micro_batches, replicas, encoding }
    };
    let mut offered: Vec<&Scored> = vec![];
    for scored in front.entries().iter().filter(|scored| scored.choice.is_plain()) {
        let schedule = scored.choice.schedule;
        let alike = offered.iter().filter(|other| other.choice.schedule == schedule);
        if offered.len() < OFFERED && alike.count() < ALIKE {
            offered.push(scored);
        }
    }
    offered.into_iter().map(chosen).collect()
}

fn space<'a>(
    args: &PlanArgs,
    graph: &Graph,
    cluster: &Cluster,
    model: &'a (dyn Fn(u64) -> Workload + Sync),
) -> Result<Space<'a>, Failure> {
    let there = u32::try_from(cluster.ranks()).unwrap_or(u32::MAX);
    let devices = args.devices.unwrap_or(there);
    if devices == 0 || devices > there {
        return Err(Failure::usage(format!(
            "--devices {devices}: cluster `{}` has {there}; use 1 to {there}, or another --cluster",
            cluster.name
        )));
    }
    let replicas = args.replicas.or(args.ranks.map(|_| 1));
    let lanes = match (args.ranks, replicas) {
        (Some(ranks), Some(replicas)) if !ranks.is_multiple_of(replicas) => {
            return Err(Failure::usage(format!(
                "--ranks {ranks} do not divide into {replicas} replicas"
            )));
        }
        (ranks, replicas) => ranks.map(|ranks| ranks / replicas.unwrap_or(1)),
    };
    // Lossy codecs change what is trained: unless asked for they are judged, not chosen.
    let (encodings, encoding) = codec::searched(&args.communication, cluster);
    let fixed = Fixed {
        encoding,
        lanes,
        replicas,
        stages: args.stages,
        micro_batches: args.micro_batches,
        schedule: args.schedule,
        recompute: match args.recompute() {
            Recompute::None => Some(false),
            Recompute::Auto => None,
            Recompute::Full => Some(true),
        },
        ..Fixed::default()
    };
    Ok(Space {
        model,
        blocks: graph.layers().iter().map(|layer| layer.first_node.0).collect(),
        cluster: cluster.clone(),
        devices,
        memory: cluster.device.memory,
        mini_batch: args.mini_batch,
        states: args.training.optimizer()?.states(),
        parameter_bytes: 4,
        fixed: match args.forms {
            Forms::Runnable => fixed.plain(),
            Forms::All => fixed,
        },
        encodings,
        seed: args.seed,
    })
}

fn failure(error: SearchError) -> Failure {
    let code = match error {
        SearchError::Empty { .. } => Code::Usage,
        SearchError::Memory { .. } => Code::Hardware,
    };
    Failure::new(code, error.to_string())
}

fn report(space: &Space<'_>, search: &Search<'_>, begin: Instant) {
    let (evaluated, skipped) = search.counts();
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!(
        "tried {evaluated} plans in {seconds:.2} s, {skipped} more were certain to be no better"
    );
    let entries = search.front().entries();
    eprintln!(
        "{:>12} {:>12} {:>12} {:>7}  plan (best in step, memory or traffic)",
        "step", "memory", "sent", "bubble"
    );
    for Scored { choice, step, peak, traffic, bubble, .. } in entries.iter().take(SHOWN) {
        let (step, peak, traffic) = (step.to_string(), peak.to_string(), traffic.to_string());
        let (bubble, plan) = (100.0 * bubble, choice.describe(&space.encodings));
        eprintln!("{step:>12} {peak:>12} {traffic:>12} {bubble:>5.1} %  {plan}");
    }
    if let Some(more) = entries.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        eprintln!("{:>12} and {more} more that use less memory or send less", "..");
    }
    let verdicts = search.verdicts();
    more_lanes(&verdicts);
    for (way, verdict) in &verdicts.sums {
        eprintln!("{way}: {}", verdict.reason);
    }
}

/// Whether another number of lanes would be better, and by how much.
fn more_lanes(verdicts: &Verdicts) {
    let Some(best) = verdicts.lanes.iter().min_by_key(|entry| entry.step) else { return };
    let compare = |entry: &Lanes| {
        let more = 100.0 * (entry.step.secs() / best.step.secs() - 1.0);
        format!("{} {} ({more:+.0} %)", entry.lanes, entry.step)
    };
    let at = verdicts.lanes.iter().position(|entry| entry.lanes == best.lanes).unwrap_or(0);
    let near = at.saturating_sub(NEAR)..(at + NEAR + 1).min(verdicts.lanes.len());
    let others = verdicts.lanes[near].iter().filter(|entry| entry.lanes != best.lanes);
    let others: Vec<String> = others.map(compare).collect();
    if !others.is_empty() {
        let others = others.join(", ");
        eprintln!("lanes: {} are fastest, {}; others: {others}", best.lanes, best.step);
    }
}
