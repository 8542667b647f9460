//! The idle stretches of a lane that are wide enough to say why.

use super::layout::Scale;
use crate::base::texts::tr;
use pipewright_core::timeline::causes::{Arrivals, Cause};
use pipewright_core::timeline::{Timeline, Work};
use pipewright_core::units::Nanos;

/// An idle stretch and its captions.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    pub from: Nanos,
    pub to: Nanos,
    /// What is waited for, in full and in short; empty at the end of the step.
    pub why: String,
    pub short: String,
}

/// Least width of a gap that gets a caption, in pixels.
const CAPTION_MIN: f64 = 76.0;

/// The `most` widest visible gaps of a lane. Only the lane's visible spans are looked at.
pub fn widest(
    t: &Timeline,
    arrivals: &Arrivals,
    lane: usize,
    scale: &Scale,
    most: usize,
) -> Vec<Gap> {
    let spans = &t.lanes[lane].spans;
    let per_ns = scale.px_per_ns();
    let wide = |from: Nanos, to: Nanos| {
        let seen = (to.0 as f64).min(scale.to) - (from.0 as f64).max(scale.from);
        seen * per_ns
    };
    let mut found: Vec<(f64, Nanos, Nanos, Option<usize>)> = vec![];
    let first = spans.partition_point(|s| s.end.0 as f64 <= scale.from);
    let mut free = if first == 0 { Nanos::ZERO } else { spans[first - 1].end };
    for (index, span) in spans.iter().enumerate().skip(first) {
        let width = wide(free, span.start);
        if width > CAPTION_MIN {
            found.push((width, free, span.start, Some(index)));
        }
        free = span.end;
        if free.0 as f64 >= scale.to {
            break;
        }
    }
    if wide(free, t.step) > CAPTION_MIN {
        found.push((wide(free, t.step), free, t.step, None));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(most);
    let caption = |(_, from, to, index): (f64, Nanos, Nanos, Option<usize>)| {
        let (why, short) = index.map_or_else(
            || (tr!("step done"), tr!("step done")),
            |index| words(t, arrivals, lane, index),
        );
        Gap { from, to, why, short }
    };
    found.into_iter().map(caption).collect()
}

fn words(t: &Timeline, arrivals: &Arrivals, lane: usize, index: usize) -> (String, String) {
    match (arrivals.wait(t, lane, index).1, t.lanes[lane].spans[index].work) {
        (Cause::Message(i), Work::Run(action)) => {
            let message = &t.messages[i];
            let kind = action.kind.letter();
            let what = format!("{kind} {}", message.micro_batch);
            let lane = message.from;
            (tr!("waits for {what} of lane {lane}", what, lane), tr!("for {what}", what))
        }
        _ => (String::new(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::layout::{Layout, Rows};
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;

    #[test]
    fn the_last_lane_first_waits_for_the_lane_before() {
        let solved = solve(&first(), &Ground::of(&first())).unwrap();
        let t = &solved.timeline;
        let scale = Layout::new(2000.0, 560.0, 4, Rows::default()).scale(0.0, t.step.0 as f64);
        let gaps = widest(t, &Arrivals::new(t), 3, &scale, 9);
        assert!(
            gaps.iter().any(|g| g.from == Nanos::ZERO && g.why == "waits for F 0 of lane 2"),
            "{gaps:?}"
        );
        assert!(gaps.iter().any(|g| g.why == "step done"), "{gaps:?}");
    }
}
