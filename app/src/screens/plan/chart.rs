//! The picture of speed-up over m, a curve per d, with the published points.

use super::model::speedup::{Curves, Point};
use crate::base::texts::{t, tr};
use crate::draw::chart::{self, BELOW, Chart, LEFT, Place, RIGHT, Reading};
use pipewright_core::cost::takisawa::MeasuredSpeedup;
use std::fmt::Write;

/// The plan that is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnPoint {
    pub d: u32,
    pub m: f64,
    pub speedup: f64,
}

/// Where everything stands, with room for the plan's own point.
pub fn axes_of(
    curves: &Curves,
    points: &[MeasuredSpeedup],
    OwnPoint { m, speedup, .. }: OwnPoint,
    (width, height): (f64, f64),
    log: bool,
) -> Chart {
    let seen = curves.curves.iter().flat_map(|c| &c.points);
    let m_max = seen.clone().map(|p| p.m).max().unwrap_or(16).max(8) as f64;
    let measured = points.iter().map(|p| p.speedup);
    let own = if speedup.is_finite() { speedup } else { 1.0 };
    let top = seen.map(|p| p.speedup).chain(measured).chain([own]).fold(1.2, f64::max) * 1.08;
    Chart { width, height, m_max: m_max.max(m), top, log }
}

/// The point of a curve next to a place, with its figures.
pub fn nearest(c: &Chart, curves: &Curves, place: Place) -> Option<Reading> {
    let marks = curves.curves.iter().flat_map(|curve| curve.points.iter().map(|p| (curve.d, p)));
    let (d, point, at) = marks
        .map(|(d, p)| (d, p, Place { x: c.x(p.m as f64), y: c.y(p.speedup) }))
        .min_by(|a, b| a.2.distance(place).total_cmp(&b.2.distance(place)))?;
    let text = tr!(
        "d = {d}, m = {m}: speed-up {speedup}, {share} % of the devices",
        d,
        m = point.m,
        speedup = format_args!("{:.2}", point.speedup),
        share = format_args!("{:.0}", point.speedup / (f64::from(d) * curves.copies()) * 100.0)
    );
    Some(Reading { at, text })
}

/// The chart as markup: a few hundred marks that change together.
pub fn draw(
    c: &Chart,
    curves: &Curves,
    points: &[MeasuredSpeedup],
    OwnPoint { d, m, speedup }: OwnPoint,
) -> String {
    let (width, height) = (c.width, c.height);
    let own = if speedup.is_finite() { speedup } else { 1.0 };
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label='{}'>",
        t("Speed-up over the number of micro-batches, a curve for each number of lanes")
    );
    axes(c, &mut out);
    lines(c, curves, d, (c.x(m), c.y(own)), &mut out);
    for p in points {
        let (x, y) = (c.x(p.m as f64), c.y(p.speedup));
        let _ = write!(
            out,
            "<path d='M{x:.1} {:.1}l5 5-5 5-5-5z' class='pt'><title>{}</title></path>",
            y - 5.0,
            tr!(
                "measured, d = {d}: {speedup} at m = {m} (Takisawa 2022, Fig. 7)",
                d = p.d,
                speedup = p.speedup,
                m = p.m
            )
        );
    }
    if !points.is_empty() {
        let x = LEFT + 8.0;
        let _ = write!(
            out,
            "<path d='M{} 9l5 5-5 5-5-5z' class='pt'/><text x='{}' y='18' class='tx'>{}</text>",
            x + 5.0,
            x + 16.0,
            t("measured (Fig. 7)")
        );
    }
    if speedup.is_finite() && speedup > 0.0 {
        let (x, y) = (c.x(m), c.y(speedup));
        let anchor = if x > width - RIGHT - 40.0 { "end" } else { "middle" };
        let _ = write!(
            out,
            "<circle cx='{x:.1}' cy='{y:.1}' r='7' class='me-o'/><circle cx='{x:.1}' cy='{y:.1}' r='3' class='me-i'/><text x='{x:.1}' y='{:.1}' text-anchor='{anchor}' class='me-t'>{}</text>",
            // Above stand the names of the curves.
            if y > height - BELOW - 24.0 { y - 12.0 } else { y + 21.0 },
            t("this plan")
        );
    }
    out + "</svg>"
}

