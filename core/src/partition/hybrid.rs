//! Pipeline, data and tensor parallelism with recomputation, all chosen per stage.
//!
//! Tarnawski et al. 2021 ("Piper"): a stage of a chain of downsets runs on d x t devices, d
//! replicas (data) of t devices each (tensor), and each item with or without recomputation. A
//! sample takes it
//!
//! `(compute + 2 x bytes that cross / b) / d + 4 (d - 1) / d x parameters / micro-batches / b`
//!
//! with bandwidth b. Held are the state of its items and their stash once per micro-batch in
//! flight: the replicas of this stage and the later ones, divided by its own, rounded up.
//!
//! Piper tabulates the best time for every downset, number of devices and number of replicas from
//! here to the end. Here the time is searched and the table holds the fewest devices instead, one
//! dimension less: `devices(J, s) = min over I, t, d of devices(I, s - d) + d t`, where the units
//! of I without J fit with s replicas and keep to the time. What recomputation adds so that a
//! stage fits does not depend on d nor on the time searched and is computed once.
//!
//! O(trials x pairs of downsets x degrees x devices) time. Exact but for one choice: which items
//! of a stage recompute is a knapsack, solved greedily by time per byte saved and then improved;
//! a stage is slower than with the best choice by less than one item's recomputation, and never
//! slower than with Piper's.

use super::PartitionError;
use super::exact::lattice;
use super::lattice::{Downset, Lattice};
use super::placement::{PlacedStage, Placement, Statistics};
use super::units::{Absorb, Units};
use super::ways::Ways;
use crate::cost::Workload;
use crate::units::{Bytes, Nanos};

/// Downsets to look at; more are reduced to those of atomic blocks.
const LIMIT: usize = 400;
/// Relative width at which the search of the time ends.
const PRECISION: f64 = 1e-7;
const FAR: u32 = u32::MAX / 2;

/// Devices to divide a workload among.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hybrid {
    /// How many, all alike.
    pub devices: u32,
    /// What each holds.
    pub memory: Bytes,
    /// Samples of a mini-batch, each a micro-batch of a replica; replicas of a stage divide it.
    pub micro_batches: u32,
    /// Bandwidth between devices.
    pub bytes_per_sec: f64,
}

/// Stages of `work` with the least time a sample, and the replicas, tensor-parallel degree and
/// recomputed items of each.
///
/// Tensor-parallel degrees are those of the items' shards; a stage has one that all its items
/// offer.
///
/// # Errors
/// No devices or micro-batches; memory that cannot hold the model, and how much is missing.
pub fn hybrid(work: &Workload, on: &Hybrid) -> Result<Placement, PartitionError> {
    if on.devices == 0 || on.micro_batches == 0 || work.items.is_empty() {
        return Err(PartitionError::NoStage);
    }
    let (units, lattice, blocks) = lattice(work, LIMIT, Absorb::Nothing);
    let mut solver = Solver::new(work, &units, &lattice, *on);
    let Some(stages) = solver.solve() else {
        return Err(PartitionError::Memory {
            model: work.name.clone(),
            devices: on.devices as usize,
            missing: missing(work, &units, &lattice, on),
        });
    };
    let mut placement = Placement::default();
    let mut later: u32 = stages.iter().map(|stage| stage.data).sum();
    for stage in &stages {
        let chosen = &solver.ways[stage.ways];
        let (worker, time) = (placement.devices(), Nanos(solver.time(stage, later) as u64));
        placement.stages.push(PlacedStage {
            items: chosen.items.clone(),
            worker,
            replicas: stage.data,
            degree: chosen.degree,
            recomputed: chosen.recomputed(later.div_ceil(stage.data)),
            time,
        });
        placement.bottleneck = placement.bottleneck.max(time);
        later -= stage.data;
    }
    placement.statistics = Statistics {
        units: units.units.len() as u32,
        states: lattice.len() as u32,
        steps: solver.steps,
        blocks,
        lower_bound: Nanos(solver.least as u64),
    };
    Ok(placement)
}

