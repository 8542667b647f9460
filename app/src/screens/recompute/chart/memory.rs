//! Memory over one step, with recomputation and without, above what runs when.

use super::{bytes, label};
use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use crate::draw::ticks;
use crate::draw::unit::Unit;
use pipewright_core::units::Nanos;
use pipewright_worker::protocol::{COLUMNS, Point, Shown};
use std::fmt::Write;

/// Above the curves, and below them for what runs and the axis.
const ABOVE: f64 = 10.0;
const BELOW: f64 = 58.0;

/// Where things stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryAxes {
    pub width: f64,
    pub height: f64,
    /// Bytes at the top.
    pub most: f64,
}

impl MemoryAxes {
    pub fn new((width, height): (f64, f64), base: Point) -> Self {
        Self { width, height, most: (base.peak.max(1) as f64) * 1.06 }
    }

    fn small(&self) -> bool {
        self.width < 520.0
    }

    pub fn left(&self) -> f64 {
        if self.small() { 48.0 } else { 62.0 }
    }

    pub fn right(&self) -> f64 {
        self.width - if self.small() { 14.0 } else { 104.0 }
    }

    fn bottom(&self) -> f64 {
        self.height - BELOW
    }

    /// Where so many bytes stand.
    pub fn y(&self, bytes: f64) -> f64 {
        ABOVE + (1.0 - bytes / self.most) * (self.bottom() - ABOVE)
    }

    /// The bytes that stand there.
    pub fn bytes(&self, y: f64) -> f64 {
        (1.0 - (y - ABOVE) / (self.bottom() - ABOVE)).clamp(0.0, 1.0) * self.most
    }

    fn x(&self, share: f64) -> f64 {
        self.left() + share * (self.right() - self.left())
    }
}

/// The chart without the line of the budget, which is a control.
pub fn draw(frame: &MemoryAxes, shown: &Shown, base: Point, budget: u64) -> String {
    let MemoryAxes { width, height, .. } = *frame;
    let mut out = format!(
        "<svg width='{width}' height='{height}' role='img' aria-label='{}'><defs><pattern id='rh' width='7' height='7' \
         patternUnits='userSpaceOnUse' patternTransform='rotate(45)'><path d='M0 0V7' class='ht'/>\
         </pattern><clipPath id='rc'><rect x='0' y='0' width='{width}' height='{:.1}'/></clipPath></defs>",
        tr!(
            "Memory over one step: {with} with recomputation at most, {without} without",
            with = bytes(shown.cost.peak),
            without = bytes(base.peak)
        ),
        frame.y(budget as f64).max(0.0)
    );
    levels(frame, base, &mut out);
    let (left, right, zero) = (frame.left(), frame.right(), frame.y(0.0));
    let (without, with) = (stairs(frame, &shown.without), stairs(frame, &shown.with));
    let _ = write!(
        out,
        "<path d='{without}V{zero:.1}H{left}Z' fill='url(#rh)' clip-path='url(#rc)'/>\
         <path d='{with}V{zero:.1}H{left}Z' class='ar'/><path d='{without}' class='wo'/>\
         <path d='{with}' class='wi'/>"
    );
    runs(frame, shown, &mut out);
    peaks(frame, shown, base, &mut out);
    let share = if base.time > 0.0 { shown.cost.time / base.time - 1.0 } else { 0.0 };
    let x = if frame.small() { right } else { right + 8.0 };
    let anchor = if frame.small() { "end" } else { "start" };
    let y = if frame.small() { zero - 20.0 } else { zero + 12.0 };
    let more = Nanos((shown.cost.time - base.time).max(0.0) as u64);
    let clock = Clock::of(Nanos(base.time as u64));
    let percent = tr!("+{share} % time", share = format::percent(share.max(0.0), 1));
    label(&mut out, (x, y), &percent, &format!("+{}", clock.text(more)), anchor);
    out + "</svg>"
}

/// Lines of equal memory.
fn levels(frame: &MemoryAxes, base: Point, out: &mut String) {
    let unit = Unit::of(base.peak);
    let top = frame.most / unit.bytes;
    let step = ticks::step(top / (frame.height / 70.0).max(2.0));
    let (left, right) = (frame.left(), frame.right());
    let last = ticks::multiples(0.0, top * 0.999, step).last().unwrap_or(0.0);
    for value in ticks::multiples(0.0, top * 0.999, step) {
        let y = frame.y(value * unit.bytes).round() + 0.5;
        let name = if value == last && value > 0.0 { unit.name } else { "" };
        let _ = write!(
            out,
            "<path d='M{left} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' \
             class='ax'>{value} {name}</text>",
            left - 8.0,
            y + 3.5
        );
    }
}

