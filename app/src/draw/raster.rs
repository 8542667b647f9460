//! One pixel row per lane: what fills most of each pixel, and how much of it.
//!
//! With 65,536 actions on 800 pixels no action is wider than a pixel. As in Perfetto each pixel
//! takes the colour of the longest action in it; its opacity is the share of the pixel that is
//! busy, so that a half-idle lane looks half as dense. Cost: one pass over the visible spans.

use super::layout::Scale;
use pipewright_core::timeline::{Span, Timeline};
use pipewright_core::units::{Bytes, Nanos};

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// An image of `width` x rows, RGBA, rows from the top.
#[derive(Debug, Default)]
pub struct Image {
    pub width: usize,
    pub pixels: Vec<u8>,
}

impl Image {
    /// Clears to transparent; keeps the memory.
    pub fn reset(&mut self, width: usize, rows: usize) {
        self.width = width;
        self.pixels.clear();
        self.pixels.resize(width * rows * 4, 0);
    }

    fn row(&mut self, row: usize) -> &mut [u8] {
        let length = self.width * 4;
        &mut self.pixels[row * length..(row + 1) * length]
    }
}

/// Least opacity of a pixel in which anything happens: work must not vanish.
const ALPHA_MIN: f32 = 70.0;

/// Draws a lane's visible spans into row `row`. The scale's pixels are the image's.
pub fn lane(
    image: &mut Image,
    row: usize,
    spans: &[Span],
    scale: &Scale,
    paint: impl Fn(&Span) -> Rgb,
) {
    let per_ns = scale.px_per_ns();
    let width = image.width;
    let pixels = image.row(row);
    let first = spans.partition_point(|s| s.end.0 as f64 <= scale.from);
    // The pixel being filled: its index, the longest share in it and that one's colour, all shares.
    let mut open = (usize::MAX, 0f32, [0; 3], 0f32);
    for span in &spans[first..] {
        if span.start.0 as f64 >= scale.to {
            break;
        }
        let from = ((span.start.0 as f64 - scale.from) * per_ns).max(0.0);
        let to = ((span.end.0 as f64 - scale.from) * per_ns).min(width as f64);
        let (a, b) = (from as usize, (to as usize).min(width));
        let mut add = |pixel: usize, share: f32| {
            if open.0 != pixel {
                put(pixels, open);
                open = (pixel, 0.0, [0; 3], 0.0);
            }
            if share > open.1 {
                (open.1, open.2) = (share, paint(span));
            }
            open.3 += share;
        };
        if a == b {
            add(a, (to - from) as f32);
            continue;
        }
        add(a, (a as f64 + 1.0 - from) as f32);
        for pixel in a + 1..b {
            add(pixel, 1.0);
        }
        if to > b as f64 {
            add(b, (to - b as f64) as f32);
        }
    }
    put(pixels, open);
}

fn put(pixels: &mut [u8], (pixel, _, colour, busy): (usize, f32, Rgb, f32)) {
    let Some(out) = pixel.checked_mul(4).and_then(|at| pixels.get_mut(at..at + 4)) else { return };
    out[..3].copy_from_slice(&colour);
    out[3] = (ALPHA_MIN + (255.0 - ALPHA_MIN) * busy).min(255.0) as u8;
}

/// Most bytes in use in each pixel of the scale. Empty when nothing is known.
pub fn memory(steps: &[(Nanos, Bytes)], end: Nanos, scale: &Scale, width: usize) -> Vec<u64> {
    let mut most = vec![0u64; if steps.is_empty() { 0 } else { width }];
    let per_ns = scale.px_per_ns();
    let pixel = |t: Nanos| ((t.0 as f64 - scale.from) * per_ns).max(0.0);
    let first = steps.partition_point(|(t, _)| t.0 as f64 <= scale.from).saturating_sub(1);
    let steps = &steps[first.min(steps.len())..];
    // The pixel in which a step begins, and a moment before which it ends there too: most do.
    let mut a = steps.first().map_or(0.0, |(from, _)| pixel(*from)) as usize;
    let mut edge = 0;
    for (i, (from, bytes)) in steps.iter().enumerate() {
        if from.0 as f64 >= scale.to {
            break;
        }
        let next = steps.get(i + 1).map_or(end, |(next, _)| *next);
        if next.0 < edge {
            if let Some(slot) = most.get_mut(a) {
                *slot = (*slot).max(bytes.0);
            }
            continue;
        }
        let until = pixel(next);
        let b = (until.ceil() as usize).clamp(a + 1, width.max(a + 1));
        for slot in &mut most[a.min(width)..b.min(width)] {
            *slot = (*slot).max(bytes.0);
        }
        a = until as usize;
        edge = (scale.from + (a + 1) as f64 / per_ns) as u64;
        // What is rounded here must not be on the other side there.
        edge = edge.saturating_sub(1 + edge / (1 << 40));
    }
    most
}