fn axes(c: &Chart, out: &mut String) {
    let (right, bottom) = (c.width - RIGHT, c.height - BELOW);
    for v in c.marks_speedup() {
        let y = c.y(v).round() + 0.5;
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' class='ax'>{v}</text>",
            LEFT - 8.0,
            y + 3.5
        );
    }
    for m in c.marks_m() {
        let _ = write!(
            out,
            "<text x='{:.1}' y='{}' text-anchor='middle' class='ax'>{m}</text>",
            c.x(m as f64),
            bottom + 15.0
        );
    }
    let _ = write!(
        out,
        "<text x='{LEFT}' y='{}' class='cap'>{}</text>",
        c.height - 5.0,
        t("↑ speed-up over one process")
    );
    let _ = write!(
        out,
        "<text x='{right}' y='{}' text-anchor='end' class='cap'>{}</text>",
        c.height - 5.0,
        t("micro-batches m")
    );
}

/// Neutral lines named at their best points; the plan's own d is drawn stronger.
fn lines(c: &Chart, curves: &Curves, own: u32, plan: (f64, f64), out: &mut String) {
    let class = |d: u32| if d == own { "cv own" } else { "cv" };
    for curve in &curves.curves {
        let at = |p: &Point| format!("{:.1} {:.1}", c.x(p.m as f64), c.y(p.speedup));
        let path: Vec<String> = curve.points.iter().map(at).collect();
        if !path.is_empty() {
            let _ = write!(out, "<path d='M{}' class='{}'/>", path.join("L"), class(curve.d));
        }
    }
    // Names over all lines.
    let named: Vec<(u32, Point)> =
        curves.curves.iter().rev().filter_map(|k| Some((k.d, k.best()?))).collect();
    let wanted: Vec<(f64, f64)> =
        named.iter().map(|(_, p)| (c.x(p.m as f64), c.y(p.speedup) - 8.0)).collect();
    // No name covers the plan's own mark.
    let placed = chart::place(&wanted, &[plan], (42.0, 14.0), 10.0);
    for ((d, best), (x, y)) in named.into_iter().zip(placed) {
        let strong = class(d);
        if d > 1 {
            let _ = write!(
                out,
                "<circle cx='{x:.1}' cy='{:.1}' r='3' class='{strong} best'><title>{}</title></circle>",
                c.y(best.speedup),
                tr!(
                    "d = {d}: best m = {m}, speed-up {speedup}",
                    d,
                    m = best.m,
                    speedup = format_args!("{:.2}", best.speedup)
                )
            );
        }
        let strong = if d == own { " own" } else { "" };
        let anchor = if x < LEFT + 20.0 { "start" } else { "middle" };
        out.push_str(&chart::leader(Place { x, y: c.y(best.speedup) }, Place { x, y }, 26.0));
        let _ = write!(
            out,
            "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}' class='dl{strong}'>d = {d}</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::plan::model::speedup::Curve;

    #[test]
    fn the_chart_has_a_line_per_d_and_all_published_points() {
        let curve = |d: u32| Curve {
            d,
            points: vec![
                Point { m: 1, speedup: 0.9 },
                Point { m: 20, speedup: f64::from(d).sqrt() },
            ],
        };
        let curves = Curves { curves: vec![curve(2), curve(8)], ..Curves::default() };
        let points = pipewright_core::cost::takisawa::FIG7;
        let own = OwnPoint { d: 8, m: 20.0, speedup: 2.5 };
        let place = axes_of(&curves, &points, own, (700.0, 190.0), true);
        let svg = draw(&place, &curves, &points, own);
        let point = curves.curves[1].points[1];
        let at = Place { x: place.x(point.m as f64), y: place.y(point.speedup) };
        let said = nearest(&place, &curves, Place { x: at.x + 2.0, y: at.y - 1.0 }).unwrap();
        assert_eq!(said.at, at);
        let start =
            format!("d = {}, m = {}: speed-up {:.2}, ", curves.curves[1].d, point.m, point.speedup);
        assert!(said.text.starts_with(&start), "{}", said.text);
        assert_eq!(nearest(&place, &Curves::default(), at), None);
        assert_eq!(svg.matches("class='cv").count(), 4, "two lines, two best points");
        assert_eq!(svg.matches("measured, d =").count(), 5);
        assert!(svg.contains("this plan") && !svg.contains("NaN"), "{svg}");
        let none = (Curves::default(), OwnPoint { d: 1, m: 1.0, speedup: f64::NAN });
        let place = axes_of(&none.0, &[], none.1, (300.0, 150.0), false);
        let empty = draw(&place, &none.0, &[], none.1);
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
