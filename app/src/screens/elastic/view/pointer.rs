//! The pointer over the pictures: marks are dragged, clicks on lanes add events, the wheel zooms.

use super::lab::{Drag, Lab};
use super::show;
use crate::screens::elastic::chart::scale::{LEFT, RIGHT, Rows};
use crate::screens::elastic::model::time;
use leptos::ev::{PointerEvent, WheelEvent};
use wasm_bindgen::JsCast;
use web_sys::Element;

/// Pixels that a pointer may tremble.
const TREMBLE: f64 = 3.0;

/// The picture that an event came upon, and where in it.
fn place(event: &web_sys::MouseEvent) -> Option<(usize, Element, (f64, f64))> {
    let target: Element = event.target()?.dyn_into().ok()?;
    let frame = target.closest("[data-frame]").ok()??;
    let at = frame.get_attribute("data-frame")?.parse().ok()?;
    let area = frame.get_bounding_client_rect();
    let (x, y) =
        (f64::from(event.client_x()) - area.left(), f64::from(event.client_y()) - area.top());
    Some((at, frame, (x, y)))
}

/// Takes hold of a mark.
pub fn down(lab: Lab, event: &PointerEvent) {
    let Some((0, frame, (x, _))) = place(event) else { return };
    let mark = event.target().and_then(|t| t.dyn_into::<Element>().ok());
    let mark =
        mark.and_then(|mark| mark.get_attribute("data-ev")).and_then(|at| at.parse::<usize>().ok());
    let Some(number) = mark else { return };
    let _ = frame.set_pointer_capture(event.pointer_id());
    show::focus(&format!("el-mark-{number}"));
    event.prevent_default();
    lab.with(|lab| {
        let at = lab.scenario.events.get(number).map(|event| event.at);
        lab.drag = at.map(|at| Drag { event: number, from: (x, at), moved: false });
    });
}

/// Drags what is held, or shows what is under the pointer.
pub fn moved(lab: Lab, event: &PointerEvent) {
    let held = lab.with(|lab| lab.drag.is_some()).unwrap_or(false);
    let Some((frame, _, (x, y))) = place(event) else { return };
    if !held {
        lab.with(|lab| show::tip(lab, frame, Some((x, y))));
        return;
    }
    let to = lab.with(|lab| {
        let pixel = lab.scale(show::width(0)).pixel();
        let drag = lab.drag.as_mut()?;
        if (x - drag.from.0).abs() > TREMBLE {
            drag.moved = true;
        }
        let by = (x - drag.from.0) * pixel / 1e6;
        let at = (drag.from.1 as f64 + by).clamp(0.0, time::MOST as f64);
        drag.moved.then(|| (drag.event, rounded(at, pixel / 1e6)))
    });
    if let Some(Some((number, at))) = to {
        lab.edit(true, |scenario| {
            if let Some(event) = scenario.events.get_mut(number) {
                event.at = at;
            }
        });
    }
}

/// A time in milliseconds as round as a hand can mean it.
pub fn rounded(at: f64, pixel: f64) -> u64 {
    let steps = [1.0, 10.0, 100.0, 1000.0, 5000.0, 10_000.0, 60_000.0, 300_000.0, 600_000.0];
    let step = steps.into_iter().find(|step| *step >= pixel).unwrap_or(3_600_000.0);
    ((at / step).round() * step) as u64
}

/// Lets go.
pub fn up(lab: Lab, _event: &PointerEvent) {
    if let Some(Some(Drag { moved: true, .. })) = lab.with(|lab| lab.drag.take()) {
        lab.commit();
    }
}

/// The pointer has left a picture.
pub fn left(lab: Lab, event: &PointerEvent) {
    let to = event.related_target().and_then(|to| to.dyn_into::<Element>().ok());
    let inside = to.is_some_and(|to| to.closest("[data-frame]").ok().flatten().is_some());
    if !inside {
        lab.with(|lab| (0..2).for_each(|frame| show::tip(lab, frame, None)));
    }
}

/// A click on a lane: its node comes, or is lost; with Shift it leaves. Whether it was one.
pub fn clicked(lab: Lab, event: &web_sys::MouseEvent) -> bool {
    let Some((0, _, (x, y))) = place(event) else { return false };
    let target = event.target().and_then(|t| t.dyn_into::<Element>().ok());
    if target.is_some_and(|t| t.has_attribute("data-ev")) || x < LEFT || x > show::width(0) - RIGHT
    {
        return false;
    }
    let found = lab.with(|lab| {
        let scale = lab.scale(show::width(0));
        let nodes = lab.nodes();
        let node = Rows::of(nodes.len()).node_at(y)?;
        let at = rounded((scale.at(x) / 1e6).max(0.0), scale.pixel() / 1e6);
        (!lab.recorded).then(|| (nodes[node].clone(), at))
    });
    let Some(Some((node, at))) = found else { return false };
    super::hand::add(lab, &node, at, event.shift_key());
    true
}

/// With Ctrl the wheel zooms around the pointer; without, the page scrolls.
pub fn wheel(lab: Lab, event: &WheelEvent) {
    let Some((_, _, (x, _))) = place(event) else { return };
    if !(event.ctrl_key() || event.meta_key()) {
        return;
    }
    event.prevent_default();
    let factor = (event.delta_y() / 300.0).exp();
    lab.look(|scale, full| Some(scale.zoomed(factor, scale.at(x), full)));
}
