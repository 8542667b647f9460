//! Choice of the way of gradients while training (Oyama 2017).
//!
//! Before some steps every way is tried: from the same state, on the same samples. Its learning curve
//! is extended to the next choice, and the way that gains most for its time goes on from where its
//! trial ended. All of a trial's time counts.

use super::error::RunError;
use super::rank::Rank;
use super::step::{Stepped, step_once};
use super::train::Context;
use crate::checkpoint::ChoiceRecord;
use crate::report::Choice;
use crate::transport::{ReduceOp, Transport};
use pipewright_core::adapt::{History, Round, Trial};
use pipewright_core::plan::{Choose, Program, Region};
use pipewright_core::units::Bytes;

/// Points of a trial's learning curve, where it has as many steps.
const POINTS: u64 = 10;

/// What a run remembers between choices.
pub(super) struct Chooser<'a> {
    choose: &'a Choose,
    history: History,
    /// The state before the trials, then the one after each.
    states: Vec<Snapshot>,
    /// What the steps of each trial gave.
    trials: Vec<Vec<Stepped>>,
}

/// All that a rank carries from step to step.
#[derive(Default)]
struct Snapshot {
    arena: Vec<u8>,
    carried: Vec<f32>,
}

/// How a round ended.
pub(super) enum Ended {
    /// A way was chosen; its trial's steps have been made.
    Chosen(Box<Choice>, Vec<Stepped>),
    /// A signal came: the state is the one before the trials.
    Interrupted,
}

impl<'a> Chooser<'a> {
    /// Where the plan asks for choices; goes on with what was learned before, if anything.
    pub fn begin<T: Transport>(rank: &mut Rank<T>, context: &Context<'a>) -> Option<Self> {
        let choose = context.plan.communication.choose.as_ref().filter(|_| context.trains)?;
        let mut history = History::new(choose.trial.div_ceil(POINTS));
        if let Some(known) = &context.begun.choice {
            history = known.history.clone();
            let ways = rank.gradients.ways().iter();
            let way = ways.map(ToString::to_string).position(|way| way == known.way);
            rank.gradients.take(way.unwrap_or(0));
        }
        Some(Self { choose, history, states: vec![], trials: vec![] })
    }

    /// Whether to choose before `step`, when training ends after `steps`.
    pub fn is_due(&self, step: u64, steps: u64) -> bool {
        step.is_multiple_of(self.choose.every) && step + self.choose.trial <= steps
    }

    /// Adds a step that counts.
    pub fn learn(&mut self, step: u64, accuracy: f64) {
        self.history.push(step, accuracy);
    }

    /// What a checkpoint keeps.
    pub fn record<T: Transport>(&self, rank: &Rank<T>) -> ChoiceRecord {
        let way = rank.gradients.ways()[rank.gradients.way()].to_string();
        ChoiceRecord { way, history: self.history.clone() }
    }

