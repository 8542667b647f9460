//! Questions to the exact partitioners and their answers: plain data.

use crate::cost::{Item, Link};
use crate::units::{Bytes, Nanos};
use std::ops::Add;

/// One device of the pipeline, or one host processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its time for an item per 1,000 ns of the workload: 1,000 as fast as profiled, 2,000 half.
    pub per_mille: u32,
    /// What it holds; nothing bounds it where absent.
    pub memory: Option<Bytes>,
    /// A host processor: it takes [`crate::cost::Rules::host`] for an item and, as its memory is
    /// where transfers start and end, no time for them.
    pub host: bool,
}

impl Default for Worker {
    fn default() -> Self {
        Self { per_mille: 1000, memory: None, host: false }
    }
}

/// What a device holds for the items on it: their state, and their stash once per micro-batch in
/// flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Optimizer state in copies of the parameters: 0 for SGD, 1 with momentum, 2 for Adam.
    pub optimizer_copies: u32,
    /// Micro-batches a mini-batch. Stage s of p keeps the stash of `min(m, p - s)` with 1F1B.
    pub micro_batches: u32,
}

impl Default for Footprint {
    fn default() -> Self {
        Self { optimizer_copies: 0, micro_batches: 1 }
    }
}

impl Footprint {
    /// Bytes on a device with `later` stages behind it.
    pub fn bytes(&self, held: Held, later: u64) -> Bytes {
        let kept = u64::from(self.micro_batches).min(later + 1);
        held.state + held.parameters * u64::from(self.optimizer_copies) + held.stash * kept
    }
}

/// Bytes of some items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Always there.
    pub state: Bytes,
    /// Parameters.
    pub parameters: Bytes,
    /// Of a micro-batch.
    pub stash: Bytes,
}

impl Add for Held {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            state: self.state + other.state,
            parameters: self.parameters + other.parameters,
            stash: self.stash + other.stash,
        }
    }
}

impl From<&Item> for Held {
    fn from(item: &Item) -> Self {
        Self { state: item.state, parameters: item.parameters, stash: item.stash }
    }
}

/// What to divide among what.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// In the order of the pipeline, or in any if `any_order`.
    pub workers: Vec<Worker>,
    /// Search the order of the workers too, and leave some idle where that is faster.
    pub any_order: bool,
    /// Transfers count to the stage on both of their ends, each value once a stage; absent, they
    /// are free.
    pub link: Option<Link>,
    /// Values travel twice: forward, and back as gradients. Not in graphs whose backward
    /// operations are items of their own.
    pub gradients: bool,
    /// What a device holds.
    pub footprint: Footprint,
    /// Downsets to look at, a quarter as many where pairs of them are compared (with transfers, hosts
    /// or workers in any order); beyond, items of [`super::blocks`] keep their order and
    /// [`Statistics::blocks`] says so.
    pub limit: usize,
}

impl Pipeline {
    /// `stages` equal devices without limit of memory, transfers for free.
    pub fn of(stages: u32) -> Self {
        Self {
            workers: vec![Worker::default(); stages as usize],
            any_order: false,
            link: None,
            gradients: true,
            footprint: Footprint::default(),
            limit: 100_000,
        }
    }
}

/// Items on one worker, or on several replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedStage {
    /// Ascending.
    pub items: Vec<u32>,
    /// Index of the (first) worker.
    pub worker: u32,
    /// Copies that share the micro-batches (data parallelism).
    pub replicas: u32,
    /// Devices of each copy (tensor parallelism).
    pub degree: u32,
    /// Items whose activations are computed again for the backward pass; ascending.
    pub recomputed: Vec<u32>,
    /// Time a batch.
    pub time: Nanos,
}

/// How a partitioner came to its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Things that were placed: items, or groups of items that must stand together.
    pub units: u32,
    /// Downsets of the graph of units.
    pub states: u32,
    /// Pairs of downsets, or extensions of one by an item, that were looked at.
    pub steps: u64,
    /// Where the graph has too many downsets: the number of atomic blocks inside of which items
    /// were taken in their order only. Then `lower_bound` says how far from optimal the answer can
    /// be at most.
    pub blocks: Option<u32>,
    /// No placement has a faster slowest stage. Equals the bottleneck where it is exact.
    pub lower_bound: Nanos,
}

/// A partition of a workload into stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// In the order of the pipeline: values only flow to the same stage or later ones.
    pub stages: Vec<PlacedStage>,
    /// Time of the slowest stage.
    pub bottleneck: Nanos,
    /// How it was found.
    pub statistics: Statistics,
}

impl Placement {
    /// Stage of every item, `items` of them.
    pub fn stage_of_item(&self, items: usize) -> Vec<u32> {
        let mut stage_of = vec![0; items];
        for (stage, placed) in (0..).zip(&self.stages) {
            for item in &placed.items {
                stage_of[*item as usize] = stage;
            }
        }
        stage_of
    }

    /// First item of every stage but the first, where stages are ranges of items one after the
    /// other, as a plan's cuts are.
    pub fn cuts(&self) -> Option<Vec<u32>> {
        let mut next = 0;
        let mut cuts = vec![];
        for stage in &self.stages {
            cuts.push(next);
            for item in &stage.items {
                if *item != next {
                    return None;
                }
                next += 1;
            }
        }
        cuts.remove(0);
        Some(cuts)
    }

    /// Devices in use.
    pub fn devices(&self) -> u32 {
        self.stages.iter().map(|stage| stage.replicas * stage.degree).sum()
    }
}
