//! The best time within the budget over the moves of a search.

use crate::base::format::Clock;
use crate::base::texts::t;
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// `history`: moves and nanoseconds, the newest last.
pub fn draw(history: &[(u64, f64)], (width, height): (f64, f64)) -> String {
    let mut out = format!(
        "<svg viewBox='0 0 {width} {height}' role='img' aria-label='{}'><rect \
         width='{width}' height='{height}' rx='4' class='pg'/>",
        t("Best time so far over the search's moves")
    );
    let _ = write!(
        out,
        "<text x='{}' y='14' text-anchor='end' class='ax'>{}</text>",
        width - 6.0,
        t("best time so far")
    );
    let (Some(first), Some(last)) = (history.first(), history.last()) else {
        return out + "</svg>";
    };
    let (least, most) = (last.1, history.iter().map(|h| h.1).fold(last.1, f64::max));
    let span = if most > least { most - least } else { 1.0 };
    let moves = (last.0 - first.0).max(1) as f64;
    let x = |at: u64| 4.0 + (at - first.0) as f64 / moves * (width - 12.0);
    let y = |time: f64| height - 10.0 - (time - least) / span * (height - 36.0);
    let mut path = format!("M{:.1} {:.1}", x(first.0), y(first.1));
    for pair in history.windows(2) {
        let _ = write!(path, "H{:.1}", x(pair[1].0));
        if pair[0].1 != pair[1].1 {
            let _ = write!(path, "V{:.1}", y(pair[1].1));
        }
    }
    let name = Clock::of(Nanos(least as u64)).text(Nanos(least as u64));
    let _ = write!(
        out,
        "<path d='{path}' class='wi'/><circle cx='{:.1}' cy='{:.1}' r='3' class='me-i'><title>{name}\
         </title></circle>",
        x(last.0),
        y(last.1)
    );
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_falls_and_nothing_is_drawn_of_nothing() {
        let svg = draw(&[(0, 9.0), (10, 9.0), (20, 7.0)], (240.0, 110.0));
        assert!(svg.contains("V100.0") && !svg.contains("NaN"), "{svg}");
        assert!(!draw(&[], (240.0, 110.0)).contains("path"));
        assert!(!draw(&[(5, 3.0)], (240.0, 110.0)).contains("NaN"));
    }
}
