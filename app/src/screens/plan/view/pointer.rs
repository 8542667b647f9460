//! The hand on the timeline: click selects, drag measures, Shift and drag moves, wheel and pinch
//! zoom, the minimap's window can be dragged and stretched.

use super::painter::Painter;
use crate::draw::hit::{awaited, hit};
use crate::draw::layout::{Layout, MINIMAP, Scale, View};
use crate::screens::plan::state::PlanState;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::schedule::Action;
use std::cell::RefCell;
use std::rc::Rc;
use web_sys::{PointerEvent, WheelEvent};

/// What a pressed pointer does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gesture {
    /// Not yet moved: a click if it stays so.
    Press { x: f64, y: f64 },
    /// A stretch of time from this moment.
    Measure { from: f64 },
    /// The time axis follows the hand.
    Pan { x: f64, view: View },
    /// The minimap's window moves: share of the axis at which it was caught, and its place then.
    Window { at: f64, view: View },
    /// An edge of the window.
    Edge { left: bool },
    /// Two fingers: the moments under them.
    Pinch { a: f64, b: f64 },
}

/// Pointers on the timeline and what they do.
#[derive(Clone)]
pub struct Hand {
    state: State,
    own: PlanState,
    painter: Painter,
    gesture: Rc<RefCell<Option<Gesture>>>,
    /// Pointers that are down: id and x.
    down: Rc<RefCell<Vec<(i32, f64)>>>,
}

/// Pixels that a click may move.
const SLACK: f64 = 4.0;

impl Hand {
    pub fn new(state: State, own: PlanState, painter: Painter) -> Self {
        Self { state, own, painter, gesture: Rc::default(), down: Rc::default() }
    }

    pub fn pressed(&self, event: &PointerEvent) {
        let Some((layout, scale)) = self.picture() else { return };
        let (x, y) = at(event);
        let mut down = self.down.borrow_mut();
        down.push((event.pointer_id(), x));
        if let [(_, x0), (_, x1)] = down[..] {
            let gesture = Gesture::Pinch { a: scale.nanos(x0), b: scale.nanos(x1) };
            *self.gesture.borrow_mut() = Some(gesture);
            self.state.look.range.set(None);
            return;
        }
        let view = untrack(|| self.state.visible());
        let gesture = if y < MINIMAP {
            self.on_minimap(&layout, x, view)
        } else if event.shift_key() || event.button() == 1 {
            Gesture::Pan { x, view }
        } else if event.button() == 0 {
            Gesture::Press { x, y }
        } else {
            return;
        };
        *self.gesture.borrow_mut() = Some(gesture);
    }

    fn on_minimap(&self, layout: &Layout, x: f64, view: View) -> Gesture {
        let full = untrack(|| self.state.full());
        let share = (x - layout.left) / (layout.right - layout.left);
        let edge =
            |nanos: f64| (layout.left + nanos / full * (layout.right - layout.left) - x).abs();
        if edge(view.from) < 8.0 && edge(view.from) <= edge(view.to) {
            return Gesture::Edge { left: true };
        }
        if edge(view.to) < 8.0 {
            return Gesture::Edge { left: false };
        }
        let moment = share * full;
        let mut view = view;
        if !(view.from..=view.to).contains(&moment) {
            // A press beside the window brings it there.
            let half = (view.to - view.from) / 2.0;
            let moved = View { from: moment - half, to: moment + half }.pan(0.0, full);
            self.state.look.view.set(moved);
            view = untrack(|| self.state.visible());
        }
        Gesture::Window { at: share, view }
    }

