//! Single units moved between neighbouring stages, after an answer for atomic blocks.
//!
//! As Fiduccia & Mattheyses 1982 move cells, but only out of the slowest stage and only while the
//! slower of the two stages gets faster than that one was. O(moves x units of a stage x values).

use super::contiguous::stage_time;
use super::placement::{Held, Pipeline, Placement};
use super::units::Units;
use crate::units::Nanos;
use std::ops::Add;

/// Moves units of `placement` as long as its bottleneck gets smaller.
pub(super) fn polish(units: &Units, line: &Pipeline, placement: &mut Placement) {
    let mut unit_of_item = vec![0; units.units.iter().map(|unit| unit.items.len()).sum()];
    for (number, unit) in (0..).zip(&units.units) {
        unit.items.iter().for_each(|item| unit_of_item[*item as usize] = number);
    }
    let mut stages: Vec<Vec<u32>> = vec![];
    for stage in &placement.stages {
        let mut own: Vec<u32> =
            stage.items.iter().map(|item| unit_of_item[*item as usize]).collect();
        own.sort_unstable();
        own.dedup();
        stages.push(own);
    }
    let mut after = vec![vec![]; units.units.len()];
    for (unit, before) in (0..).zip(&units.before) {
        before.iter().for_each(|need| after[*need as usize].push(unit));
    }
    while let Some((unit, from, to)) = best_move(units, line, placement, &stages, &after) {
        stages[from].retain(|own| *own != unit);
        stages[to].push(unit);
        stages[to].sort_unstable();
        for at in [from, to] {
            let stage = &mut placement.stages[at];
            stage.items =
                stages[at].iter().flat_map(|u| units.units[*u as usize].items.clone()).collect();
            stage.items.sort_unstable();
            stage.time = stage_time(units, line, stage.worker, &stages[at]);
        }
        placement.bottleneck =
            placement.stages.iter().map(|stage| stage.time).max().unwrap_or_default();
    }
}

/// The unit of the slowest stage, that stage and its new one, after which the slower of both is
/// fastest; none that is faster than the slowest stage now.
fn best_move(
    units: &Units,
    line: &Pipeline,
    placement: &Placement,
    stages: &[Vec<u32>],
    after: &[Vec<u32>],
) -> Option<(u32, usize, usize)> {
    let slowest = placement.bottleneck;
    let from = placement.stages.iter().position(|stage| stage.time == slowest)?;
    let mut best: Option<(Nanos, u32, usize)> = None;
    for to in [from.checked_sub(1), Some(from + 1)].into_iter().flatten() {
        let Some(other) = placement.stages.get(to).filter(|_| stages[from].len() > 1) else {
            continue;
        };
        for unit in &stages[from] {
            let linked = if to < from { &units.before } else { after };
            if linked[*unit as usize].iter().any(|l| stages[from].binary_search(l).is_ok()) {
                continue;
            }
            let fewer: Vec<u32> = stages[from].iter().filter(|u| *u != unit).copied().collect();
            let more = [&stages[to][..], &[*unit]].concat();
            if !holds(units, line, other.worker, to, &more) {
                continue;
            }
            let time = stage_time(units, line, placement.stages[from].worker, &fewer)
                .max(stage_time(units, line, other.worker, &more));
            if time < best.map_or(slowest, |best| best.0) {
                best = Some((time, *unit, to));
            }
        }
    }
    best.map(|(_, unit, to)| (unit, from, to))
}

/// Can `worker` run `own` as stage `stage`, and hold it?
fn holds(units: &Units, line: &Pipeline, worker: u32, stage: usize, own: &[u32]) -> bool {
    let own = || own.iter().map(|unit| &units.units[*unit as usize]);
    let used = if line.any_order { stage } else { worker as usize } + 1;
    let worker = &line.workers[worker as usize];
    let runs = own().all(|unit| if worker.host { unit.host.is_some() } else { !unit.host_only });
    let held = own().map(|unit| unit.held).fold(Held::default(), Held::add);
    let bytes = line.footprint.bytes(held, (line.workers.len() - used) as u64);
    runs && worker.memory.is_none_or(|memory| bytes <= memory)
}
