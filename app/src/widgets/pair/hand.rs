//! The hand on both timelines: click selects, drag moves, wheel zooms; one axis, so both follow.

use super::painter::Painter;
use super::sides::Pair;
use crate::draw::hit::hit;
use crate::draw::layout::{MINIMAP, View};
use crate::widgets::reel::Scroll;
use leptos::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use web_sys::{PointerEvent, WheelEvent};

/// What a pressed pointer does.
#[derive(Clone, Copy)]
enum Gesture {
    /// The axis follows the hand; a click as long as it has not moved.
    Pan { x: f64, view: View, moved: bool },
    /// The minimap's window is where the hand is.
    Window,
}

/// The pointer on the timelines.
#[derive(Clone)]
pub struct Hand {
    state: Pair,
    painter: Painter,
    gesture: Rc<Cell<Option<Gesture>>>,
}

/// Pixels that a click may move.
const SLACK: f64 = 4.0;

impl Hand {
    pub fn new(state: Pair, painter: Painter) -> Self {
        Self { state, painter, gesture: Rc::default() }
    }

    /// How far a picture is scrolled.
    pub fn scroll(&self, index: usize) -> Scroll {
        self.state.scroll[index]
    }

    pub fn pressed(&self, index: usize, event: &PointerEvent) {
        let (x, y) = at(event);
        let view = untrack(|| self.state.visible());
        if y < MINIMAP {
            self.gesture.set(Some(Gesture::Window));
            self.window(index, x);
        } else if event.button() == 0 {
            self.gesture.set(Some(Gesture::Pan { x, view, moved: false }));
        }
    }

    pub fn moved(&self, index: usize, event: &PointerEvent) {
        let (x, _) = at(event);
        match self.gesture.get() {
            Some(Gesture::Pan { x: from, view, moved }) if moved || (x - from).abs() > SLACK => {
                self.gesture.set(Some(Gesture::Pan { x: from, view, moved: true }));
                let Some((layout, _)) = self.painter.picture(index) else { return };
                let by = (from - x) / (layout.right - layout.left);
                let full = untrack(|| self.state.full());
                if self.state.view.get_untracked().is_some() {
                    self.state.view.set(view.pan(by, full));
                }
            }
            Some(Gesture::Window) => self.window(index, x),
            _ => {}
        }
    }

    /// The middle of the window comes to a place of the minimap.
    fn window(&self, index: usize, x: f64) {
        let Some((layout, _)) = self.painter.picture(index) else { return };
        let (full, view) = untrack(|| (self.state.full(), self.state.visible()));
        let share = ((x - layout.left) / (layout.right - layout.left)).clamp(0.0, 1.0);
        let half = (view.to - view.from) / 2.0;
        let moved = View { from: share * full - half, to: share * full + half };
        self.state.view.set(moved.pan(0.0, full));
    }

    pub fn released(&self, index: usize, event: &PointerEvent) {
        let Some(Gesture::Pan { moved: false, .. }) = self.gesture.take() else { return };
        let index = self.painter.side_at(index, at(event).1);
        let picture = self.painter.picture(index);
        let Some(((layout, scale), seen)) = picture.zip(untrack(|| self.state.side(index))) else {
            return;
        };
        let found = hit(seen.timeline(), &layout, &scale, at(event));
        self.state.page.look.selected.set(found);
    }

    pub fn wheel(&self, index: usize, event: &WheelEvent) {
        let Some((layout, scale)) = self.painter.picture(index) else { return };
        let (full, view) = untrack(|| (self.state.full(), self.state.visible()));
        if event.ctrl_key() || event.meta_key() {
            event.prevent_default();
            let factor = (event.delta_y() * 0.004).clamp(-0.7, 0.7).exp();
            let x = f64::from(event.offset_x()).clamp(layout.left, layout.right);
            self.state.view.set(view.zoom(factor, scale.nanos(x), full));
        } else if self.state.view.get_untracked().is_some()
            && !(layout.scrolls() && event.delta_x() == 0.0)
        {
            // Zoomed in, the wheel moves along time; otherwise lanes or the page scroll as usual.
            event.prevent_default();
            let sideways = event.delta_x();
            let by = if sideways != 0.0 { sideways } else { event.delta_y() };
            self.state.view.set(view.pan(by / 600.0, full));
        }
    }
}

fn at(event: &PointerEvent) -> (f64, f64) {
    (f64::from(event.offset_x()), f64::from(event.offset_y()))
}
