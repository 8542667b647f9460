//! Keys of the timeline: zoom, move, select.

use super::{reel, split};
use crate::base::keys::Command;
use crate::draw::layout::View;
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;
use pipewright_core::ids::MicroBatch;
use pipewright_core::schedule::Action;
use pipewright_core::timeline::Work;
use pipewright_core::timeline::causes;

/// Does what a key of the timeline says.
pub fn act(state: State, command: Command) {
    let (full, view) = untrack(|| (state.full(), state.visible()));
    let centre = (view.from + view.to) / 2.0;
    match command {
        Command::ZoomIn => {
            state.look.view.set(view.zoom(0.75, focus_point(state, view).unwrap_or(centre), full))
        }
        Command::ZoomOut => state.look.view.set(view.zoom(1.0 / 0.75, centre, full)),
        Command::PanLeft => state.look.view.set(view.pan(-0.12, full)),
        Command::PanRight => state.look.view.set(view.pan(0.12, full)),
        Command::Everything => state.look.view.set(None),
        Command::Focus => focus(state, view, full),
        Command::Next => step(state, 1),
        Command::Previous => step(state, -1),
        Command::LaneUp => lane(state, -1),
        Command::LaneDown => lane(state, 1),
        Command::LanesTaller => reel::resize(state, 1),
        Command::LanesLower => reel::resize(state, -1),
        Command::Help => state.request(Request::Help),
        Command::PreviousCut => {
            let last = state.inputs.with_untracked(|i| i.cuts.len().checked_sub(1));
            split::select(state, last);
        }
        Command::NextCut => split::select(state, Some(0)),
        _ => {}
    }
}

/// The middle of the selected action, when it is seen.
fn focus_point(state: State, view: View) -> Option<f64> {
    let (a, b) = extent(state, state.look.selected.get_untracked()?)?;
    let middle = (a + b) / 2.0;
    (view.from..=view.to).contains(&middle).then_some(middle)
}

fn extent(state: State, action: Action) -> Option<(f64, f64)> {
    state.shown.with_untracked(|s| {
        let (lane, index) = causes::find(&s.solved.timeline, action)?;
        let span = s.solved.timeline.lanes[lane].spans[index];
        Some((span.start.0 as f64, span.end.0 as f64))
    })
}

/// First the selection, then everything.
fn focus(state: State, view: View, full: f64) {
    let near = state.look.selected.get_untracked().and_then(|a| extent(state, a));
    let near = near.and_then(|(a, b)| View::around(a, b, full));
    state.look.view.set(if near == Some(view) { None } else { near });
}

/// Selects an action and moves the view until it is seen.
pub fn select(state: State, action: Action) {
    state.look.selected.set(Some(action));
    if state.look.view.get_untracked().is_some()
        && let Some((a, b)) = extent(state, action)
    {
        let (full, view) = untrack(|| (state.full(), state.visible()));
        state.look.view.set(view.reveal(a, b, full));
    }
}

/// Whether the plan that is shown has such an action.
pub fn is_there(state: State, action: Action) -> bool {
    state.shown.with_untracked(|s| causes::find(&s.solved.timeline, action).is_some())
}

/// The neighbour on the lane, by time.
fn step(state: State, by: isize) {
    let next = state.shown.with_untracked(|s| {
        let t = &s.solved.timeline;
        let runs = |lane: usize, index: usize| match t.lanes.get(lane)?.spans.get(index)?.work {
            Work::Run(action) => Some(action),
            Work::Optimizer(_) => None,
        };
        match state.look.selected.get_untracked().and_then(|a| causes::find(t, a)) {
            Some((lane, index)) => runs(lane, index.checked_add_signed(by)?),
            None => runs(0, 0),
        }
    });
    if let Some(action) = next {
        select(state, action);
    }
}

/// The same pass of the same micro-batch on a neighbouring lane.
fn lane(state: State, by: i32) {
    let next = state.shown.with_untracked(|s| {
        let t = &s.solved.timeline;
        let now = state.look.selected.get_untracked()?;
        let (lane, _) = causes::find(t, now)?;
        let lane = t.lanes.get(lane.checked_add_signed(by as isize)?)?;
        let same = |micro: MicroBatch| {
            lane.spans.iter().find_map(|span| match span.work {
                Work::Run(a) if a.kind == now.kind && a.micro_batch == micro => Some(a),
                _ => None,
            })
        };
        same(now.micro_batch)
    });
    if let Some(action) = next {
        select(state, action);
    }
}
