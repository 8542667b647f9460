//! Exact on the DAG, transfers for free: devices in a given order, each with at least one unit.
//!
//! With free transfers this is the simple assembly line balancing problem: tasks with precedence
//! on stations, the slowest station as fast as possible. Held, Karp & Shareshian 1963 solve it
//! over downsets unit by unit instead of over pairs of downsets: for a bound on the stage time,
//! a downset's state is the least load of the stage being filled. Here the bound is searched:
//! a feasible trial lowers it to what was reached, an infeasible one raises it to the least load
//! that the trial had to refuse, so every trial is at a value that some stage can have.
//!
//! Memory is a second load; a downset then keeps all pairs of loads of which none is at least as
//! good in both. O(trials x stages x downsets x width) without memory. Exact in both cases.

use super::lattice::{Downset, Lattice};
use super::placement::{Pipeline, Worker};
use super::units::Units;
use crate::units::{Bytes, Nanos};

/// Loads of the stage being filled, and the downset it began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    time: u64,
    memory: u64,
    start: Downset,
}

/// How a trial ended: boundaries between stages, or why there are none.
enum Trial {
    /// Downset at the end of each stage.
    Feasible(Vec<Downset>),
    /// Least bound with which another trial makes sense.
    Refused(u64),
}

/// What the stage being filled may take: time as profiled, bytes, and what the later stages take.
struct Bounds {
    time: u64,
    memory: Option<u64>,
    rest: u64,
    /// Of the later stages together.
    speed: f64,
}

fn speed(worker: &Worker) -> f64 {
    1000.0 / f64::from(worker.per_mille.max(1))
}

pub(super) struct Straight<'a> {
    units: &'a Units,
    lattice: &'a Lattice,
    line: &'a Pipeline,
    /// Time up to each downset.
    until: Vec<u64>,
    /// Extensions looked at.
    pub steps: u64,
}

impl<'a> Straight<'a> {
    pub(super) fn new(units: &'a Units, lattice: &'a Lattice, line: &'a Pipeline) -> Self {
        let until = lattice.sums(|unit| units.units[unit as usize].time.0);
        Self { units, lattice, line, until, steps: 0 }
    }

    /// Downset at the end of each stage and time of the slowest; the bytes that every device
    /// lacks if memory does not suffice.
    pub(super) fn solve(&mut self) -> Result<(Vec<Downset>, Nanos), Bytes> {
        let Trial::Feasible(mut best) = self.trial(u64::MAX, 0) else {
            return Err(self.missing());
        };
        let mut reached = self.slowest(&best);
        let mut low = self.lower_bound();
        while low < reached {
            let bound = low + (reached - low) / 2;
            match self.trial(bound, 0) {
                Trial::Feasible(ends) => {
                    reached = self.slowest(&ends);
                    best = ends;
                }
                Trial::Refused(least) => low = least.min(reached),
            }
        }
        Ok((best, Nanos(reached)))
    }

    /// No stage time below is possible: the work evenly divided by speed, the largest unit on the
    /// fastest device.
    pub(super) fn lower_bound(&self) -> u64 {
        let workers = &self.line.workers;
        let speed: f64 = workers.iter().map(speed).sum();
        let even = self.until[self.lattice.full() as usize] as f64 / speed;
        let fastest = workers.iter().map(|w| w.per_mille).min().unwrap_or(1000);
        let largest = self.units.units.iter().map(|u| scaled(u.time.0, fastest)).max();
        // One part in 10^12 off, so that rounding of the division cannot exclude the optimum.
        ((even * (1.0 - 1e-12)) as u64).max(largest.unwrap_or(0))
    }

    fn slowest(&self, ends: &[Downset]) -> u64 {
        let starts = std::iter::once(&0).chain(ends);
        let time = |((start, end), worker): ((&Downset, &Downset), &Worker)| {
            scaled(self.until[*end as usize] - self.until[*start as usize], worker.per_mille)
        };
        starts.zip(ends).zip(&self.line.workers).map(time).max().unwrap_or(0)
    }

