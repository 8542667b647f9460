//! The lanes' actions: rectangles where they are wide enough to be seen, a raster where not.

use super::canvas::{Align, Canvas};
use super::gaps;
use super::layout::{self, Layout, Scale};
use super::palette::{ColourBy, Palette};
use super::raster::{self, Image};
use crate::base::format::Clock;
use pipewright_core::simulate::StageCost;
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{Lane, Span, Timeline, What, Work};
use pipewright_core::units::Nanos;

/// What the lanes' part of the picture is drawn from.
pub struct Scene<'a> {
    pub canvas: &'a Canvas,
    pub palette: &'a Palette,
    pub layout: &'a Layout,
    pub scale: Scale,
    pub timeline: &'a Timeline,
    pub arrivals: &'a Arrivals,
    pub colour_by: ColourBy,
    pub clock: Clock,
}

impl Scene<'_> {
    /// The spans of a lane that are seen.
    fn seen<'t>(&self, spans: &'t [Span]) -> &'t [Span] {
        let first = spans.partition_point(|s| s.end.0 as f64 <= self.scale.from);
        let last = spans.partition_point(|s| (s.start.0 as f64) < self.scale.to);
        &spans[first..last.max(first)]
    }

    /// The lanes of which something is seen.
    fn lanes(&self) -> impl Iterator<Item = (usize, &Lane)> {
        let seen = self.layout.seen();
        self.timeline.lanes.iter().enumerate().take(seen.end).skip(seen.start)
    }

    /// Left edge and width of a span, with one pixel between neighbours.
    pub fn extent(&self, span: &Span) -> (f64, f64) {
        let x = self.scale.x(span.start.0 as f64);
        let w = self.scale.x(span.end.0 as f64) - x;
        (x, if w > 3.0 { w - 1.0 } else { w.max(0.8) })
    }

    /// Whether actions are too narrow for rectangles.
    pub fn thin(&self) -> bool {
        raster::mean_width(self.timeline, &self.scale) < raster::THIN
    }
}

/// Where lanes whose actions are too narrow for rectangles become pixels, a row each.
pub enum Raster<'a> {
    /// They are there: the minimap's, where all of the step is seen in its colours.
    Drawn(&'a Canvas),
    /// A canvas and an image to draw them with.
    Empty(&'a Canvas, &'a mut Image),
}

/// Draws all lanes.
pub fn draw(scene: &Scene, raster: Raster) {
    let Layout { left, right, .. } = *scene.layout;
    let (top, height) = scene.layout.lanes_area(4.0, 4.0);
    let _clip = scene.canvas.clip(left, top, right - left, height);
    idle(scene);
    if scene.thin() {
        shades(scene, raster);
    } else {
        rectangles(scene);
        if scene.layout.bar >= 10.0 {
            labels(scene);
        }
        messages(scene);
        sums(scene);
    }
    if scene.layout.bar >= 20.0 {
        captions(scene);
    }
}

/// Hatch under everything: what stays visible of it is idle.
fn idle(scene: &Scene) {
    let Layout { left, right, bar, .. } = *scene.layout;
    if bar < 8.0 {
        return;
    }
    let Some(pattern) = scene.canvas.hatch(&scene.palette.hatch) else { return };
    scene.canvas.ctx.set_fill_style_canvas_pattern(&pattern);
    // The pattern's pixels are device pixels already.
    let ratio = scene.canvas.ratio;
    let _ = scene.canvas.ctx.scale(1.0 / ratio, 1.0 / ratio);
    let end = scene.scale.x(scene.timeline.step.0 as f64).min(right);
    for lane in scene.layout.seen() {
        let y = scene.layout.lane_y(lane);
        scene.canvas.rect(left * ratio, y * ratio, (end - left) * ratio, bar * ratio);
    }
    let _ = scene.canvas.ctx.scale(ratio, ratio);
}

/// One pixel row per lane; constant cost for any number of actions.
fn shades(scene: &Scene, raster: Raster) {
    let layout = scene.layout;
    let pixels = match raster {
        Raster::Drawn(pixels) => pixels,
        Raster::Empty(pixels, image) => {
            let width = layout.columns(scene.canvas.ratio);
            image.reset(width, layout.lanes);
            let scale = Scale { left: 0.0, right: width as f64, ..scene.scale };
            fill(image, scene.timeline, &scale, scene.palette, scene.colour_by);
            pixels.put(width, layout.lanes, &image.pixels);
            pixels
        }
    };
    for lane in layout.seen() {
        let to = [layout.left, layout.lane_y(lane), layout.right - layout.left, layout.bar];
        scene.canvas.stretch(pixels, lane, 1, to);
    }
}

/// Fills an image with one row per lane.
fn fill(image: &mut Image, timeline: &Timeline, scale: &Scale, palette: &Palette, by: ColourBy) {
    let paint = |span: &Span| palette.actions[Palette::index(by, span.work)].rgb;
    for (row, lane) in timeline.lanes.iter().enumerate() {
        raster::lane(image, row, &lane.spans, scale, paint);
    }
}

