//! Two steps in one picture: each lane has the first step's row above the second's.

use super::painter::{Painter, Tools};
use super::sides::Seen;
use crate::base::format::{Clock, percent};
use crate::base::texts::{t, tr};
use crate::draw::bars::{self, Raster, Scene};
use crate::draw::canvas::Align;
use crate::draw::frame::{self, Frame};
use crate::draw::layout::{AXIS, Layout, MINIMAP, Scale};
use crate::draw::overlay::{self, Marks};
use crate::draw::strips::{self, Strips};
use leptos::prelude::*;
use pipewright_core::units::Nanos;

/// Least pixels of a lower row that has words beside it.
const WORDS: f64 = 13.0;

impl Painter {
    /// Draws both steps on the first canvas.
    pub(super) fn joined(
        &self,
        tools: &mut Tools,
        whole: &Layout,
        pictures: [Option<(Layout, Scale)>; 2],
    ) {
        let state = self.state;
        let sides = [state.side(0), state.side(1)];
        // What was measured is what one looks for; before there is any, what is predicted.
        let Some(first) = sides[1].as_ref().or(sides[0].as_ref()) else { return };
        let full = state.full();
        let clock = Clock::of(Nanos(full as u64));
        let view = state.visible();
        let scale = whole.scale(view.from, view.to);
        tools.refresh_minimap(0, first, full, whole);
        let Tools { halves, pixels, image, palette, .. } = tools;
        let (canvas, minimap) = (&halves[0].canvas, &halves[0].minimap);
        let lanes = first.timeline().lanes.len();
        let outline = Layout { lanes, ..*whole };
        let frame = Frame { canvas, palette, layout: &outline, scale, full, clock };
        frame::minimap(&frame, minimap);
        frame::axis(&frame);
        let top = MINIMAP + AXIS;
        let _under = canvas.clip(0.0, top, whole.width, whole.height - top);
        names(&Frame { canvas, palette, layout: whole, scale, full, clock }, &sides);
        let page = state.page;
        let colour_by = page.look.colour_by.get();
        for (seen, picture) in sides.iter().zip(&pictures) {
            let (Some(seen), Some((layout, scale))) = (seen, picture) else { continue };
            let (timeline, arrivals, scale) = (seen.timeline(), &*seen.arrivals, *scale);
            let scene =
                Scene { canvas, palette, layout, scale, timeline, arrivals, colour_by, clock };
            bars::draw(&scene, Raster::Empty(pixels, image));
            if page.look.critical.get() {
                bars::critical(&scene, &seen.path);
            }
            let selected = page.look.selected.get();
            overlay::draw(&scene, Marks { selected, hovered: None, range: None });
        }
        // A trace of another tool says nothing of memory.
        let holds = |seen: &&Seen| seen.timeline().lanes.iter().any(|l| !l.memory.is_empty());
        let Some(seen) = sides[1].iter().chain(&sides[0]).find(holds) else { return };
        let (persistent, capacity) = (&seen.solved.persistent[..], seen.solved.capacity);
        let timeline = seen.timeline();
        let layout = &Layout { lanes: timeline.lanes.len(), ..*whole };
        let strips = Strips { canvas, palette, layout, scale, timeline, persistent, capacity };
        strips::draw(&strips, pixels, image);
    }
}

/// The names of the lanes, and which row is which.
fn names(f: &Frame, sides: &[Option<Seen>; 2]) {
    let Layout { left, small, .. } = *f.layout;
    let rows = [f.layout.row(0), f.layout.row(1)];
    f.canvas.ctx.set_text_baseline("middle");
    for lane in f.layout.seen() {
        let [upper, lower] = &rows;
        let middles = [upper, lower].map(|row| row.lane_y(lane) + row.bar / 2.0 + 0.5);
        f.canvas.fill(&f.palette.text);
        f.canvas.font(600, 12, &f.palette.font);
        if small {
            f.canvas.text(&format!("L{lane}"), 10.0, middles[1], Align::Left);
            continue;
        }
        let words = lower.bar >= WORDS && upper.bar >= 9.0;
        f.canvas.text(&tr!("Lane {lane}", lane), 12.0, middles[usize::from(!words)], Align::Left);
        f.canvas.fill(&f.palette.text_2);
        f.canvas.font(400, 11, &f.palette.font);
        for (index, seen) in sides.iter().enumerate().skip(usize::from(!words)) {
            let Some(timeline) = seen.as_ref().map(Seen::timeline) else { continue };
            let Some(content) = timeline.lanes.get(lane) else { continue };
            let share = content.busy().0 as f64 / timeline.step.0.max(1) as f64;
            let share = format!("{} %", percent(share, 0));
            f.canvas.text(&share, left - 12.0, middles[index], Align::Right);
        }
        if words {
            f.canvas.text(t("measured"), 12.0, middles[1], Align::Left);
        }
    }
}
