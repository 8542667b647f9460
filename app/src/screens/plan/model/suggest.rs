//! Advice in words: what a better plan changes, and what that is worth.

use crate::base::format::{self, Delta};
use crate::base::texts::{t, tr};
use crate::planner::engine::Figures;
use pipewright_core::predict::Change;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::{Advised, Better};

/// `56 micro-batches, ZB-H1`
pub fn title(better: &Better) -> String {
    better.changes.iter().map(words).collect::<Vec<String>>().join(t(", "))
}

fn words(change: &Change) -> String {
    match change {
        Change::Lanes(1) => t("1 lane").into(),
        Change::Lanes(count) => tr!("{count} lanes", count),
        Change::Replicas(1) => t("1 replica").into(),
        Change::Replicas(count) => tr!("{count} replicas", count),
        Change::MicroBatches(1) => t("1 micro-batch").into(),
        Change::MicroBatches(count) => tr!("{count} micro-batches", count),
        Change::Schedule(name) => {
            name.parse::<pipewright_core::schedule::ScheduleKind>().map_or(name.clone(), |kind| {
                match kind.number() {
                    Some(number) => format!("{} ({number})", kind.title()),
                    None => kind.title().into(),
                }
            })
        }
        Change::Cuts { moved: 1 } => t("1 cut moved").into(),
        Change::Cuts { moved } => tr!("{moved} cuts moved", moved),
        Change::Recompute { stages: 0 } => t("no recomputation").into(),
        Change::Recompute { stages: 1 } => t("1 stage recomputes").into(),
        Change::Recompute { stages } => tr!("{stages} stages recompute", stages),
        Change::Precision(precision) => precision.word().into(),
        Change::Gradients(way) => tr!("gradients in {way}", way),
    }
}

/// What it asks for besides other choices: devices, or numerics that differ.
pub fn asks(better: &Better, ranks: u32) -> Option<String> {
    if better.more_ranks > 0 {
        return Some(tr!("on {ranks} devices", ranks = ranks + better.more_ranks));
    }
    better.changes.iter().any(Change::alters_training).then(|| t("lower precision").into())
}

/// What it is worth: `▼ 6 % step time` and `same memory`, or that it fits.
pub fn price(better: &Better, fits: bool, now: &Figures) -> (String, String) {
    let (step, peak) = (Nanos(better.plan.step), Bytes(better.plan.peak));
    let time = format::signed_percent(step.secs(), now.step.secs());
    if !fits {
        return (
            tr!("fits with {peak}", peak = format::bytes_text(peak)),
            tr!("{change} time", change = time),
        );
    }
    let first = match format::relative(step.secs(), now.step.secs()) {
        Delta::Same => t("same step time").into(),
        Delta::By { .. } => {
            let change = time.replace('−', "▼ ").replace('+', "▲ ");
            tr!("{change} step time", change)
        }
    };
    let second = match format::relative(peak.0 as f64, now.peak.0 as f64) {
        Delta::Same => t("same memory").into(),
        Delta::By { .. } => {
            let change = format::signed_percent(peak.0 as f64, now.peak.0 as f64);
            tr!("{change} memory", change)
        }
    };
    (first, second)
}

/// What stands there while nothing better is known, or where there is nothing.
pub fn none(advised: Option<&Advised>) -> (String, String) {
    match advised {
        None => (t("Searching for better plans").into(), String::new()),
        Some(advised) if !advised.done => {
            (t("Searching for better plans").into(), tr!("{count} tried", count = advised.tried))
        }
        Some(advised) if !advised.fits => (
            t("Nothing tried so far fits").into(),
            t("Use a cluster with more memory, or a smaller mini-batch.").into(),
        ),
        Some(advised) => {
            (tr!("None of {count} other plans is better", count = advised.tried), above(advised))
        }
    }
}

/// How far the best known plan is from what no plan can reach.
pub fn above(advised: &Advised) -> String {
    let same = advised.plans.iter().filter(|better| better.more_ranks == 0);
    let pure = same.filter(|better| !better.changes.iter().any(Change::alters_training));
    let best = pure.map(|better| better.plan.step).min().unwrap_or(advised.step).min(advised.step);
    let share = best as f64 / advised.bound.max(1) as f64 - 1.0;
    let share = format::percent(share, 0);
    match best < advised.step {
        true => tr!(
            "The best is {share} % above what these devices need for the arithmetic alone.",
            share
        ),
        false => {
            tr!("It is {share} % above what these devices need for the arithmetic alone.", share)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::found::take;
    use crate::planner::presets::{EXAMPLES, first};
    use pipewright_worker::Session;
    use pipewright_worker::protocol::{Reply, Request};

    fn advised(inputs: &crate::planner::inputs::Inputs) -> Advised {
        let mut session = Session::default();
        session.receive(Request::Advise { plan: inputs.question().unwrap() });
        while session.step(1) {}
        session.report();
        match session.take() {
            Some(Reply::Advice(advised)) => advised,
            other => panic!("{other:?}"),
        }
    }

    /// What the card says is what the page shows once the advice is taken.
    #[test]
    fn advice_that_is_taken_is_what_it_said() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            let now = solve(&inputs, &Ground::of(&inputs)).unwrap();
            let advised = advised(&inputs);
            assert!(advised.done, "{}", example.title);
            assert_eq!((advised.step, advised.drawn), (now.figures.step.0, now.timeline.step.0));
            for better in &advised.plans {
                let next = take(better, &inputs).unwrap();
                let solved = solve(&next, &Ground::of(&next)).unwrap();
                let said = (better.plan.step, better.plan.peak);
                assert_eq!(
                    (solved.figures.step.0, solved.figures.peak.0),
                    said,
                    "{}",
                    title(better)
                );
                assert!(!title(better).is_empty());
            }
        }
    }

    #[test]
    fn the_first_screen_is_told_of_more_micro_batches_and_of_replicas() {
        let now = solve(&first(), &Ground::of(&first())).unwrap().figures;
        let plans = advised(&first()).plans;
        let pure = |better: &&Better| asks(better, 4).is_none();
        let lean = plans.iter().filter(pure).min_by_key(|better| better.plan.peak).unwrap();
        assert!(lean.plan.step as f64 <= 0.795 * now.step.0 as f64);
        assert!(lean.plan.peak as f64 <= 0.045 * now.peak.0 as f64, "{}", title(lean));
        let fast = plans.iter().filter(pure).min_by_key(|better| better.plan.step).unwrap();
        assert!(fast.plan.step as f64 <= 0.665 * now.step.0 as f64, "{}", title(fast));
    }

    #[test]
    fn figures_are_words() {
        let now = Figures {
            step: Nanos(1000),
            bubble: 0.0,
            peak: Bytes(1000),
            worst: 0,
            samples_per_sec: 1.0,
            traffic: Bytes(0),
        };
        let better = Better {
            changes: vec![Change::MicroBatches(56), Change::Schedule("interleaved:2".into())],
            plan: pipewright_worker::protocol::FoundPlan {
                step: 800,
                peak: 1000,
                ..Default::default()
            },
            ..Better::default()
        };
        assert_eq!(title(&better), "56 micro-batches, Interleaved 1F1B (2)");
        let price = price(&better, true, &now);
        assert_eq!((price.0.as_str(), price.1.as_str()), ("▼ 20 % step time", "same memory"));
    }
}
