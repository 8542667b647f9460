//! One search over everything that a plan leaves open.
//!
//! A *choice* fixes tensor-parallel degree, lanes, chunks, replicas, micro-batches, schedule,
//! recomputation per stage and codecs; where to cut follows from the least slowest stage and is
//! refined by simulation. Choices are taken in the order of a lower bound of their step, scored by
//! [`crate::simulate::estimate`], and kept while no other is at least as good in step time, peak
//! memory and traffic (the Pareto set).
//!
//! Anytime and deterministic: the budget counts evaluations, not seconds, and choices of a batch
//! may be scored in parallel without changing the result.
//!
//! Model of the machine: devices are numbered tensor group first, then replicas, then lanes, as
//! Megatron-LM does; every device has the cluster's link to itself; gradients are summed after the
//! last backward pass, not overlapped with it. A value that skips stages is counted on every
//! border that it crosses.
//!
//! ```
//! use pipewright_core::cost::memory::States;
//! use pipewright_core::cost::{Cluster, Costs, Workload};
//! use pipewright_core::graph::Precision;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::predict::search::{Fixed, Search, Space, usual_encodings};
//!
//! let (graph, cluster) = (Preset::Vgg16.graph()?, Cluster::preset("dgx-a100")?);
//! let model =
//!     |samples| Workload::of(&graph, &Costs::new(&graph, &cluster, samples, Precision::F32));
//! let space = Space {
//!     model: &model,
//!     blocks: graph.layers().iter().map(|layer| layer.first_node.0).collect(),
//!     cluster: cluster.clone(),
//!     devices: 8,
//!     memory: cluster.device.memory,
//!     mini_batch: 32,
//!     states: States::MOMENTUM,
//!     parameter_bytes: 4,
//!     fixed: Fixed { stages: Some(4), ..Fixed::default() },
//!     encodings: usual_encodings(),
//!     seed: 1,
//! };
//! let mut search = Search::new(&space)?;
//! search.advance(100)?;
//! let fastest = search.front().fastest().expect("a network of 0.5 GB fits");
//! assert_eq!(fastest.choice.stages(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chain;
mod choice;
mod enumerate;
mod evaluate;
mod front;
mod refine;
mod refusal;
mod shapes;
#[cfg(test)]
mod tests;

pub use chain::Chain;
pub use choice::{Choice, Encoding, Fixed, Scored, encodings, usual_encodings};
pub use front::Front;

use crate::cost::memory::States;
use crate::cost::{Cluster, Workload};
use crate::order::sort_by_numbers;
use crate::units::Bytes;
use enumerate::Candidate;
use refine::Refine;
use shapes::Shapes;
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// What is searched.
pub struct Space<'a> {
    /// The network for a micro-batch of so many samples, in the order in which it may be cut.
    pub model: &'a (dyn Fn(u64) -> Workload + Sync),
    /// First items of the blocks that are not cut, ascending from 0; the same for every size.
    pub blocks: Vec<u32>,
    /// The machine.
    pub cluster: Cluster,
    /// Devices to use at most.
    pub devices: u32,
    /// Memory of a device.
    pub memory: Bytes,
    /// Samples of a step.
    pub mini_batch: u64,
    /// What training keeps per parameter.
    pub states: States,
    /// Bytes of a parameter in the workload's items: 4, or 2 in half precision.
    pub parameter_bytes: u64,
    /// What is not left open.
    pub fixed: Fixed,
    /// How ranks may send each other gradients and activations, besides in single precision; also
    /// what is judged where `fixed` forbids to choose.
    pub encodings: Vec<Encoding>,
    /// Of the random part of the refinement.
    pub seed: u64,
}

impl Space<'_> {
    /// How the ranks of a choice send.
    pub(crate) fn encoding(&self, choice: &Choice) -> Encoding {
        choice.encoding.map_or(Encoding::default(), |way| self.encodings[way])
    }
}

/// Why nothing can be searched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// No combination of the fixed choices exists.
    #[error(
        "no plan has what is fixed: {why}; leave one of ranks, replicas, stages, micro-batches and \
         schedule open, or change it"
    )]
    Empty {
        /// What they would have to satisfy.
        why: String,
    },
    /// Every plan needs more memory than a device has.
    #[error(
        "nothing fits: the plan that needs least memory needs {least} a device, it has {memory}; \
         use more devices, smaller micro-batches or recomputation"
    )]
    Memory {
        /// Least peak of all choices.
        least: Bytes,
        /// What a device has.
        memory: Bytes,
    },
}

