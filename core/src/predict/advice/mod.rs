//! Advice over a whole plan: other plans for the same network and mini-batch, each priced by simulation.
//!
//! An [`Advisor`] tries changes of one choice (micro-batches, schedule, cuts, precision, codec), what a search
//! over lanes, replicas, micro-batches and schedules finds together, and the best of these joined with each
//! other; a plan that does not fit is tried with recomputation too: of all that can be computed again, which is known
//! at once, and later of as little as a search finds. What it gives are plans, so whatever is said
//! of them holds when they are taken. It goes on one simulation at a time, so it can be stopped between any two.
//!
//! [`Advisor::bound`] says how much there is to gain at all: no plan in this precision on as many devices can be
//! faster than their share of the arithmetic.
//!
//! ```
//! use pipewright_core::cost::Cluster;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::plan::{Draft, Model};
//! use pipewright_core::predict::Advisor;
//!
//! let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, vec![5, 10, 14]);
//! let (plan, _) = draft.plan()?;
//! let mut advisor = Advisor::new(&plan)?;
//! while advisor.advance() {}
//! for better in advisor.advice() {
//!     assert!(better.fits && better.step <= advisor.now().step);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod candidates;
mod change;

use crate::order::sort_by_numbers;
pub use change::Change;
use change::changes;

use super::outline::LaidOut;
use super::{PredictError, fit, steady};
use crate::plan::{Plan, Sequence};
use crate::timeline::Timeline;
use crate::units::{Bytes, Nanos};
use candidates::{Wave, bound};
use change::within;
use std::collections::{BTreeSet, VecDeque};

/// Pieces of advice at most.
const ADVICE_MAX: usize = 5;

/// A step that is not shorter by more than one part in so many is no better.
const WORTH: u64 = 100;

/// Of equal steps, memory that is less by more than one part in so many is better.
const WORTH_BYTES: u64 = 5;

/// Moves for each node where a plan needs recomputation to fit.
const EFFORT: u64 = 20;

/// What a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// A step; of a schedule that does not flush, once the pipeline is full.
    pub step: Nanos,
    /// The most that a device reserves.
    pub peak: Bytes,
    /// Whether every device has that much.
    pub fits: bool,
}

/// Another plan that is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What it changes.
    pub changes: Vec<Change>,
    /// The plan, with its prediction.
    pub plan: Plan,
    /// What it takes.
    pub takes: Takes,
    /// Ranks more than the plan has.
    pub more_ranks: u32,
}

/// Looks for advice.
#[derive(Debug)]
pub struct Advisor {
    plan: Plan,
    now: Takes,
    drawn: Nanos,
    bound: Nanos,
    /// Plans to price next.
    todo: VecDeque<Plan>,
    /// Plans that do not fit as they are.
    unfit: VecDeque<Plan>,
    /// Whether one is known that fits with as much recomputation as it needs, or without.
    fitted: bool,
    waves: VecDeque<Wave>,
    /// Of plans that were priced.
    seen: BTreeSet<String>,
    found: Vec<Advice>,
    tried: u32,
}

impl std::ops::Deref for Advice {
    type Target = Takes;

    fn deref(&self) -> &Takes {
        &self.takes
    }
}

impl Advisor {
    /// Of a plan. One simulation.
    ///
    /// # Errors
    /// What does not fit together about the plan.
    pub fn new(plan: &Plan) -> Result<Self, PredictError> {
        let laid_out = LaidOut::new(plan)?;
        let again = recomputed(&laid_out);
        let outline = laid_out.outline(plan)?;
        let now = takes(plan, &outline.timeline)?;
        let bound = bound(plan)?;
        let mut seen = BTreeSet::new();
        seen.insert(key(plan));
        let mut advisor = Self {
            plan: plan.clone(),
            now,
            drawn: outline.timeline.step,
            bound,
            todo: VecDeque::new(),
            unfit: VecDeque::new(),
            fitted: false,
            waves: candidates::waves(plan, now.fits),
            seen,
            found: vec![],
            tried: 0,
        };
        if !now.fits && plan.recompute.is_empty() {
            advisor.recompute(plan.clone(), again);
        }
        Ok(advisor)
    }

