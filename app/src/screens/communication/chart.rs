//! Step time over the bandwidth of the link, a line a codec; both axes logarithmic.

pub mod forms;

use super::model::{Curve, SPAN};
use crate::base::format;
use crate::base::texts::{t, tr};
use crate::draw::chart::{Place, leader, place};
use pipewright_core::compress::Reduction;
use pipewright_core::units::Nanos;
use std::fmt::Write;

const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 14.0;
const BELOW: f64 = 36.0;

/// Plot area and the range of steps.
struct CurveAxes {
    width: f64,
    height: f64,
    least: f64,
    most: f64,
}

impl CurveAxes {
    fn new((width, height): (f64, f64), curves: &[Curve]) -> Self {
        let steps = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let least = steps().fold(f64::INFINITY, f64::min).clamp(1e-9, 1e9) * 0.8;
        let most = steps().fold(0.0, f64::max).max(least * 2.0) * 1.2;
        Self { width, height, least, most }
    }

    fn x(&self, bytes_per_sec: f64) -> f64 {
        let share = (bytes_per_sec / SPAN.0).ln() / (SPAN.1 / SPAN.0).ln();
        LEFT + share.clamp(0.0, 1.0) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, step: f64) -> f64 {
        let share = (step / self.least).ln() / (self.most / self.least).ln();
        self.height - BELOW - share * (self.height - ABOVE - BELOW)
    }
}

/// `now` is the bandwidth that is looked at, `own` the plan's way.
pub fn draw(curves: &[Curve], now: f64, own: Reduction, size: (f64, f64)) -> String {
    let frame = CurveAxes::new(size, curves);
    let (width, height) = size;
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' \
         aria-label='{}'>",
        t("Step time by link bandwidth, one line per codec")
    );
    axes(&frame, &mut out);
    let x = frame.x(now);
    let _ = write!(out, "<path d='M{x:.1} {ABOVE}V{}' class='bu'/>", height - BELOW);
    lines(&frame, curves, own, &mut out);
    out + "</svg>"
}

fn axes(frame: &CurveAxes, out: &mut String) {
    let bottom = frame.height - BELOW;
    let narrow = frame.width < 480.0;
    for (at, name) in ["1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s", "10 GB/s", "100 GB/s", "1 TB/s"]
        .iter()
        .enumerate()
    {
        let x = frame.x(SPAN.0 * 10f64.powi(at as i32));
        let _ = write!(out, "<path d='M{x:.1} {ABOVE}V{bottom}' class='gr'/>");
        if !narrow || at % 2 == 0 {
            let anchor = if at == 6 { "end" } else { "middle" };
            let y = bottom + 15.0;
            let _ = write!(
                out,
                "<text x='{x:.1}' y='{y}' text-anchor='{anchor}' class='ax'>{name}</text>"
            );
        }
    }
    for power in -9..9 {
        let step = 10f64.powi(power);
        if step > frame.least && step < frame.most {
            let (y, right) = (frame.y(step), frame.width - RIGHT);
            let (value, unit) = format::hero(Nanos((step * 1e9).round() as u64));
            let _ = write!(
                out,
                "<path d='M{LEFT} {y:.1}H{right}' class='gr'/><text x='{}' y='{:.1}' \
                 text-anchor='end' class='ax'>{value} {unit}</text>",
                LEFT - 6.0,
                y + 3.5
            );
        }
    }
    let _ = write!(
        out,
        "<text x='{LEFT}' y='{}' class='cap'>{}</text>",
        frame.height - 5.0,
        t("↑ step time; dots: where a codec begins to pay off")
    );
}

/// The plan's own and single precision are drawn stronger; names at the left ends.
fn lines(frame: &CurveAxes, curves: &[Curve], own: Reduction, out: &mut String) {
    let strong = |curve: &Curve| curve.way == own || curve.way.is_plain();
    for curve in curves {
        let at =
            |(speed, step): &(f64, f64)| format!("{:.1} {:.1}", frame.x(*speed), frame.y(*step));
        let path: Vec<String> = curve.points.iter().map(at).collect();
        let class = if strong(curve) { "cv own" } else { "cv" };
        let _ = write!(out, "<path d='M{}' class='{class}'/>", path.join("L"));
        if let Some(speed) = curve.pays_below.filter(|speed| *speed < SPAN.1) {
            let step = along(curve, speed);
            let says = tr!(
                "{codec} pays off below {speed}",
                codec = curve.way,
                speed = format::speed(speed)
            );
            let _ = write!(
                out,
                "<circle cx='{:.1}' cy='{:.1}' r='3.5' class='{class} best'><title>{says}</title></circle>",
                frame.x(speed),
                frame.y(step)
            );
        }
    }
    names(frame, &alike(frame, curves), own, out);
}

