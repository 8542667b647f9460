//! The bodies of the Compare screen's tables, as markup: every number changes at once.

use crate::base::format::{bytes_text, escape, percent};
use crate::base::texts::t;
use crate::draw::fill::Fill;
use crate::planner::compare::{Row, Value};
use crate::planner::engine::Solved;
use std::fmt::Write;

/// A line for each row: name, A, B, and B against A.
pub fn rows(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let class = match (row.chosen, &row.change) {
            (true, Some(_)) => "cho diff",
            (true, None) => "cho",
            _ => "",
        };
        let _ = write!(
            out,
            "<tr class='{class}' data-row='{}'><th scope='row'>{}</th>{}{}",
            row.id,
            t(row.name),
            value(&row.a),
            value(&row.b)
        );
        let _ = match &row.change {
            None => write!(out, "<td class='num dim'>=</td></tr>"),
            Some(change) => {
                let class = match change.good {
                    Some(true) => "num good",
                    Some(false) => "num bad",
                    None => "num",
                };
                let amount = if change.amount.is_empty() { "" } else { " " };
                let (arrow, word) =
                    (change.arrow, if change.word.is_empty() { "" } else { t(change.word) });
                let text = format!("{arrow}{amount}{} {word}", change.amount);
                write!(out, "<td class='{class}'>{text}</td></tr>")
            }
        };
    }
    out
}

fn value(value: &Value) -> String {
    let unit = match value.unit {
        "" => String::new(),
        unit => format!(" <i>{unit}</i>"),
    };
    // Names come from files.
    format!("<td class='num'>{}{unit}</td>", escape(&value.text))
}

/// A line for each lane of either: how busy it is in A and in B, and its memory in both.
pub fn lanes(a: &Solved, b: &Solved) -> String {
    let count = a.timeline.lanes.len().max(b.timeline.lanes.len());
    let mut out = String::new();
    for lane in 0..count {
        let _ = write!(out, "<tr><th scope='row'>{lane}</th>");
        for solved in [a, b] {
            let t = &solved.timeline;
            let busy = t.lanes.get(lane).map(|content| {
                let share = content.busy().0 as f64 / t.step.0.max(1) as f64;
                format!("{} %", percent(share, 0))
            });
            let _ = write!(out, "<td class='num'>{}</td>", busy.unwrap_or_default());
        }
        for solved in [a, b] {
            let Some(content) = solved.timeline.lanes.get(lane) else {
                out += "<td></td>";
                continue;
            };
            let fill = Fill::of(content.arena, solved.capacity);
            let (sign, bytes) = (fill.sign(), bytes_text(content.arena));
            let _ = write!(out, "<td class='num {}'>{sign}{bytes}</td>", fill.class());
        }
        out += "</tr>";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::compare;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::inputs::Inputs;
    use crate::planner::presets::first;

    fn solved(inputs: &Inputs) -> Solved {
        solve(inputs, &Ground::of(inputs)).unwrap()
    }

    #[test]
    fn what_differs_is_marked_by_more_than_colour() {
        let a = solved(&first());
        let mut other = first();
        (other.micro_batches, other.cuts) = (16, vec![20]);
        let b = solved(&other);
        let html = rows(&compare::rows(&a, &b));
        assert_eq!(html.matches("<tr").count(), 9);
        assert_eq!(html.matches("class='cho diff'").count(), 3, "{html}");
        assert!(
            html.contains("▲ 8 more") && html.contains("≠ differs") && html.contains("<i>s</i>")
        );
        let html = lanes(&a, &b);
        assert_eq!((html.matches("<tr>").count(), html.matches("<td").count()), (4, 16));
        assert!(html.contains("▲ 77.4 GiB"), "lane 0 is nearly full: {html}");
    }

    #[test]
    fn names_from_files_are_no_markup() {
        let value = super::value(&Value { text: "<b>x".into(), unit: "" });
        assert_eq!(value, "<td class='num'>&lt;b&gt;x</td>");
    }
}