    /// Is there a chain with all stage times at most `bound` when devices have `extra` more bytes?
    fn trial(&mut self, bound: u64, extra: u64) -> Trial {
        let mut refused = u64::MAX;
        let mut frontier = vec![false; self.lattice.len()];
        frontier[0] = true;
        let mut stages: Vec<Vec<Vec<Label>>> = vec![];
        let line = self.line;
        for (stage, worker) in line.workers.iter().enumerate() {
            let workers = &line.workers;
            let bounds = Bounds {
                time: unscaled(bound, worker.per_mille),
                memory: worker.memory.map(|memory| memory.0.saturating_add(extra)),
                rest: workers[stage + 1..]
                    .iter()
                    .map(|w| unscaled(bound, w.per_mille))
                    .fold(0, u64::saturating_add),
                speed: workers[stage + 1..].iter().map(speed).sum(),
            };
            let labels = self.fill(stage, &bounds, &frontier, &mut refused);
            // A bound that changes nothing is no reason to try again.
            refused = refused.max(bound.saturating_add(1));
            for (open, labels) in frontier.iter_mut().zip(&labels) {
                *open = !labels.is_empty();
            }
            stages.push(labels);
        }
        if !frontier[self.lattice.full() as usize] {
            return Trial::Refused(refused);
        }
        let mut ends = vec![self.lattice.full()];
        for labels in stages[1..].iter().rev() {
            let end = ends[ends.len() - 1];
            // Of several, the least loaded: labels are ascending.
            ends.push(labels[end as usize][0].start);
        }
        ends.reverse();
        Trial::Feasible(ends)
    }

    /// All ways to fill stage `stage` from `frontier`: labels of every downset that it can end with.
    fn fill(
        &mut self,
        stage: usize,
        bounds: &Bounds,
        frontier: &[bool],
        refused: &mut u64,
    ) -> Vec<Vec<Label>> {
        let per_mille = self.line.workers[stage].per_mille;
        let later = (self.line.workers.len() - 1 - stage) as u64;
        let all = self.until[self.lattice.full() as usize];
        let mut labels: Vec<Vec<Label>> = vec![vec![]; self.lattice.len()];
        let mut kept = vec![];
        for downset in 0..self.lattice.len() as Downset {
            kept.clone_from(&labels[downset as usize]);
            let left = all - self.until[downset as usize];
            if left > bounds.rest && !kept.is_empty() {
                // Too much for the later stages: no end of this one, but it may grow.
                labels[downset as usize].clear();
                *refused = (*refused).min((left as f64 / bounds.speed * (1.0 - 1e-12)) as u64);
            }
            if frontier[downset as usize] {
                insert(&mut kept, Label { time: 0, memory: 0, start: downset });
            }
            if kept.is_empty() {
                continue;
            }
            for (unit, grown) in self.lattice.next(downset) {
                let unit = &self.units.units[*unit as usize];
                let bytes = self.line.footprint.bytes(unit.held, later).0;
                self.steps += kept.len() as u64;
                for label in &kept {
                    let time = label.time.saturating_add(unit.time.0);
                    let memory = bounds.memory.map_or(0, |_| label.memory.saturating_add(bytes));
                    if bounds.memory.is_some_and(|limit| memory > limit) {
                        continue;
                    }
                    if time > bounds.time {
                        *refused = (*refused).min(scaled(time, per_mille));
                        continue;
                    }
                    insert(&mut labels[*grown as usize], Label { time, memory, ..*label });
                }
            }
        }
        labels
    }

    /// How much more memory every device needs for any placement at all.
    fn missing(&mut self) -> Bytes {
        let all = |unit: &super::units::Unit| {
            let stages = self.line.workers.len() as u64;
            self.line.footprint.bytes(unit.held, stages).0
        };
        let mut high = self.units.units.iter().map(all).fold(0, u64::saturating_add);
        let mut low = 0;
        while low < high {
            let extra = low + (high - low) / 2;
            match self.trial(u64::MAX, extra) {
                Trial::Feasible(_) => high = extra,
                Trial::Refused(_) => low = extra + 1,
            }
        }
        Bytes(high)
    }
}

/// Time on a worker with `per_mille`, rounded up so that no stage looks faster than it is.
pub(super) fn scaled(time: u64, per_mille: u32) -> u64 {
    let scaled = (u128::from(time) * u128::from(per_mille)).div_ceil(1000);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The most time of the workload that takes a worker at most `bound`.
pub(super) fn unscaled(bound: u64, per_mille: u32) -> u64 {
    let most = u128::from(bound) * 1000 / u128::from(per_mille.max(1));
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// Keeps labels ascending by time, descending by memory, none worse in both than another.
fn insert(labels: &mut Vec<Label>, label: Label) {
    let at = labels.partition_point(|other| other.time <= label.time);
    if at > 0 && labels[at - 1].memory <= label.memory {
        return;
    }
    let worse = labels[at..].iter().take_while(|other| other.memory >= label.memory).count();
    // Of equal time, the one before is no better in memory either: it leaves too.
    let first = at - usize::from(at > 0 && labels[at - 1].time == label.time);
    labels.splice(first..at + worse, [label]);
}
