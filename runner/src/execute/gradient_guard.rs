//! Gradient norm and finite check, common to all ranks, before a step is applied.
//!
//! Clipping by the common length (Pascanu et al. 2013) is as PyTorch's `clip_grad_norm_` does it:
//! `scale = min(1, limit / (norm + 1e-6))`. Each parameter's sum of squares is made by the rank that
//! holds it; the sums are brought together and every rank adds them in the order of parameters. The
//! norm is thus the same to the last bit however the network is split.
//!
//! A sum of squares in double precision is finite where all values are, so it also says which
//! parameter's gradient is not, to all ranks alike. Where the plan skips such steps, nothing of them
//! stays: weights and optimizer are not touched, running statistics and what codecs carry over are as
//! they were before.

use super::arena::Slices;
use super::divided::is_divided;
use super::expert_parallel::speakers;
use super::loss_scale::LossScale;
use super::rank::{Rank, tied_to};
use crate::device::DeviceError;
use crate::transport::{REDUCE_MAX, ReduceOp, Transport, TransportError};
use pipewright_core::graph::Graph;
use pipewright_core::ids::ParamId;
use pipewright_core::plan::{ParamPlace, Region, StageProgram, Training};
use pipewright_kernels::cpu::squares;
use serde::{Deserialize, Serialize};

/// Keeps the division finite for a gradient of length zero, as PyTorch does.
const EPS: f64 = 1e-6;

/// The gradient's length and what follows from it.
#[derive(Debug)]
pub struct GradientGuard {
    limit: Option<f64>,
    skips: bool,
    /// Sum of squares of each parameter of the network; empty where nobody asks.
    squares: Vec<f64>,
    norm: f64,
    /// The parameter that makes this step one to skip.
    bad: Option<ParamId>,
    /// Steps that were skipped so far: the optimizer has not seen them.
    skipped: u64,
    /// The factor of the loss, where it has one: the next step's, from the end of a step on.
    loss_scale: Option<LossScale>,
    /// Running statistics before the step: some values a channel. A device keeps its own.
    statistics: Vec<f32>,
}

impl GradientGuard {
    /// For what `training` asks of gradients on a rank with these `stages`.
    pub fn new(training: &Training, graph: &Graph, stages: &[StageProgram]) -> Self {
        let count = if training.judges_gradients() { graph.params().len() } else { 0 };
        let values = statistics(stages).map(|region| region.bytes.0 as usize / 4).sum();
        Self {
            limit: training.clip_norm.map(pipewright_kernels::decimal),
            skips: training.skips().is_some(),
            squares: vec![0.0; count],
            norm: 0.0,
            bad: None,
            skipped: 0,
            loss_scale: training.precision.scales_loss().then(LossScale::default),
            statistics: Vec::with_capacity(if training.skips().is_some() { values } else { 0 }),
        }
    }

    /// Brings the sums of all ranks together.
    ///
    /// # Errors
    /// When the ranks cannot talk.
    pub fn meet(&mut self, transport: &mut impl Transport) -> Result<(), TransportError> {
        for sums in self.squares.chunks_mut(REDUCE_MAX) {
            // One rank holds the parameter, the others add zeros: nothing is rounded. Shards are added in the
            // order of ranks.
            transport.all_reduce(sums, ReduceOp::Sum)?;
        }
        self.norm = self.squares.iter().sum::<f64>().sqrt() / f64::from(self.factor());
        // Backward passes end with the first parameters, and carry on what is not finite: the last one
        // is where it began, or next to it.
        let last = self.squares.iter().rposition(|square| !square.is_finite());
        self.bad = last.filter(|_| self.skips).map(|at| ParamId(at as u32));
        self.squares.fill(0.0);
        Ok(())
    }

    /// Length of the gradient at the last [`Self::meet`].
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// Factor of every gradient. That of the loss is a power of two: taking it back rounds nothing.
    pub fn scale(&self) -> f32 {
        let clip = self.limit.map_or(1.0, |limit| (limit / (self.norm + EPS)).min(1.0) as f32);
        clip / self.factor()
    }

    /// Factor of the loss.
    pub fn factor(&self) -> f32 {
        self.loss_scale.map_or(1.0, |scale| scale.factor)
    }

    /// Steps of training so far that updated parameters, of `step` steps.
    pub fn applied(&self, step: u64) -> u64 {
        step.saturating_sub(self.skipped)
    }

    /// The parameter whose gradient is not finite, where the step under way is skipped for it.
    pub fn bad(&self) -> Option<ParamId> {
        self.bad
    }
}

