//! The frame around the lanes: minimap, time axis and names.

use super::canvas::{Align, Canvas};
use super::layout::{AXIS, Layout, MINIMAP, Scale};
use super::palette::Palette;
use super::ticks;
use crate::base::format::{Clock, percent};
use crate::base::texts::tr;
use pipewright_core::timeline::Timeline;

/// What the frame is drawn from.
pub struct Frame<'a> {
    pub canvas: &'a Canvas,
    pub palette: &'a Palette,
    pub layout: &'a Layout,
    pub scale: Scale,
    /// End of the time axis when everything is seen.
    pub full: f64,
    pub clock: Clock,
}

/// Vertical lines and the numbers above them.
pub fn axis(f: &Frame) {
    let Layout { left, right, height, small, .. } = *f.layout;
    let step = ticks::step((if small { 56.0 } else { 72.0 }) / f.scale.px_per_ns());
    f.canvas.ctx.set_text_baseline("alphabetic");
    f.canvas.font(400, 11, &f.palette.font);
    f.canvas.stroke(&f.palette.line, 1.0);
    f.canvas.fill(&f.palette.text_3);
    for moment in ticks::multiples(f.scale.from, f.scale.to, step) {
        let x = f.scale.x(moment).round() + 0.5;
        f.canvas.line(x, MINIMAP + AXIS, x, height - 4.0);
        let mut text = f.clock.axis(moment, step);
        if moment == 0.0 {
            text = format!("{text} {}", f.clock.unit);
        }
        let align = match x {
            x if x < left + 14.0 => Align::Left,
            x if x > right - 18.0 => Align::Right,
            _ => Align::Centre,
        };
        f.canvas.text(&text, x, MINIMAP + 15.0, align);
    }
    if f.scale.from > 0.0 && !small {
        // The unit stands at 0; zoomed in there is no 0 to carry it.
        f.canvas.text(f.clock.unit, left - 8.0, MINIMAP + 15.0, Align::Right);
    }
}

/// The names of the lanes and how busy they are.
pub fn names(f: &Frame, timeline: &Timeline) {
    let Layout { lanes, pitch, bar, small, .. } = *f.layout;
    f.canvas.ctx.set_text_baseline("alphabetic");
    let two_lines = bar >= 30.0 && !small;
    let (seen, every) = (f.layout.seen(), f.layout.label_every(pitch, 14.0));
    for lane in (0..lanes).step_by(every).filter(|lane| seen.contains(lane)) {
        let middle = f.layout.lane_y(lane) + bar / 2.0;
        f.canvas.fill(&f.palette.text);
        f.canvas.font(600, 12, &f.palette.font);
        if !two_lines {
            let name = if small { format!("L{lane}") } else { tr!("Lane {lane}", lane) };
            f.canvas.text(&name, if small { 10.0 } else { 12.0 }, middle + 4.0, Align::Left);
            if !small {
                f.canvas.fill(&f.palette.text_2);
                f.canvas.font(400, 11, &f.palette.font);
                f.canvas.text(
                    &busy(timeline, lane),
                    f.layout.left - 12.0,
                    middle + 4.0,
                    Align::Right,
                );
            }
            continue;
        }
        f.canvas.text(&tr!("Lane {lane}", lane), 12.0, middle - 3.0, Align::Left);
        f.canvas.fill(&f.palette.text_2);
        f.canvas.font(400, 11, &f.palette.font);
        let says = tr!("{share} busy", share = busy(timeline, lane));
        f.canvas.text(&says, 12.0, middle + 12.0, Align::Left);
    }
}

fn busy(timeline: &Timeline, lane: usize) -> String {
    let share = timeline.lanes[lane].busy().0 as f64 / timeline.step.0.max(1) as f64;
    format!("{} %", percent(share, 0))
}

/// The whole step, with a window around what is seen.
pub fn minimap(f: &Frame, pixels: &Canvas) {
    let Layout { left, right, lanes, .. } = *f.layout;
    let (width, height) = (right - left, MINIMAP - 8.0);
    let x = |nanos: f64| left + nanos / f.full * width;
    f.canvas.fill(&f.palette.sunk);
    f.canvas.round(left, 4.0, width, height, 2.0);
    let row = (MINIMAP - 10.0) / lanes as f64;
    if lanes <= 8 {
        for lane in 0..lanes {
            let to = [left, 5.0 + lane as f64 * row, width, row - 0.6];
            f.canvas.stretch(pixels, lane, 1, to);
        }
    } else {
        f.canvas.stretch(pixels, 0, lanes, [left, 5.0, width, MINIMAP - 10.0]);
    }
    let (a, b) = (x(f.scale.from), x(f.scale.to.min(f.full)));
    f.canvas.ctx.set_global_alpha(0.72);
    f.canvas.fill(&f.palette.chart);
    f.canvas.rect(left, 4.0, a - left, height);
    f.canvas.rect(b, 4.0, right - b, height);
    f.canvas.ctx.set_global_alpha(1.0);
    f.canvas.stroke(&f.palette.line_2, 1.0);
    f.canvas.outline(a + 0.5, 3.5, (b - a - 1.0).max(1.0), MINIMAP - 7.0, 3.0);
    f.canvas.fill(&f.palette.text);
    for edge in [a, b] {
        f.canvas.round(edge - 2.0, 8.0, 4.0, MINIMAP - 16.0, 2.0);
    }
}
