//! Layout of the timeline's canvas, in CSS pixels.
//!
//! From the top: minimap, time axis, one row per lane, one memory row per lane. All share their
//! left and right edge. Rows shrink as lanes are added; below a height each row loses its label,
//! then its hatch, then the memory curve becomes a row of shades. Rows that are made taller than the
//! picture has room for scroll under the axis.

use std::ops::Range;

/// The picture's skeleton.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    pub width: f64,
    pub height: f64,
    pub lanes: usize,
    /// Left edge of the time axis.
    pub left: f64,
    /// Right edge of the time axis.
    pub right: f64,
    /// Top of the first lane's bars while nothing is scrolled.
    pub lanes_top: f64,
    /// How far lanes and memory are scrolled.
    pub scrolled: f64,
    /// The height in which nothing would have to scroll.
    pub content: f64,
    /// From one lane to the next.
    pub pitch: f64,
    /// Height of a lane's bars.
    pub bar: f64,
    /// Room under the bars.
    pub gap: f64,
    pub memory_top: f64,
    pub memory_pitch: f64,
    pub memory_bar: f64,
    /// Narrow screens: short labels.
    pub small: bool,
}

pub const MINIMAP: f64 = 26.0;
pub const AXIS: f64 = 24.0;
/// Height of the caption between lanes and memory.
pub const CAPTION: f64 = 30.0;
const BOTTOM: f64 = 8.0;
/// Where lanes begin, and what is scrolled ends.
const TOP: f64 = MINIMAP + AXIS + 8.0;
/// Greatest height of a lane, and of its memory's row: two of each fill a picture.
const TALLEST: f64 = 160.0;
const MEMORY_TALLEST: f64 = 96.0;
/// Between the two rows of a lane that shows two steps.
const BETWEEN: f64 = 2.0;
/// Least height of a memory row that is drawn as a curve.
const CURVE_MIN: f64 = 12.0;

/// How tall lanes are to be, and how far they are scrolled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    /// So many times the height in which all lanes fit.
    pub times: f64,
    /// Pixels that a lane has at least.
    pub least: f64,
    pub scrolled: f64,
}

impl Default for Rows {
    fn default() -> Self {
        Self { times: 1.0, least: 0.0, scrolled: 0.0 }
    }
}

impl Layout {
    /// Lanes as tall as they are wanted.
    pub fn new(width: f64, height: f64, lanes: usize, rows: Rows) -> Self {
        let small = width < 480.0;
        let (left, margin) = if small { (46.0, 10.0) } else { (124.0, 16.0) };
        let n = lanes.max(1) as f64;
        // One lane alone may be twice as tall.
        let few = 1.0 + 1.0 / n;
        let available = (height - TOP - CAPTION - BOTTOM).max(2.0 * n);
        let memory_row = (available * 0.36 / n * rows.times).min(if small {
            44.0
        } else {
            MEMORY_TALLEST * few
        });
        let (memory_pitch, memory_bar) = if memory_row >= CURVE_MIN + 4.0 {
            (memory_row, memory_row - (memory_row * 0.2).clamp(3.0, 10.0))
        } else {
            // Shades need less than a curve does.
            let row = (available * 0.3 / n).min(8.0);
            (row, if row > 3.0 { row - 1.0 } else { row })
        };
        let fit = ((available - memory_pitch.min(available * 0.36 / n) * n) / n).min(TALLEST * few);
        let taller = (fit * rows.times).min(TALLEST).max(fit);
        let pitch = taller.max(rows.least);
        let bar = pitch - (pitch * 0.18).clamp(if pitch > 3.0 { 0.75 } else { 0.0 }, 12.0);
        let end = TOP + n * pitch + CAPTION;
        let content = end + n * memory_pitch + BOTTOM;
        let scrolled = rows.scrolled.clamp(0.0, (content - height).max(0.0));
        Self {
            width,
            height,
            lanes,
            left,
            right: (width - margin).max(left + 1.0),
            lanes_top: TOP,
            scrolled,
            content,
            pitch,
            bar,
            gap: pitch - bar,
            memory_top: end - scrolled,
            memory_pitch,
            memory_bar,
            small,
        }
    }

    /// Device pixels from the left end of the time axis to the right.
    pub fn columns(&self, ratio: f64) -> usize {
        ((self.right - self.left) * ratio).round() as usize
    }

    pub fn lane_y(&self, lane: usize) -> f64 {
        self.lanes_top - self.scrolled + lane as f64 * self.pitch
    }

