//! Reasons why a plan is as fast as it is, and what to say where no suggestion is found.

use crate::base::format;
use crate::base::texts::{t, tr};
use crate::planner::engine::Solved;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

/// A sentence in two parts: the finding and its reason.
pub struct Reason {
    pub bad: Option<String>,
    pub finding: String,
    pub because: String,
}

pub fn reason(solved: &Solved) -> Reason {
    let figures = solved.figures;
    let bad = (figures.peak > solved.capacity).then(|| {
        let over = format::bytes_text(figures.peak.saturating_sub(solved.capacity));
        tr!(
            "✕ Lane {lane} does not fit: it needs {over} more than it has. ",
            lane = figures.worst,
            over
        )
    });
    let (finding, because) = pace(solved);
    Reason { bad, finding, because }
}

/// What costs most time: a slow stage, messages, or filling and draining.
fn pace(solved: &Solved) -> (String, String) {
    let t = &solved.timeline;
    let lanes = t.lanes.len();
    if lanes == 1 {
        return (
            tr!("One lane computes alone:"),
            tr!(" nothing waits, nothing runs side by side."),
        );
    }
    let total = |lane: usize| -> Nanos {
        let here = (0..solved.stages.len()).filter(|stage| solved.lane_of[*stage] == lane);
        here.map(|stage| solved.stages[stage].forward + solved.stages[stage].backward()).sum()
    };
    let slow = (0..lanes).max_by_key(|s| (total(*s), usize::MAX - s)).unwrap_or(0);
    let lazy = (0..lanes).min_by_key(|s| t.lanes[*s].busy()).unwrap_or(0);
    let idle = 1.0 - t.lanes[lazy].busy().0 as f64 / t.step.0.max(1) as f64;
    let clock = format::Clock::of(t.step);
    let mean: f64 = (0..lanes).map(|s| total(s).0 as f64).sum::<f64>() / lanes as f64;
    let uneven = total(slow).0 as f64 / mean.max(1.0);
    let d = lanes as f64;
    let m = f64::from(solved.inputs.micro_batches);
    let ramp = (d - 1.0) / (m + d - 1.0);
    let travel = t.messages.iter().map(|x| x.received - x.sent).max().unwrap_or_default();
    let finding = tr!(
        "Lane {lane} is idle {share} % of the step:",
        lane = lazy,
        share = format::percent(idle, 0)
    );
    if travel.0 as f64 > 0.5 * total(slow).0 as f64 {
        let because = tr!(
            " a message travels up to {travel}, as a stage computes {work} on a micro-batch.",
            travel = clock.short(travel),
            work = clock.short(total(slow))
        );
        return (finding, because);
    }
    if uneven > 1.12 && lazy != slow {
        let because = tr!(
            " it works {work} on a micro-batch, lane {slow} needs {most} and sets the pace.",
            work = clock.short(total(lazy)),
            slow,
            most = clock.short(total(slow))
        );
        return (finding, because);
    }
    let because = tr!(
        " with {m} micro-batches on {lanes} lanes, filling and draining alone takes {share} %.",
        m = solved.inputs.micro_batches,
        lanes,
        share = format::percent(ramp, 0)
    );
    (finding, because)
}

/// Title and text where there is no suggestion.
pub fn words(over: bool, schedule: ScheduleKind) -> (&'static str, &'static str) {
    match (over, schedule) {
        (true, _) => (
            t("No single change makes it fit"),
            t("try more lanes and smaller micro-batches together"),
        ),
        (false, ScheduleKind::GPipe) => {
            (t("No single cut is better"), t("1F1B keeps fewer micro-batches in memory"))
        }
        (false, _) => {
            (t("No single cut is better"), t("more micro-batches shorten fill and drain"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::EXAMPLES;

    #[test]
    fn every_plan_has_a_reason() {
        for example in &EXAMPLES {
            let mut inputs = example.inputs();
            let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
            let why = reason(&solved);
            assert!(why.finding.ends_with(':') && why.because.ends_with('.'), "{}", example.title);
            inputs.cuts.clear();
            let alone = solve(&inputs, &Ground::of(&inputs)).unwrap();
            assert!(reason(&alone).finding.starts_with("One lane"));
        }
    }
}
