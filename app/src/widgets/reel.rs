//! A picture that scrolls: its canvases stay in place, and what they draw moves under the axis.

use super::size::watch;
use crate::base::texts::t;
use crate::draw::layout::{Layout, Rows};
use crate::state::State;
use leptos::html;
use leptos::prelude::*;

/// How far a picture is scrolled.
#[derive(Clone, Copy)]
pub struct Scroll {
    frame: NodeRef<html::Div>,
    scrolled: RwSignal<f64>,
    content: RwSignal<f64>,
    /// Height of the lanes that are drawn.
    lane: RwSignal<f64>,
}

impl Scroll {
    /// At the top.
    pub fn new() -> Self {
        let [scrolled, content, lane] = [0.0; 3].map(RwSignal::new);
        Self { frame: NodeRef::new(), scrolled, content, lane }
    }

    /// The rows of a picture whose lanes have at least so many pixels.
    pub fn rows(self, state: State, least: f64) -> Rows {
        Rows { times: state.look.lane_height.get(), least, scrolled: self.scrolled.get() }
    }

    /// Draws again when lanes get another height or place.
    pub fn track(self, state: State) {
        state.look.lane_height.track();
        self.scrolled.track();
    }

    /// The picture that is drawn needs so much room.
    pub fn fit(self, layout: &Layout) {
        if (self.content.get_untracked(), self.lane.get_untracked())
            != (layout.content, layout.pitch)
        {
            self.content.set(layout.content);
            self.lane.set(layout.pitch);
        }
    }

    /// Scrolls until a lane is seen whole.
    pub fn show(self, layout: &Layout, lane: usize) {
        let (top, bottom) = (layout.lane_y(lane), layout.lane_y(lane) + layout.pitch);
        let by = (top - layout.lanes_top).min(0.0) + (bottom - layout.height).max(0.0);
        if let Some(frame) = self.frame.get_untracked().filter(|_| by != 0.0) {
            frame.set_scroll_top((layout.scrolled + by).round() as i32);
        }
    }
}

/// The canvases in their frame.
pub fn reel(scroll: Scroll, canvases: impl IntoView) -> impl IntoView {
    let Scroll { frame, scrolled, content, lane } = scroll;
    let size = watch(frame, (0.0, 0.0));
    let tall = |height: f64| match height {
        0.0 => String::new(),
        height => format!("height:{height:.0}px"),
    };
    let film = move || {
        let (seen, content) = (size.get().1, content.get());
        tall(if content > seen + 1.0 { content } else { seen })
    };
    let moved = move |_| {
        if let Some(frame) = frame.get_untracked() {
            scrolled.set(f64::from(frame.scroll_top()));
        }
    };
    // What scrolls can be reached by keys.
    let scrolls = move || content.get() > size.get().1 + 1.0;
    let stop = move || scrolls().then_some("0");
    let role = move || scrolls().then_some("group");
    let label = move || scrolls().then(|| t("Lanes"));
    view! {
        <div class="reel" node_ref=frame tabindex=stop role=role aria-label=label on:scroll=moved>
            <div class="film" style=film data-lane=move || format!("{:.1}", lane.get())>
                <div class="still" style=move || tall(size.get().1)>{canvases}</div>
            </div>
        </div>
    }
}

/// Heights that lanes can have, in that in which all fit.
const TIMES: [f64; 8] = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];

/// Makes lanes taller, or lower again.
pub fn resize(state: State, by: isize) {
    let height = state.look.lane_height;
    let at = TIMES.iter().position(|times| *times >= height.get_untracked()).unwrap_or(0);
    let next = at.saturating_add_signed(by).min(TIMES.len() - 1);
    height.set(TIMES[next]);
}

/// The height of lanes.
#[component]
pub fn LaneHeight() -> impl IntoView {
    let state = expect_context::<State>();
    let height = state.look.lane_height;
    let buttons = [(-1, "−", t("Lower lanes (Q)"), 0), (1, "+", t("Taller lanes (E)"), 7)];
    let buttons = buttons.map(|(by, sign, title, last)| {
        let off = move || height.get() == TIMES[last];
        view! { <button title=title aria-label=title disabled=off on:click=move |_| resize(state, by)>{sign}</button> }
    });
    view! { <div class="seg rows" role="group" aria-label=t("Height of lanes")>{buttons.collect_view()}</div> }
}
