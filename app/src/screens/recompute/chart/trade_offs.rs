//! Memory against time: every trade-off found, the one that is shown, and where none can be.

use crate::base::format::bytes_text;
use crate::base::texts::{t, tr};
use crate::draw::chart::{Place, Reading};
use crate::draw::ticks;
use pipewright_core::units::Bytes;
use pipewright_worker::protocol::{Opened, Point, Progress};
use std::fmt::Write;

const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 12.0;
const BELOW: f64 = 40.0;

/// Time beyond which nobody looks, in percent.
const LATEST: f64 = 170.0;

/// Where things stand; per cent of what is needed without recomputation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TradeOffAxes {
    width: f64,
    height: f64,
    base: Point,
    latest: f64,
}

impl TradeOffAxes {
    pub fn new((width, height): (f64, f64), opened: &Opened, front: &[Point]) -> Self {
        let base = opened.base;
        let time = |point: &Point| percent(point.time, base.time);
        let latest = front.iter().chain(&opened.segments).map(time).filter(|t| *t <= LATEST);
        let latest = latest.fold(110.0, f64::max) + 3.0;
        Self { width, height, base, latest }
    }

    fn at(&self, point: Point) -> (f64, f64) {
        (
            self.x(percent(point.time, self.base.time)),
            self.y(percent(point.peak as f64, self.base.peak as f64)),
        )
    }

    fn place(&self, point: Point) -> Place {
        let (x, y) = self.at(point);
        Place { x, y }
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + (time - 99.0) / (self.latest - 99.0) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, memory: f64) -> f64 {
        ABOVE + (1.0 - memory / 106.0) * (self.height - ABOVE - BELOW)
    }

    /// The trade-off next to a place.
    pub fn near(&self, front: &[Point], place: Place) -> Option<Point> {
        let far = |point: &Point| self.place(*point).distance(place);
        front.iter().copied().min_by(|a, b| far(a).total_cmp(&far(b)))
    }

    /// The trade-off next to a place, in words.
    pub fn reading(&self, front: &[Point], place: Place) -> Option<Reading> {
        let point = self.near(front, place)?;
        let text = tr!(
            "{bytes}: {memory} % memory, {time} % time",
            bytes = bytes_text(Bytes(point.peak)),
            memory = tenths(percent(point.peak as f64, self.base.peak as f64)),
            time = tenths(percent(point.time, self.base.time))
        );
        Some(Reading { at: self.place(point), text })
    }
}

fn tenths(percent: f64) -> String {
    format!("{percent:.1}")
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 100.0 }
}

pub fn draw(frame: &TradeOffAxes, opened: &Opened, progress: &Progress, budget: u64) -> String {
    let TradeOffAxes { width, height, .. } = *frame;
    let mut out = format!(
        "<svg width='{width}' height='{height}' role='img' aria-label='{}'><defs><pattern id='rf' width='7' height='7' patternUnits='userSpaceOnUse' \
         patternTransform='rotate(45)'><path d='M0 0V7' class='ht'/></pattern></defs>",
        tr!("Memory against time: {count} trade-offs found", count = progress.front.len())
    );
    axes(frame, &mut out);
    bound(frame, opened, &mut out);
    front(frame, &progress.front, &mut out);
    for point in &opened.segments {
        let (x, y) = frame.at(*point);
        if x <= width - RIGHT {
            let says = tr!(
                "segments of the forward pass: {memory} % memory, {time} % time",
                memory = tenths(percent(point.peak as f64, opened.base.peak as f64)),
                time = tenths(percent(point.time, opened.base.time))
            );
            let _ = write!(
                out,
                "<path d='M{x:.1} {:.1}l4 4-4 4-4-4z' class='sg'><title>{says}</title></path>",
                y - 4.0
            );
        }
    }
    let level = frame.y(percent(budget as f64, opened.base.peak as f64));
    let right = width - RIGHT;
    let _ = write!(
        out,
        "<path d='M{LEFT} {level:.1}H{right}' class='bu'/><text x='{:.1}' y='{:.1}' \
         text-anchor='end' class='bt'>{}</text>",
        right - 4.0,
        level - 6.0,
        t("budget")
    );
    pins(frame, opened, progress.best, &mut out);
    out + "</svg>"
}

