//! The timeline as a drawing for papers and slides: light ground, rectangles, no script, no style sheet.

use super::palette::{HUES_OF_KINDS, colour_of};
use crate::base::format::{Clock, escape};
use crate::base::texts::{t, tr};
use pipewright_core::timeline::{Span, Timeline, Work};
use pipewright_core::units::Nanos;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 36.0;
const PITCH: f64 = 28.0;
const BAR: f64 = 22.0;
/// Narrower bars have no number.
const LABEL_FROM: f64 = 18.0;
/// More than that no drawing program opens with pleasure.
const MOST: usize = 50_000;

/// Draws one step under `title`, on an axis of its length.
///
/// # Errors
/// When it has too many actions.
pub fn draw(timeline: &Timeline, title: &str) -> Result<String, String> {
    draw_until(timeline, title, timeline.step)
}

/// Draws one step under `title`, on an axis that ends at a moment.
///
/// # Errors
/// When it has too many actions.
pub fn draw_until(timeline: &Timeline, title: &str, end: Nanos) -> Result<String, String> {
    let clock = Clock::of(end);
    let work: usize = timeline.lanes.iter().map(|lane| lane.spans.len()).sum();
    if work > MOST {
        return Err(tr!(
            "{work} actions are too many to draw, at most {most} fit; use fewer micro-batches",
            work,
            most = MOST
        ));
    }
    let height = TOP + PITCH * timeline.lanes.len() as f64 + 28.0;
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' \
         font-family='Inter, Helvetica, Arial, sans-serif' font-size='11'>\n\
         <rect width='{WIDTH}' height='{height}' fill='#ffffff'/>\n\
         <text x='{LEFT}' y='20' font-size='13' font-weight='600'>{}</text>\n",
        escape(title)
    );
    let scale = (WIDTH - LEFT - 12.0) / end.0.max(1) as f64;
    for (lane, spans) in timeline.lanes.iter().map(|lane| &lane.spans).enumerate() {
        let y = TOP + PITCH * lane as f64;
        let middle = y + BAR / 2.0 + 4.0;
        let _ = writeln!(out, "<text x='12' y='{middle}' font-weight='600'>L{lane}</text>");
        for span in spans {
            let x = LEFT + span.start.0 as f64 * scale;
            let width = ((span.end.0 - span.start.0) as f64 * scale).max(0.5);
            let fill = colour_of(span.work);
            let gap = if width > 3.0 { 0.75 } else { 0.0 };
            let _ = writeln!(
                out,
                "<rect x='{x:.2}' y='{y}' width='{:.2}' height='{BAR}' fill='{fill}'><title>{}</title></rect>",
                width - gap,
                named(span, &clock)
            );
            if let (Work::Run(action), true) = (span.work, width >= LABEL_FROM) {
                let centre = x + width / 2.0;
                let _ = writeln!(
                    out,
                    "<text x='{centre:.2}' y='{middle}' text-anchor='middle' fill='#ffffff'>{}</text>",
                    action.micro_batch
                );
            }
        }
    }
    foot(&mut out, end, height);
    out.push_str("</svg>\n");
    Ok(out)
}

/// What a bar is, for a pointer that rests on it.
fn named(span: &Span, clock: &Clock) -> String {
    let what = match span.work {
        Work::Run(action) => action.to_string(),
        Work::Optimizer(stage) => tr!("update of stage {stage}", stage),
    };
    format!("{what} · {}", clock.span(span.start, span.end))
}

/// Ends of the axis, and what colours mean.
fn foot(out: &mut String, end: Nanos, height: f64) {
    let y = height - 10.0;
    let _ = writeln!(out, "<text x='{LEFT}' y='{y}' fill='#555555'>0</text>");
    let end = Clock::of(end).text(end);
    let x = WIDTH - 12.0;
    let _ = writeln!(out, "<text x='{x}' y='{y}' text-anchor='end' fill='#555555'>{end}</text>");
    for (at, (name, colour)) in HUES_OF_KINDS.iter().enumerate() {
        let x = LEFT + 60.0 + 120.0 * at as f64;
        let _ = writeln!(out, "<circle cx='{x}' cy='{}' r='4' fill='{colour}'/>", y - 4.0);
        let _ = writeln!(out, "<text x='{}' y='{y}' fill='#555555'>{}</text>", x + 8.0, t(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_drawing() {
        let drawn = draw(&Timeline::default(), "<script>&").unwrap();
        assert!(drawn.contains("&lt;script&gt;&amp;") && drawn.ends_with("</svg>\n"));
    }
}