/// A line that changes only where the memory does.
fn stairs(frame: &MemoryAxes, columns: &[u64]) -> String {
    let mut path = format!("M{:.1} {:.1}", frame.left(), frame.y(0.0));
    let mut before = 0;
    for (column, &now) in columns.iter().enumerate() {
        if now != before {
            let x = frame.x(column as f64 / COLUMNS as f64);
            let _ = write!(path, "H{x:.1}V{:.1}", frame.y(now as f64));
            before = now;
        }
    }
    // Where nothing runs any more there is no line.
    let used = columns.iter().rposition(|bytes| *bytes > 0).map_or(0, |last| last + 1);
    if before != 0 {
        let _ = write!(path, "H{:.1}", frame.x(used as f64 / COLUMNS as f64));
    }
    path
}

/// A bar of what runs, and the axis below it.
fn runs(frame: &MemoryAxes, shown: &Shown, out: &mut String) {
    let top = frame.y(0.0) + 8.0;
    let kinds: Vec<char> = shown.runs.chars().collect();
    let mut at = 0;
    for run in kinds.chunk_by(|a, b| a == b) {
        let (from, to) = (at as f64 / COLUMNS as f64, (at + run.len()) as f64 / COLUMNS as f64);
        at += run.len();
        if run[0] == ' ' {
            continue;
        }
        let (x, width) = (frame.x(from), (frame.x(to) - frame.x(from)).max(0.7));
        let class = run[0].to_ascii_lowercase();
        let _ = write!(
            out,
            "<rect x='{x:.1}' y='{top:.1}' width='{width:.2}' height='16' class='run {class}'/>"
        );
    }
    let backward = frame.x(shown.backward / shown.end.max(1.0));
    let _ = write!(out, "<path d='M{backward:.1} {ABOVE}V{:.1}' class='bb'/>", top + 20.0);
    if !frame.small() {
        let _ = write!(
            out,
            "<text x='{:.1}' y='{}' class='ls'>{}</text>",
            backward + 6.0,
            ABOVE + 10.0,
            t("backward begins")
        );
    }
    let clock = Clock::of(Nanos(shown.end as u64));
    let step = ticks::step(shown.end / (frame.width / 90.0).max(2.0));
    for moment in ticks::multiples(0.0, shown.end, step) {
        let unit = if moment == 0.0 { clock.unit } else { "" };
        let _ = write!(
            out,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle' class='ax'>{} {unit}</text>",
            frame.x(moment / shown.end.max(1.0)),
            top + 33.0,
            clock.axis(moment, step)
        );
    }
}

/// The two highest points.
fn peaks(frame: &MemoryAxes, shown: &Shown, base: Point, out: &mut String) {
    let at =
        |moment: f64, bytes: u64| (frame.x(moment / shown.end.max(1.0)), frame.y(bytes as f64));
    let (x, y) = at(shown.peaks[0], base.peak);
    let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='3.5' class='pk wo-p'/>");
    let end = x > frame.right() - 130.0;
    let (x, anchor) = if end { (x - 14.0, "end") } else { (x + 14.0, "start") };
    label(out, (x, y + 6.0), &bytes(base.peak), t("keep everything"), anchor);
    let (x, y) = at(shown.peaks[1], shown.cost.peak);
    let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='3.5' class='pk'/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_share_an_axis_and_bytes_come_back_from_the_picture() {
        let base = Point { peak: 1000, time: 500.0 };
        let frame = MemoryAxes::new((800.0, 400.0), base);
        assert!((frame.bytes(frame.y(700.0)) - 700.0).abs() < 1e-6);
        let mut without = vec![1000; COLUMNS];
        without[COLUMNS / 2..].fill(0);
        let shown = Shown {
            cost: Point { peak: 400, time: 1000.0 },
            end: 1000.0,
            without,
            with: vec![400; COLUMNS],
            runs: format!("{}{}", "F".repeat(COLUMNS / 2), "B".repeat(COLUMNS / 2)),
            backward: 500.0,
            ..Shown::default()
        };
        let svg = draw(&frame, &shown, base, 450);
        assert_eq!(svg.matches("class='run ").count(), 2, "one rectangle for equal columns: {svg}");
        assert!(svg.contains("+100.0 % time") && !svg.contains("NaN"), "{svg}");
        let half = format!("H{:.1}", frame.x(0.5));
        assert!(svg.contains(&half), "the shorter curve ends halfway: {svg}");
        assert!(!draw(&frame, &Shown::default(), Point::default(), 0).contains("NaN"));
    }
}