    /// Tries every way from `step` on and leaves the rank where the chosen one's trial ended. All
    /// ranks together.
    ///
    /// # Errors
    /// When a message fails.
    pub fn round<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
    ) -> Result<Ended, RunError> {
        let begin = rank.transport.now_ns();
        let ways = rank.gradients.ways().to_vec();
        self.states.resize_with(ways.len() + 1, Snapshot::default);
        self.trials.clear();
        rank.save_into(&mut self.states[0]);
        for way in 0..ways.len() {
            if way > 0 {
                rank.restore(&self.states[0]);
            }
            rank.gradients.take(way);
            let Some(stepped) = self.trial(rank, context, step)? else {
                rank.restore(&self.states[0]);
                return Ok(Ended::Interrupted);
            };
            self.trials.push(stepped);
            rank.save_into(&mut self.states[way + 1]);
        }
        let trial_ns = rank.transport.now_ns() - begin;
        let trial =
            |(way, stepped): (usize, &Vec<Stepped>)| self.shown(&ways[way].to_string(), stepped);
        let round = Round {
            step,
            every: self.choose.every,
            end: context.plan.steps,
            samples: context.plan.mini_batch * context.predictions.unwrap_or(1),
            history: self.history.points().to_vec(),
            trials: self.trials.iter().enumerate().map(trial).collect(),
            trial_seconds: trial_ns as f64 / 1e9,
        };
        let chosen = round.decide().expect("there are ways, and their steps take time");
        // Clocks differ between ranks: the first one's choice is everybody's.
        let speaks = rank.transport.rank() == 0;
        let mut winner = [if speaks { chosen.winner() as f64 } else { -1.0 }];
        let at = |source| RunError::Agreement { step, source };
        rank.transport.all_reduce(&mut winner, ReduceOp::Max).map_err(at)?;
        let winner = winner[0] as usize;
        rank.gradients.take(winner);
        rank.restore(&self.states[winner + 1]);
        let stepped = std::mem::take(&mut self.trials[winner]);
        let own_ns: u64 = stepped.iter().map(|stepped| stepped.record.step_ns).sum();
        // The chosen trial's steps are steps of the training; the rest of the time is the price.
        let spent_ns = (rank.transport.now_ns() - begin).saturating_sub(own_ns);
        let choice = Choice { step, way: ways[winner].to_string(), spent_ns, chosen };
        Ok(Ended::Chosen(Box::new(choice), stepped))
    }

    /// The steps of one trial, up to one whose loss is no number; none after a signal.
    fn trial<T: Transport>(
        &self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
    ) -> Result<Option<Vec<Stepped>>, RunError> {
        let mut all = Vec::with_capacity(self.choose.trial as usize);
        let mut before = rank.transport.now_ns();
        for step in step..step + self.choose.trial {
            let stepped = step_once(rank, context, step, before)?;
            if stepped.stop {
                return Ok(None);
            }
            before += stepped.record.step_ns;
            let diverged = !stepped.loss.is_finite();
            all.push(stepped);
            if diverged {
                break;
            }
        }
        Ok(Some(all))
    }

    /// What a trial looks like to the choice.
    fn shown(&self, name: &str, stepped: &[Stepped]) -> Trial {
        let mut history = History::new(self.choose.trial.div_ceil(POINTS));
        let diverged = stepped.iter().any(|stepped| !stepped.loss.is_finite());
        for stepped in stepped.iter().filter(|_| !diverged) {
            history.push(stepped.record.step, stepped.record.accuracy.unwrap_or_default());
        }
        let mut times: Vec<u64> = stepped.iter().map(|stepped| stepped.record.step_ns).collect();
        times.sort_unstable();
        let seconds_per_step = times[times.len() / 2].max(1) as f64 / 1e9;
        let width = self.choose.trial.div_ceil(POINTS) as usize;
        let losses = stepped.chunks_exact(width).filter(|_| !diverged);
        let mean = |part: &[Stepped]| part.iter().map(|s| s.loss).sum::<f64>() / width as f64;
        Trial {
            name: name.into(),
            diverged,
            points: history.points().to_vec(),
            losses: losses.map(mean).collect(),
            seconds_per_step,
        }
    }
}

impl<T: Transport> Rank<'_, T> {
    /// The part of the arena that lasts from step to step.
    fn lasting_region(&self) -> Region {
        let Program { persistent, arena, exchange, .. } = self.program;
        Region { offset: Bytes::ZERO, bytes: *persistent - (*arena - exchange.offset) }
    }

    fn save_into(&mut self, state: &mut Snapshot) {
        let region = self.lasting_region();
        state.arena.clear();
        state.arena.extend_from_slice(self.arena.raw(region));
        state.carried.clear();
        self.gradients.carried(|carried| state.carried.extend_from_slice(carried.values));
    }

    fn restore(&mut self, state: &Snapshot) {
        let region = self.lasting_region();
        self.arena.raw_mut(region).copy_from_slice(&state.arena);
        let mut rest = &state.carried[..];
        self.gradients.carried(|carried| {
            let (own, behind) = rest.split_at(carried.values.len());
            carried.values.copy_from_slice(own);
            rest = behind;
        });
    }
}
