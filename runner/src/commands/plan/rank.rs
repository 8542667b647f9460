//! Choices of a search as plans: each is predicted exactly, the fastest that fits comes first.

use super::{Chosen, recompute};
use crate::args::{PlanArgs, Recompute};
use crate::failure::{Code, Failure};
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::predict::{FitError, Prediction, plans};
use pipewright_core::units::{Bytes, Nanos};

/// Choices whose recomputation is looked for: each takes a search of its own.
const FITTED: usize = 8;

/// Of these with one schedule: estimates err alike for alike choices.
const ALIKE: usize = 2;

/// A choice with its plan.
pub(super) struct Ranked {
    /// As [`Choice::describe`](pipewright_core::predict::search::Choice::describe) says it.
    pub words: String,
    /// Whether it fits by its estimate.
    likely: bool,
    pub plan: Plan,
    pub prediction: Prediction,
}

impl Ranked {
    pub fn step(&self) -> Nanos {
        self.prediction.timeline.step
    }

    /// Most memory of a device.
    pub fn peak(&self) -> Bytes {
        self.prediction.programs.iter().map(|program| program.arena).max().unwrap_or_default()
    }

    pub fn traffic(&self) -> Bytes {
        self.prediction.timeline.traffic()
    }

    pub fn bubble(&self) -> f64 {
        self.prediction.timeline.bubble()
    }

    fn fits(&self) -> bool {
        self.peak() <= self.plan.cluster.device.memory
    }
}

/// The plans of `choices` that fit the memory of their devices, by their predicted steps; at least one.
pub(super) fn rank(
    args: &PlanArgs,
    draft: &Draft,
    choices: Vec<Chosen>,
) -> Result<Vec<Ranked>, Failure> {
    let drafts = choices.iter().map(|chosen| chosen.draft(draft)).collect();
    let mut all = vec![];
    for (chosen, made) in choices.into_iter().zip(plans(drafts)) {
        // Numbers that some schedule cannot have: another choice is as good.
        let Ok((plan, prediction)) = made else { continue };
        let (plan, prediction) = match args.recompute() {
            Recompute::Full => recompute::full(plan)?,
            Recompute::None | Recompute::Auto => (plan, prediction),
        };
        all.push(Ranked { words: chosen.words, likely: chosen.fits, plan, prediction });
    }
    let least = all.iter().map(Ranked::peak).min();
    let (mut fit, full): (Vec<Ranked>, Vec<Ranked>) = all.into_iter().partition(Ranked::fits);
    let mut refused = None;
    if args.recompute() == Recompute::Auto {
        for ranked in worth_fitting(full) {
            match recompute::recompute(args, ranked.plan, ranked.prediction, recompute::GLANCE) {
                Ok((plan, prediction)) => fit.push(Ranked { plan, prediction, ..ranked }),
                Err(error @ (FitError::Memory { .. } | FitError::AsItIs { .. })) => {
                    refused = refused.or(Some(error));
                }
                Err(error) => return Err(recompute::failure(&error)),
            }
        }
    }
    fit.sort_by_key(Ranked::step);
    if let Some(best) = fit.first_mut() {
        longer(args, best);
        return Ok(fit);
    }
    Err(match (refused, least) {
        (Some(error), _) => recompute::failure(&error),
        (None, Some(least)) => nothing_fits(args, draft, least),
        (None, None) => Failure::usage("no choice of the search is a plan"),
    })
}

/// Choices that are worth a search for recomputation, by their estimates.
fn worth_fitting(mut full: Vec<Ranked>) -> Vec<Ranked> {
    full.sort_by_key(|ranked| !ranked.likely);
    let mut offered: Vec<Ranked> = vec![];
    for ranked in full {
        let schedule = |ranked: &Ranked| ranked.plan.schedule.name.clone();
        let alike = offered.iter().filter(|other| schedule(other) == schedule(&ranked)).count();
        if offered.len() < FITTED && alike < ALIKE {
            offered.push(ranked);
        }
    }
    offered
}

/// The same plan with a longer search for what is computed again, which has other luck.
fn longer(args: &PlanArgs, best: &mut Ranked) {
    if args.recompute() != Recompute::Auto || best.plan.recompute.is_empty() {
        return;
    }
    let (plan, prediction) = (best.plan.clone(), best.prediction.clone());
    if let Ok((plan, prediction)) = recompute::recompute(args, plan, prediction, recompute::EFFORT)
        && prediction.timeline.step <= best.step()
    {
        (best.plan, best.prediction) = (plan, prediction);
    }
}

fn nothing_fits(args: &PlanArgs, draft: &Draft, least: Bytes) -> Failure {
    let memory = draft.cluster.device.memory;
    let again = match args.recompute() {
        Recompute::None => ", --recompute auto",
        Recompute::Auto | Recompute::Full => "",
    };
    let message = format!(
        "nothing fits: of the plans that were predicted the one that needs least memory needs {least} a \
         device, it has {memory}; use more devices, smaller micro-batches{again}, or --memory where yours \
         have more"
    );
    Failure::new(Code::Hardware, message)
}