    pub fn moved(&self, event: &PointerEvent) {
        let Some((layout, scale)) = self.picture() else { return };
        let (x, y) = at(event);
        for pointer in self.down.borrow_mut().iter_mut().filter(|p| p.0 == event.pointer_id()) {
            pointer.1 = x;
        }
        let gesture = *self.gesture.borrow();
        let full = untrack(|| self.state.full());
        let share = ((x - layout.left) / (layout.right - layout.left)).clamp(0.0, 1.0);
        match gesture {
            None => self.hover(&layout, &scale, x, y),
            Some(Gesture::Press { x: x0, y: y0 }) => {
                if (x - x0).abs() > SLACK || (y - y0).abs() > 3.0 * SLACK {
                    let from = scale.nanos(x0.clamp(layout.left, layout.right));
                    *self.gesture.borrow_mut() = Some(Gesture::Measure { from });
                }
            }
            Some(Gesture::Measure { from }) => {
                let to = scale.nanos(x.clamp(layout.left, layout.right));
                self.state.look.range.set(Some((from, to)));
            }
            Some(Gesture::Pan { x: x0, view }) => {
                let by = (x0 - x) / (layout.right - layout.left);
                self.state.look.view.set(view.pan(by, full));
            }
            Some(Gesture::Window { at, view }) => {
                let by = (share - at) * full / (view.to - view.from);
                self.state.look.view.set(view.pan(by, full));
            }
            Some(Gesture::Edge { left }) => {
                let view = untrack(|| self.state.visible());
                let least = full * 0.002;
                let moved = if left {
                    View { from: (share * full).min(view.to - least), ..view }
                } else {
                    View { to: (share * full).max(view.from + least), ..view }
                };
                self.state.look.view.set(moved.zoom(1.0, moved.from, full));
            }
            Some(Gesture::Pinch { a, b }) => self.pinch(&layout, a, b, full),
        }
    }

    /// The moments under two fingers stay under them.
    fn pinch(&self, layout: &Layout, a: f64, b: f64, full: f64) {
        let [(_, x0), (_, x1)] = self.down.borrow()[..] else { return };
        if (x1 - x0).abs() < 8.0 {
            return;
        }
        let ns_per_px = ((b - a) / (x1 - x0)).abs();
        let from = a - (x0 - layout.left) * ns_per_px;
        let to = from + (layout.right - layout.left) * ns_per_px;
        self.state.look.view.set(View { from, to }.zoom(1.0, from, full));
    }

    pub fn released(&self, event: &PointerEvent) {
        self.down.borrow_mut().retain(|p| p.0 != event.pointer_id());
        let gesture = self.gesture.borrow_mut().take();
        if let Some(Gesture::Press { x, y }) = gesture
            && let Some((layout, scale)) = self.picture()
        {
            self.state.look.range.set(None);
            // On a gap: what the lane waits for there, whose details say why.
            let awaited = || {
                self.state.shown.with_untracked(|shown| {
                    awaited(&shown.solved.timeline, &layout, &scale, (x, y))
                })
            };
            self.state.look.selected.set(self.hit(&layout, &scale, x, y).or_else(awaited));
        }
    }

    pub fn left(&self) {
        self.own.hovered.set(None);
    }

    pub fn wheel(&self, event: &WheelEvent) {
        let Some((layout, scale)) = self.picture() else { return };
        let full = untrack(|| self.state.full());
        let view = untrack(|| self.state.visible());
        if event.ctrl_key() || event.meta_key() {
            event.prevent_default();
            let factor = (event.delta_y() * 0.004).clamp(-0.7, 0.7).exp();
            let x = f64::from(event.offset_x()).clamp(layout.left, layout.right);
            self.state.look.view.set(view.zoom(factor, scale.nanos(x), full));
            return;
        }
        // Zoomed in, the wheel moves along time; otherwise the page scrolls as usual.
        let sideways = event.delta_x() + if event.shift_key() { event.delta_y() } else { 0.0 };
        let scrolls = layout.scrolls() && sideways == 0.0;
        if self.state.look.view.get_untracked().is_some() && !scrolls {
            event.prevent_default();
            let by = if sideways != 0.0 { sideways } else { event.delta_y() };
            self.state.look.view.set(view.pan(by / 600.0, full));
        }
    }

    fn hover(&self, layout: &Layout, scale: &Scale, x: f64, y: f64) {
        let found = self.hit(layout, scale, x, y);
        if self.own.hovered.get_untracked() != found {
            self.own.hovered_at.set((x, y));
            self.own.hovered.set(found);
        }
    }

    fn hit(&self, layout: &Layout, scale: &Scale, x: f64, y: f64) -> Option<Action> {
        self.state.shown.with_untracked(|shown| hit(&shown.solved.timeline, layout, scale, (x, y)))
    }

    fn picture(&self) -> Option<(Layout, Scale)> {
        Some((self.painter.layout()?, self.painter.scale()?))
    }
}

fn at(event: &PointerEvent) -> (f64, f64) {
    (f64::from(event.offset_x()), f64::from(event.offset_y()))
}
