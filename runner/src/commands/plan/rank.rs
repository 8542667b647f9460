//! Choices of a search as plans: each is predicted exactly, the fastest that fits comes first.

use super::{Chosen, Question, cuts, recompute};
use crate::args::{Order, Recompute};
use crate::commands::words::counted;
use crate::failure::{Code, Failure};
use pipewright_core::plan::{Draft, Plan, Program, StageProgram};
use pipewright_core::predict::{
    Borders, FitError, Prediction, Steady, USUAL, automatic_plan, best_split, plans, steady,
};
use pipewright_core::schedule::{Placement, ScheduleKind, Updates};
use pipewright_core::units::{Bytes, Nanos};

/// Choices whose recomputation is looked for: each takes a search of its own.
const FITTED: usize = 12;

/// Of these with one schedule on as many lanes: what is alike is about as fast.
const ALIKE: usize = 2;

/// Choices that are tried, where none of those fits.
const TRIED: usize = 24;

/// The fastest plans, whose cuts are made better, and whose order is where that is asked for.
const BETTERED: usize = 6;

/// A choice with its plan.
pub(in crate::commands) struct Ranked {
    /// As [`Choice::describe`](pipewright_core::predict::search::Choice::describe) says it.
    pub words: String,
    pub plan: Plan,
    pub prediction: Prediction,
    /// Where the schedule does not flush.
    steady: Option<Steady>,
}

impl Ranked {
    /// What plans are compared by: where the schedule does not flush, the time of a step once the pipeline
    /// is full.
    pub fn step(&self) -> Nanos {
        self.steady.map_or(self.prediction.timeline.step, |steady| steady.step)
    }

