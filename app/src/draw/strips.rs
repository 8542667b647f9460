//! Memory of each lane on the timeline's axis: a curve against the capacity, or a row of shades
//! where there are too many lanes for curves.

use super::canvas::{Align, Canvas};
use super::fill::Fill;
use super::layout::{Layout, Scale};
use super::palette::{Colour, Palette};
use super::raster::{self, Image};
use crate::base::format;
use crate::base::texts::{t, tr};
use pipewright_core::timeline::{Lane, Timeline};
use pipewright_core::units::Bytes;

/// What the strips are drawn from.
pub struct Strips<'a> {
    pub canvas: &'a Canvas,
    pub palette: &'a Palette,
    pub layout: &'a Layout,
    pub scale: Scale,
    pub timeline: &'a Timeline,
    /// By lane: what is always held.
    pub persistent: &'a [Bytes],
    pub capacity: Bytes,
}

/// Draws caption and rows.
pub fn draw(s: &Strips, pixels: &Canvas, image: &mut Image) {
    caption(s);
    if s.layout.curves() {
        for (lane, content) in s.timeline.lanes.iter().enumerate() {
            curve(s, lane, content);
        }
    } else {
        shades(s, pixels, image);
    }
}

fn caption(s: &Strips) {
    let Layout { width, memory_top, right, small, .. } = *s.layout;
    s.canvas.stroke(&s.palette.line, 1.0);
    let y = (memory_top - 26.0).round() - 0.5;
    s.canvas.line(0.0, y, width, y);
    s.canvas.ctx.set_text_baseline("alphabetic");
    s.canvas.fill(&s.palette.text);
    s.canvas.font(600, 12, &s.palette.font);
    s.canvas.text(t("Memory"), if small { 10.0 } else { 12.0 }, memory_top - 10.0, Align::Left);
    if !small {
        s.canvas.fill(&s.palette.text_3);
        s.canvas.font(400, 11, &s.palette.font);
        let capacity = format::bytes_text(s.capacity);
        let top = Bytes(top(s) as u64);
        let text = if s.layout.curves() && top < s.capacity {
            tr!(
                "each strip 0 to {top} of {capacity} · dot: peak",
                top = format::bytes_text(top),
                capacity
            )
        } else if s.layout.curves() {
            tr!("each strip 0 to {capacity} · dashed: capacity · dot: peak", capacity)
        } else {
            tr!("darker is fuller · red is over {capacity}", capacity)
        };
        s.canvas.text(&text, right, memory_top - 10.0, Align::Right);
    }
}

fn curve(s: &Strips, lane: usize, content: &Lane) {
    let Layout { left, right, memory_bar, .. } = *s.layout;
    let y = s.layout.memory_y(lane);
    let fill = Fill::of(content.arena, s.capacity);
    let tone = tone(s.palette, fill);
    let top = top(s);
    let base = y + memory_bar;
    let height = |bytes: u64| bytes as f64 / top * (memory_bar - 3.0);
    {
        let _clip = s.canvas.clip(left, y - 4.0, right - left, memory_bar + 5.0);
        let columns = columns(s, content);
        s.canvas.fill(&s.palette.mem);
        area(s, &columns, base, &height);
        s.canvas.ctx.fill();
        if let Some(limit) = (fill != Fill::Fine).then_some(threshold(fill, s.capacity)) {
            let _hot = s.canvas.clip(left, y - 6.0, right - left, base - height(limit) - y + 6.0);
            s.canvas.fill(if fill == Fill::Over { &s.palette.bad } else { &s.palette.warn_fill });
            area(s, &columns, base, &height);
            s.canvas.ctx.fill();
        }
        s.canvas.stroke(&s.palette.mem_2, 1.0);
        area(s, &columns, base, &height);
        s.canvas.ctx.stroke();
        let kept = s.persistent.get(lane).map_or(0, |bytes| bytes.0);
        let end = s.scale.x(s.timeline.step.0 as f64);
        s.canvas.fill(&s.palette.mem_2);
        s.canvas.rect(s.scale.x(0.0), base - height(kept), end - s.scale.x(0.0), height(kept));
    }
    let limit = (base - height(s.capacity.0)).round() - 0.5;
    s.canvas.stroke(if fill == Fill::Fine { &s.palette.line_2 } else { tone }, 1.0);
    if top >= s.capacity.0 as f64 {
        s.canvas.dashed(true);
        s.canvas.line(left, limit, right, limit);
        s.canvas.dashed(false);
    }
    s.canvas.stroke(&s.palette.line, 1.0);
    s.canvas.line(left, base + 0.5, right, base + 0.5);
    peak(s, content, base - height(content.peak().0), fill);
    label(s, lane, content.arena, fill);
}

/// The most that a strip shows: what devices have, unless that would make the curves flat.
fn top(s: &Strips) -> f64 {
    let most = s.timeline.lanes.iter().map(|l| l.arena.0).max().unwrap_or(0) as f64;
    match most < FLAT * s.capacity.0 as f64 {
        true => (most * 1.25).max(1.0),
        false => (most * 1.04).max(s.capacity.0 as f64).max(1.0),
    }
}

/// The share of the capacity below which curves are drawn by themselves.
const FLAT: f64 = 0.3;

fn tone(palette: &Palette, fill: Fill) -> &Colour {
    match fill {
        Fill::Fine => &palette.text_2,
        Fill::Tight => &palette.warn,
        Fill::Over => &palette.bad,
    }
}

fn threshold(fill: Fill, capacity: Bytes) -> u64 {
    if fill == Fill::Over { capacity.0 } else { (capacity.0 as f64 * 0.9) as u64 }
}

