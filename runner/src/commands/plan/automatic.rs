//! `--schedule automatic`: the order in which stages work.

use super::cuts::{Made, Said, exact, finished, usage, with_cuts};
use super::{Chosen, EXACT, Question, recompute};
use crate::args::Recompute;
use crate::failure::Failure;
use pipewright_core::plan::{Draft, Plan, ScheduleText};
use pipewright_core::predict::{
    AutomaticPlan, Borders, Prediction, USUAL, automatic_plan, best_split, named_orders,
};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

/// The best order of the stages, with the cuts that are best for it of those that are best for others.
pub(super) fn automatic(
    question: &Question,
    draft: &Draft,
    chosen: &Chosen,
    lanes: u32,
) -> Result<Made, Failure> {
    let found = best_order(draft, chosen, lanes)?;
    let recomputes = match question.recompute {
        Recompute::None => false,
        Recompute::Auto => worth(&found).0 > 0 || memory_decides(draft, chosen, &found),
        Recompute::Selective | Recompute::Full => true,
    };
    let said = Said { split: chosen.split, order_bound_ns: found.bound, ..Said::default() };
    if recomputes {
        return recomputing(question, draft, chosen, (found, said));
    }
    let named = found.named.map(|(kind, _)| kind.to_string());
    let named_step_ns = found.named.map(|(_, step)| step);
    let (plan, prediction) = again(question, found, recompute::EFFORT)?;
    Ok((plan, prediction, Said { named, named_step_ns, ..said }))
}

/// Whether a schedule by name is faster than what was found, but for the memory.
fn memory_decides(draft: &Draft, chosen: &Chosen, found: &AutomaticPlan) -> bool {
    let stages = found.plan.stages();
    named_orders(stages, found.plan.lanes(), chosen.micro_batches).into_iter().any(|kind| {
        let draft = Draft { schedule: kind, ..with_cuts(draft, &found.plan.cuts) };
        draft.plan().is_ok_and(|(_, prediction)| {
            let step = prediction.timeline.step;
            step < found.prediction.timeline.step && lacks(&prediction, &found.plan) > 0
        })
    })
}

/// The best order where nothing is computed again.
fn best_order(draft: &Draft, chosen: &Chosen, lanes: u32) -> Result<AutomaticPlan, Failure> {
    let cuts_for = |kind: ScheduleKind, stages: u32| -> Result<Vec<u32>, Failure> {
        let order = ScheduleText::of(kind, stages, chosen.micro_batches);
        let order = order.map_err(|e| Failure::usage(e.to_string()))?;
        best_split(draft, &order, Borders::Nodes, USUAL / 2).map(|best| best.cuts).map_err(usage)
    };
    let in_order = |cuts: &[u32]| {
        let found = automatic_plan(&with_cuts(draft, cuts), lanes);
        found.map_err(|e| Failure::usage(e.to_string()))
    };
    let mut tried = vec![chosen.cuts.clone()];
    let mut best = in_order(&chosen.cuts)?;
    if chosen.split != Some(EXACT) {
        return Ok(best);
    }
    let mut with_cuts_for = |kind: ScheduleKind, stages: u32, best: AutomaticPlan| {
        let cuts = cuts_for(kind, stages)?;
        if tried.contains(&cuts) {
            return Ok(best);
        }
        let found = in_order(&cuts)?;
        tried.push(cuts);
        Ok::<_, Failure>(if worth(&found) < worth(&best) { found } else { best })
    };
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        best = with_cuts_for(kind, lanes, best)?;
    }
    match best.named {
        // And those that are best for the schedule by name that is the fastest with these.
        Some((kind, _)) => with_cuts_for(kind, chosen.cuts.len() as u32 + 1, best),
        None => Ok(best),
    }
}

/// Of the order that was found and of the schedules by name the fastest, once each computes again what it must.
fn recomputing(
    question: &Question,
    draft: &Draft,
    chosen: &Chosen,
    (found, said): (AutomaticPlan, Said),
) -> Result<Made, Failure> {
    let stages = chosen.cuts.len() as u32 + 1;
    let lanes = found.plan.lanes();
    let cuts = [&chosen.cuts, &found.plan.cuts];
    let mut named: Vec<(Nanos, ScheduleKind)> = vec![];
    for kind in named_orders(stages, lanes, chosen.micro_batches) {
        let steps = cuts.into_iter().filter_map(|cuts| {
            let order = ScheduleText::of(kind, stages, chosen.micro_batches).ok()?;
            let draft = Draft { schedule: kind, ..with_cuts(draft, cuts) };
            let (_, prediction) = finished(question, draft, order, recompute::GLANCE).ok()?;
            Some(prediction.timeline.step)
        });
        named.extend(steps.min().map(|step| (step, kind)));
    }
    named.sort_by_key(|(step, _)| *step);
    let own = again(question, found, recompute::EFFORT);
    let mut best: Option<(ScheduleKind, Plan, Prediction)> = None;
    for (_, kind) in named.into_iter().take(WORTH) {
        let Ok((plan, prediction)) = by_name(question, draft, chosen, kind) else { continue };
        let step = prediction.timeline.step;
        if best.as_ref().is_none_or(|(_, _, best)| step < best.timeline.step) {
            best = Some((kind, plan, prediction));
        }
    }
    let Some((kind, plan, prediction)) = best else {
        return own.map(|(plan, prediction)| (plan, prediction, said));
    };
    let step = prediction.timeline.step;
    let said = Said { named: Some(kind.to_string()), named_step_ns: Some(step), ..said };
    match own {
        Ok((own, faster)) if faster.timeline.step < step => Ok((own, faster, said)),
        // With cuts of its own a schedule by name may have its layers in another order.
        _ => {
            let reordered = plan.model != draft.model;
            Ok((plan, prediction, Said { reordered, ..said }))
        }
    }
}

/// Schedules by name that get cuts of their own and a long search for what they compute again.
const WORTH: usize = 3;

/// The plan that is made where the schedule is asked for by name.
fn by_name(
    question: &Question,
    draft: &Draft,
    chosen: &Chosen,
    kind: ScheduleKind,
) -> Result<(Plan, Prediction), Failure> {
    let draft = Draft { schedule: kind, ..draft.clone() };
    if chosen.split == Some(EXACT) {
        let (plan, prediction, _) = exact(question, &draft, &chosen.in_order(kind))?;
        return Ok((plan, prediction));
    }
    let order = ScheduleText::of(kind, chosen.cuts.len() as u32 + 1, chosen.micro_batches);
    let order = order.map_err(|e| Failure::usage(e.to_string()))?;
    finished(question, draft, order, recompute::EFFORT)
}

/// The plan with the recomputation that was asked for.
fn again(
    question: &Question,
    found: AutomaticPlan,
    effort: u64,
) -> Result<(Plan, Prediction), Failure> {
    recompute::recompute(question, found.plan, found.prediction, effort)
        .map_err(|error| recompute::failure(&error))
}

/// Bytes that the fullest device lacks.
fn lacks(prediction: &Prediction, plan: &Plan) -> u64 {
    let most = prediction.programs.iter().map(|program| program.arena).max();
    most.unwrap_or_default().saturating_sub(plan.cluster.device.memory).0
}

/// What lacks, then the step.
fn worth(found: &AutomaticPlan) -> (u64, Nanos) {
    (lacks(&found.prediction, &found.plan), found.prediction.timeline.step)
}
