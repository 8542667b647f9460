//! The overlay of selection, hover and the measured range, on a canvas of its own so that
//! the bars below stay as they are.

use super::bars::Scene;
use super::canvas::Align;
use super::layout::Layout;
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::timeline::causes;
use pipewright_core::timeline::{Message, Work};
use pipewright_core::units::Nanos;

/// What is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    pub selected: Option<Action>,
    pub hovered: Option<Action>,
    /// A range that is measured by dragging, in nanoseconds.
    pub range: Option<(f64, f64)>,
}

/// Draws all marks.
pub fn draw(scene: &Scene, marks: Marks) {
    let Layout { left, right, .. } = *scene.layout;
    let (top, height) = scene.layout.lanes_area(6.0, 4.0);
    let _clip = scene.canvas.clip(left - 4.0, top, right - left + 8.0, height);
    if let Some(hovered) = marks.hovered {
        hover(scene, hovered);
    }
    if let Some(selected) = marks.selected {
        selection(scene, selected);
    }
    if let Some((a, b)) = marks.range {
        range(scene, a.min(b), a.max(b));
    }
}

fn hover(scene: &Scene, action: Action) {
    scene.canvas.ctx.set_fill_style_str("rgb(255 255 255 / .14)");
    each(scene, action, |x, y, w, h, same| {
        if same {
            scene.canvas.round(x, y, w, h, 2.0);
        }
    });
    scene.canvas.stroke(&scene.palette.ink, 1.0);
    each(scene, action, |x, y, w, h, same| {
        if !same {
            scene.canvas.outline(x - 0.5, y - 0.5, w + 1.0, h + 1.0, 3.0);
        }
    });
    arrows(scene, action);
}

/// The messages of an action as arrows: the one that it waited for, and those that carry what it computed.
fn arrows(scene: &Scene, action: Action) {
    let timeline = scene.timeline;
    let Some((lane, _)) = causes::find(timeline, action) else { return };
    let awaited = scene.arrivals.message(timeline, lane, action);
    let backward = action.kind != ActionKind::Forward;
    for (at, message) in timeline.messages.iter().enumerate() {
        let sent = message.stage == action.stage
            && message.micro_batch == action.micro_batch
            && message.gradient == backward
            && action.kind != ActionKind::BackwardWeight;
        if sent || Some(at) == awaited {
            arrow(scene, message);
        }
    }
}

fn arrow(scene: &Scene, message: &Message) {
    let (canvas, bar) = (scene.canvas, scene.layout.bar);
    let middle = |lane: usize| scene.layout.lane_y(lane) + bar / 2.0;
    let (from, to) = (middle(message.from.index()), middle(message.to.index()));
    let towards = if to > from { 1.0 } else { -1.0 };
    let (x0, y0) = (scene.scale.x(message.sent.0 as f64), from + towards * bar / 2.0);
    let (x1, y1) = (scene.scale.x(message.received.0 as f64), to - towards * bar / 2.0);
    // Readable on bars of any colour.
    for (colour, width) in [(&scene.palette.path_case, 4.0), (&scene.palette.path, 1.5)] {
        canvas.stroke(colour, width);
        canvas.line(x0, y0, x1, y1);
        canvas.line(x1, y1, x1 - 4.0, y1 - towards * 6.0);
        canvas.line(x1, y1, x1 + 4.0, y1 - towards * 6.0);
    }
}

fn selection(scene: &Scene, action: Action) {
    let thin = scene.layout.bar < 12.0;
    scene.canvas.stroke(&scene.palette.ink, if thin { 1.0 } else { 1.5 });
    each(scene, action, |x, y, w, h, same| {
        scene.canvas.outline(x - 0.75, y - 0.75, w + 1.5, h + 1.5, 3.0);
        if same {
            let gap = if thin { 1.5 } else { 3.5 };
            scene.canvas.ctx.set_line_width(if thin { 1.0 } else { 2.0 });
            scene.canvas.outline(x - gap, y - gap, w + 2.0 * gap, h + 2.0 * gap, 5.0);
            scene.canvas.ctx.set_line_width(if thin { 1.0 } else { 1.5 });
        }
    });
}

/// Every visible span of the action's micro-batch; `same` for the action itself.
fn each(scene: &Scene, action: Action, mut draw: impl FnMut(f64, f64, f64, f64, bool)) {
    for (lane, content) in scene.timeline.lanes.iter().enumerate() {
        let y = scene.layout.lane_y(lane);
        for span in &content.spans {
            let Work::Run(other) = span.work else { continue };
            if other.micro_batch != action.micro_batch || span.end.0 as f64 <= scene.scale.from {
                continue;
            }
            if span.start.0 as f64 >= scene.scale.to {
                break;
            }
            let (x, w) = scene.extent(span);
            draw(x, y, w, scene.layout.bar, other == action);
        }
    }
}

fn range(scene: &Scene, from: f64, to: f64) {
    let lanes_top = scene.layout.lanes_top;
    let (a, b) = (scene.scale.x(from), scene.scale.x(to));
    let (_, height) = scene.layout.lanes_area(0.0, 0.0);
    let canvas = scene.canvas;
    canvas.ctx.set_global_alpha(0.12);
    canvas.fill(&scene.palette.ink);
    canvas.rect(a, lanes_top - 4.0, b - a, height + 4.0);
    canvas.ctx.set_global_alpha(1.0);
    canvas.stroke(&scene.palette.ink, 1.0);
    for x in [a, b] {
        canvas.line(x, lanes_top - 4.0, x, lanes_top + height);
    }
    let text = scene.clock.text(Nanos((to - from).max(0.0) as u64));
    canvas.font(600, 12, &scene.palette.font);
    canvas.ctx.set_text_baseline("middle");
    let width = canvas.width_of(&text) + 16.0;
    let half = width / 2.0;
    let x = ((a + b) / 2.0)
        .clamp(scene.layout.left + half, (scene.layout.right - half).max(scene.layout.left + half));
    canvas.fill(&scene.palette.ink);
    canvas.round(x - width / 2.0, lanes_top + 2.0, width, 22.0, 4.0);
    canvas.fill(&scene.palette.chart);
    canvas.text(&text, x, lanes_top + 13.5, Align::Centre);
}