    /// Takes another plan in place of its own if that fits and is faster.
    fn better(&mut self, plan: Plan, prediction: Prediction) -> Result<bool, Failure> {
        let steady = steady(&plan, &prediction.timeline)?;
        let other = Self { words: self.words.clone(), plan, prediction, steady };
        let better = other.fits() && other.step() < self.step();
        if better {
            *self = other;
        }
        Ok(better)
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
    question: &Question,
    draft: &Draft,
    choices: Vec<Chosen>,
) -> Result<Vec<Ranked>, Failure> {
    let drafts = choices.iter().map(|chosen| chosen.draft(draft)).collect();
    let (mut all, mut impossible) = (vec![], None);
    for (chosen, made) in choices.into_iter().zip(plans(drafts)) {
        let (plan, prediction) = match made {
            Ok(made) => made,
            // Numbers that some schedule cannot have: another choice is as good.
            Err(error) => {
                impossible = impossible.or(Some(error));
                continue;
            }
        };
        let (plan, prediction) = match question.recompute {
            Recompute::None | Recompute::Auto => (plan, prediction),
            again => recompute::always(again, plan)?,
        };
        let steady = steady(&plan, &prediction.timeline)?;
        let mut words = chosen.words;
        words += &steady.map_or_else(String::new, staleness);
        all.push(Ranked { words, plan, prediction, steady });
    }
    let least = all.iter().map(Ranked::peak).min();
    let (mut fit, full): (Vec<Ranked>, Vec<Ranked>) = all.into_iter().partition(Ranked::fits);
    let memory_is_short = !full.is_empty();
    let refused = match question.recompute {
        Recompute::Auto => recompute_full(question, full, &mut fit)?,
        _ => None,
    };
    fit.sort_by_key(Ranked::step);
    for ranked in fit.iter_mut().take(BETTERED) {
        better_cuts(draft, ranked)?;
        if memory_is_short {
            roomy_cuts(question, draft, ranked)?;
        }
        if question.schedule == Some(Order::Automatic) {
            own_order(draft, ranked)?;
        }
    }
    fit.sort_by_key(Ranked::step);
    if let Some(best) = fit.first_mut() {
        longer(question, best);
        fit.dedup_by(|other, kept| other.plan == kept.plan);
        fit.iter_mut().for_each(|ranked| ranked.words = recomputing(&ranked.words, &ranked.plan));
        return Ok(fit);
    }
    Err(match (refused, least, impossible) {
        (Some(error), ..) => recompute::failure(&error),
        (None, Some(least), _) => nothing_fits(question, draft, least),
        (None, None, Some(error)) => {
            Failure::usage(format!("no choice of the search is a plan: {error}"))
        }
        (None, None, None) => Failure::usage("no choice of the search is a plan"),
    })
}

/// The words of a choice, which recomputes what the plan does and not what was estimated.
fn recomputing(words: &str, plan: &Plan) -> String {
    let name = format!(", {}", plan.schedule.name);
    let (before, after) = match words.split_once(", recompute ") {
        Some((before, estimated)) => {
            (before, estimated.split_once(" stages").map_or("", |(_, after)| after))
        }
        None => words.find(&name).map_or((words, ""), |at| words.split_at(at + name.len())),
    };
    let stages = plan.stages();
    match plan.recompute.iter().filter(|sequence| !sequence.0.is_empty()).count() {
        0 => format!("{before}{after}"),
        again => format!("{before}, recompute {again}/{stages} stages{after}"),
    }
}

/// What is said of a schedule without a flush.
fn staleness(steady: Steady) -> String {
    let updates = counted(steady.staleness, "update");
    format!(", no flush: the step of a full pipeline, weights up to {updates} old")
}

/// The draft that makes a plan again, if nothing is computed again in it.
fn again(draft: &Draft, plan: &Plan) -> Option<Draft> {
    plan.recompute.is_empty().then(|| drafted(draft, plan))
}

/// The draft that makes a plan again, but for what is computed again in it.
fn drafted(draft: &Draft, plan: &Plan) -> Draft {
    Draft {
        cuts: plan.cuts.clone(),
        micro_batches: plan.micro_batches,
        data_parallel: plan.data_parallel,
        communication: plan.communication.clone(),
        ..draft.clone()
    }
}

/// The plan with the best cuts between layers for its schedule.
fn better_cuts(draft: &Draft, ranked: &mut Ranked) -> Result<(), Failure> {
    let order = ranked.plan.schedule.clone();
    let Some(draft) = again(draft, &ranked.plan) else { return Ok(()) };
    let best = best_split(&draft, &order, Borders::Layers, USUAL / 4);
    let best = best.map_err(|e| Failure::usage(e.to_string()))?;
    if best.fits && best.step < ranked.step() {
        let (plan, prediction) = Draft { cuts: best.cuts, ..draft }.plan_in(order)?;
        ranked.better(plan, prediction)?;
    }
    Ok(())
}

/// The plan with the cuts that are best if there is room for all, and what must be computed again for it.
fn roomy_cuts(question: &Question, draft: &Draft, ranked: &mut Ranked) -> Result<(), Failure> {
    if question.recompute != Recompute::Auto {
        return Ok(());
    }
    let order = ranked.plan.schedule.clone();
    let draft = drafted(draft, &ranked.plan);
    let cuts = cuts::with_room(&draft, &order, Borders::Layers, USUAL / 4)?;
    let (plan, prediction) = Draft { cuts, ..draft }.plan_in(order)?;
    // What is computed again takes time besides.
    if prediction.timeline.step >= ranked.prediction.timeline.step {
        return Ok(());
    }
    match recompute::recompute(question, plan, prediction, recompute::GLANCE) {
        Ok((plan, prediction)) => ranked.better(plan, prediction).map(drop),
        Err(FitError::Memory { .. } | FitError::AsItIs { .. }) => Ok(()),
        Err(error) => Err(recompute::failure(&error)),
    }
}

/// The plan in an order that is made for it, if that is faster.
fn own_order(draft: &Draft, ranked: &mut Ranked) -> Result<(), Failure> {
    let Ok(kind) = ranked.plan.schedule.name.parse::<ScheduleKind>() else { return Ok(()) };
    if kind.placement() == Placement::TwoWay || kind.updates() != Updates::Synchronous {
        return Ok(());
    }
    let Some(draft) = again(draft, &ranked.plan) else { return Ok(()) };
    let found = automatic_plan(&draft, ranked.plan.lanes())?;
    let name = found.plan.schedule.name.clone();
    if ranked.better(found.plan, found.prediction)? {
        ranked.words = ranked.words.replacen(&format!(", {kind}"), &format!(", {name}"), 1);
    }
    Ok(())
}

/// Fits those of the plans that may become the fastest, or as many as it takes until one fits; why others do not.
fn recompute_full(
    question: &Question,
    full: Vec<Ranked>,
    fit: &mut Vec<Ranked>,
) -> Result<Option<FitError>, Failure> {
    let mut best = fit.iter().map(Ranked::step).min();
    let (mut tried, mut refused) = (0, None);
    for ranked in in_order_of_promise(full) {
        // What is computed again takes time: a plan that is no faster without it is none with it.
        if best.is_some_and(|best| ranked.step() >= best) {
            continue;
        }
        if tried == TRIED || tried >= FITTED && best.is_some() {
            break;
        }
        tried += 1;
        match recompute::recompute(question, ranked.plan, ranked.prediction, recompute::GLANCE) {
            Ok((plan, prediction)) => {
                let steady = steady(&plan, &prediction.timeline)?;
                let fitted = Ranked { plan, prediction, steady, ..ranked };
                best = best.min(Some(fitted.step())).or(Some(fitted.step()));
                fit.push(fitted);
            }
            Err(error @ (FitError::Memory { .. } | FitError::AsItIs { .. })) => {
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(recompute::failure(&error)),
        }
    }
    Ok(refused)
}

/// Plans that do not fit: first those that may be the fastest once they do, few of them alike, then the
/// others as the search has them.
fn in_order_of_promise(full: Vec<Ranked>) -> Vec<Ranked> {
    // A stage that computes all of its forward pass again takes about a third more, and twice that where both parts of a
    // backward pass need it.
    let promise = |ranked: &Ranked| {
        let memory = ranked.plan.cluster.device.memory;
        let lack = |program: &Program| {
            let goes = program.arena.saturating_sub(program.persistent);
            1000 * u128::from(program.arena.saturating_sub(memory).0) / u128::from(goes.0.max(1))
        };
        let programs = &ranked.prediction.programs;
        let lack = programs.iter().map(lack).max().unwrap_or(0);
        let splits =
            |stage: &StageProgram| (stage.input_gradient_end as usize) < stage.kernels.len();
        let is_split = programs.iter().flat_map(|program| &program.stages).any(splits);
        let thirds = if is_split { 2 } else { 1 };
        let step = u128::from(ranked.step().0);
        step + step * thirds * lack / 3000
    };
    let mut order: Vec<usize> = (0..full.len()).collect();
    order.sort_by_key(|at| promise(&full[*at]));
    let mut few: Vec<usize> = vec![];
    for at in order {
        let kind = |at: usize| (&full[at].plan.schedule.name, full[at].plan.lanes());
        let alike = few.iter().filter(|other| kind(**other) == kind(at)).count();
        if few.len() < FITTED && alike < ALIKE {
            few.push(at);
        }
    }
    let place = |at: usize| few.iter().position(|other| *other == at).unwrap_or(FITTED);
    let mut placed: Vec<(usize, Ranked)> = full.into_iter().enumerate().collect();
    placed.sort_by_key(|(at, _)| place(*at));
    placed.into_iter().map(|(_, ranked)| ranked).collect()
}

/// The same plan with a longer search for what is computed again, which has other luck.
fn longer(question: &Question, best: &mut Ranked) {
    if question.recompute != Recompute::Auto || best.plan.recompute.is_empty() {
        return;
    }
    let (plan, prediction) = (best.plan.clone(), best.prediction.clone());
    if let Ok((plan, prediction)) =
        recompute::recompute(question, plan, prediction, recompute::EFFORT)
        && prediction.timeline.step <= best.step()
    {
        (best.plan, best.prediction) = (plan, prediction);
    }
}

fn nothing_fits(question: &Question, draft: &Draft, least: Bytes) -> Failure {
    let memory = draft.cluster.device.memory;
    let again = match question.recompute {
        Recompute::None | Recompute::Selective => ", --recompute auto",
        Recompute::Auto | Recompute::Full => "",
    };
    let message = format!(
        "nothing fits: of the plans that were predicted the one that needs least memory needs {least} a \
         device, it has {memory}; use more devices, smaller micro-batches{again}, or --memory where yours \
         have more"
    );
    Failure::new(Code::Hardware, message)
}