    /// Prices one more plan, or makes a list of the next ones; false when nothing is left to try.
    pub fn advance(&mut self) -> bool {
        if let Some(plan) = self.todo.pop_front() {
            if self.seen.insert(key(&plan)) {
                self.price(plan);
            }
        } else if let Some(plan) = self.next_unfit() {
            self.fit(&plan);
        } else if let Some(wave) = self.waves.pop_front() {
            self.todo = wave.candidates(&self.plan, self.now.fits, &self.found).into();
        } else {
            return false;
        }
        true
    }

    /// The plan that is given recomputation next: while nothing is known that fits the one with the most
    /// micro-batches, which needs least, and none before it is there.
    fn next_unfit(&mut self) -> Option<Plan> {
        if self.found.iter().any(|advice| advice.fits) {
            return self.unfit.pop_front();
        }
        if self.waves.front() == Some(&Wave::Room) {
            return None;
        }
        let (at, _) = self.unfit.iter().enumerate().max_by_key(|(_, plan)| plan.micro_batches)?;
        self.unfit.remove(at)
    }

    /// Takes the plan if it is better. Where it does not fit, and nothing else does, it is tried with recomputation.
    fn price(&mut self, mut plan: Plan) {
        self.tried += 1;
        let Ok(laid_out) = LaidOut::new(&plan) else { return };
        let fits = laid_out.peak() <= plan.cluster.device.memory;
        if !fits && (self.fitted || !plan.recompute.is_empty()) {
            return;
        }
        let again = recomputed(&laid_out);
        // Nothing has to be faster than what does not fit.
        if !fits && !self.now.fits {
            return self.recompute(plan, again);
        }
        let Ok(outline) = laid_out.outline(&plan) else { return };
        let Ok(priced) = takes(&plan, &outline.timeline) else { return };
        if !fits {
            if shorter(priced.step, self.now.step) {
                self.recompute(plan, again);
            }
            return;
        }
        self.fitted |= plan.recompute.is_empty() && self.is_better(&priced);
        plan.prediction = outline.expectation();
        self.take(plan, priced);
    }

    /// Tries a plan that does not fit with recomputation: with all that is computed `again` next, if nothing is known that
    /// fits; of as little as it needs when the others of its wave are priced.
    fn recompute(&mut self, plan: Plan, again: Vec<Sequence>) {
        if !self.found.iter().any(|advice| advice.fits) {
            self.todo.push_front(Plan { recompute: again, ..plan.clone() });
        }
        self.unfit.push_back(plan);
    }

    /// Takes the plan with as little recomputation as it needs, unless another one fits by now.
    fn fit(&mut self, plan: &Plan) {
        // What changes least is of interest even then.
        if self.fitted && *plan != self.plan {
            return;
        }
        let Ok((plan, prediction)) = fit(plan, EFFORT) else { return };
        let Ok(priced) = takes(&plan, &prediction.timeline) else { return };
        self.fitted |= self.is_better(&priced);
        self.take(plan, priced);
    }

    /// Takes a plan that knows its prediction, if it is better.
    fn take(&mut self, plan: Plan, priced: Takes) {
        if self.is_better(&priced) {
            let changes = changes(&self.plan, &plan);
            let more_ranks = plan.ranks().saturating_sub(self.plan.ranks());
            self.found.push(Advice { changes, plan, takes: priced, more_ranks });
        }
    }

    fn is_better(&self, other: &Takes) -> bool {
        let now = &self.now;
        if !now.fits || !other.fits {
            return other.fits;
        }
        let less = other.peak.0 + now.peak.0 / WORTH_BYTES < now.peak.0;
        let as_short = other.step.0 <= now.step.0;
        shorter(other.step, now.step) || (as_short && less)
    }

    /// What the plan itself takes.
    pub fn now(&self) -> Takes {
        self.now
    }

    /// The end of the plan's timeline; not its step where the schedule does not flush.
    pub fn drawn(&self) -> Nanos {
        self.drawn
    }

    /// Plans that were priced.
    pub fn tried(&self) -> u32 {
        self.tried
    }

