//! One training: virtual ranks, each a whole pipeline, step after step.
//!
//! Every rank executes the actions of the schedule on its own part of the mini-batch; what a micro-batch
//! leaves behind is kept until its backward pass. Then the gradients of all ranks are summed as the
//! codec has it, and all take the same step of SGD with momentum.

use super::network::{Network, loss};
use super::pipeline::Pipeline;
use super::sums::{Sums, plain};
use pipewright_core::compress::{CodecError, Reduction};
use pipewright_core::schedule::{Action, ActionKind, Updates};
use std::ops::Range;
use std::sync::Arc;

/// What stays the same from step to step.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The layers.
    pub network: Arc<Network>,
    /// Their stages and the order of actions.
    pub pipeline: Arc<Pipeline>,
    /// Virtual ranks, each with a whole pipeline.
    pub ranks: usize,
    /// Learning rate.
    pub rate: f32,
    /// Share of the last update that stays.
    pub momentum: f32,
}

/// A mini-batch.
pub struct Batch<'a> {
    /// Two coordinates a sample.
    pub points: &'a [f32],
    /// A class each.
    pub classes: &'a [u8],
}

/// What one micro-batch of a rank leaves behind.
#[derive(Clone, Default)]
struct Slot {
    /// By layer: what comes in; then the scores.
    values: Vec<Vec<f32>>,
    /// By layer: the gradient of its sums.
    sums: Vec<Vec<f32>>,
    /// By layer: the gradient of what comes in.
    back: Vec<Vec<f32>>,
}

/// The gradient of the last step, before and after the codec.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// The sum in single precision.
    pub exact: Vec<f32>,
    /// What all ranks received.
    pub received: Vec<f32>,
}

/// A training under way.
pub struct Trainer {
    recipe: Recipe,
    sums: Sums,
    /// The newest parameters.
    pub parameters: Vec<f32>,
    /// Those of one update before: what two buffers compute with.
    before: Vec<f32>,
    velocity: Vec<f32>,
    /// By rank and copy of the stages.
    gradients: Vec<Vec<f32>>,
    /// By rank, by micro-batch.
    slots: Vec<Vec<Slot>>,
    /// By stage and micro-batch: parameters of its forward pass, and how many updates they have had.
    stashed: Vec<Vec<(Vec<f32>, u64)>>,
    /// By stage: updates so far.
    updates: Vec<u64>,
    /// Most updates that a backward pass came behind the newest parameters, in the last step.
    pub staleness: u64,
    /// The last step's.
    pub seen: Gradients,
}

impl Trainer {
    /// A training from the first parameters of `seed`.
    ///
    /// # Errors
    /// A codec that cannot sum.
    pub fn new(recipe: &Recipe, way: Reduction, seed: u64) -> Result<Self, CodecError> {
        let parameters = recipe.network.first(seed);
        let count = parameters.len();
        let layers = recipe.network.layers.len();
        let copies = recipe.ranks * recipe.pipeline.copies();
        let slot = Slot {
            values: vec![vec![]; layers + 1],
            sums: vec![vec![]; layers],
            back: vec![vec![]; layers],
        };
        let micro_batches = recipe.pipeline.schedule.micro_batches as usize;
        let stages = recipe.pipeline.stages.len();
        Ok(Self {
            sums: Sums::new(way, &recipe.network, copies)?,
            before: parameters.clone(),
            parameters,
            velocity: vec![0.0; count],
            gradients: vec![vec![0.0; count]; copies],
            slots: vec![vec![slot; micro_batches]; recipe.ranks],
            stashed: vec![vec![(vec![], 0); micro_batches]; stages],
            updates: vec![0; stages],
            staleness: 0,
            seen: Gradients { exact: vec![0.0; count], received: vec![0.0; count] },
            recipe: recipe.clone(),
        })
    }