fn axes(frame: &TradeOffAxes, out: &mut String) {
    let right = frame.width - RIGHT;
    for memory in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let y = frame.y(memory).round() + 0.5;
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' \
             class='ax'>{memory} %</text>",
            LEFT - 8.0,
            y + 3.5
        );
    }
    let step = ticks::step((frame.latest - 99.0) / (frame.width / 70.0).max(2.0));
    let bottom = frame.height - BELOW;
    for time in ticks::multiples(100.0, frame.latest, step) {
        let _ = write!(
            out,
            "<text x='{:.1}' y='{}' text-anchor='middle' class='ax'>{time} %</text>",
            frame.x(time),
            bottom + 16.0
        );
    }
    let caption = frame.height - 8.0;
    let _ = write!(
        out,
        "<text x='{right}' y='{caption}' text-anchor='end' class='cap'>{}</text>\
         <text x='{LEFT}' y='{caption}' class='cap'>{}</text>",
        t("time"),
        t("↑ peak memory, relative to keeping everything")
    );
}

/// No sequence is below.
fn bound(frame: &TradeOffAxes, opened: &Opened, out: &mut String) {
    let share = percent(opened.floor as f64, opened.base.peak as f64);
    let (top, bottom, right) = (frame.y(share), frame.y(0.0), frame.width - RIGHT);
    let _ = write!(
        out,
        "<rect x='{LEFT}' y='{top:.1}' width='{:.1}' height='{:.1}' fill='url(#rf)'/>\
         <path d='M{LEFT} {top:.1}H{right}' class='bd'/>",
        right - LEFT,
        bottom - top
    );
    if bottom - top > 18.0 {
        let _ = write!(
            out,
            "<text x='{}' y='{:.1}' class='ls'>{}</text>",
            LEFT + 8.0,
            top + 15.0,
            tr!("no sequence needs less than {share} %", share = tenths(share))
        );
    }
}

/// What is fastest within a memory stays so until the next one.
fn front(frame: &TradeOffAxes, front: &[Point], out: &mut String) {
    let mut path = String::new();
    for point in front.iter().rev() {
        let (x, y) = frame.at(*point);
        let _ = match path.is_empty() {
            true => write!(path, "M{x:.1} {y:.1}"),
            false => write!(path, "H{x:.1}V{y:.1}"),
        };
        if x <= frame.width - RIGHT {
            let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='2' class='fd'/>");
        }
        // The front may go on far to the right of the picture.
        if x > frame.width - RIGHT {
            path.truncate(path.rfind('H').unwrap_or(path.len()));
            let _ = write!(path, "H{:.1}", frame.width - RIGHT);
            break;
        }
    }
    let _ = write!(out, "<path d='{path}' class='fl'/>");
}

fn pins(frame: &TradeOffAxes, opened: &Opened, best: Point, out: &mut String) {
    let (x, y) = frame.at(opened.base);
    let _ = write!(
        out,
        "<circle cx='{x:.1}' cy='{y:.1}' r='5' class='pk'/><text x='{:.1}' y='{:.1}' \
         class='ls'>{}</text>",
        x + 11.0,
        y + 4.0,
        t("keep everything")
    );
    if best == opened.base || best == Point::default() {
        return;
    }
    let (x, y) = frame.at(best);
    let right = frame.width - RIGHT;
    let (tx, anchor) = if x > right - 150.0 { (x - 14.0, "end") } else { (x + 14.0, "start") };
    let _ = write!(
        out,
        "<circle cx='{x:.1}' cy='{y:.1}' r='8' class='me-o'/><circle cx='{x:.1}' cy='{y:.1}' \
         r='3.5' class='me-i'/><text x='{tx:.1}' y='{:.1}' text-anchor='{anchor}' class='me-t'>{}</text>",
        y - 8.0,
        tr!(
            "best so far {memory} / {time}",
            memory = tenths(percent(best.peak as f64, opened.base.peak as f64)),
            time = tenths(percent(best.time, opened.base.time))
        )
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_click_takes_the_next_trade_off_and_the_front_stays_in_the_picture() {
        let base = Point { peak: 1000, time: 100.0 };
        let front = [(100, 900.0), (300, 140.0), (500, 120.0), (1000, 100.0)];
        let front = front.map(|(peak, time)| Point { peak, time });
        let opened = Opened { base, floor: 90, segments: vec![front[1]], ..Opened::default() };
        let frame = TradeOffAxes::new((600.0, 300.0), &opened, &front);
        let near = frame.near(&front, frame.place(Point { peak: 480, time: 121.0 }));
        assert_eq!(near, Some(front[2]));
        let best = front[2];
        let progress = Progress { front: front.to_vec(), best, ..Progress::default() };
        let svg = draw(&frame, &opened, &progress, 550);
        assert!(svg.contains("best so far 50.0 / 120.0") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("class='fd'").count(), 3, "the slowest is beyond the picture");
        let far = frame.x(900.0);
        assert!(!svg.contains(&format!("H{far:.1}")), "{svg}");
    }
}