    /// No plan in this precision on as many devices has a shorter step: their share of the arithmetic of a
    /// mini-batch, as if nothing waited.
    pub fn bound(&self) -> Nanos {
        self.bound.min(self.now.step)
    }

    /// The best advice so far, five at most: on the plan's ranks and in its precision the fastest, the
    /// leanest of those that gain half as much, and another; the fastest in lower precision; the fastest on more devices. None changes more than
    /// another and gains no more.
    pub fn advice(&self) -> Vec<&Advice> {
        let mut all: Vec<&Advice> = self.found.iter().collect();
        shortest_first(&mut all);
        sort_by_numbers(&mut all, |advice| [advice.changes.len() as u64, 0]);
        let mut best: Vec<&Advice> = vec![];
        for advice in all {
            let covers = |known: &&Advice| {
                let as_good = !shorter(advice.step, known.step) && known.peak <= advice.peak;
                as_good && within(&known.changes, &advice.changes)
            };
            if !best.iter().any(covers) {
                best.push(advice);
            }
        }
        shortest_first(&mut best);
        let of = |rank: u8| best.iter().copied().filter(move |advice| advice.rank() == rank);
        // Half of what is to gain, in as little memory as that takes.
        let half =
            of(0).next().map_or(self.now.step, |best| Nanos(self.now.step.0.midpoint(best.step.0)));
        let lean = of(0).filter(|advice| advice.step <= half);
        let leanest = lean.min_by_key(|advice| (advice.peak, advice.step));
        let more = of(2).next().or(of(3).next());
        let first = [of(0).next(), leanest, of(1).next(), more];
        let mut chosen: Vec<&Advice> = vec![];
        // Others of the plan's own kind fill what is left, unless they change the same choices.
        for advice in first.into_iter().flatten().chain(of(0)) {
            let alike = |known: &&Advice| {
                within(&known.changes, &advice.changes) && within(&advice.changes, &known.changes)
            };
            let is_first = first.contains(&Some(advice));
            let wanted = is_first || !chosen.iter().any(alike);
            if chosen.len() < ADVICE_MAX && wanted && !chosen.contains(&advice) {
                chosen.push(advice);
            }
        }
        shortest_first(&mut chosen);
        sort_by_numbers(&mut chosen, |advice| [advice.rank().into(), 0]);
        chosen
    }
}

impl Advice {
    /// What it asks for: nothing but other choices, lower precision, more devices, both.
    fn rank(&self) -> u8 {
        let alters = self.changes.iter().any(Change::alters_training);
        u8::from(alters) + if self.more_ranks > 0 { 2 } else { 0 }
    }
}

fn shortest_first(advice: &mut Vec<&Advice>) {
    sort_by_numbers(advice, |advice| [advice.step.0, advice.peak.0]);
}

/// Whether a step is shorter than another by more than noise.
fn shorter(step: Nanos, than: Nanos) -> bool {
    step.0 + than.0 / WORTH < than.0
}

fn takes(plan: &Plan, timeline: &Timeline) -> Result<Takes, PredictError> {
    let step = steady(plan, timeline)?.map_or(timeline.step, |steady| steady.step);
    let peak = timeline.peak().map_or(Bytes::ZERO, |(_, bytes)| bytes);
    Ok(Takes { step, peak, fits: peak <= plan.cluster.device.memory })
}

/// Everything computed again that stages can, in each part of the backward pass: that fits if anything does.
fn recomputed(laid_out: &LaidOut) -> Vec<Sequence> {
    laid_out.graphs.iter().map(Sequence::full_in_each_part).collect()
}

/// What tells two plans of one question apart.
fn key(plan: &Plan) -> String {
    let Plan { cuts, micro_batches, data_parallel, training, communication, .. } = plan;
    let (replicas, name) = (data_parallel.replicas, &plan.schedule.name);
    let again: Vec<String> = plan.recompute.iter().map(ToString::to_string).collect();
    let (precision, gradients) = (training.precision.word(), communication.gradients);
    format!("{cuts:?} {micro_batches} {replicas} {name} {again:?} {precision} {gradients}")
}