/// Most bytes in each pixel column.
fn columns(s: &Strips, content: &Lane) -> Vec<u64> {
    let width = (s.layout.right - s.layout.left).ceil() as usize;
    raster::memory(&content.memory, s.timeline.step, &s.scale, width)
}

/// The path under the curve; only where it turns.
fn area(s: &Strips, columns: &[u64], base: f64, height: &impl Fn(u64) -> f64) {
    let ctx = &s.canvas.ctx;
    let left = s.layout.left;
    ctx.begin_path();
    ctx.move_to(left, base);
    let mut before = None;
    for (x, bytes) in columns.iter().enumerate() {
        if before != Some(bytes) {
            if let Some(old) = before {
                ctx.line_to(left + x as f64, base - height(*old));
            }
            ctx.line_to(left + x as f64, base - height(*bytes));
            before = Some(bytes);
        }
    }
    let end = left + columns.len() as f64;
    ctx.line_to(end, base - height(before.copied().unwrap_or(0)));
    ctx.line_to(end, base);
}

fn peak(s: &Strips, content: &Lane, y: f64, fill: Fill) {
    let peak = content.peak();
    let Some((at, _)) = content.memory.iter().find(|(_, bytes)| *bytes == peak) else { return };
    let x = s.scale.x(at.0 as f64);
    if !(s.layout.left..=s.layout.right).contains(&x) {
        return;
    }
    let ctx = &s.canvas.ctx;
    ctx.begin_path();
    let _ = ctx.arc(x, y, 3.0, 0.0, std::f64::consts::TAU);
    s.canvas.fill(&s.palette.chart);
    ctx.fill();
    s.canvas.stroke(tone(s.palette, fill), 1.5);
    ctx.stroke();
}

fn label(s: &Strips, lane: usize, peak: Bytes, fill: Fill) {
    let Layout { small, memory_bar, .. } = *s.layout;
    let middle = s.layout.memory_y(lane) + memory_bar / 2.0;
    let share = peak.0 as f64 / s.capacity.0.max(1) as f64;
    s.canvas.ctx.set_text_baseline("alphabetic");
    let text = if small {
        format!("{}{} %", fill.sign().trim(), format::percent(share, 0))
    } else if fill == Fill::Over {
        tr!("✕ {bytes} over", bytes = format::bytes_text(peak.saturating_sub(s.capacity)))
    } else {
        let size = format::bytes_text(peak);
        format!("{}{size} · {} %", fill.sign(), format::percent(share, usize::from(share < 0.0995)))
    };
    let weight = if fill == Fill::Fine { 400 } else { 600 };
    if small || memory_bar < 26.0 {
        s.canvas.fill(tone(s.palette, fill));
        s.canvas.font(weight, 11, &s.palette.font);
        let text = if small { text } else { format!("L{lane}  {text}") };
        s.canvas.text(&text, if small { 6.0 } else { 12.0 }, middle + 4.0, Align::Left);
        return;
    }
    s.canvas.fill(&s.palette.text);
    s.canvas.font(600, 12, &s.palette.font);
    s.canvas.text(&tr!("Lane {lane}", lane), 12.0, middle - 2.0, Align::Left);
    s.canvas.fill(tone(s.palette, fill));
    s.canvas.font(weight, 11, &s.palette.font);
    s.canvas.text(&text, 12.0, middle + 12.0, Align::Left);
}

/// The colour of so many bytes: red, green, blue, opacity.
fn shade(s: &Strips, bytes: u64) -> [u8; 4] {
    if bytes > s.capacity.0 {
        let [r, g, b] = s.palette.bad.rgb;
        return [r, g, b, 255];
    }
    let [r, g, b] = s.palette.mem_2.rgb;
    let share = bytes as f64 / s.capacity.0.max(1) as f64;
    [r, g, b, (30.0 + 225.0 * share) as u8]
}

/// Rows of shades for many lanes: one image, whatever the number of actions.
fn shades(s: &Strips, pixels: &Canvas, image: &mut Image) {
    let Layout { left, right, lanes, memory_bar, memory_pitch, .. } = *s.layout;
    let width = (right - left).ceil() as usize;
    image.reset(width, lanes);
    for (row, lane) in s.timeline.lanes.iter().enumerate() {
        // Neighbours are mostly alike.
        let mut before = (None, [0; 4]);
        let out = image.pixels[row * width * 4..].chunks_exact_mut(4);
        for (bytes, out) in columns(s, lane).into_iter().zip(out) {
            if before.0 != Some(bytes) {
                before = (Some(bytes), shade(s, bytes));
            }
            out.copy_from_slice(&before.1);
        }
    }
    pixels.put(width, lanes, &image.pixels);
    for lane in 0..lanes {
        s.canvas.stretch(
            pixels,
            lane,
            1,
            [left, s.layout.memory_y(lane), right - left, memory_bar],
        );
    }
    if s.layout.small {
        return;
    }
    s.canvas.ctx.set_text_baseline("middle");
    s.canvas.font(400, 11, &s.palette.font);
    for lane in (0..lanes).step_by(s.layout.label_every(memory_pitch, 15.0)) {
        let arena = s.timeline.lanes[lane].arena;
        let fill = Fill::of(arena, s.capacity);
        s.canvas.fill(tone(s.palette, fill));
        let text = format!("L{lane}  {}{}", fill.sign(), format::bytes_text(arena));
        let y = s.layout.memory_y(lane) + (memory_bar / 2.0).max(5.5);
        s.canvas.text(&text, 12.0, y, Align::Left);
    }
}
