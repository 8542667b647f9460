//! The time axis of an elastic job, and where its rows lie.

use crate::draw::ticks;
use crate::screens::elastic::model::time;

/// Pixels left of the plot: names of nodes.
pub const LEFT: f64 = 76.0;
/// Pixels right of it.
pub const RIGHT: f64 = 18.0;
/// Where the first node's lane begins.
pub const TOP: f64 = 8.0;

/// What part of a life is seen, in nanoseconds, and how wide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// First moment.
    pub from: f64,
    /// Last moment.
    pub to: f64,
    /// Of the whole picture, in pixels.
    pub width: f64,
}

impl Scale {
    /// Pixels of the plot.
    fn span(&self) -> f64 {
        (self.width - LEFT - RIGHT).max(1.0)
    }

    /// Where a moment lies; outside of the plot where it is not seen.
    pub fn x(&self, nanos: f64) -> f64 {
        LEFT + (nanos - self.from) / (self.to - self.from).max(1.0) * self.span()
    }

    /// The same within the plot.
    pub fn clamped(&self, nanos: f64) -> f64 {
        self.x(nanos).clamp(LEFT, LEFT + self.span())
    }

    /// The moment at a place.
    pub fn at(&self, x: f64) -> f64 {
        self.from + (x - LEFT) / self.span() * (self.to - self.from)
    }

    /// Whether something from one moment to another is seen at all.
    pub fn sees(&self, from: f64, to: f64) -> bool {
        to >= self.from && from <= self.to
    }

    /// Nanoseconds of a pixel.
    pub fn pixel(&self) -> f64 {
        (self.to - self.from) / self.span()
    }

    /// Nearer or further, by a factor, around a moment that stays in its place; within 0 to `full`.
    pub fn zoomed(self, factor: f64, around: f64, full: f64) -> Self {
        let least = 1e6;
        let length = ((self.to - self.from) * factor).clamp(least, full.max(least));
        let share = ((around - self.from) / (self.to - self.from).max(1.0)).clamp(0.0, 1.0);
        Self { from: around - share * length, to: around + (1.0 - share) * length, ..self }
            .within(full)
    }

    /// Earlier or later by a share of what is seen.
    pub fn moved(self, share: f64, full: f64) -> Self {
        let by = share * (self.to - self.from);
        Self { from: self.from + by, to: self.to + by, ..self }.within(full)
    }

    fn within(self, full: f64) -> Self {
        let length = (self.to - self.from).min(full);
        let from = self.from.clamp(0.0, (full - length).max(0.0));
        Self { from, to: from + length, ..self }
    }

    /// Moments that are written under the axis, with their texts.
    pub fn marks(&self) -> Vec<(f64, String)> {
        let least = (self.to - self.from) / (self.span() / 84.0).max(2.0);
        let step = round(least);
        let text = |nanos: f64| time::text((nanos / 1e6).round() as u64);
        ticks::multiples(self.from, self.to, step).map(|at| (self.x(at), text(at))).collect()
    }
}

/// A length of time that people count in, and at least so long: 1, 2, 5, 10, 15, 30 seconds or
/// minutes, hours, days.
fn round(least: f64) -> f64 {
    const SECOND: f64 = 1e9;
    if least < SECOND {
        return ticks::step(least).max(1e6);
    }
    let minutes = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
    let hours = [1.0, 2.0, 3.0, 6.0, 12.0].map(|hours| hours * 3600.0);
    let days = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].map(|days| days * 86_400.0);
    let all = minutes.into_iter().chain(minutes.map(|m| m * 60.0)).chain(hours).chain(days);
    let fits = all.map(|seconds| seconds * SECOND).find(|step| *step >= least * 0.999_999);
    fits.unwrap_or_else(|| ticks::step(least))
}

/// Where the rows of a picture lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    /// Nodes.
    pub nodes: usize,
    /// Pixels from lane to lane.
    pub pitch: f64,
}