    /// Whether there is more than the picture's height shows.
    pub fn scrolls(&self) -> bool {
        self.content > self.height + 0.5
    }

    /// The lanes of which something is seen.
    pub fn seen(&self) -> Range<usize> {
        let lane = |y: f64| ((y + self.scrolled - TOP) / self.pitch).max(0.0);
        let last = (lane(self.height).ceil() as usize).min(self.lanes);
        (lane(TOP) as usize).min(last)..last
    }

    /// Where lanes are drawn, and so many pixels more above and below: top and height.
    pub fn lanes_area(&self, above: f64, below: f64) -> (f64, f64) {
        let height = self.pitch * self.lanes as f64 - self.scrolled + above + below;
        (TOP - above, height.max(0.0))
    }

    /// The upper or the lower row of lanes that show two steps; the lower is the taller one.
    pub fn row(&self, index: usize) -> Self {
        let upper = (self.bar * 0.4).round();
        let (bar, shift, gap) = match index {
            0 => (upper, 0.0, BETWEEN),
            _ => (self.bar - upper - BETWEEN, upper + BETWEEN, self.gap),
        };
        Self { bar, gap, lanes_top: self.lanes_top + shift, ..*self }
    }

    pub fn memory_y(&self, lane: usize) -> f64 {
        self.memory_top + lane as f64 * self.memory_pitch
    }

    /// The lane at a height of the canvas: its bars and the space under them.
    pub fn lane_at(&self, y: f64) -> Option<usize> {
        let lane = ((y - self.lane_y(0)) / self.pitch).floor();
        (y >= TOP && lane >= 0.0 && (lane as usize) < self.lanes).then_some(lane as usize)
    }

    /// Memory rows are high enough for curves.
    pub fn curves(&self) -> bool {
        self.memory_bar >= CURVE_MIN - 1.0
    }

    /// Every how many lanes a label fits, when each needs `height`.
    pub fn label_every(&self, pitch: f64, height: f64) -> usize {
        let every = (height / pitch).ceil().max(1.0) as usize;
        // Powers of two are easier to count in.
        every.next_power_of_two()
    }

    /// The scale of the time axis for a visible range.
    pub fn scale(&self, from: f64, to: f64) -> Scale {
        Scale { from, to: to.max(from + 1.0), left: self.left, right: self.right }
    }
}

/// Nanoseconds to pixels and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub from: f64,
    pub to: f64,
    pub left: f64,
    pub right: f64,
}

impl Scale {
    pub fn x(&self, nanos: f64) -> f64 {
        self.left + (nanos - self.from) * self.px_per_ns()
    }

    pub fn nanos(&self, x: f64) -> f64 {
        self.from + (x - self.left) / self.px_per_ns()
    }

    pub fn px_per_ns(&self) -> f64 {
        (self.right - self.left) / (self.to - self.from)
    }
}

/// The part of `0..full` that is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    pub from: f64,
    pub to: f64,
}

impl View {
    /// Zooms around `centre` (a moment); `None` when everything is seen again.
    pub fn zoom(self, factor: f64, centre: f64, full: f64) -> Option<View> {
        // Further in, f64 pixels of u64 nanoseconds lose their meaning.
        let length = ((self.to - self.from) * factor).max(20.0);
        let share = (centre - self.from) / (self.to - self.from);
        View { from: centre - share * length, to: centre + (1.0 - share) * length }.fit(full)
    }

    /// Moves by a share of what is seen.
    pub fn pan(self, share: f64, full: f64) -> Option<View> {
        let by = (self.to - self.from) * share;
        let by = by.clamp(-self.from, (full - self.to).max(0.0));
        View { from: self.from + by, to: self.to + by }.fit(full)
    }

    /// Shows `from..to` with some room on both sides.
    pub fn around(from: f64, to: f64, full: f64) -> Option<View> {
        let room = (to - from) * 0.6;
        View { from: from - room, to: to + room }.fit(full)
    }

    /// Moves, without zooming, until `from..to` is seen.
    pub fn reveal(self, from: f64, to: f64, full: f64) -> Option<View> {
        let length = self.to - self.from;
        if from >= self.from && to <= self.to {
            return Some(self);
        }
        let start = if from < self.from { from - length * 0.1 } else { to - length * 0.9 };
        View { from: start, to: start + length }.fit(full)
    }

