//! Reasons why a plan is as fast as it is: core's, in the page's language.

use crate::base::format;
use crate::base::texts::{t, tr};
use crate::planner::engine::Solved;
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{
    Idle, IdlePart, Reason as Cause, Why, idle as idle_parts, reason as cause,
};
use pipewright_core::units::Nanos;

/// A sentence in two parts: the finding and its reason.
pub struct Reason {
    pub bad: Option<String>,
    /// What the figures are of, where that is not what is drawn.
    pub steady: Option<String>,
    pub finding: String,
    pub because: String,
}

pub fn reason(solved: &Solved, arrivals: &Arrivals) -> Reason {
    let figures = solved.figures;
    let bad = (figures.peak > solved.capacity).then(|| {
        let over = format::bytes_text(figures.peak.saturating_sub(solved.capacity));
        tr!("✕ Lane {lane} runs out of memory: {over} too much. ", lane = figures.worst, over)
    });
    let steady = solved.steady.map(|steady| {
        let age = match steady.staleness {
            1 => t("one update").to_owned(),
            age => tr!("{age} updates", age),
        };
        tr!(
            "Step time of a full pipeline: gradients are up to {age} old. Drawn: one mini-batch with a flush, {flushed}. ",
            age,
            flushed = format::Clock::of(solved.timeline.step).text(solved.timeline.step)
        )
    });
    let (finding, because) = match cause(&solved.timeline, arrivals) {
        Some(cause) => idle(&cause),
        None => (String::new(), String::new()),
    };
    Reason { bad, steady, finding, because }
}

/// What the lane that works least is idle for.
fn idle(cause: &Cause) -> (String, String) {
    if cause.percent() == 0 {
        return match cause.lanes {
            1 => (t("One lane, always busy.").into(), String::new()),
            _ => (t("Every lane is busy all the time.").into(), String::new()),
        };
    }
    let finding = tr!(
        "Lane {lane} is idle {share} % of the step:",
        lane = cause.idlest,
        share = cause.percent()
    );
    let parts = cause.parts().into_iter().filter(|part| part.percent > 0);
    let parts: Vec<String> = parts.map(|part| words(cause, &part)).collect();
    (finding, format!(" {}{}", parts.join(t(", ")), t(".")))
}

/// What a lane is idle for, in times that add up: `warm-up 186 ms, messages 8.6 ms`.
pub fn idle_of(solved: &Solved, arrivals: &Arrivals, lane: usize) -> String {
    if lane >= solved.timeline.lanes.len() {
        return String::new();
    }
    let Idle { warm_up, cool_down, stall, messages, sums, input, other } =
        idle_parts(&solved.timeline, arrivals, lane);
    let clock = format::Clock::of(solved.timeline.step);
    let parts = [
        (t("warm-up"), warm_up),
        (t("cool-down"), cool_down),
        (t("waits for other lanes"), stall),
        (t("messages"), messages),
        (t("gradient sums"), sums),
        (t("input"), input),
        (t("not in the trace"), other),
    ];
    let named = parts.into_iter().filter(|(_, time)| *time > Nanos::ZERO);
    let named = named.map(|(name, time)| format!("{name} {}", clock.text(time)));
    named.collect::<Vec<String>>().join(t(", "))
}

fn words(cause: &Cause, part: &IdlePart) -> String {
    let share = part.percent;
    match part.why {
        Why::Ramps => tr!("{share} % fill and drain", share),
        Why::Imbalance => {
            tr!("{share} % less compute than lane {lane}", share, lane = cause.busiest)
        }
        Why::Messages => tr!("{share} % messages", share),
        Why::Sums => tr!("{share} % gradient sums", share),
        Why::Stalls => tr!("{share} % waits for other lanes", share),
        Why::Input => tr!("{share} % input", share),
        Why::Other => tr!("{share} % not in the trace", share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::inputs::Inputs;
    use crate::planner::presets::EXAMPLES;

    fn of(inputs: &Inputs) -> Reason {
        let solved = solve(inputs, &Ground::of(inputs)).unwrap();
        reason(&solved, &solved.arrivals())
    }

    #[test]
    fn every_plan_has_a_reason() {
        for example in &EXAMPLES {
            let mut inputs = example.inputs();
            let why = of(&inputs);
            assert!(why.finding.ends_with(':') && why.because.ends_with('.'), "{}", example.title);
            inputs.cuts.clear();
            assert_eq!(of(&inputs).finding, "One lane, always busy.");
        }
    }

    #[test]
    fn a_lane_says_what_it_is_idle_for() {
        let inputs = EXAMPLES[0].inputs();
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let said = idle_of(&solved, &solved.arrivals(), 3);
        assert!(said.starts_with("warm-up ") && said.contains("cool-down "), "{said}");
        assert_eq!(idle_of(&solved, &solved.arrivals(), 9), "");
    }

    #[test]
    fn schedules_without_a_flush_have_the_step_of_a_full_pipeline() {
        use pipewright_core::schedule::ScheduleKind;
        let mut inputs = EXAMPLES[0].inputs();
        inputs.schedule = ScheduleKind::PipeDream;
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let (plan, prediction) = inputs.plan().unwrap();
        let steady = pipewright_core::predict::steady(&plan, &prediction.timeline).unwrap();
        assert_eq!(solved.steady, steady);
        assert!(solved.figures.step < solved.timeline.step && solved.figures.bubble < 0.2);
        let said = reason(&solved, &solved.arrivals()).steady.unwrap();
        assert!(said.contains("3 updates old"), "{said}");
        assert!(of(&EXAMPLES[0].inputs()).steady.is_none());
    }

    /// DualPipe on 8 lanes was said to fill and drain for 18 % where a lane is idle for 5 %.
    #[test]
    fn parts_are_no_larger_than_the_whole() {
        use pipewright_core::schedule::ScheduleKind;
        for kind in ScheduleKind::ALL {
            let mut inputs = EXAMPLES[0].inputs();
            crate::planner::engine::reschedule(&mut inputs, kind);
            let why = of(&inputs);
            let number =
                |text: &str| text.split(" %").next()?.rsplit(' ').next()?.parse::<u32>().ok();
            let whole = number(&why.finding).unwrap_or(0);
            let parts = why.because.split(", ").filter_map(number).sum::<u32>();
            assert_eq!(whole, parts, "{kind}: {}{}", why.finding, why.because);
        }
    }
}