/// Steps whose gradients were not finite, which changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// All of them.
    pub total: u64,
    /// Those in a row up to the last step.
    pub in_row: u32,
}

impl Skipped {
    /// Counts a step.
    pub fn count(&mut self, skipped: bool) {
        self.total += u64::from(skipped);
        self.in_row = if skipped { self.in_row + 1 } else { 0 };
    }

    /// Whether there were none.
    pub fn is_none(&self) -> bool {
        self.total == 0
    }
}

/// Running statistics of stages.
fn statistics(stages: &[StageProgram]) -> impl Iterator<Item = Region> {
    let untrained = |place: &&ParamPlace| place.gradient.is_none();
    stages.iter().flat_map(|stage| &stage.params).filter(untrained).map(|place| place.weight)
}

impl<T: Transport> Rank<'_, T> {
    /// A step begins that may have to be undone.
    pub(super) fn remember(&mut self) {
        self.gradient_guard.bad = None;
        if !self.gradient_guard.skips {
            return;
        }
        let program = self.program;
        if self.arena.is_distant() {
            let regions: Slices<Region> = statistics(&program.stages).collect();
            return self.arena.compute(&regions, &[], |device| device.save(&regions));
        }
        self.gradient_guard.statistics.clear();
        for region in statistics(&program.stages) {
            self.gradient_guard.statistics.extend_from_slice(self.arena.floats(region));
        }
    }

    /// A step of training is over: the next one's factor of the loss follows.
    pub(super) fn rescale(&mut self) {
        let skipped = self.gradient_guard.bad.is_some();
        self.gradient_guard.skipped += u64::from(skipped);
        if let Some(scale) = &mut self.gradient_guard.loss_scale {
            scale.count(skipped);
        }
    }

    /// Steps that were skipped before this run began.
    pub fn set_skipped(&mut self, steps: u64) {
        self.gradient_guard.skipped = steps;
    }

    /// The factor of the next step's loss, where it has one: all that a checkpoint keeps of it.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.gradient_guard.loss_scale
    }

    /// Sets it, where the loss has one.
    pub fn set_loss_scale(&mut self, scale: LossScale) {
        self.gradient_guard.loss_scale = self.gradient_guard.loss_scale.map(|_| scale);
    }

    /// Adds what this rank knows of the gradient. One rank speaks for a parameter, or a shard of one, that several
    /// hold; of one that they divide each for its part.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn look_at_gradients(&mut self) -> Result<(), DeviceError> {
        let (program, graph, mesh) = (self.program, self.graph, self.plan.mesh());
        let replica = self.replica.index;
        let speaks = |place: &&ParamPlace| replica < speakers(graph, mesh, place.param);
        let mine = program.stages.iter().filter(|stage| stage.first_copy);
        let params = mine
            .flat_map(|stage| stage.params.iter().filter(move |place| !is_divided(stage, place)))
            .filter(speaks);
        let params = params.chain(self.division.pieces.iter().flatten());
        let is_first = self.tensor.index == 0;
        let own = params.filter(|place| {
            tied_to(graph, place.param).is_none()
                && (is_first || graph.shards(place.param).is_some())
        });
        let gradients = own.filter_map(|place| Some((place.param.index(), place.gradient?)));
        if self.arena.is_distant() {
            let (params, regions): (Vec<usize>, Vec<Region>) = gradients.unzip();
            let mut sums = vec![0.0; regions.len()];
            self.arena.settle();
            self.arena.compute(&regions, &[], |device| device.squares(&regions, &mut sums));
            params
                .iter()
                .zip(sums)
                .for_each(|(param, sum)| self.gradient_guard.squares[*param] = sum);
            return self.arena.check();
        }
        for (param, gradient) in gradients {
            self.gradient_guard.squares[param] = squares(self.threads, self.arena.floats(gradient));
        }
        Ok(())
    }

    /// Undoes what the step has changed so far where it is to be skipped.
    pub(super) fn gradients_checked(&mut self) {
        if !self.gradient_guard.skips {
            return;
        }
        let skip = self.gradient_guard.bad.is_some();
        self.gradients.settle(skip);
        if !skip {
            return;
        }
        let program = self.program;
        if self.arena.is_distant() {
            let regions: Slices<Region> = statistics(&program.stages).collect();
            return self.arena.compute(&[], &regions, |device| device.restore(&regions));
        }
        let mut rest = &self.gradient_guard.statistics[..];
        for region in statistics(&program.stages) {
            let values = self.arena.floats(region);
            let (own, others) = rest.split_at(values.len());
            values.copy_from_slice(own);
            rest = others;
        }
    }
}