/// Mean width of a visible span in pixels of `scale`: under [`THIN`] the raster is drawn.
pub fn mean_width(timeline: &Timeline, scale: &Scale) -> f64 {
    let mut count = 0usize;
    let mut busy = 0f64;
    for lane in &timeline.lanes {
        let first = lane.spans.partition_point(|s| s.end.0 as f64 <= scale.from);
        let last = lane.spans.partition_point(|s| (s.start.0 as f64) < scale.to);
        let Some(seen) = lane.spans.get(first..last).filter(|seen| !seen.is_empty()) else {
            continue;
        };
        count += seen.len();
        let (from, to) = (seen[0].start.0 as f64, seen[seen.len() - 1].end.0 as f64);
        busy += to.min(scale.to) - from.max(scale.from);
    }
    if count == 0 { f64::INFINITY } else { busy * scale.px_per_ns() / count as f64 }
}

/// Pixels; see [`mean_width`].
pub const THIN: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::schedule::{Action, ActionKind};
    use pipewright_core::timeline::Work;

    fn span(start: u64, end: u64, kind: ActionKind) -> Span {
        Span { start: Nanos(start), end: Nanos(end), work: Work::Run(Action::new(0, kind, 0)) }
    }

    fn paint(span: &Span) -> Rgb {
        match span.work {
            Work::Run(a) if a.kind == ActionKind::Forward => [1, 0, 0],
            _ => [2, 0, 0],
        }
    }

    fn draw(spans: &[Span], width: usize) -> Vec<(u8, u8)> {
        let mut image = Image::default();
        image.reset(width, 1);
        let scale = Scale { from: 0.0, to: 100.0, left: 0.0, right: width as f64 };
        lane(&mut image, 0, spans, &scale, paint);
        image.pixels.chunks(4).map(|p| (p[0], p[3])).collect()
    }

    #[test]
    fn the_longest_action_colours_the_pixel() {
        use ActionKind::{Backward, Forward};
        let spans = [span(0, 3, Forward), span(3, 9, Backward), span(9, 10, Forward)];
        assert_eq!(draw(&spans, 10)[0], (2, 255));
        assert_eq!(draw(&spans, 10)[1], (0, 0));
    }

    #[test]
    fn opacity_is_the_busy_share() {
        let spans = [span(10, 15, ActionKind::Forward), span(20, 50, ActionKind::Backward)];
        let row = draw(&spans, 10);
        assert_eq!(row[1].0, 1);
        assert!((160..=165).contains(&row[1].1), "{row:?}");
        assert_eq!(row[2..5], [(2, 255); 3]);
        assert_eq!(row[5], (0, 0));
    }

    #[test]
    fn nothing_outside_of_the_view_is_touched() {
        let mut image = Image::default();
        image.reset(4, 2);
        let scale = Scale { from: 40.0, to: 60.0, left: 0.0, right: 4.0 };
        let spans = [span(0, 39, ActionKind::Forward), span(45, 1000, ActionKind::Forward)];
        lane(&mut image, 1, &spans, &scale, paint);
        let alpha: Vec<u8> = image.pixels.chunks(4).map(|p| p[3]).collect();
        assert_eq!(alpha, [0, 0, 0, 0, 0, 255, 255, 255]);
    }

    #[test]
    fn memory_keeps_the_peak_of_each_pixel() {
        let steps = [(Nanos(0), Bytes(1)), (Nanos(12), Bytes(9)), (Nanos(13), Bytes(2))];
        let scale = Scale { from: 0.0, to: 40.0, left: 0.0, right: 4.0 };
        assert_eq!(memory(&steps, Nanos(30), &scale, 4), [1, 9, 2, 0]);
        assert!(memory(&[], Nanos(30), &scale, 4).is_empty());
    }
}
