//! The choice of a person, and what is wrong with it.

use super::data::Set;
use super::network::{Activation, Network};
use super::pipeline::{Pipeline, Refusal};
use super::trainer::Recipe;
use crate::base::texts::{t, tr};
use pipewright_core::compress::{CodecKind, Reduction, Rounding, Scale, Threshold};
use pipewright_core::schedule::{GenerateError, ScheduleKind};
use std::sync::Arc;

/// Trainings side by side, at most.
pub const RUNS_MAX: usize = 4;

const fn e5m2(rounding: Rounding, scale: Scale) -> CodecKind {
    CodecKind::Fp8E5m2 { rounding, scale }
}

/// What is offered, from the safest to the smallest; links may name other settings.
pub const CODECS: [CodecKind; 24] = [
    CodecKind::Fp32,
    CodecKind::Fp16,
    CodecKind::Bf16,
    e5m2(Rounding::NearestEven, Scale::PowerOfTwo),
    e5m2(Rounding::Truncate, Scale::PowerOfTwo),
    e5m2(Rounding::Truncate, Scale::None),
    e5m2(Rounding::Saturating, Scale::Percentile),
    CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo },
    CodecKind::Fp8E4m3 { scale: Scale::Block(16) },
    CodecKind::Int8 { block: None },
    CodecKind::Int8 { block: Some(16) },
    CodecKind::Table { bits: 8 },
    CodecKind::Table { bits: 4 },
    CodecKind::Table { bits: 2 },
    CodecKind::Table { bits: 1 },
    CodecKind::TableMean { bits: 4 },
    CodecKind::TableMean { bits: 2 },
    CodecKind::TableMean { bits: 1 },
    CodecKind::CntkBits { bits: 4 },
    CodecKind::CntkBits { bits: 2 },
    CodecKind::OneBit { threshold: Threshold::Zero },
    CodecKind::OneBit { threshold: Threshold::Mean },
    CodecKind::SignNorm,
    CodecKind::TopK { one_in: 20, momentum: None },
];

/// Learning rates that are offered.
pub const RATES: [f32; 7] = [0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0];
/// Momenta that are offered.
pub const MOMENTA: [f32; 3] = [0.0, 0.5, 0.9];
/// Powers of two: ranks, and what divides a mini-batch among them.
pub const RANKS: [u64; 5] = [1, 2, 4, 8, 16];
/// Samples of a step.
pub const BATCHES: [u64; 6] = [8, 16, 32, 64, 128, 256];
/// Micro-batches of a step.
pub const MICRO_BATCHES: [u64; 5] = [1, 2, 4, 8, 16];
/// Most hidden layers.
pub const LAYERS_MAX: u64 = 7;
/// Widths of hidden layers.
pub const WIDTHS: [u64; 7] = [2, 3, 4, 6, 8, 12, 16];
/// How long the sum takes in single precision, in steps' computing.
pub const SLOWNESS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Most noise, in hundredths.
pub const NOISE_MAX: u64 = 30;

/// Everything that a training follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// How the classes lie.
    pub set: Set,
    /// Deviation of the noise, in hundredths.
    pub noise: u64,
    /// Of points, their order and first parameters.
    pub seed: u64,
    /// Hidden layers.
    pub layers: u64,
    /// Their width.
    pub width: u64,
    /// Between them.
    pub activation: Activation,
    /// Learning rate.
    pub rate: f32,
    /// Share of the last update that stays.
    pub momentum: f32,
    /// Samples of a step.
    pub batch: u64,
    /// Virtual ranks, each with a pipeline.
    pub ranks: u64,
    /// Stages of a pipeline.
    pub stages: u64,
    /// Micro-batches of a rank and step.
    pub micro_batches: u64,
    /// Order of their passes.
    pub schedule: ScheduleKind,
    /// How long the sum of gradients takes in single precision, in steps' computing.
    pub slowness: u64,
    /// How gradients travel, a training each.
    pub ways: Vec<Reduction>,
}

/// The control that a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Stages.
    Stages,
    /// Schedule or micro-batches.
    Schedule,
    /// Mini-batch.
    Batch,
}

/// What is wrong, and a way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where to say it.
    pub control: Control,
    /// A sentence.
    pub text: String,
    /// A choice that works, and its button.
    pub fix: Option<(String, Box<Choice>)>,
}

impl Default for Choice {
    fn default() -> Self {
        super::presets::ALL[0].choice()
    }
}