/// A search under way.
pub struct Search<'a> {
    space: &'a Space<'a>,
    /// By samples of a micro-batch and tensor-parallel degree.
    chains: BTreeMap<(u64, u32), Arc<Chain>>,
    /// Ascending by lower bound, taken from the end.
    waiting: Vec<Candidate>,
    refine: Refine,
    front: Front,
    evaluated: u64,
    skipped: u64,
    least_peak: Bytes,
    shapes: Shapes,
}

/// Of a shortlist, one in so many at most is of the front.
const OF_FRONT: usize = 2;

/// Choices that are scored together. Fixed, so that threads do not change which are skipped.
const BATCH: usize = 64;

impl<'a> Search<'a> {
    /// Lists all choices with their lower bounds.
    ///
    /// # Errors
    /// When what is fixed leaves none.
    pub fn new(space: &'a Space<'a>) -> Result<Self, SearchError> {
        let (chains, mut waiting) = enumerate::candidates(space)?;
        waiting.reverse();
        Ok(Self {
            space,
            chains,
            waiting,
            refine: Refine::new(space.seed),
            front: Front::default(),
            evaluated: 0,
            skipped: 0,
            least_peak: Bytes(u64::MAX),
            shapes: Shapes::default(),
        })
    }

    /// Scores up to `budget` further choices; returns how many it scored. Fewer than asked for
    /// means that nothing is left to try.
    ///
    /// # Errors
    /// When every choice was tried and none fits.
    pub fn advance(&mut self, budget: u64) -> Result<u64, SearchError> {
        let mut left = budget;
        while left > 0 {
            let batch = self.next_batch(left.min(BATCH as u64) as usize);
            if batch.is_empty() {
                break;
            }
            left -= batch.len() as u64;
            self.evaluated += batch.len() as u64;
            for scored in self.score(batch) {
                self.least_peak = self.least_peak.min(scored.peak);
                self.shapes.insert(&scored, self.space.memory);
                if scored.peak <= self.space.memory {
                    self.front.insert(scored);
                }
            }
        }
        if left > 0 && self.front.is_empty() && self.shapes.is_empty() {
            if self.least_peak == Bytes(u64::MAX) {
                return Err(SearchError::Empty { why: refusal::why_none(self.space) });
            }
            return Err(SearchError::Memory { least: self.least_peak, memory: self.space.memory });
        }
        Ok(budget - left)
    }

    /// The best known choices: none is worse than another in step, peak and traffic.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// At most `count` choices that are worth an exact prediction, the fastest estimate first: the best of
    /// each shape of the pipelines, as estimates of one shape err alike, the fastest, and those that need
    /// less memory or send less. Some may
    /// not fit by their estimates, which cannot tell exactly. O(shapes log shapes).
    pub fn shortlist(&self, count: usize) -> Vec<Scored> {
        let mut list: Vec<Scored> =
            self.front.entries().iter().take(count / OF_FRONT).cloned().collect();
        for scored in self.shapes.shortlist(count - list.len()) {
            if !list.contains(&scored) {
                list.push(scored);
            }
        }
        sort_by_numbers(&mut list, |scored| [scored.step.0, 0]);
        list
    }

    /// The fastest estimate of all that fit and are such.
    pub fn fastest(&self, such: impl Fn(&Choice) -> bool) -> Option<&Scored> {
        self.shapes.fastest(such)
    }

    /// Choices scored, and choices that a lower bound made superfluous.
    pub fn counts(&self) -> (u64, u64) {
        (self.evaluated, self.skipped)
    }

    /// The next choices worth scoring: listed ones first, then variations of the best.
    fn next_batch(&mut self, most: usize) -> Vec<Choice> {
        let mut batch = vec![];
        while batch.len() < most {
            let Some(next) = self.waiting.pop() else { break };
            // Of each shape one is scored in any case.
            if self.front.beats(&next.bound) && !self.shapes.is_new(&next.choice) {
                self.skipped += 1;
            } else {
                self.shapes.see(&next.choice);
                batch.push(next.choice);
            }
        }
        if batch.is_empty() {
            batch = self.refine.batch(self.space, &self.chains, &self.front, most);
        }
        batch
    }

    #[cfg(feature = "parallel")]
    fn score(&self, batch: Vec<Choice>) -> Vec<Scored> {
        use rayon::prelude::*;
        let score = |choice| evaluate::evaluate(self.space, &self.chains, choice);
        batch.into_par_iter().filter_map(score).collect()
    }

    #[cfg(not(feature = "parallel"))]
    fn score(&self, batch: Vec<Choice>) -> Vec<Scored> {
        let score = |choice| evaluate::evaluate(self.space, &self.chains, choice);
        batch.into_iter().filter_map(score).collect()
    }
}