/// Heights of the rows under the lanes.
pub const BAND: f64 = 22.0;
/// Of the policy's answers.
pub const ANSWERS: f64 = 20.0;
/// Of a curve, and of what stands above it.
pub const CURVE: f64 = 74.0;
/// Of a curve's caption.
pub const CAPTION: f64 = 16.0;
/// Of the axis.
pub const AXIS: f64 = 24.0;
/// Between rows.
pub const GAP: f64 = 8.0;

impl Rows {
    /// Rows for so many nodes; 0 leaves the lanes out.
    pub fn of(nodes: usize) -> Self {
        let pitch = match nodes {
            0..=8 => 24.0,
            9..=16 => 16.0,
            _ => 10.0,
        };
        Self { nodes, pitch }
    }

    /// Top of a node's lane.
    pub fn lane(&self, node: usize) -> f64 {
        TOP + node as f64 * self.pitch
    }

    /// Height of its bar.
    pub fn bar(&self) -> f64 {
        self.pitch - if self.pitch > 12.0 { 6.0 } else { 3.0 }
    }

    /// The node whose lane is at a height.
    pub fn node_at(&self, y: f64) -> Option<usize> {
        let at = ((y - TOP) / self.pitch).floor();
        (at >= 0.0 && at < self.nodes as f64).then_some(at as usize)
    }

    /// Top of the generations.
    pub fn band(&self) -> f64 {
        TOP + self.nodes as f64 * self.pitch + if self.nodes > 0 { 4.0 } else { 0.0 }
    }

    /// Middle of the policy's answers.
    pub fn answers(&self) -> f64 {
        self.band() + BAND + ANSWERS / 2.0 + 1.0
    }

    /// Tops of the throughput's curve and of the epochs', under their captions.
    pub fn curves(&self) -> [f64; 2] {
        let first = self.band() + BAND + ANSWERS + GAP + CAPTION;
        [first, first + CURVE + GAP + CAPTION]
    }

    /// Bottom of the plot.
    pub fn bottom(&self) -> f64 {
        self.curves()[1] + CURVE
    }

    /// Of the whole picture.
    pub fn height(&self) -> f64 {
        self.bottom() + AXIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zooming_keeps_the_moment_and_stays_inside() {
        let scale = Scale { from: 0.0, to: 100e9, width: 700.0 };
        let near = scale.zoomed(0.5, 20e9, 100e9);
        assert!(
            (near.x(20e9) - scale.x(20e9)).abs() < 1e-6 && (near.to - near.from - 50e9).abs() < 1.0
        );
        assert_eq!(near.zoomed(100.0, 0.0, 100e9), scale);
        assert_eq!(near.moved(9.0, 100e9).to, 100e9);
        assert_eq!(scale.moved(-1.0, 100e9), scale);
        assert!((scale.at(scale.x(33e9)) - 33e9).abs() < 1.0);
        assert!(scale.clamped(-5e9) == LEFT && scale.clamped(1e15) == 700.0 - RIGHT);
    }

    #[test]
    fn marks_are_times_that_people_count_in() {
        for (to, expected) in
            [(3600e9, "10m"), (90e9, "15s"), (86_400e9 * 3.0, "12h"), (0.4e9, "0.1s")]
        {
            let marks = Scale { from: 0.0, to, width: 700.0 }.marks();
            assert!((3..12).contains(&marks.len()), "{marks:?}");
            assert_eq!((marks[0].1.as_str(), marks[1].1.as_str()), ("0s", expected));
        }
    }

    #[test]
    fn rows_follow_each_other() {
        for nodes in [0, 1, 8, 9, 40] {
            let rows = Rows::of(nodes);
            assert!(rows.band() >= TOP + rows.pitch * nodes as f64);
            assert_eq!(rows.node_at(rows.lane(nodes)), None);
            assert_eq!(rows.node_at(rows.lane(0) + 1.0), (nodes > 0).then_some(0));
            assert!(rows.height() > rows.bottom() && rows.bar() > 4.0);
        }
    }
}