fn rectangles(scene: &Scene) {
    let bar = scene.layout.bar;
    // One pass per colour: changing the fill costs more than drawing a rectangle.
    for (index, colour) in scene.palette.actions.iter().enumerate() {
        scene.canvas.fill(colour);
        for (lane, content) in scene.lanes() {
            let y = scene.layout.lane_y(lane);
            for span in scene.seen(&content.spans) {
                if Palette::index(scene.colour_by, span.work) != index {
                    continue;
                }
                let (x, w) = scene.extent(span);
                if w >= 8.0 && bar >= 8.0 {
                    scene.canvas.round(x, y, w, bar, 2.0);
                } else {
                    scene.canvas.rect(x, y, w, bar);
                }
            }
        }
    }
}

/// `4`, or `B 4` where there is room.
fn labels(scene: &Scene) {
    let Layout { bar, .. } = *scene.layout;
    scene.canvas.ctx.set_fill_style_str("#fff");
    scene.canvas.ctx.set_text_baseline("middle");
    for (size, from, to) in [(11, 18.0, 24.0), (12, 24.0, f64::INFINITY)] {
        scene.canvas.font(500, if bar < 14.0 { 10 } else { size }, &scene.palette.font);
        for (lane, content) in scene.lanes() {
            let y = scene.layout.lane_y(lane) + bar / 2.0 + 0.5;
            for span in scene.seen(&content.spans) {
                let (x, w) = scene.extent(span);
                // The label stays with the visible part of a span that is cut by the edge.
                let (a, b) = (x.max(scene.layout.left), (x + w).min(scene.layout.right));
                let room = b - a;
                if !(room + 1.0 >= from && room + 1.0 < to) {
                    continue;
                }
                let text = match span.work {
                    Work::Run(a) if room >= 40.0 && bar > 24.0 => {
                        format!("{} {}", a.kind.letter(), a.micro_batch)
                    }
                    Work::Run(a)
                        if room >= 7.0 * f64::from(a.micro_batch.0.max(1)).log10() + 10.0 =>
                    {
                        a.micro_batch.to_string()
                    }
                    Work::Optimizer(_) if room >= 50.0 => "update".into(),
                    Work::Optimizer(_) if room >= 18.0 => "U".into(),
                    _ => continue,
                };
                scene.canvas.text(&text, a + room / 2.0, y, Align::Centre);
            }
        }
    }
}

/// A thin line under the sending lane while a message travels.
fn messages(scene: &Scene) {
    let Layout { gap, bar, .. } = *scene.layout;
    if gap < 6.0 {
        return;
    }
    let (f, b) = (&scene.palette.actions[1], &scene.palette.actions[3]);
    for (colour, gradient) in [(f, false), (b, true)] {
        scene.canvas.fill(colour);
        for message in scene.timeline.messages.iter().filter(|m| m.gradient == gradient) {
            if message.sent.0 as f64 >= scene.scale.to {
                break;
            }
            let (a, z) = (message.sent.0 as f64, message.received.0 as f64);
            if z <= scene.scale.from {
                continue;
            }
            let x = scene.scale.x(a);
            let y =
                scene.layout.lane_y(message.from.index()) + bar + if gradient { 6.0 } else { 3.0 };
            scene.canvas.rect(x, y, (scene.scale.x(z) - x).max(1.5), 2.0);
        }
    }
}

/// A thin line over a lane while its gradients are summed with other replicas.
fn sums(scene: &Scene) {
    if scene.layout.gap < 6.0 {
        return;
    }
    scene.canvas.fill(&scene.palette.text_2);
    for (lane, content) in scene.lanes() {
        let y = scene.layout.lane_y(lane) - 3.5;
        for aside in content.asides.iter().filter(|a| matches!(a.what, What::AllReduce(_))) {
            let x = scene.scale.x(aside.start.0 as f64);
            scene.canvas.rect(x, y, (scene.scale.x(aside.end.0 as f64) - x).max(1.5), 2.0);
        }
    }
}

/// A line at the foot of actions, as long as what tensor groups exchange within them.
pub fn exchanged(scene: &Scene, exchanged: &[StageCost]) {
    let Layout { bar, .. } = *scene.layout;
    if exchanged.is_empty() || bar < 10.0 || scene.thin() {
        return;
    }
    scene.canvas.fill(&scene.palette.ink);
    for (lane, content) in scene.lanes() {
        let y = scene.layout.lane_y(lane) + bar - 3.0;
        for span in scene.seen(&content.spans) {
            let Work::Run(action) = span.work else { continue };
            let (x, width) = scene.extent(span);
            let of = exchanged.get(action.stage.index()).map_or(Nanos::ZERO, |c| c.of(action.kind));
            let share = of.secs() / (span.end - span.start).secs().max(1e-12);
            scene.canvas.rect(x, y, width * share.min(1.0), 2.0);
        }
    }
}