/// Curves that are drawn over each other, together.
fn alike<'a>(frame: &CurveAxes, curves: &'a [Curve]) -> Vec<Vec<&'a Curve>> {
    let same = |a: &Curve, b: &Curve| {
        a.points.len() == b.points.len()
            && a.points
                .iter()
                .zip(&b.points)
                .all(|(a, b)| (frame.y(a.1) - frame.y(b.1)).abs() < 1.0)
    };
    let mut groups: Vec<Vec<&Curve>> = vec![];
    for curve in curves {
        match groups.iter_mut().find(|group| same(group[0], curve)) {
            Some(group) => group.push(curve),
            None => groups.push(vec![curve]),
        }
    }
    groups
}

/// One name for all curves that are drawn over each other.
fn names(frame: &CurveAxes, groups: &[Vec<&Curve>], own: Reduction, out: &mut String) {
    let first = |curve: &Curve| frame.y(curve.points.first().map_or(frame.least, |point| point.1));
    let wanted: Vec<(f64, f64)> =
        groups.iter().map(|group| (LEFT + 18.0, first(group[0]) - 4.0)).collect();
    let placed = place(&wanted, &[], (120.0, 12.0), ABOVE);
    for (group, (x, y)) in groups.iter().zip(placed) {
        let own = group.iter().any(|curve| curve.way == own || curve.way.is_plain());
        let class = if own { "dl own" } else { "dl" };
        let ways: Vec<String> = group.iter().map(|curve| curve.way.to_string()).collect();
        let name = match &ways[..] {
            [way, _, _, more @ ..] if !more.is_empty() => {
                tr!("{way} and {more} more, no difference", way, more = ways.len() - 1)
            }
            few => few.join(", "),
        };
        let [curve, label] =
            [Place { x: LEFT, y: first(group[0]) }, Place { x: x - 3.0, y: y - 4.0 }];
        out.push_str(&leader(curve, label, 12.0));
        let _ = write!(out, "<text x='{x:.1}' y='{y:.1}' class='{class}'>{name}</text>");
    }
}

/// The step of a curve at a bandwidth between two of its points.
fn along(curve: &Curve, speed: f64) -> f64 {
    let after = curve.points.partition_point(|point| point.0 < speed);
    match (after.checked_sub(1).map(|at| curve.points[at]), curve.points.get(after)) {
        (Some(before), Some(after)) => {
            let share = (speed / before.0).ln() / (after.0 / before.0).ln();
            before.1 * (after.1 / before.1).powf(share)
        }
        (Some(point), None) => point.1,
        (None, point) => point.map_or(0.0, |point| point.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_codec_and_a_dot_where_it_begins_to_pay() {
        let curve = |way: &str, scale: f64, pays_below| Curve {
            way: way.parse().unwrap(),
            points: vec![(1e6, scale * 10.0), (1e9, scale), (1e12, 0.5)],
            pays_below,
        };
        let curves = [curve("fp32", 1.0, None), curve("bf16", 0.5, Some(1e10))];
        let svg = draw(&curves, 1e9, Reduction::default(), (700.0, 300.0));
        assert_eq!(
            svg.matches("<path d='M").count(),
            2 + 1 + 7 + 2,
            "lines, bandwidth, axes: {svg}"
        );
        assert!(svg.contains("bf16 pays off below 10 GB/s") && !svg.contains("NaN"), "{svg}");
        // Curves that lie over each other have one name, and say that they do.
        let same: Vec<Curve> =
            ["fp32", "bf16", "int8"].iter().map(|way| curve(way, 1.0, None)).collect();
        let svg = draw(&same, 1e9, Reduction::default(), (700.0, 300.0));
        assert!(svg.contains(">fp32, bf16, int8</text>") && !svg.contains("class='ld'"), "{svg}");
        let ways = ["fp32", "bf16", "int8", "table:1"];
        let same: Vec<Curve> = ways.iter().map(|way| curve(way, 1.0, None)).collect();
        let svg = draw(&same, 1e9, Reduction::default(), (700.0, 300.0));
        assert!(svg.contains(">fp32 and 3 more, no difference</text>"), "{svg}");
        // Names that had to move are joined to their curves.
        let near: Vec<Curve> = ["fp32", "bf16", "int8"]
            .iter()
            .zip([1.0, 1.05, 1.1])
            .map(|(way, by)| curve(way, by, None))
            .collect();
        let svg = draw(&near, 1e9, Reduction::default(), (700.0, 300.0));
        assert!(svg.contains("class='ld'"), "{svg}");
        let empty = draw(&[], 1e9, Reduction::default(), (300.0, 150.0));
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
