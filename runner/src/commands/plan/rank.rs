//! Choices of a search as plans: each is predicted exactly, the fastest that fits comes first.

use super::{Chosen, recompute};
use crate::args::{PlanArgs, Recompute};
use crate::failure::{Code, Failure};
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::predict::{FitError, Prediction, plans};
use pipewright_core::units::{Bytes, Nanos};

/// Choices on the search's front and beside it whose recomputation is looked for: each takes a search of
/// its own.
const FITTED: [usize; 2] = [8, 4];

/// Of these with one schedule: estimates err alike for alike choices.
const ALIKE: usize = 2;

/// Choices that are tried, where none of those fits.
const TRIED: usize = 24;

/// A choice with its plan.
pub(super) struct Ranked {
    /// As [`Choice::describe`](pipewright_core::predict::search::Choice::describe) says it.
    pub words: String,
    /// See [`Chosen::on_front`].
    on_front: bool,
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
        all.push(Ranked { words: chosen.words, on_front: chosen.on_front, plan, prediction });
    }
    let least = all.iter().map(Ranked::peak).min();
    let (mut fit, full): (Vec<Ranked>, Vec<Ranked>) = all.into_iter().partition(Ranked::fits);
    let mut refused = None;
    if args.recompute() == Recompute::Auto {
        let (worth, others) = worth_fitting(full);
        let sure = worth.len();
        for (at, ranked) in worth.into_iter().chain(others).take(TRIED).enumerate() {
            if at >= sure && !fit.is_empty() {
                break;
            }
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

/// Choices that are worth a search for recomputation, by their estimates, and the others.
fn worth_fitting(full: Vec<Ranked>) -> (Vec<Ranked>, Vec<Ranked>) {
    let (front, beside) = full.into_iter().partition(|ranked| ranked.on_front);
    let (mut worth, mut others) = (vec![], vec![]);
    for (group, most) in [front, beside].into_iter().zip(FITTED) {
        let (some, rest) = few_alike(group, most);
        worth.extend(some);
        others.extend(rest);
    }
    (worth, others)
}

/// The first `most`, few of them with one schedule, and the others.
fn few_alike(all: Vec<Ranked>, most: usize) -> (Vec<Ranked>, Vec<Ranked>) {
    let (mut few, mut others): (Vec<Ranked>, Vec<Ranked>) = (vec![], vec![]);
    for ranked in all {
        let name = |ranked: &Ranked| ranked.plan.schedule.name.clone();
        let alike = few.iter().filter(|other| name(other) == name(&ranked)).count();
        if few.len() < most && alike < ALIKE { &mut few } else { &mut others }.push(ranked);
    }
    (few, others)
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
