//! Stages with replicas on machines of one or two levels: PipeDream's hybrid of pipeline and data
//! parallelism (Narayanan et al. 2019, section 3.1), over all downsets of the graph.
//!
//! With r replicas a stage of compute time T and P bytes of parameters takes
//! `(T + 4 (r - 1) P / (r b)) / r` a batch, b being the bandwidth: each replica has a share of the
//! batches, and gradients and weights go through a sharded parameter server. Values of A bytes
//! that cross a boundary take `2 A / (r b)` beside it, r being the later stage's replicas; a
//! last stage but that of the whole graph also counts what it sends. The slowest of all this is
//! the time a batch. `best(I, m) = min over J, r of max(best(J, m - r), stage(J, I, r))`.
//!
//! Two levels: first every difference of downsets is divided among the devices of one server,
//! then servers take the part of the devices, with the bandwidth between servers. As in PipeDream's
//! published optimizer, gradients of a level's first stage travel in parallel from the devices of
//! a server while those of later stages do not; answers stay comparable so.
//!
//! O(pairs of downsets x machines²) time for one level, O(triples of downsets) for two.

use super::PartitionError;
use super::exact::lattice;
use super::lattice::{Downset, Lattice};
use super::placement::{PlacedStage, Placement, Statistics};
use super::units::{Absorb, Units};
use crate::cost::Workload;
use crate::units::Nanos;

/// Machines that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// How many: devices a server, then servers.
    pub machines: u32,
    /// Bandwidth between them.
    pub bytes_per_sec: f64,
}

/// Downsets, at most, to divide among two levels, and among one.
const LIMITS: [usize; 2] = [600, 6_000];

/// Least time a batch of `work` with stages on at most the machines of `levels` (one or two, the
/// inner one first), and the replicas of each stage. A stage of an outer stage with R replicas
/// has R times its own.
///
/// # Errors
/// No level, no machine or no bandwidth in one, more than two levels.
pub fn replicated(work: &Workload, levels: &[Level]) -> Result<Placement, PartitionError> {
    if levels.is_empty() || levels.len() > 2 || work.items.is_empty() {
        return Err(PartitionError::NoStage);
    }
    let sound = |level: &Level| level.machines > 0 && level.bytes_per_sec > 0.0;
    if let Some(level) = levels.iter().position(|level| !sound(level)) {
        return Err(PartitionError::Level { level });
    }
    let (units, lattice, blocks) = lattice(work, LIMITS[2 - levels.len()], Absorb::Nothing);
    let mut solver = Solver::new(&units, &lattice, levels);
    let stages = solver.solve();
    let mut placement = Placement { stages: vec![], ..Placement::default() };
    for stage in &stages {
        let mut items: Vec<u32> = solver
            .difference(stage.from, stage.to)
            .flat_map(|unit| &units.units[unit as usize].items)
            .copied()
            .collect();
        items.sort_unstable();
        let time = Nanos(stage.time as u64);
        let (replicas, worker) = (stage.replicas, placement.devices());
        let placed = PlacedStage { items, worker, replicas, degree: 1, recomputed: vec![], time };
        placement.stages.push(placed);
    }
    placement.bottleneck = Nanos(solver.slowest as u64);
    let machines: u32 = levels.iter().map(|level| level.machines).product();
    let even = Nanos(work.time().0 / u64::from(machines));
    placement.statistics = Statistics {
        units: units.units.len() as u32,
        states: lattice.len() as u32,
        steps: solver.steps,
        blocks,
        lower_bound: if blocks.is_some() { even } else { placement.bottleneck },
    };
    Ok(placement)
}

/// Part of an answer: the units of `to` without `from`.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: Downset,
    to: Downset,
    replicas: u32,
    /// Nanoseconds, compute and gradients.
    time: f64,
}

/// Best division of a downset among a number of machines.
#[derive(Clone, Copy)]
struct Best {
    time: f64,
    /// Downset before the last stage, and its replicas.
    from: Downset,
    replicas: u32,
}

struct Solver<'a> {
    lattice: &'a Lattice,
    levels: &'a [Level],
    /// Downsets inside each, ascending, itself excepted.
    below: Vec<Vec<Downset>>,
    time: Vec<f64>,
    parameters: Vec<f64>,
    /// Bytes that each downset hands on.
    cut: Vec<f64>,
    slowest: f64,
    steps: u64,
}

impl<'a> Solver<'a> {
    fn new(units: &Units, lattice: &'a Lattice, levels: &'a [Level]) -> Self {
        let of = |unit: u32| &units.units[unit as usize];
        let float = |sums: Vec<u64>| sums.into_iter().map(|sum| sum as f64).collect();
        let (bits, words) = lattice.bits(units.units.len());
        let own = |d: usize| &bits[d * words..][..words];
        let inside = |small: usize, large: usize| {
            own(small).iter().zip(own(large)).all(|(small, large)| small & !large == 0)
        };
        let below = (0..lattice.len()).map(|large| {
            (0..large).filter(|small| inside(*small, large)).map(|d| d as Downset).collect()
        });
        let has = |d: usize, unit: u32| own(d)[unit as usize / 64] >> (unit % 64) & 1 == 1;
        let cut = |d: usize| {
            let split = |v: &&super::units::Value| {
                let count = v.units.iter().filter(|unit| has(d, **unit)).count();
                count > 0 && count < v.units.len()
            };
            units.values.iter().filter(split).map(|value| value.bytes.0 as f64).sum()
        };
        Self {
            lattice,
            levels,
            below: below.collect(),
            time: float(lattice.sums(|unit| of(unit).time.0)),
            parameters: float(lattice.sums(|unit| of(unit).held.parameters.0)),
            cut: (0..lattice.len()).map(cut).collect(),
            slowest: 0.0,
            steps: 0,
        }
    }

