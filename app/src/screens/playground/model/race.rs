//! Trainings side by side: same data, same first weights, other codecs.

use super::choice::{Choice, Problem};
use super::data::{Data, Order};
use super::pipeline::Pipeline;
use super::trainer::{Batch, Recipe, Trainer};
use pipewright_core::compress::Reduction;
use pipewright_core::schedule::Updates;
use std::sync::Arc;

/// Points of a curve before every second is left out.
const POINTS_MAX: usize = 400;

/// A moment of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Steps so far.
    pub step: u64,
    /// Bytes that a rank has sent so far, in the mean.
    pub sent: f64,
    /// Time so far, in steps' computing: every step computes, and sends what it sends over the link.
    pub time: f64,
    /// Mean loss since the moment before; of the first step at the beginning.
    pub loss: f64,
    /// Share of test points that are classified right.
    pub accuracy: f64,
    /// What feedback carries over, as a multiple of the gradient's norm.
    pub carried: f64,
}

/// How a pipelined training stands beside one without pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twin {
    /// There is nothing to compare: one stage, one micro-batch.
    None,
    /// All parameters have the same bits: this is their hash.
    Same(u64),
    /// The largest difference of a parameter.
    Apart(f32),
}

/// One training.
pub struct Run {
    /// How gradients travel.
    pub way: Reduction,
    trainer: Trainer,
    twin: Option<Trainer>,
    /// From the beginning on, ever fewer.
    pub curve: Vec<Moment>,
    /// Losses since the last moment.
    losses: (f64, u32),
    /// It has left the numbers: at which step.
    pub lost: Option<u64>,
}

/// All of them.
pub struct Race {
    choice: Choice,
    /// What all share.
    pub recipe: Recipe,
    /// What is learnt.
    pub data: Data,
    test: Data,
    order: Order,
    /// Side by side.
    pub runs: Vec<Run>,
    /// Steps so far.
    pub step: u64,
    /// Steps between two moments.
    every: u64,
    room: Room,
}

#[derive(Default)]
struct Room {
    places: Vec<u32>,
    points: Vec<f32>,
    classes: Vec<u8>,
    values: [Vec<f32>; 2],
}

impl Race {
    /// Ready for the first step.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn new(choice: &Choice) -> Result<Self, Problem> {
        let recipe = choice.recipe()?;
        let noise = choice.noise as f64 / 100.0;
        let mut race = Self {
            data: Data::new(choice.set, noise, choice.seed, 1),
            test: Data::new(choice.set, noise, choice.seed, 2),
            order: Order::new(choice.seed),
            runs: choice.ways.iter().filter_map(|way| Run::new(&recipe, *way, choice)).collect(),
            recipe,
            step: 0,
            every: 1,
            room: Room::default(),
            choice: choice.clone(),
        };
        race.note();
        Ok(race)
    }

    /// One step of every training.
    pub fn advance(&mut self) {
        let samples = self.choice.batch as usize;
        let Room { places, points, classes, .. } = &mut self.room;
        self.order.batch(self.step, samples, places);
        self.data.gather(places, points, classes);
        let batch = Batch { points, classes };
        self.step += 1;
        for run in &mut self.runs {
            run.step(&batch, self.step);
        }
        if self.step.is_multiple_of(self.every) {
            self.note();
        }
    }

    /// Adds a moment to every curve.
    fn note(&mut self) {
        // Bytes of a step in single precision take the time of the link's slowness.
        let ranks = (self.recipe.ranks * self.recipe.pipeline.copies()) as f64;
        let plain = 8.0 * self.recipe.network.parameters() as f64 * (ranks - 1.0) / ranks;
        let a_byte = if plain > 0.0 { self.choice.slowness as f64 / plain } else { 0.0 };
        for run in &mut self.runs {
            let sent = run.trainer.sent();
            let shares = self.recipe.network.shares(
                &run.trainer.parameters,
                &self.test.points,
                &mut self.room.values,
            );
            let right = |(share, class): (&f32, &u8)| (*share > 0.5) == (*class == 1);
            let right = shares.iter().zip(&self.test.classes).filter(|p| right(*p)).count();
            let (loss, count) = std::mem::take(&mut run.losses);
            let loss = if count > 0 { loss / f64::from(count) } else { f64::NAN };
            run.curve.push(Moment {
                step: self.step,
                sent,
                time: self.step as f64 + sent * a_byte,
                loss,
                accuracy: if run.lost.is_some() {
                    f64::NAN
                } else {
                    right as f64 / shares.len() as f64
                },
                carried: run.trainer.carried(),
            });
        }
        if self.runs.first().is_some_and(|run| run.curve.len() > POINTS_MAX) {
            self.every *= 2;
            let every = self.every;
            self.runs.iter_mut().for_each(|r| r.curve.retain(|m| m.step.is_multiple_of(every)));
        }
    }

    /// The share of class 1 over the picture's square, from -1 to 1 in both directions, row by row from
    /// above, `side` values a row.
    pub fn picture(&self, run: usize, side: usize) -> Vec<f32> {
        let Some(run) = self.runs.get(run) else { return vec![] };
        let at = |i: usize| -1.0 + (2.0 * i as f32 + 1.0) / side as f32;
        let points: Vec<f32> =
            (0..side * side).flat_map(|i| [at(i % side), -at(i / side)]).collect();
        let mut room = [vec![], vec![]];
        self.recipe.network.shares(&run.trainer.parameters, &points, &mut room)
    }
}