impl Choice {
    /// The network and how a step of it is executed.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn recipe(&self) -> Result<Recipe, Problem> {
        let hidden = vec![self.width as usize; self.layers as usize];
        let network = Network::new(&hidden, self.activation);
        let (stages, m) = (self.stages as u32, self.micro_batches as u32);
        let pipeline = Pipeline::new(self.schedule, stages, network.layers.len(), m);
        let pipeline = pipeline.map_err(|refusal| self.problem(refusal))?;
        let least = self.ranks * self.micro_batches;
        if !self.batch.is_multiple_of(least) {
            let text = tr!(
                "{samples} samples are not enough for {ranks} ranks with {micro} micro-batches each.",
                samples = self.batch,
                ranks = self.ranks,
                micro = self.micro_batches
            );
            let fits = BATCHES.into_iter().find(|b| b.is_multiple_of(least) && *b >= self.batch);
            let fix = fits.map(|batch| {
                let to = Choice { batch, ..self.clone() };
                (tr!("Use {batch} samples", batch), Box::new(to))
            });
            return Err(Problem { control: Control::Batch, text, fix });
        }
        Ok(Recipe {
            network: Arc::new(network),
            pipeline: Arc::new(pipeline),
            ranks: self.ranks as usize,
            rate: self.rate,
            momentum: self.momentum,
        })
    }

    /// Whether there is a [`Choice::recipe`].
    fn fits(&self) -> bool {
        let layers = self.layers as usize + 1;
        let (stages, m) = (self.stages as u32, self.micro_batches as u32);
        BATCHES.contains(&self.batch)
            && self.batch.is_multiple_of(self.ranks * self.micro_batches)
            && Pipeline::new(self.schedule, stages, layers, m).is_ok()
    }

    fn problem(&self, refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Layers { stages, layers } => {
                let text = tr!(
                    "{stages} stages need at least as many layers; there are {layers}.",
                    stages,
                    layers
                );
                let fix = (u64::from(stages) - 1 <= LAYERS_MAX).then(|| {
                    let hidden = u64::from(stages) - 1;
                    let to = Choice { layers: hidden, ..self.clone() };
                    (tr!("Use {hidden} hidden layers", hidden), Box::new(to))
                });
                Problem { control: Control::Stages, text, fix }
            }
            Refusal::Schedule(why) => {
                let control = match why {
                    GenerateError::Stages { .. } => Control::Stages,
                    _ => Control::Schedule,
                };
                Problem { control, text: why.to_string(), fix: self.nearest() }
            }
            Refusal::Stuck => {
                let text = t("Lanes of this schedule would wait for each other.").to_owned();
                Problem { control: Control::Schedule, text, fix: None }
            }
        }
    }

    /// The fewest other stages and micro-batches with which the schedule works.
    fn nearest(&self) -> Option<(String, Box<Choice>)> {
        let stages = (self.stages..=self.layers + 1).chain((1..self.stages).rev());
        let micro = MICRO_BATCHES.into_iter().filter(|m| *m >= self.micro_batches);
        let pairs = stages.flat_map(|s| micro.clone().map(move |m| (s, m)));
        let mut choices = pairs.map(|(stages, micro_batches)| {
            let batch = self.batch.max(self.ranks * micro_batches);
            Choice { stages, micro_batches, batch, ..self.clone() }
        });
        let to = choices.find(Choice::fits)?;
        let (stages, micro, batch) = (to.stages, to.micro_batches, to.batch);
        let same = (stages == self.stages, micro == self.micro_batches, batch == self.batch);
        let text = match same {
            (true, _, true) => tr!("Use {micro} micro-batches", micro),
            (_, true, true) => tr!("Use {stages} stages", stages),
            (_, _, true) => tr!("Use {stages} stages and {micro} micro-batches", stages, micro),
            _ => tr!(
                "Use {stages} stages, {micro} micro-batches and {batch} samples",
                stages,
                micro,
                batch
            ),
        };
        Some((text, Box::new(to)))
    }

    /// Another way for training `at`; single precision loses nothing, so it has no feedback.
    pub fn set_way(&mut self, at: usize, way: Reduction) {
        if let Some(old) = self.ways.get_mut(at) {
            *old = sound(way);
        }
    }

    /// One training more, by the first way that none has.
    pub fn add_way(&mut self) {
        let mut offered = CODECS.into_iter().map(Reduction::of);
        let new = offered.find(|way| !self.ways.contains(way));
        if let Some(way) = new.filter(|_| self.ways.len() < RUNS_MAX) {
            self.ways.push(way);
        }
    }
}

/// The way without what it cannot have.
fn sound(way: Reduction) -> Reduction {
    match way.fault() {
        Some(_) => Reduction::of(way.method.codec),
        None => way,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offered_codec_sums_with_and_without_feedback() {
        for codec in CODECS {
            assert_eq!(Reduction::of(codec).fault(), None, "{codec}");
            let other = CODECS.iter().filter(|other| **other == codec).count();
            assert_eq!(other, 1, "{codec} is offered once");
        }
        // All thirteen but the one that no exchange of pieces can have.
        let mut names: Vec<String> = CODECS
            .iter()
            .map(|codec| codec.to_string().split(':').next().unwrap().to_owned())
            .collect();
        names.dedup();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 12, "{names:?}");
    }

    #[test]
    fn what_does_not_fit_is_said_with_a_way_out_that_works() {
        let usual = Choice::default();
        assert!(usual.recipe().is_ok());
        let interleaved = ScheduleKind::Interleaved { chunks: 2 };
        let wrong = [
            (Choice { stages: 6, layers: 2, ..usual.clone() }, Control::Stages),
            (Choice { ranks: 16, micro_batches: 8, batch: 64, ..usual.clone() }, Control::Batch),
            (
                Choice { schedule: interleaved, stages: 3, layers: 3, ..usual.clone() },
                Control::Stages,
            ),
            (
                Choice {
                    schedule: ScheduleKind::PipeDream2Bw,
                    stages: 4,
                    layers: 3,
                    micro_batches: 1,
                    ..usual.clone()
                },
                Control::Schedule,
            ),
        ];
        for (choice, control) in wrong {
            let problem = choice.recipe().unwrap_err();
            assert_eq!(problem.control, control, "{}", problem.text);
            let (name, fixed) = problem.fix.expect("a way out");
            assert!(fixed.recipe().is_ok(), "{name}");
            assert_eq!((fixed.schedule, &fixed.ways), (choice.schedule, &choice.ways));
        }
    }

    #[test]
    fn ways_stay_sound_and_few() {
        let mut choice = Choice::default();
        while choice.ways.len() < RUNS_MAX {
            choice.add_way();
        }
        choice.add_way();
        assert_eq!(choice.ways.len(), RUNS_MAX);
        choice.set_way(0, "one-bit+feedback".parse().unwrap());
        assert_eq!(choice.ways[0].to_string(), "one-bit+feedback");
        choice.set_way(0, Reduction::default().with_feedback());
        assert_eq!(choice.ways[0].to_string(), "fp32");
    }
}
