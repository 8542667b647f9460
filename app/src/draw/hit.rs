//! Hit test: the action under a point of a timeline.

use super::layout::{Layout, Scale};
use pipewright_core::schedule::Action;
use pipewright_core::timeline::{Span, Timeline, Work};

/// The action at a place of the canvas; a near one counts, since thin ones are hard to meet.
pub fn hit(t: &Timeline, layout: &Layout, scale: &Scale, (x, y): (f64, f64)) -> Option<Action> {
    if x < layout.left - 2.0 || x > layout.right + 2.0 {
        return None;
    }
    let moment = scale.nanos(x);
    let reach = 3.0 / scale.px_per_ns();
    let spans = &t.lanes.get(layout.lane_at(y)?)?.spans;
    let first = spans.partition_point(|s| (s.end.0 as f64) <= moment - reach);
    let near = spans[first..].iter().take_while(|s| s.start.0 as f64 <= moment + reach);
    let distance = |s: &&Span| {
        let (a, b) = (s.start.0 as f64, s.end.0 as f64);
        (a - moment).max(moment - b).max(0.0) as u64
    };
    match near.min_by_key(distance)?.work {
        Work::Run(action) => Some(action),
        Work::Optimizer(_) => None,
    }
}

/// The action that a lane waits for where it is idle: the next one, or at the end the last one that it did.
pub fn awaited(t: &Timeline, layout: &Layout, scale: &Scale, (x, y): (f64, f64)) -> Option<Action> {
    if x < layout.left - 2.0 || x > layout.right + 2.0 {
        return None;
    }
    let moment = scale.nanos(x);
    let spans = &t.lanes.get(layout.lane_at(y)?)?.spans;
    let run = |span: &Span| match span.work {
        Work::Run(action) => Some(action),
        Work::Optimizer(_) => None,
    };
    let next = spans.iter().filter(|span| span.start.0 as f64 > moment).find_map(run);
    next.or_else(|| spans.iter().rev().find_map(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::layout::Rows;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;
    use pipewright_core::schedule::ActionKind;

    #[test]
    fn every_action_is_found_at_its_middle_and_none_beside_the_lanes() {
        let inputs = first();
        let t = solve(&inputs, &Ground::of(&inputs)).unwrap().timeline;
        let layout = Layout::new(900.0, 500.0, t.lanes.len(), Rows::default());
        let scale = layout.scale(0.0, t.step.0 as f64);
        for (lane, content) in t.lanes.iter().enumerate() {
            for span in &content.spans {
                let Work::Run(action) = span.work else { continue };
                let x = scale.x((span.start.0 + span.end.0) as f64 / 2.0);
                let y = layout.lane_y(lane) + layout.bar / 2.0;
                assert_eq!(hit(&t, &layout, &scale, (x, y)), Some(action));
            }
        }
        let (last, y) = (t.lanes.len() - 1, |lane| layout.lane_y(lane) + 2.0);
        let waits = |lane: usize, moment: u64| {
            awaited(&t, &layout, &scale, (scale.x(moment as f64), y(lane)))
        };
        let forward = |action: Option<Action>| action.map(|a| (a.kind, a.micro_batch.0));
        assert_eq!(forward(waits(last, 0)), Some((ActionKind::Forward, 0)));
        // Nothing comes any more: what it did last.
        assert_eq!(forward(waits(last, t.step.0)), Some((ActionKind::Backward, 7)));
        assert_eq!(hit(&t, &layout, &scale, (layout.left - 9.0, layout.lane_y(0) + 2.0)), None);
        assert_eq!(hit(&t, &layout, &scale, (500.0, layout.memory_top + 4.0)), None);
    }
}
