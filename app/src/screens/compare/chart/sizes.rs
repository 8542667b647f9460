//! Speed over devices, both by factors: what is found, beside the line of ideal scaling.

use crate::base::format::scaled;
use crate::base::texts::{t, tr};
use std::fmt::Write;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 24.0;
const BELOW: f64 = 38.0;

/// Parts of a picture's height from one line to the next.
const LINES: f64 = 44.0;

/// The picture as markup; `points` are devices and what they get done per second, ascending, and `unit` is what.
pub fn draw(width: f64, height: f64, points: &[(u32, f64)], unit: &str) -> String {
    let mut out = format!(
        "<svg width='{width}' height='{height}' role='img' aria-label='{}'>",
        tr!("{unit} on {count} numbers of devices", unit, count = points.len())
    );
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return out + "</svg>" };
    let devices = (f64::from(first.0), f64::from(last.0));
    let ideal = |devices: f64| first.1 * devices / f64::from(first.0);
    let highest = points.iter().map(|point| point.1).fold(ideal(devices.1), f64::max);
    let lowest = points.iter().map(|point| point.1).fold(first.1, f64::min);
    let x = |devices: f64| {
        LEFT + share(devices, f64::from(first.0), f64::from(last.0)) * (width - LEFT - RIGHT)
    };
    let y = |rate: f64| ABOVE + (1.0 - share(rate, lowest, highest)) * (height - ABOVE - BELOW);
    let (right, bottom) = (width - RIGHT, height - BELOW);
    for rate in lines(lowest, highest, ((height - ABOVE - BELOW) / LINES).max(1.0)) {
        let y = y(rate).round() + 0.5;
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' class='ax'>{}</text>",
            LEFT - 8.0,
            y + 3.5,
            scaled(rate)
        );
    }
    for (devices, _) in points {
        let x = x(f64::from(*devices));
        let _ = write!(
            out,
            "<path d='M{x:.1} {bottom}v4' class='gr'/><text x='{x:.1}' y='{}' text-anchor='middle' class='ax'>{devices}</text>",
            bottom + 16.0
        );
    }
    let _ = write!(
        out,
        "<path d='M{LEFT} {bottom}H{right}' class='gr'/><path d='M{:.1} {:.1}L{:.1} {:.1}' class='id'/>\
         <text x='8' y='14' class='cap'>↑ {unit}; {}</text>\
         <text x='{right}' y='{}' text-anchor='end' class='cap'>{}</text>",
        x(devices.0),
        y(first.1),
        x(devices.1),
        y(ideal(devices.1)),
        t("dashed: ideal"),
        height - 6.0,
        t("devices")
    );
    let at = points.iter().map(|(devices, rate)| (x(f64::from(*devices)), y(*rate)));
    let path: Vec<String> = at.clone().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = write!(out, "<path d='M{}' class='fl'/>", path.join("L"));
    for (x, y) in at {
        let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='4' class='fp'/>");
    }
    out + "</svg>"
}

/// Where between two numbers one is, by factors; in the middle where they are the same.
fn share(value: f64, least: f64, most: f64) -> f64 {
    if most <= least { 0.5 } else { (value / least).ln() / (most / least).ln() }
}

/// Round numbers between both, about `count` of them.
fn lines(least: f64, most: f64, count: f64) -> Vec<f64> {
    let decades = (most / least).max(1.0).log10() / count;
    let every: &[f64] = match decades {
        near if near < 0.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        near if near < 0.4 => &[1.0, 2.0, 5.0],
        near if near < 0.8 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let all = powers.flat_map(|power| every.iter().map(move |k| k * 10f64.powi(power)));
    all.filter(|rate| (least * 0.999..=most * 1.001).contains(rate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heights of the discs from the left.
    fn heights(svg: &str) -> Vec<f64> {
        let of = |part: &str| part.split("' r=").next()?.rsplit("cy='").next()?.parse().ok();
        svg.split("<circle").skip(1).filter_map(of).collect()
    }

    #[test]
    fn what_scales_ideally_lies_on_the_line_and_the_rest_below() {
        let svg = draw(600.0, 240.0, &[(8, 100.0), (16, 200.0), (32, 200.0)], "samples/s");
        let heights = heights(&svg);
        assert_eq!(heights.len(), 3);
        assert!(heights[0] > heights[1] && heights[1] == heights[2], "{heights:?}");
        // The middle of three sizes of a line is half way up.
        let ends = (ABOVE, 240.0 - BELOW);
        assert!((heights[1] - (ends.0 + ends.1) / 2.0).abs() < 0.2, "{heights:?}");
        assert!(svg.contains(">16</text>") && !svg.contains("NaN"));
    }

    #[test]
    fn one_size_and_none_are_drawn() {
        assert_eq!(heights(&draw(300.0, 160.0, &[], "samples/s")).len(), 0);
        let one = draw(300.0, 160.0, &[(8, 100.0)], "samples/s");
        assert!(heights(&one).len() == 1 && !one.contains("NaN") && !one.contains("inf"), "{one}");
    }

    #[test]
    fn lines_are_round() {
        assert_eq!(lines(90.0, 1100.0, 4.0), [100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(lines(100.0, 1e6, 4.0), [100.0, 1e3, 1e4, 1e5, 1e6]);
    }
}