    /// Units of `to` without those of `from`.
    fn difference(&self, from: Downset, to: Downset) -> impl Iterator<Item = u32> {
        let inside: Vec<u32> = self.lattice.units(from).collect();
        self.lattice.units(to).filter(move |unit| !inside.contains(unit))
    }

    fn solve(&mut self) -> Vec<Step> {
        let full = self.lattice.full();
        let plain = |solver: &Self, from: Downset, to: Downset| {
            solver.time[to as usize] - solver.time[from as usize]
        };
        let inner = self.levels[0];
        if self.levels.len() == 1 {
            let table = self.level(0, inner, 1, &plain);
            self.slowest = self.last(&table, full, inner).time;
            return self.steps_of(&table, 0, full, inner, &plain);
        }
        let mut times = vec![vec![]; self.lattice.len()];
        for from in 0..self.lattice.len() as Downset {
            let table = self.level(from, inner, 1, &plain);
            times[from as usize] =
                (0..=full).map(|to| self.last(&table, to, inner).time).collect::<Vec<f64>>();
        }
        let whole = |_: &Self, from: Downset, to: Downset| times[from as usize][to as usize];
        let outer = self.levels[1];
        let table = self.level(0, outer, inner.machines, &whole);
        self.slowest = self.last(&table, full, outer).time;
        let mut stages = vec![];
        for stage in self.steps_of(&table, 0, full, outer, &whole) {
            let table = self.level(stage.from, inner, 1, &plain);
            for mut step in self.steps_of(&table, stage.from, stage.to, inner, &plain) {
                step.replicas *= stage.replicas;
                step.time /= f64::from(stage.replicas);
                stages.push(step);
            }
        }
        stages
    }

    /// Nanoseconds for gradients and weights of a stage with `r` replicas, before division by r.
    fn gradients(&self, from: Downset, to: Downset, r: f64, level: Level) -> f64 {
        let bytes = self.parameters[to as usize] - self.parameters[from as usize];
        4.0 * (r - 1.0) * bytes / (level.bytes_per_sec * r) * 1e9
    }

    /// `best(I, m)` for every downset I above `start`, `table[I * machines + m - 1]`, of stages
    /// between `start` and I.
    fn level(
        &mut self,
        start: Downset,
        level: Level,
        inside: u32,
        time: &dyn Fn(&Self, Downset, Downset) -> f64,
    ) -> Vec<Best> {
        let machines = level.machines as usize;
        let none = Best { time: f64::INFINITY, from: start, replicas: 0 };
        let mut table = vec![none; self.lattice.len() * machines];
        let mut open = vec![false; self.lattice.len()];
        for to in start + 1..self.lattice.len() as Downset {
            if self.below[to as usize].binary_search(&start).is_err() {
                continue;
            }
            open[to as usize] = true;
            let whole = time(self, start, to);
            for m in 0..machines {
                let r = m as f64 + 1.0;
                let sync = self.gradients(start, to, r, level) / f64::from(inside);
                let best = Best { time: (whole + sync) / r, from: start, replicas: m as u32 + 1 };
                table[to as usize * machines + m] = best;
            }
            for at in 0..self.below[to as usize].len() {
                let from = self.below[to as usize][at];
                if open[from as usize] {
                    let whole = time(self, from, to);
                    self.append(&mut table, from, to, whole, level);
                }
            }
            // A machine more is never worse: it may stay idle.
            for m in 1..machines {
                let at = to as usize * machines + m;
                if table[at - 1].time < table[at].time {
                    table[at] = table[at - 1];
                }
            }
        }
        table
    }

    /// Tries the units between `from` and `to`, `whole` on one machine, as last stage.
    fn append(&mut self, table: &mut [Best], from: Downset, to: Downset, whole: f64, level: Level) {
        let machines = level.machines as usize;
        let after = if to == self.lattice.full() { 0.0 } else { self.cut[to as usize] };
        let transfer = 2.0 * self.cut[from as usize].max(after) / level.bytes_per_sec * 1e9;
        for r in 1..machines {
            let replicas = r as f64;
            let sync = self.gradients(from, to, replicas, level);
            let stage = ((whole + sync) / replicas).max(transfer / replicas);
            self.steps += (machines - r) as u64;
            for m in r..machines {
                let time = table[from as usize * machines + m - r].time.max(stage);
                let best = &mut table[to as usize * machines + m];
                if time < best.time {
                    *best = Best { time, from, replicas: r as u32 };
                }
            }
        }
    }

    fn last(&self, table: &[Best], to: Downset, level: Level) -> Best {
        table[(to as usize + 1) * level.machines as usize - 1]
    }

    /// The stages of `table` from `start` to `to`.
    fn steps_of(
        &self,
        table: &[Best],
        start: Downset,
        mut to: Downset,
        level: Level,
        time: &dyn Fn(&Self, Downset, Downset) -> f64,
    ) -> Vec<Step> {
        let machines = level.machines as usize;
        let (mut left, mut steps) = (machines, vec![]);
        while to != start {
            let Best { from, replicas, .. } = table[to as usize * machines + left - 1];
            let r = f64::from(replicas);
            let whole = time(self, from, to) + self.gradients(from, to, r, level);
            steps.push(Step { from, to, replicas, time: whole / r });
            // Idle machines of `best` belong to earlier stages; there are still at least enough.
            left -= (replicas as usize).min(left);
            to = from;
        }
        steps.reverse();
        steps
    }
}
