//! Cuts: what the command line leaves to the planner of a pipeline that is otherwise given.

use super::{Chosen, Question, automatic, recompute};
use crate::args::Recompute;
use crate::failure::Failure;
use pipewright_core::plan::{Draft, Model, Plan, ScheduleText};
use pipewright_core::predict::{
    BestSplit, Borders, Prediction, SplitError, USUAL, best_split, reordered,
};
use pipewright_core::units::{Bytes, Nanos};
use serde::Serialize;

/// Another order of layers has to shorten the step by more than one part in so many.
const ORDER_WORTH: u64 = 200;

/// What is said of the cuts, and of an order that was made for them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Said {
    /// `exact`, `balanced` or `uniform`; none where the cuts are given.
    pub(super) split: Option<&'static str>,
    /// Whether layers were put in another order for it.
    #[serde(rename = "split_reorders")]
    pub(super) reordered: bool,
    /// The step of the balanced split, where another was looked for.
    pub(super) balanced_step_ns: Option<Nanos>,
    #[serde(skip)]
    pub(super) balanced_fits: bool,
    /// No split of these stages in this order takes less.
    pub(super) split_bound_ns: Option<Nanos>,
    /// The fastest schedule by name, where one was made for the plan, and its step.
    pub(super) named: Option<String>,
    pub(super) named_step_ns: Option<Nanos>,
    /// No order of these stages takes less.
    pub(super) order_bound_ns: Option<Nanos>,
}

/// A plan as it was asked for, and what is said of it.
pub(super) type Made = (Plan, Prediction, Said);

/// The plan of what the command line says.
pub(super) fn as_given(
    question: &Question,
    draft: &Draft,
    chosen: &Chosen,
) -> Result<Made, Failure> {
    // What does not fit together here is the command line, not a file.
    let draft = chosen.draft(draft);
    let split = chosen.split;
    match chosen.automatic {
        Some(lanes) => automatic::automatic(question, &draft, chosen, lanes),
        None if split == Some(super::EXACT) => exact(question, &draft, chosen),
        None => {
            let (plan, prediction) = finished(question, draft, order(chosen)?, recompute::EFFORT)?;
            Ok((plan, prediction, Said { split, ..Said::default() }))
        }
    }
}

fn order(chosen: &Chosen) -> Result<ScheduleText, Failure> {
    let named =
        || ScheduleText::of(chosen.schedule, chosen.cuts.len() as u32 + 1, chosen.micro_batches);
    let text = chosen.order.clone().map_or_else(named, Ok);
    text.map_err(|e| Failure::usage(e.to_string()))
}

pub(super) fn usage(error: SplitError) -> Failure {
    Failure::usage(error.to_string())
}

/// The draft as a plan, with recomputation where it is asked for or needed.
pub(super) fn finished(
    question: &Question,
    draft: Draft,
    order: ScheduleText,
    effort: u64,
) -> Result<(Plan, Prediction), Failure> {
    let (plan, prediction) = draft.plan_in(order).map_err(|e| Failure::usage(e.to_string()))?;
    recompute::recompute(question, plan, prediction, effort)
        .map_err(|error| recompute::failure(&error))
}

/// The best split, or the balanced one or the best without a limit where recomputation makes that faster.
pub(super) fn exact(question: &Question, draft: &Draft, chosen: &Chosen) -> Result<Made, Failure> {
    let order = order(chosen)?;
    let mut best = best_split(draft, &order, Borders::Nodes, USUAL).map_err(usage)?;
    let mut cut = with_cuts(draft, &best.cuts);
    if let Some((other, model)) = in_other_order(draft, &order, &best)? {
        (best, cut) = (other, Draft { model, ..cut });
        cut.cuts.clone_from(&best.cuts);
    }
    let moved = cut.model != draft.model;
    let mut found = finished(question, cut, order.clone(), recompute::EFFORT);
    // Cuts that fit as they are may be uneven: recomputation between even ones takes less, then.
    let uneven = !best.balanced_fits && best.step > best.balanced;
    let recomputes = match question.recompute {
        Recompute::None => false,
        Recompute::Auto => !best.fits || uneven,
        Recompute::Selective | Recompute::Full => true,
    };
    if recomputes {
        let mut tried = if moved { vec![] } else { vec![best.cuts.clone()] };
        for cuts in [chosen.cuts.clone(), with_room(draft, &order, Borders::Nodes, USUAL)?] {
            if tried.contains(&cuts) {
                continue;
            }
            let other = with_cuts(draft, &cuts);
            tried.push(cuts);
            let other = finished(question, other, order.clone(), recompute::EFFORT);
            if faster(&other, &found) {
                found = other;
            }
        }
    }
    let (plan, prediction) = found?;
    let balanced = (!recomputes).then_some(best.balanced);
    let BestSplit { bound, .. } = best;
    let said = Said {
        split: chosen.split,
        reordered: plan.model != draft.model,
        balanced_step_ns: balanced,
        balanced_fits: best.balanced_fits,
        split_bound_ns: Some(bound),
        ..Said::default()
    };
    Ok((plan, prediction, said))
}

