//! The Run screen's table of drift and the strip of steps, as markup.

use crate::base::format::{self, Clock};
use crate::base::texts::t;
use crate::screens::run::model::drift::{Row, Table, kind, ratio, signed_number};
use pipewright_core::predict::Rest;
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// Predicted and measured step with their idle shares, and how far apart they are.
pub fn headline(predicted: (Nanos, f64), measured: (Nanos, f64)) -> String {
    let line = |class: &str, name: &str, id: &str, (step, idle): (Nanos, f64)| {
        let (value, unit) = format::hero(step);
        let idle = format::percent(idle, 1);
        format!(
            "<tr class='{class}'><th scope='row'>{name}</th>\
             <td class='num v' id='{id}' data-value='{}'>{value}</td><td class='u'>{unit}</td>\
             <td class='num'>{idle} <i>%</i></td></tr>",
            step.0
        )
    };
    let drift = format::signed_percent(measured.0.secs(), predicted.0.secs());
    let (drift, unit) = drift.rsplit_once(' ').unwrap_or((&drift, ""));
    line("big", t("Measured"), "run-measured", measured)
        + line("", t("Predicted"), "run-predicted", predicted).as_str()
        + format!(
            "<tr><th scope='row'>{}</th><td class='num v' id='run-drift'>{drift}</td><td class='u'>{unit}</td><td></td></tr>",
            t("Drift")
        )
        .as_str()
}

/// The body of the table: a line for each part, then what is not work, then the whole.
pub fn rows(table: &Table, by_share: bool) -> String {
    let clock = Clock::of(table.predicted.max(table.measured));
    let most = table.rows.iter().filter_map(|row| row.share).map(i64::unsigned_abs).max();
    let mut out = String::new();
    // One unit for all, so that they can be compared.
    let longest = table.rows.iter().map(|row| row.times.predicted.max(row.times.measured)).max();
    let piece = Clock::of(longest.unwrap_or_default());
    for row in table.sorted(by_share) {
        part(&mut out, &row, most.unwrap_or(0), (&piece, &clock));
    }
    if let Some(rest) = table.rest {
        ends(&mut out, table, rest, &clock);
    }
    out
}

fn part(out: &mut String, row: &Row, most: u64, (piece, clock): (&Clock, &Clock)) {
    let times = &row.times;
    let (stage, busy) = (times.part.stage, times.part.busy);
    let share = row.share.map_or("…".into(), |share| amount(share, clock));
    let exact = row.share.map_or(String::new(), |share| share.to_string());
    let class = match row.share {
        Some(share) if share != 0 && share.unsigned_abs() == most => "num top",
        _ => "num",
    };
    let letter = busy.letter();
    let chip = letter.to_ascii_lowercase();
    let _ = write!(
        out,
        "<tr data-part='{stage}{letter}' data-share='{exact}'><th scope='row'><span class='chip {chip}' aria-hidden='true'>{letter}</span> {stage}</th>\
         <td>{}</td><td class='num dim'>{}</td><td class='num'>{}</td><td class='num'>{}</td><td class='num'>{}</td><td class='{class}'>{share}</td></tr>",
        t(kind(busy)),
        times.count,
        quantity(times.predicted, piece),
        quantity(times.measured, piece),
        ratio(times),
    );
}

fn ends(out: &mut String, table: &Table, rest: Rest, clock: &Clock) {
    let mut line = |id: &str, class: &str, name: &str, cells: String| {
        let _ = write!(
            out,
            "<tr data-part='{id}' class='{class}'><th scope='row' colspan='3'>{name}</th>{cells}</tr>"
        );
    };
    let only = |share: i64| {
        let share = amount(share, clock);
        format!("<td></td><td></td><td></td><td class='num'>{share}</td>")
    };
    line("work", "sum", t("All actions together"), only(rest.work));
    line("before", "", t("Before the first pass"), only(rest.before));
    line("between", "", t("Messages, sums, waiting"), only(rest.between));
    line("after", "", t("After the last action"), only(rest.after));
    let (predicted, measured) = (table.predicted, table.measured);
    let all = measured.0 as i64 - predicted.0 as i64;
    let ratio = measured.secs() / predicted.secs();
    let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
    let cells = format!(
        "<td class='num'>{}</td><td class='num'>{}</td><td class='num'>{ratio}</td><td class='num'>{}</td>",
        quantity(predicted, clock),
        quantity(measured, clock),
        amount(all, clock)
    );
    line("step", "sum", t("Step"), cells);
}

/// A number with a lighter unit.
fn quantity(time: Nanos, clock: &Clock) -> String {
    format!("{} <i>{}</i>", clock.precise(time), clock.unit)
}

/// The same with a sign.
fn amount(nanos: i64, clock: &Clock) -> String {
    format!("{} <i>{}</i>", signed_number(nanos, clock), clock.unit)
}

const LEFT: f64 = 8.0;
/// Room for the name of the line.
const RIGHT: f64 = 66.0;

/// Bars of the strip: as many as there are steps, or as fit.
fn bars(steps: usize, width: f64) -> usize {
    steps.min(((width - LEFT - RIGHT) / 3.0).max(1.0) as usize).max(1)
}

