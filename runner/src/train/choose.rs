//! Choice of the way of gradients while training (Oyama 2017).
//!
//! Before some steps every way is tried: from the same state, on the same samples. Its learning curve
//! is extended to the next choice, and the way that gains most for its time goes on from where its
//! trial ended. All of a trial's time counts. Where there are several crews of ranks, they make the trials
//! side by side.

use super::step::{Stepped, step_once};
use super::{Context, TrainError};
use crate::checkpoint::ChoiceRecord;
use crate::execute::{Rank, RunError, Snapshot};
use crate::report::Choice;
use crate::transport::{ReduceOp, Transport, TransportError};
use pipewright_core::adapt::{History, Round, Trial};
use pipewright_core::plan::Choose;

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
            let ways = rank.gradient_reductions().iter();
            let way = ways.map(ToString::to_string).position(|way| way == known.way);
            rank.take_way(way.unwrap_or(0));
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
        let way = rank.gradient_reductions()[rank.way()].to_string();
        ChoiceRecord { way, history: self.history.clone() }
    }

    /// A round, for which the other crews are called.
    ///
    /// # Errors
    /// When a message fails.
    pub fn lead<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
    ) -> Result<Ended, TrainError> {
        next_round(rank, Some(Some(step))).map_err(lost(step))?;
        self.round(rank, context, step)
    }

    /// Tries every way from `step` on and leaves the rank where the chosen one's trial ended. All
    /// ranks together; crews share the trials.
    ///
    /// # Errors
    /// When a message fails.
    pub fn round<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
    ) -> Result<Ended, TrainError> {
        let begin = rank.transport.now_ns();
        let ways = rank.gradient_reductions().to_vec();
        if !self.try_all(rank, context, step, ways.len())? {
            rank.restore(&self.states[0]);
            return Ok(Ended::Interrupted);
        }
        let trial_ns = rank.transport.now_ns() - begin;
        let trial =
            |(way, stepped): (usize, &Vec<Stepped>)| self.shown(&ways[way].to_string(), stepped);
        let round = Round {
            step,
            every: self.choose.every,
            end: context.steps,
            samples: context.plan.mini_batch * context.predictions.unwrap_or(1),
            history: self.history.points().to_vec(),
            trials: self.trials.iter().enumerate().map(trial).collect(),
            trial_seconds: trial_ns as f64 / 1e9,
        };
        let chosen = round.decide().expect("there are ways, and their steps take time");
        let winner = self.agree(rank, step, chosen.winner())?;
        rank.take_way(winner);
        let crews = rank.transport.crew().1;
        let state = &mut self.states[winner + 1];
        share_state(rank, winner as u32 % crews, state).map_err(lost(step))?;
        rank.restore(state);
        let stepped = std::mem::take(&mut self.trials[winner]);
        let own_ns: u64 = stepped.iter().map(|stepped| stepped.record.step_ns).sum();
        // The chosen trial's steps are steps of the training; the rest of the time is the price.
        let spent_ns = (rank.transport.now_ns() - begin).saturating_sub(own_ns);
        let choice = Choice { step, way: ways[winner].to_string(), spent_ns, chosen };
        Ok(Ended::Chosen(Box::new(choice), stepped))
    }

    /// Makes all trials, each crew its share, side by side; what they gave is known to all. Whether
    /// none was interrupted.
    fn try_all<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
        ways: usize,
    ) -> Result<bool, TrainError> {
        let (crew, crews) = rank.transport.crew();
        self.states.resize_with(ways + 1, Snapshot::default);
        for state in &mut self.states {
            rank.save_into(state);
        }
        share_state(rank, 0, &mut self.states[0]).map_err(lost(step))?;
        let mut tried: Vec<Option<Vec<Stepped>>> = vec![None; ways];
        for way in (crew as usize..ways).step_by(crews as usize) {
            rank.restore(&self.states[0]);
            rank.take_way(way);
            tried[way] = self.trial(rank, context, step)?;
            rank.save_into(&mut self.states[way + 1]);
        }
        for (way, tried) in tried.iter_mut().enumerate() {
            share_steps(rank, way as u32 % crews, tried).map_err(lost(step))?;
        }
        let all: Option<Vec<Vec<Stepped>>> = tried.into_iter().collect();
        let complete = all.is_some();
        self.trials = all.unwrap_or_default();
        Ok(complete)
    }

    /// The choice of the first crew's first rank: clocks differ, and so might choices.
    fn agree<T: Transport>(
        &self,
        rank: &mut Rank<T>,
        step: u64,
        winner: usize,
    ) -> Result<usize, TrainError> {
        let mut winner = [if rank.transport.rank() == 0 { winner as f64 } else { -1.0 }];
        rank.transport.all_reduce(&mut winner, ReduceOp::Max).map_err(lost(step))?;
        let mut bytes = (winner[0] as u64).to_le_bytes();
        rank.transport.share_from(0, &mut bytes).map_err(lost(step))?;
        Ok(u64::from_le_bytes(bytes) as usize)
    }

    /// What a crew that is not the first does until training ends: its share of the trials.
    ///
    /// # Errors
    /// When a message fails.
    pub fn serve<T: Transport>(
        &mut self,
        rank: &mut Rank<T>,
        context: &Context,
    ) -> Result<(), TrainError> {
        while let Some(step) = next_round(rank, None).map_err(lost(0))? {
            // The curve so far is the first crew's, and so is the choice.
            self.round(rank, context, step)?;
        }
        Ok(())
    }

    /// The steps of one trial, up to one whose loss is no number; none after a signal.
    fn trial<T: Transport>(
        &self,
        rank: &mut Rank<T>,
        context: &Context,
        step: u64,
    ) -> Result<Option<Vec<Stepped>>, TrainError> {
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

fn lost(step: u64) -> impl Fn(TransportError) -> RunError {
    move |source| RunError::Agreement { step, source }
}

/// Tells the other crews of the next round, or of the end; they hear it by the same call, with `None`.
///
/// # Errors
/// When the message fails.
pub(super) fn next_round<T: Transport>(
    rank: &mut Rank<T>,
    tell: Option<Option<u64>>,
) -> Result<Option<u64>, TransportError> {
    // No step has the largest number.
    let mut bytes = tell.flatten().unwrap_or(u64::MAX).to_le_bytes();
    rank.transport.share_from(0, &mut bytes)?;
    let step = u64::from_le_bytes(bytes);
    Ok((step != u64::MAX).then_some(step))
}

/// All crews get the state that crew `from` has.
fn share_state<T: Transport>(
    rank: &mut Rank<T>,
    from: u32,
    state: &mut Snapshot,
) -> Result<(), TransportError> {
    rank.transport.share_from(from, &mut state.arena)?;
    rank.transport.share_from(from, bytemuck::cast_slice_mut(&mut state.carried))
}

/// All crews get the steps of a trial that crew `from` made; none where it was interrupted.
fn share_steps<T: Transport>(
    rank: &mut Rank<T>,
    from: u32,
    steps: &mut Option<Vec<Stepped>>,
) -> Result<(), TransportError> {
    if rank.transport.crew().1 == 1 {
        return Ok(());
    }
    let mut bytes = serde_json::to_vec(steps).expect("plain data");
    let mut len = (bytes.len() as u64).to_le_bytes();
    rank.transport.share_from(from, &mut len)?;
    bytes.resize(u64::from_le_bytes(len) as usize, 0);
    rank.transport.share_from(from, &mut bytes)?;
    *steps = serde_json::from_slice(&bytes).expect("written by the same program");
    Ok(())
}