    /// One step; gives the mean loss of its samples.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn step(&mut self, batch: &Batch) -> Result<f64, CodecError> {
        let recipe = self.recipe.clone();
        let updates = recipe.pipeline.schedule.updates;
        let mut total = 0.0;
        self.staleness = 0;
        for action in &recipe.pipeline.order {
            total += self.act(*action, batch);
            let ends = matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight);
            if ends && updates == Updates::Stashed {
                let stage = action.stage.index();
                let (_, used) = self.stashed[stage][action.micro_batch.index()];
                self.staleness = self.staleness.max(self.updates[stage] - used);
                self.update(recipe.pipeline.stages[stage].clone())?;
                self.updates[stage] += 1;
            }
        }
        if updates == Updates::DoubleBuffered {
            self.staleness = u64::from(self.before != self.parameters);
            self.before.copy_from_slice(&self.parameters);
        }
        if updates != Updates::Stashed {
            self.update(0..recipe.network.layers.len())?;
        }
        Ok(total / batch.classes.len() as f64)
    }

    /// Executes an action on every rank; gives the loss of samples that came to their end.
    fn act(&mut self, action: Action, batch: &Batch) -> f64 {
        let Recipe { pipeline, ranks, .. } = self.recipe.clone();
        let micro_batches = pipeline.schedule.micro_batches as usize;
        let (stage, m) = (action.stage.index(), action.micro_batch.index());
        let places = self.places(&pipeline.stages[stage]);
        if action.kind == ActionKind::Forward && pipeline.schedule.updates == Updates::Stashed {
            let (kept, used) = &mut self.stashed[stage][m];
            kept.clear();
            kept.extend_from_slice(&self.parameters[places]);
            *used = self.updates[stage];
        }
        let each = batch.classes.len() / (ranks * micro_batches);
        let mut total = 0.0;
        for rank in 0..ranks {
            let first = (rank * micro_batches + m) * each;
            let part = first..first + each;
            match action.kind {
                ActionKind::Forward => self.forward(rank, stage, m, batch, part),
                ActionKind::Backward => {
                    total += self.back(rank, stage, m, batch, part);
                    self.weights(rank, stage, m);
                }
                ActionKind::BackwardInput => total += self.back(rank, stage, m, batch, part),
                ActionKind::BackwardWeight => self.weights(rank, stage, m),
            }
        }
        total
    }

    /// The parameters of some layers.
    fn places(&self, layers: &Range<usize>) -> Range<usize> {
        let all = &self.recipe.network.layers;
        all[layers.start].weights.start..all[layers.end - 1].biases.end
    }

    /// Brings the parameters that a micro-batch's passes of a stage take into `room`'s places.
    fn with_parameters<T>(
        &mut self,
        stage: usize,
        m: usize,
        work: impl FnOnce(&Network, &[f32], &mut Vec<Vec<Slot>>) -> T,
    ) -> T {
        let network = self.recipe.network.clone();
        match self.recipe.pipeline.schedule.updates {
            Updates::Synchronous => work(&network, &self.parameters, &mut self.slots),
            Updates::DoubleBuffered => work(&network, &self.before, &mut self.slots),
            Updates::Stashed => {
                let places = self.places(&self.recipe.pipeline.stages[stage]);
                // Only the stage's own are looked at.
                self.before[places].copy_from_slice(&self.stashed[stage][m].0);
                work(&network, &self.before, &mut self.slots)
            }
        }
    }

    fn forward(&mut self, rank: usize, stage: usize, m: usize, batch: &Batch, part: Range<usize>) {
        let layers = self.recipe.pipeline.stages[stage].clone();
        if layers.start == 0 {
            let first = &mut self.slots[rank][m].values[0];
            first.clear();
            first.extend_from_slice(&batch.points[2 * part.start..2 * part.end]);
        }
        self.with_parameters(stage, m, |network, parameters, slots| {
            let values = &mut slots[rank][m].values;
            for layer in layers {
                let (before, behind) = values.split_at_mut(layer + 1);
                network.forward(layer, parameters, &before[layer], &mut behind[0]);
            }
        });
    }

    /// Gradients of what comes in, from the stage behind or the loss, which is given back.
    fn back(
        &mut self,
        rank: usize,
        stage: usize,
        m: usize,
        batch: &Batch,
        part: Range<usize>,
    ) -> f64 {
        let layers = self.recipe.pipeline.stages[stage].clone();
        // An update averages over the samples that it is for.
        let samples = match self.recipe.pipeline.schedule.updates {
            Updates::Stashed => part.len() * self.recipe.ranks,
            _ => batch.classes.len(),
        };
        self.with_parameters(stage, m, |network, parameters, slots| {
            let Slot { values, sums, back } = &mut slots[rank][m];
            let last = network.layers.len() - 1;
            let mut total = 0.0;
            for layer in layers.rev() {
                if layer == last {
                    let (classes, share) = (&batch.classes[part.clone()], 1.0 / samples as f32);
                    total = loss(&values[last + 1], classes, share, &mut sums[last]);
                } else {
                    sums[layer].clear();
                    let gradient = &back[layer + 1];
                    sums[layer].extend_from_slice(gradient);
                    network.through_activation(&values[layer + 1], &mut sums[layer]);
                }
                if layer > 0 {
                    network.back(layer, parameters, &sums[layer], &mut back[layer]);
                }
            }
            total
        })
    }

    /// Adds the gradients of a stage's parameters to those of its copy.
    fn weights(&mut self, rank: usize, stage: usize, m: usize) {
        let Recipe { network, pipeline, .. } = &self.recipe;
        let copy = pipeline.schedule.route_of[m] as usize;
        let gradients = &mut self.gradients[rank * pipeline.copies() + copy];
        let Slot { values, sums, .. } = &self.slots[rank][m];
        for layer in pipeline.stages[stage].clone() {
            network.add(layer, &values[layer], &sums[layer], gradients);
        }
    }

    /// Sums the gradients of some layers over all ranks and takes a step with them.
    fn update(&mut self, layers: Range<usize>) -> Result<(), CodecError> {
        let places = self.places(&layers);
        plain(&self.gradients, places.clone(), &mut self.seen.exact[places.clone()]);
        for layer in layers {
            self.sums.add(layer, &self.gradients, &mut self.seen.received)?;
        }
        let Recipe { rate, momentum, .. } = self.recipe;
        for at in places.clone() {
            self.velocity[at] = momentum * self.velocity[at] + self.seen.received[at];
            self.parameters[at] -= rate * self.velocity[at];
        }
        for gradients in &mut self.gradients {
            gradients[places.clone()].fill(0.0);
        }
        Ok(())
    }

    /// Bytes that a rank has sent, in the mean.
    pub fn sent(&self) -> f64 {
        self.sums.sent()
    }

    /// What feedback carries over, as a multiple of the last gradient's norm.
    pub fn carried(&self) -> f64 {
        let norm = self.seen.exact.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        if norm > 0.0 { self.sums.carried() / norm } else { 0.0 }
    }

    /// A number of all bits of the parameters (FNV-1a).
    pub fn hash(&self) -> u64 {
        let bytes = self.parameters.iter().flat_map(|value| value.to_bits().to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}