    fn fit(self, full: f64) -> Option<View> {
        let length = self.to - self.from;
        if length >= full * 0.995 {
            return None;
        }
        let from = self.from.clamp(0.0, full - length);
        Some(View { from, to: from + length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fill_the_height_for_any_number_of_lanes() {
        for lanes in [1, 2, 4, 8, 16, 32, 64, 128] {
            let l = Layout::new(822.0, 560.0, lanes, Rows::default());
            let end = l.memory_y(lanes - 1) + l.memory_bar;
            assert!(end <= 560.0 + 1e-6, "{lanes}: {end}");
            assert!(l.bar > 1.0 && l.bar <= l.pitch, "{lanes}: {l:?}");
            assert_eq!(l.lane_at(l.lane_y(lanes - 1) + 0.5), Some(lanes - 1));
            assert_eq!(l.lane_at(l.memory_top + 1.0), None);
        }
        // Few lanes leave nothing blank, nor do four on a large screen.
        for (height, lanes) in [(560.0, 1), (560.0, 2), (560.0, 3), (1000.0, 4)] {
            let l = Layout::new(822.0, height, lanes, Rows::default());
            let end = l.memory_y(lanes - 1) + l.memory_bar;
            assert!(end > 0.9 * height, "{lanes}: {end} of {height}");
        }
        assert!(Layout::new(822.0, 560.0, 4, Rows::default()).curves());
        assert!(!Layout::new(822.0, 560.0, 64, Rows::default()).curves());
    }

    #[test]
    fn taller_lanes_scroll_and_are_found_where_they_are_drawn() {
        let rows = Rows { times: 8.0, least: 0.0, scrolled: 300.0 };
        let (fit, l) =
            (Layout::new(822.0, 560.0, 64, Rows::default()), Layout::new(822.0, 560.0, 64, rows));
        assert!(!fit.scrolls() && l.scrolls());
        assert!(l.pitch > 7.0 * fit.pitch && l.memory_bar > 2.0 * fit.memory_bar, "{l:?}");
        let seen = l.seen();
        assert!(seen.start > 0 && seen.end < 64 && l.lane_y(seen.start) <= l.lanes_top, "{seen:?}");
        for lane in seen.start + 1..seen.end {
            assert_eq!(l.lane_at(l.lane_y(lane) + 0.5), Some(lane));
        }
        assert_eq!(l.lane_at(l.lanes_top - 2.0), None, "the axis is no lane");
        // Scrolled to the end, the last strip is seen whole, and no further.
        let end = Layout::new(822.0, 560.0, 64, Rows { scrolled: 1e9, ..rows });
        assert!((end.memory_y(63) + end.memory_bar) <= 560.0 && end.memory_y(63) > 480.0);
        let least = Layout::new(822.0, 390.0, 64, Rows { least: 34.0, ..Rows::default() });
        assert_eq!((least.pitch, least.scrolled), (34.0, 0.0));
    }

    #[test]
    fn two_rows_share_a_lane() {
        let l = Layout::new(1000.0, 390.0, 4, Rows::default());
        let [a, b] = [0, 1].map(|index| l.row(index));
        assert!(l.pitch >= 24.0 && a.bar >= 10.0 && b.bar > a.bar, "{l:?}");
        assert_eq!(a.lane_y(2), l.lane_y(2));
        assert!(b.lane_y(2) >= a.lane_y(2) + a.bar + 2.0);
        assert!(b.lane_y(2) + b.bar <= l.lane_y(2) + l.bar + 1e-9);
    }

    #[test]
    fn pixels_and_moments_are_inverse() {
        let scale = Layout::new(900.0, 500.0, 4, Rows::default()).scale(100.0, 1100.0);
        assert_eq!(scale.x(100.0), 124.0);
        assert!((scale.nanos(scale.x(700.0)) - 700.0).abs() < 1e-9);
    }

    #[test]
    fn zoom_keeps_the_centre_and_stays_inside() {
        let all = View { from: 0.0, to: 1000.0 };
        let near = all.zoom(0.5, 400.0, 1000.0).unwrap();
        assert_eq!(near, View { from: 200.0, to: 700.0 });
        assert_eq!(near.zoom(2.0, 400.0, 1000.0), None);
        assert_eq!(near.pan(-10.0, 1000.0), Some(View { from: 0.0, to: 500.0 }));
        assert_eq!(near.pan(10.0, 1000.0), Some(View { from: 500.0, to: 1000.0 }));
        let moved = near.reveal(800.0, 900.0, 1000.0).unwrap();
        assert!(moved.from <= 800.0 && moved.to >= 900.0);
    }
}