impl Run {
    /// None where the codec cannot sum; what is chosen can.
    fn new(recipe: &Recipe, way: Reduction, choice: &Choice) -> Option<Self> {
        let layers = recipe.network.layers.len();
        let piped = choice.stages > 1 || choice.micro_batches > 1;
        let alone = Recipe { pipeline: Arc::new(Pipeline::alone(layers)), ..recipe.clone() };
        let twin = piped.then(|| Trainer::new(&alone, way, choice.seed).ok());
        Some(Self {
            way,
            trainer: Trainer::new(recipe, way, choice.seed).ok()?,
            twin: twin.flatten(),
            curve: vec![],
            losses: (0.0, 0),
            lost: None,
        })
    }

    fn step(&mut self, batch: &Batch, step: u64) {
        if self.lost.is_some() {
            return;
        }
        let loss = self.trainer.step(batch).unwrap_or(f64::NAN);
        if let Some(twin) = &mut self.twin {
            // It has the codec of the training itself, which has just worked.
            let _ = twin.step(batch);
        }
        if loss.is_finite() {
            self.losses = (self.losses.0 + loss, self.losses.1 + 1);
        } else {
            self.lost = Some(step);
        }
    }

    /// Its training.
    pub fn trainer(&self) -> &Trainer {
        &self.trainer
    }

    /// The newest moment.
    pub fn now(&self) -> Moment {
        self.curve.last().copied().unwrap_or_default()
    }

    /// How it stands beside the same training on one device without micro-batches.
    pub fn twin(&self) -> Twin {
        let Some(twin) = &self.twin else { return Twin::None };
        let (a, b) = (&self.trainer.parameters, &twin.parameters);
        if a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()) {
            return Twin::Same(self.trainer.hash());
        }
        Twin::Apart(a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
    }
}

/// Whether a pipeline trains the same bits as one device: every stage takes backward passes in the order
/// of micro-batches, and there is one copy of it.
pub fn keeps_bits(pipeline: &Pipeline) -> bool {
    use pipewright_core::schedule::ActionKind::{Backward, BackwardWeight};
    let schedule = &pipeline.schedule;
    let ends = |stage: usize| {
        let mine = pipeline.order.iter().filter(move |a| a.stage.index() == stage);
        mine.filter(|a| matches!(a.kind, Backward | BackwardWeight)).map(|a| a.micro_batch)
    };
    let in_order = (0..pipeline.stages.len()).all(|stage| ends(stage).is_sorted());
    schedule.updates == Updates::Synchronous && pipeline.copies() == 1 && in_order
}

#[cfg(test)]
#[path = "race_tests.rs"]
mod tests;
