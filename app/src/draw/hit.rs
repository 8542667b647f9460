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

/// The action that a lane waits for where it is idle: the next one.
pub fn awaited(t: &Timeline, layout: &Layout, scale: &Scale, (x, y): (f64, f64)) -> Option<Action> {
    if x < layout.left - 2.0 || x > layout.right + 2.0 {
        return None;
    }
    let moment = scale.nanos(x);
    let spans = &t.lanes.get(layout.lane_at(y)?)?.spans;
    match spans.iter().find(|span| span.start.0 as f64 > moment)?.work {
        Work::Run(action) => Some(action),
        Work::Optimizer(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::layout::Rows;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;

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
        assert_eq!(hit(&t, &layout, &scale, (layout.left - 9.0, layout.lane_y(0) + 2.0)), None);
        assert_eq!(hit(&t, &layout, &scale, (500.0, layout.memory_top + 4.0)), None);
    }
}