/// The index of the step under a place of the strip: of several in a bar, the longest one.
pub fn step_at(durations: &[Nanos], width: f64, x: f64) -> Option<usize> {
    let count = bars(durations.len(), width);
    let share = (x - LEFT) / (width - LEFT - RIGHT);
    let bar = (share.clamp(0.0, 1.0) * count as f64) as usize;
    longest(durations, count, bar.min(count - 1))
}

/// The longest of the steps in a bar.
fn longest(durations: &[Nanos], count: usize, bar: usize) -> Option<usize> {
    let (from, to) = (bar * durations.len() / count, (bar + 1) * durations.len() / count);
    (from..to).max_by_key(|at| (durations[*at], std::cmp::Reverse(*at)))
}

/// What each step took, beside the predicted one as a line; the one that is looked at is marked.
pub fn strip(
    durations: &[Nanos],
    at: usize,
    predicted: Nanos,
    (width, height): (f64, f64),
) -> String {
    let label = t("Time of each step; the line is the prediction.");
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label='{label}'>"
    );
    let count = bars(durations.len(), width);
    let top = durations.iter().copied().max().unwrap_or_default().max(predicted);
    let room = height - 14.0;
    let y = |time: Nanos| height - 1.0 - time.0 as f64 / top.0.max(1) as f64 * room;
    let pitch = (width - LEFT - RIGHT) / count as f64;
    for bar in 0..count {
        let Some(step) = longest(durations, count, bar) else { continue };
        let (from, to) = (bar * durations.len() / count, (bar + 1) * durations.len() / count);
        let class = if (from..to).contains(&at) { "sb on" } else { "sb" };
        // The one that is looked at, where several share a bar.
        let shown = if class == "sb" { step } else { at };
        let (x, wide) = (LEFT + bar as f64 * pitch, (pitch - 1.0).max(0.5));
        let (high, time) = (y(durations[shown]), durations[shown]);
        let _ = write!(
            out,
            "<rect x='{x:.1}' y='{high:.1}' width='{wide:.1}' height='{:.1}' class='{class}'><title>{}</title></rect>",
            (height - 1.0 - high).max(1.0),
            Clock::of(time).text(time)
        );
    }
    let line = y(predicted).round() + 0.5;
    let right = width - RIGHT;
    let _ = write!(
        out,
        "<path d='M{LEFT} {line}H{right}' class='as-planned'/><text x='{:.1}' y='{:.1}' class='lb2'>{}</text>",
        right + 6.0,
        (line + 4.0).clamp(11.0, (height - 3.0).max(11.0)),
        t("predicted")
    );
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;
    use crate::planner::ready::Ready;
    use pipewright_core::predict::Drift;

    #[test]
    fn the_table_has_a_line_for_each_part_and_adds_up() {
        let inputs = EXAMPLES[0].inputs();
        let ready = Ready::new(&inputs).unwrap();
        let measured = ready.prediction.timeline.clone();
        let drift = Drift::new(&ready.plan, &ready.prediction, &measured).unwrap();
        let mut table = Table::new(&drift, measured.step, measured.step).unwrap();
        let html = rows(&table, false);
        let parts = table.rows.len();
        assert_eq!(parts, 3 * inputs.stages() as usize);
        assert_eq!(html.matches("<tr").count(), parts + 5);
        assert_eq!(html.matches('…').count(), parts, "shares are yet to come");
        table.rows[4].share = Some(-3_000_000);
        let html = rows(&table, true);
        assert!(html.contains("num top'>−3.0 <i>ms</i>"), "{html}");
        assert!(html.starts_with("<tr data-part='1"), "what matters most comes first: {html}");
        assert!(!html.contains("NaN") && html.contains("1.00"));
    }

    #[test]
    fn the_headline_says_both_and_how_far_apart_they_are() {
        let html = headline((Nanos(100_000_000), 0.25), (Nanos(118_000_000), 0.3));
        assert_eq!(html.matches("<tr").count(), 3);
        assert!(html.contains(">118.0<") && html.contains(">+18<") && html.contains("25.0 <i>%"));
        assert!(!headline((Nanos(0), 0.0), (Nanos(0), 0.0)).contains("NaN"));
    }

    #[test]
    fn every_step_has_a_bar_and_is_found_under_it() {
        let durations: Vec<Nanos> = (1..=8).map(|n| Nanos(n * 1_000_000)).collect();
        let svg = strip(&durations, 2, Nanos(4_000_000), (300.0, 60.0));
        assert_eq!(
            (svg.matches("class='sb'").count(), svg.matches("class='sb on'").count()),
            (7, 1)
        );
        for (at, x) in [(0, 0.0), (0, 20.0), (2, 80.0), (7, 299.0)] {
            assert_eq!(step_at(&durations, 300.0, x), Some(at), "{x}");
        }
        let many: Vec<Nanos> = (0..5000).map(|n| Nanos(n % 977)).collect();
        let svg = strip(&many, 4999, Nanos(0), (300.0, 60.0));
        assert_eq!(svg.matches("<rect").count(), 75);
        let at = step_at(&many, 300.0, 298.0).unwrap();
        assert_eq!(many[at], *many[4933..].iter().max().unwrap());
        assert_eq!(step_at(&[], 300.0, 5.0), None);
        let empty = strip(&[], 0, Nanos(0), (0.0, 0.0));
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