/// How long the widest gaps are and what they wait for.
fn captions(scene: &Scene) {
    let Layout { bar, small, left, right, .. } = *scene.layout;
    if small {
        return;
    }
    let Scene { canvas, palette, .. } = scene;
    canvas.ctx.set_text_baseline("alphabetic");
    for lane in scene.layout.seen() {
        let y = scene.layout.lane_y(lane) + bar / 2.0;
        for gap in gaps::widest(scene.timeline, scene.arrivals, lane, &scene.scale, 2) {
            let a = scene.scale.x(gap.from.0 as f64).max(left);
            let b = scene.scale.x(gap.to.0 as f64).min(right);
            let (x, room) = ((a + b) / 2.0, b - a - 16.0);
            let length = scene.clock.short(gap.to - gap.from);
            canvas.font(400, 11, &palette.font);
            let fits =
                |text: &&String| bar > 38.0 && !text.is_empty() && canvas.width_of(text) <= room;
            let why = [&gap.why, &gap.short].into_iter().find(fits);
            let width =
                why.map_or(0.0, |w| canvas.width_of(w)).max(canvas.width_of(&length)) + 14.0;
            let height = if why.is_some() { 34.0 } else { 18.0 };
            canvas.fill(&palette.chart);
            canvas.round(x - width / 2.0, y - height / 2.0, width, height, 3.0);
            canvas.fill(&palette.text);
            canvas.font(500, 11, &palette.font);
            canvas.text(&length, x, if why.is_some() { y - 3.0 } else { y + 4.0 }, Align::Centre);
            if let Some(why) = why {
                canvas.fill(&palette.text_2);
                canvas.font(400, 11, &palette.font);
                canvas.text(why, x, y + 11.0, Align::Centre);
            }
        }
    }
}

/// Open outlines of what was measured, a little taller than the bars: early and late show at both
/// ends.
pub fn measured(scene: &Scene, measured: &Timeline) {
    let Layout { left, right, lanes, bar, .. } = *scene.layout;
    let canvas = scene.canvas;
    let (top, height) = scene.layout.lanes_area(6.0, 4.0);
    let _clip = canvas.clip(left, top, right - left, height);
    canvas.stroke(&scene.palette.measured, 1.0);
    if raster::mean_width(measured, &scene.scale) >= raster::THIN {
        canvas.ctx.begin_path();
        for (lane, content) in measured.lanes.iter().enumerate().take(lanes) {
            let (top, bottom) =
                (scene.layout.lane_y(lane) - 3.5, scene.layout.lane_y(lane) + bar + 1.5);
            for span in scene.seen(&content.spans) {
                let (x, w) = scene.extent(span);
                canvas.ctx.move_to(x + 0.5, bottom);
                canvas.ctx.line_to(x + 0.5, top);
                canvas.ctx.line_to(x + w - 0.5, top);
                canvas.ctx.line_to(x + w - 0.5, bottom);
            }
        }
        canvas.ctx.stroke();
    }
    let x = scene.scale.x(measured.step.0 as f64).round() - 0.5;
    canvas.dashed(true);
    canvas.line(x, top, x, top + height);
    canvas.dashed(false);
}

/// The critical path along the lower edge of the bars, joined across lanes.
pub fn critical(scene: &Scene, path: &[(usize, usize)]) {
    let Layout { left, right, bar, .. } = *scene.layout;
    let canvas = scene.canvas;
    let (top, height) = scene.layout.lanes_area(4.0, 4.0);
    let _clip = canvas.clip(left, top, right - left, height);
    canvas.ctx.begin_path();
    let mut first = true;
    for &(lane, index) in path {
        let span = &scene.timeline.lanes[lane].spans[index];
        let y = scene.layout.lane_y(lane) + bar - (bar * 0.12).min(6.0);
        let (a, b) = (scene.scale.x(span.start.0 as f64), scene.scale.x(span.end.0 as f64));
        if first {
            canvas.ctx.move_to(a, y);
            first = false;
        } else {
            canvas.ctx.line_to(a, y);
        }
        canvas.ctx.line_to((b - 1.0).max(a), y);
    }
    canvas.ctx.set_line_join("round");
    let thin = bar < 12.0;
    canvas.stroke(&scene.palette.path_case, if thin { 2.5 } else { 4.5 });
    canvas.ctx.stroke();
    canvas.stroke(&scene.palette.path, if thin { 1.0 } else { 2.0 });
    canvas.ctx.stroke();
}

/// All lanes over the whole step, as pixels: the minimap's content.
pub fn minimap(timeline: &Timeline, full: f64, width: usize, palette: &Palette, image: &mut Image) {
    image.reset(width, timeline.lanes.len());
    let scale = layout::Scale { from: 0.0, to: full, left: 0.0, right: width as f64 };
    fill(image, timeline, &scale, palette, ColourBy::Kind);
}
