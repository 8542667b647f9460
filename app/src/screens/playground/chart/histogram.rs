//! The last step's gradient before and after the codec, as two histograms over each other.

use crate::base::format::escape;
use crate::base::texts::t;
use std::fmt::Write;

/// Columns: odd, so that zero has one of its own.
const COLUMNS: usize = 33;

/// Shares of values in each column between `-most` and `most`.
fn columns(values: &[f32], most: f32) -> [f64; COLUMNS] {
    let mut counts = [0.0; COLUMNS];
    for value in values.iter().filter(|value| value.is_finite()) {
        let share = (value / most).clamp(-1.0, 1.0);
        counts[((share + 1.0) / 2.0 * (COLUMNS - 1) as f32).round() as usize] += 1.0;
    }
    counts.map(|count| count / values.len().max(1) as f64)
}

/// Draws both: filled what the ranks computed, outlined what they received.
pub fn draw(exact: &[f32], received: &[f32], (width, height): (f64, f64)) -> String {
    let largest = |values: &[f32]| {
        values.iter().filter(|v| v.is_finite()).map(|v| v.abs()).fold(0.0f32, f32::max)
    };
    let most = largest(exact).max(largest(received)).max(f32::MIN_POSITIVE);
    let (before, after) = (columns(exact, most), columns(received, most));
    let (bottom, low) = (height - 16.0, height - 3.0);
    // Roots: a codec of two values would leave nothing else to see.
    let top = before.iter().chain(&after).copied().fold(1e-9, f64::max).sqrt();
    let pitch = width / COLUMNS as f64;
    let y = |share: f64| bottom - share.sqrt() / top * (bottom - 2.0);
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label=\"{}\">",
        escape(t("Histogram of the gradient before the codec, filled, and after it, as a line"))
    );
    for (at, share) in before.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        let (x, y) = (at as f64 * pitch, y(*share));
        let _ = write!(
            out,
            "<rect x='{:.1}' y='{y:.1}' width='{:.1}' height='{:.1}' class='hb'/>",
            x + 0.5,
            pitch - 1.0,
            bottom - y
        );
    }
    let mut path = format!("M0 {bottom:.1}");
    for (at, share) in after.iter().enumerate() {
        let (x, y) = (at as f64 * pitch, y(*share));
        let _ = write!(path, "L{x:.1} {y:.1}L{:.1} {y:.1}", x + pitch);
    }
    let _ = write!(out, "<path d='{path}L{width:.1} {bottom:.1}' class='ha'/>");
    // Before the first step there is nothing to measure.
    let end = if most > f32::MIN_POSITIVE { format!("{most:.1e}") } else { String::new() };
    let _ = write!(
        out,
        "<text x='0' y='{low:.1}' class='ax'>{}{end}</text>\
         <text x='{:.1}' y='{low:.1}' class='ax' text-anchor='middle'>0</text>\
         <text x='{width:.1}' y='{low:.1}' class='ax' text-anchor='end'>{end}</text></svg>",
        if end.is_empty() { "" } else { "−" },
        width / 2.0
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_column() {
        let found = columns(&[0.0, 1.0, -1.0, 0.001, f32::NAN], 1.0);
        assert_eq!((found[0], found[16], found[32]), (0.2, 0.4, 0.2));
        let svg = draw(&[0.0, 0.3, -0.2], &[0.25, 0.25, -0.25], (200.0, 60.0));
        assert_eq!(svg.matches("class='hb'").count(), 3, "{svg}");
        for odd in [draw(&[], &[], (200.0, 60.0)), draw(&[f32::NAN], &[f32::INFINITY], (99.0, 9.0))]
        {
            assert!(!odd.contains("NaN") && odd.ends_with("</svg>"), "{odd}");
        }
    }
}