/// The cuts that are best if devices have all the memory there is.
pub(super) fn with_room(
    draft: &Draft,
    order: &ScheduleText,
    borders: Borders,
    effort: u64,
) -> Result<Vec<u32>, Failure> {
    let mut draft = draft.clone();
    draft.cluster.device.memory = Bytes(1 << 50);
    best_split(&draft, order, borders, effort).map(|best| best.cuts).map_err(usage)
}

/// Whether the first takes less than the second, or is at all.
fn faster(
    one: &Result<(Plan, Prediction), Failure>,
    other: &Result<(Plan, Prediction), Failure>,
) -> bool {
    match (one, other) {
        (Ok((_, one)), Ok((_, other))) => one.timeline.step < other.timeline.step,
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

/// The best split of the network with its layers in another order, if there is one that is worth it.
fn in_other_order(
    draft: &Draft,
    order: &ScheduleText,
    best: &BestSplit,
) -> Result<Option<(BestSplit, Model)>, Failure> {
    let Some(graph) = reordered(draft, order).map_err(usage)? else { return Ok(None) };
    let model = Model::Graph(graph);
    let other = Draft { model: model.clone(), ..draft.clone() };
    let Ok(mut other) = best_split(&other, order, Borders::Nodes, USUAL) else { return Ok(None) };
    // As with cuts inside of layers, for less the network stays as it was.
    let shorter = other.step.0 < best.step.0 - best.step.0 / ORDER_WORTH;
    (other.balanced, other.balanced_fits) = (best.balanced, best.balanced_fits);
    Ok((shorter && (other.fits || !best.fits)).then_some((other, model)))
}

pub(super) fn with_cuts(draft: &Draft, cuts: &[u32]) -> Draft {
    Draft { cuts: cuts.to_vec(), ..draft.clone() }
}

impl Said {
    /// The same without what is not so of the plan that became of it.
    pub(super) fn of(self, plan: &Plan, recoded: bool) -> Self {
        match (plan.stages(), recoded) {
            // Of one stage there are no cuts.
            (1, _) => Self { split: None, balanced_step_ns: None, split_bound_ns: None, ..self },
            // The bound is one of sums in single precision.
            (_, true) => Self { split_bound_ns: None, ..self },
            _ => self,
        }
    }

    /// A line about the cuts, and one about the order.
    pub(super) fn report(&self, plan: &Plan, step: Nanos) {
        if let Some(split) = self.split {
            let gain = match self.balanced_step_ns {
                Some(balanced) if step < balanced => {
                    format!(", {:.1} % faster than balanced", more(balanced, step))
                }
                Some(balanced) if step > balanced && !self.balanced_fits => {
                    format!(", for balanced ones, of {balanced}, do not fit")
                }
                Some(_) => ", as fast as balanced".into(),
                None => String::new(),
            };
            let bound = self.split_bound_ns.filter(|bound| bound.0 > 0).map_or_else(String::new, |bound| {
                let off = more(step, bound);
                format!("; no cuts take less than {bound}, so these are at most {off:.1} % from the best")
            });
            let order = if self.reordered { ", with layers in another order" } else { "" };
            note!("split: {split}{order}{gain}{bound}");
        }
        if let (Some(named), Some(other)) = (&self.named, self.named_step_ns) {
            let bound = self.order_bound_ns.map_or_else(String::new, |bound| {
                format!("; no order takes less than {bound}, messages and updates not counted")
            });
            match plan.schedule.name == *named {
                true => note!("order: {named}, which no order made for these stages beats{bound}"),
                false => note!(
                    "order: made for these stages, {:.1} % faster than {named}, the fastest by name that fits{bound}",
                    more(other, step)
                ),
            }
        }
    }
}

/// By how many per cent `a` is more than `b`.
fn more(a: Nanos, b: Nanos) -> f64 {
    100.0 * (a.secs() / b.secs() - 1.0)
}
