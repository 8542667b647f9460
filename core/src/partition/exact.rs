//! Exact on the DAG: the one door to the solvers over downsets.

use super::PartitionError;
use super::blocks::ranges;
use super::contiguous::Contiguous;
use super::lattice::{Downset, Lattice};
use super::placement::{Held, Pipeline, PlacedStage, Placement, Statistics};
use super::polish::polish;
use super::straight::Straight;
use super::units::{Absorb, Units};
use crate::cost::Workload;
use crate::units::Nanos;
use std::ops::Add;

/// Stages of `work` on the workers of `line` whose slowest is fastest, over all downsets of the
/// graph and not only over the ranges of one linear order.
///
/// In a given order of workers and with free transfers every worker gets a stage, and memory is
/// counted as the later stages demand; otherwise workers may stay idle. Deterministic; the graph
/// is made coarser, never waited for, when it has more than `line.limit` downsets.
///
/// # Errors
/// No worker, more workers than units, memory that cannot hold the model (and how much is
/// missing), items that only a host can run without a host.
///
/// ```
/// use pipewright_core::cost::{Cluster, Costs, Workload};
/// use pipewright_core::graph::Precision;
/// use pipewright_core::graph::presets::Preset;
/// use pipewright_core::partition::{Pipeline, exact};
///
/// let graph = Preset::Resnet50.graph()?;
/// let cluster = Cluster::preset("dgx-a100")?;
/// let work = Workload::of(&graph, &Costs::new(&graph, &cluster, 8, Precision::F32));
/// let placement = exact(&work, &Pipeline::of(4))?;
/// assert_eq!(placement.stages.len(), 4);
/// assert_eq!(placement.bottleneck, placement.statistics.lower_bound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn exact(work: &Workload, line: &Pipeline) -> Result<Placement, PartitionError> {
    if line.workers.is_empty() || work.items.is_empty() {
        return Err(PartitionError::NoStage);
    }
    let host = line.workers.iter().any(|worker| worker.host);
    if let Some(item) = work.items.iter().find(|item| item.rules.host_only && !host) {
        return Err(PartitionError::NoHost { item: item.name.clone() });
    }
    // Where unlike devices must all be used, an idle item may be all that a slow one should have.
    if !line.any_order && line.workers.windows(2).any(|pair| pair[0] != pair[1]) {
        return solve(work, line, Absorb::Nothing);
    }
    // Without the bytes of idle items the answer bounds the optimum; it is the optimum if it fits.
    match solve(work, line, Absorb::Idle) {
        Ok(placement) if fits(work, line, &placement) => Ok(placement),
        _ => solve(work, line, Absorb::Weightless),
    }
}

fn solve(work: &Workload, line: &Pipeline, absorb: Absorb) -> Result<Placement, PartitionError> {
    let missing = |missing| PartitionError::Memory {
        model: work.name.clone(),
        devices: line.workers.len(),
        missing,
    };
    let pairs = line.any_order || line.link.is_some() || line.workers.iter().any(|w| w.host);
    let limit = if pairs { line.limit / 4 } else { line.limit };
    let (units, lattice, blocks) = lattice(work, limit, absorb);
    let mut statistics = Statistics {
        units: units.units.len() as u32,
        states: lattice.len() as u32,
        blocks,
        ..Statistics::default()
    };
    let (ends, bottleneck) = if pairs {
        let mut solver = Contiguous::new(&units, &lattice, line);
        let answer = solver.solve().map_err(missing)?;
        (statistics.steps, statistics.lower_bound) = (solver.steps, solver.lower_bound());
        answer
    } else {
        if line.workers.len() > units.units.len() {
            return Err(PartitionError::TooManyStages {
                model: work.name.clone(),
                stages: line.workers.len() as u32,
                layers: units.units.len(),
            });
        }
        let mut solver = Straight::new(&units, &lattice, line);
        let (ends, bottleneck) = solver.solve().map_err(missing)?;
        (statistics.steps, statistics.lower_bound) = (solver.steps, Nanos(solver.lower_bound()));
        (ends.into_iter().zip(0..).collect(), bottleneck)
    };
    if blocks.is_none() {
        statistics.lower_bound = bottleneck;
    }
    let stages = placed(&units, &lattice, line, &ends);
    let mut placement = Placement { stages, bottleneck, statistics };
    if blocks.is_some() {
        polish(&units, line, &mut placement);
    }
    Ok(placement)
}

/// Do the devices hold their items, idle ones too?
fn fits(work: &Workload, line: &Pipeline, placement: &Placement) -> bool {
    placement.stages.iter().zip(1..).all(|(stage, used)| {
        let items = stage.items.iter().map(|item| &work.items[*item as usize]);
        let held = items.map(Held::from).fold(Held::default(), Held::add);
        let used = if line.any_order { used } else { stage.worker as usize + 1 };
        let later = (line.workers.len() - used) as u64;
        let worker = &line.workers[stage.worker as usize];
        worker.memory.is_none_or(|m| line.footprint.bytes(held, later) <= m)
    })
}

/// Units and downsets of `work`. With more than `limit` of them, units of a block are taken in
/// their order only, in the largest number of blocks (which is returned) that leaves few enough:
/// some of the downsets, and all of those between blocks.
pub(super) fn lattice(
    work: &Workload,
    limit: usize,
    absorb: Absorb,
) -> (Units, Lattice, Option<u32>) {
    let units = Units::of(work, absorb);
    if let Some(lattice) = Lattice::new(&units.before, limit) {
        return (units, lattice, None);
    }
    let mut count = units.units.len() / 2;
    loop {
        let block = ranges(&units, count);
        let mut before = units.before.clone();
        for unit in (1..block.len()).filter(|unit| block[unit - 1] == block[*unit]) {
            before[unit].push(unit as u32 - 1);
        }
        // A single block has as many downsets as units and the empty one, so this ends.
        let limit = if count <= 1 { usize::MAX } else { limit };
        if let Some(lattice) = Lattice::new(&before, limit) {
            return (units, lattice, block.last().map(|last| last + 1));
        }
        count = (count / 2).max(1);
    }
}

/// Stages from the downset and the worker at the end of each.
fn placed(
    units: &Units,
    lattice: &Lattice,
    line: &Pipeline,
    ends: &[(Downset, u32)],
) -> Vec<PlacedStage> {
    let mut inside = vec![false; units.units.len()];
    let mut stages = vec![];
    for (end, worker) in ends {
        let mut stage =
            PlacedStage { worker: *worker, replicas: 1, degree: 1, ..PlacedStage::default() };
        let new: Vec<u32> = lattice.units(*end).filter(|unit| !inside[*unit as usize]).collect();
        for unit in &new {
            inside[*unit as usize] = true;
            stage.items.extend(&units.units[*unit as usize].items);
        }
        stage.items.sort_unstable();
        stage.time = super::contiguous::stage_time(units, line, *worker, &new);
        stages.push(stage);
    }
    stages
}