/// How much more memory every device needs for any placement at all.
fn missing(work: &Workload, units: &Units, lattice: &Lattice, on: &Hybrid) -> Bytes {
    let bytes = |item: &crate::cost::Item| item.state + item.stash * u64::from(on.devices);
    let (mut low, mut high) = (0, work.items.iter().map(bytes).sum::<Bytes>().0);
    while low < high {
        let extra = low + (high - low) / 2;
        let on = Hybrid { memory: on.memory + Bytes(extra), ..*on };
        if Solver::new(work, units, lattice, on).trial(f64::INFINITY).is_some() {
            high = extra;
        } else {
            low = extra + 1;
        }
    }
    Bytes(high)
}

/// A stage on `data` x degree devices.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Index of its ways.
    ways: usize,
    data: u32,
}

struct Solver {
    on: Hybrid,
    /// Ways of each pair of downsets, by the smaller one.
    ways: Vec<Ways>,
    /// Of each downset: the larger downset, and the index of the ways of their difference.
    pairs: Vec<Vec<(Downset, usize)>>,
    /// Data-parallel degrees.
    degrees: Vec<u32>,
    /// Largest sum of the replicas of all stages.
    replicas: usize,
    least: f64,
    steps: u64,
}

impl Solver {
    fn new(work: &Workload, units: &Units, lattice: &Lattice, on: Hybrid) -> Self {
        let (bits, words) = lattice.bits(units.units.len());
        let own = |d: usize| &bits[d * words..][..words];
        let inside = |small: usize, large: usize| {
            own(small).iter().zip(own(large)).all(|(small, large)| small & !large == 0)
        };
        let mut unit_of_item = vec![0; work.items.len()];
        for (number, unit) in (0..).zip(&units.units) {
            unit.items.iter().for_each(|item| unit_of_item[*item as usize] = number);
        }
        let replicas = on.devices.min(on.micro_batches);
        let mut ways: Vec<Ways> = vec![];
        let mut pairs = vec![vec![]; lattice.len()];
        let mut degrees = vec![1];
        degrees.extend(work.items.iter().flat_map(|i| i.shards.iter().map(|s| s.degree)));
        degrees.sort_unstable();
        degrees.dedup();
        for (small, pairs) in pairs.iter_mut().enumerate() {
            for large in (small + 1..lattice.len()).filter(|large| inside(small, *large)) {
                let has = |item: u32| {
                    let unit = unit_of_item[item as usize] as usize;
                    (own(large)[unit / 64] & !own(small)[unit / 64]) >> (unit % 64) & 1 == 1
                };
                let items: Vec<u32> = (0..work.items.len() as u32).filter(|i| has(*i)).collect();
                for degree in degrees.iter().filter(|degree| **degree <= on.devices) {
                    if let Some(own) = Ways::of(work, &items, *degree, on.memory, replicas) {
                        pairs.push((large as Downset, ways.len()));
                        ways.push(own);
                    }
                }
            }
        }
        let divides = |data: &u32| on.micro_batches.is_multiple_of(*data);
        let degrees = (1..=replicas).filter(divides).collect();
        Self { on, ways, pairs, degrees, replicas: replicas as usize, least: 0.0, steps: 0 }
    }

    fn solve(&mut self) -> Option<Vec<Step>> {
        let mut best = self.trial(f64::INFINITY)?;
        let mut high = self.slowest(&best);
        let mut low = 0.0;
        while high - low > PRECISION * high {
            let bound = f64::midpoint(low, high);
            match self.trial(bound) {
                Some(stages) => {
                    high = self.slowest(&stages);
                    best = stages;
                }
                None => low = bound,
            }
        }
        self.least = low;
        Some(best)
    }

    /// Nanoseconds a sample with `later` replicas in this stage and the later ones.
    fn time(&self, step: &Step, later: u32) -> f64 {
        let ways = &self.ways[step.ways];
        let added = ways.added(later.div_ceil(step.data)).unwrap_or(f64::INFINITY);
        self.plain(ways, step.data) + added / f64::from(step.data)
    }

