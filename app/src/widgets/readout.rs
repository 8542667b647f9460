//! Readings of charts: what lies under the pointer, in words beside it.

use crate::draw::chart::{Place, Reading};
use leptos::ev::MouseEvent;
use leptos::prelude::*;

/// Pixels within which a mark is meant.
const REACH: f64 = 24.0;

/// What a chart's frame says of the pointer; the frame is the next positioned element around it.
#[derive(Clone, Copy)]
pub struct Readout(RwSignal<Option<Reading>>);

impl Readout {
    pub fn new() -> Self {
        Self(RwSignal::new(None))
    }

    /// The pointer is at another place; `nearest` finds the mark next to one.
    pub fn moved(self, event: &MouseEvent, nearest: impl FnOnce(Place) -> Option<Reading>) {
        let pointer = Place { x: event.offset_x().into(), y: event.offset_y().into() };
        let reading = nearest(pointer).filter(|reading| reading.at.distance(pointer) <= REACH);
        if self.0.with_untracked(|before| *before != reading) {
            self.0.set(reading);
        }
    }

    /// The pointer has left, or the chart is another one.
    pub fn clear(self) {
        if self.0.with_untracked(Option::is_some) {
            self.0.set(None);
        }
    }

    /// The words: right of the mark and, near the edge, to its left.
    pub fn view(self) -> impl IntoView {
        let place = |Place { x, y }| {
            format!(
                "left:clamp(8px,{:.0}px,max(8px,100% - 230px));top:{:.0}px",
                x + 12.0,
                (y - 30.0).max(4.0)
            )
        };
        move || self.0.get().map(|r| view! { <p class="tip" style=place(r.at)>{r.text}</p> })
    }
}