    /// Nanoseconds a sample without recomputation.
    fn plain(&self, ways: &Ways, data: u32) -> f64 {
        let (d, batch) = (f64::from(data), f64::from(self.on.micro_batches));
        let gradients = 4.0 * (d - 1.0) / d * ways.parameters / batch;
        let bytes = 2.0 * ways.crossing / d + gradients;
        ways.time / d + bytes / self.on.bytes_per_sec * 1e9
    }

    fn slowest(&self, stages: &[Step]) -> f64 {
        let mut later: u32 = stages.iter().map(|stage| stage.data).sum();
        let mut slowest = 0.0f64;
        for stage in stages {
            slowest = slowest.max(self.time(stage, later));
            later -= stage.data;
        }
        slowest
    }

    /// Stages that take at most `bound` each, if there are any.
    fn trial(&mut self, bound: f64) -> Option<Vec<Step>> {
        let width = self.replicas + 1;
        let full = self.pairs.len() - 1;
        // Fewest devices for all outside of a downset with at most s replicas, at [downset][s].
        let mut fewest = vec![FAR; self.pairs.len() * width];
        fewest[full * width..].fill(0);
        for small in (0..full).rev() {
            for at in 0..self.pairs[small].len() {
                let (large, index) = self.pairs[small][at];
                for (data, most) in self.fitting(index, bound) {
                    let devices = data * self.ways[index].degree;
                    let (own, above) = fewest.split_at_mut(large as usize * width);
                    let own = &mut own[small * width + data as usize..=small * width + most];
                    self.steps += own.len() as u64;
                    for (own, later) in own.iter_mut().zip(above.iter()) {
                        *own = (*own).min(later + devices);
                    }
                }
            }
            for s in 1..width {
                let at = small * width + s;
                fewest[at] = fewest[at].min(fewest[at - 1]);
            }
        }
        let all = fewest[self.replicas];
        (all <= self.on.devices).then(|| self.steps_of(&fewest, bound))
    }

    /// Data-parallel degrees with which stage `index` keeps to `bound`, and the most replicas that
    /// it and the later stages may then have.
    fn fitting(&self, index: usize, bound: f64) -> impl Iterator<Item = (u32, usize)> + use<> {
        let ways = &self.ways[index];
        let most = |data: &u32| {
            let room = (bound - self.plain(ways, *data)) * f64::from(*data);
            let devices = data * ways.degree;
            if devices > self.on.devices || room < 0.0 {
                return None;
            }
            let most = ways.most_in_flight(room) as usize * *data as usize;
            (most >= *data as usize).then_some((*data, most.min(self.replicas)))
        };
        self.degrees.iter().filter_map(most).collect::<Vec<_>>().into_iter()
    }

    /// The stages that `fewest` stands for.
    fn steps_of(&self, fewest: &[u32], bound: f64) -> Vec<Step> {
        let width = self.replicas + 1;
        let full = self.pairs.len() - 1;
        let (mut small, mut steps) = (0, vec![]);
        // With the fewest replicas of those with the fewest devices less is in flight.
        let least = |small: usize, s: usize| {
            let row = &fewest[small * width..][..=s];
            row.partition_point(|devices| *devices > row[s])
        };
        let mut left = least(0, self.replicas);
        while small != full {
            let found = self.pairs[small].iter().find_map(|(large, index)| {
                self.fitting(*index, bound).find_map(|(data, most)| {
                    let later = left.checked_sub(data as usize).filter(|_| left <= most)?;
                    let devices =
                        fewest[*large as usize * width + later] + data * self.ways[*index].degree;
                    let step = Step { ways: *index, data };
                    (devices == fewest[small * width + left]).then_some((*large, step, later))
                })
            });
            let (large, step, later) = found.expect("every entry of the table came from a stage");
            steps.push(step);
            (small, left) = (large as usize, least(large as usize, later));
        }
        steps
    }
}
