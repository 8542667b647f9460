//! A plan and what was measured of it as one HTML file, which needs neither this page nor a server.

use crate::base::format::{self, Clock, escape};
use crate::base::texts::{t, tr};
use crate::draw::svg;
use crate::planner::compare::describe;
use crate::planner::details::drift;
use crate::planner::engine::Solved;
use crate::planner::measured::Measured;
use pipewright_core::timeline::chrome;
use std::fmt::Write;

/// What the file looks like.
const STYLE: &str = "body{font:14px/1.5 Inter,Helvetica,Arial,sans-serif;margin:24px auto;max-width:1240px;padding:0 20px;color:#14181e}\
h1{font-size:20px}h2{font-size:15px;margin-top:28px}table{border-collapse:collapse}td,th{padding:3px 14px 3px 0;text-align:left;border-bottom:1px solid #dde2e8}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}figure{margin:12px 0;overflow-x:auto}svg{width:100%;min-width:800px;height:auto}\
figcaption,footer{color:#46505d;font-size:12px}code{background:#eceff3;padding:2px 6px;border-radius:4px}";

/// The file's text; `plan` is that of plan.json.
///
/// # Errors
/// When a step has more actions than a drawing takes.
pub fn page(solved: &Solved, measured: Option<&Measured>, plan: &str) -> Result<String, String> {
    let title = describe(&solved.inputs);
    let (ran, name) = (measured.map(|m| &*m.timeline), measured.map(|m| m.name.as_str()));
    let end = solved.timeline.step.max(ran.map_or(solved.timeline.step, |ran| ran.step));
    let clock = Clock::of(end);
    let mut out = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0} - Pipewright</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
        escape(&title)
    );
    figures(&mut out, solved, measured);
    let mut figure = |timeline, caption: String| -> Result<(), String> {
        let drawn = svg::draw_until(timeline, &caption, end)?;
        let _ = writeln!(out, "<figure>{drawn}</figure>");
        Ok(())
    };
    figure(&solved.timeline, tr!("Predicted: {time}", time = clock.text(solved.timeline.step)))?;
    if let (Some(ran), Some(measured)) = (ran, measured) {
        let (number, name) = (measured.number(), &measured.name);
        let time = clock.text(ran.step);
        figure(ran, tr!("Measured, step {number} of {name}: {time}", number, name, time))?;
    }
    lanes(&mut out, solved, measured);
    let ranks = solved.inputs.ranks();
    let _ = writeln!(
        out,
        "<h2>{}</h2>\n<p><code>{}</code></p>\n<p>{}",
        t("Run it"),
        escape(&crate::planner::command::command(ranks)),
        attached("plan.json", plan)
    );
    if let Some(measured) = measured {
        let _ = writeln!(out, " · {}", attached("trace.json", &chrome::write(&measured.trace)));
    }
    let _ = writeln!(
        out,
        "</p>\n<footer>{}{}</footer>\n</body></html>",
        t("Saved by Pipewright's explorer. Drop plan.json and trace.json there to go on."),
        name.map_or(String::new(), |name| tr!(" Measured: {name}.", name = escape(name)))
    );
    Ok(out)
}

fn figures(out: &mut String, solved: &Solved, measured: Option<&Measured>) {
    let figures = solved.figures;
    let clock = Clock::of(figures.step);
    let mut rows = vec![
        (t("Step"), clock.text(figures.step)),
        (t("Idle"), format!("{} %", format::percent(figures.bubble, 1))),
        (
            t("Peak memory"),
            tr!(
                "{bytes} of {capacity}, lane {lane}",
                bytes = format::bytes_text(figures.peak),
                capacity = format::bytes_text(solved.capacity),
                lane = figures.worst
            ),
        ),
        (
            t("Throughput"),
            tr!("{rate} samples/s", rate = format!("{:.1}", figures.samples_per_sec)),
        ),
        (t("Sent per step"), format::bytes_text(figures.traffic)),
        (t("Cluster"), solved.inputs.cluster().name.clone()),
    ];
    if let Some(measured) = measured {
        let step = measured.timeline.step;
        let change = format::signed_percent(step.secs(), solved.timeline.step.secs());
        rows.insert(1, (t("Measured step"), format!("{} ({change})", clock.text(step))));
    }
    out.push_str("<table>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    out.push_str("</table>\n");
}

fn lanes(out: &mut String, solved: &Solved, measured: Option<&Measured>) {
    let (timeline, clock) = (&solved.timeline, Clock::of(solved.timeline.step));
    let _ = write!(
        out,
        "<h2>{}</h2>\n<table>\n<tr><th>{}</th><th class=\"n\">{}</th><th class=\"n\">{}</th><th class=\"n\">{}</th>",
        t("Lanes"),
        t("lane"),
        t("busy"),
        t("idle"),
        t("memory")
    );
    if measured.is_some() {
        let _ = write!(out, "<th class=\"n\">{}</th>", t("drift"));
    }
    out.push_str("</tr>\n");
    for (lane, content) in timeline.lanes.iter().enumerate() {
        let idle = timeline.step.saturating_sub(content.busy());
        let _ = write!(
            out,
            "<tr><td>{lane}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
            clock.text(content.busy()),
            clock.text(idle),
            format::bytes_text(content.arena)
        );
        if let Some(measured) = measured.filter(|m| m.timeline.lanes.len() > lane) {
            let _ = write!(
                out,
                "<td class=\"n\">{}</td>",
                escape(&drift(timeline, &measured.timeline, lane))
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// A file inside of the page, which a click saves.
fn attached(name: &str, text: &str) -> String {
    let mut url = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'{'
            | b'}'
            | b'['
            | b']'
            | b':'
            | b','
            | b'.'
            | b'-'
            | b'_'
            | b'/' => {
                url.push(char::from(byte));
            }
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    format!("<a download=\"{name}\" href=\"data:application/json,{url}\">{name}</a>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;
    use pipewright_core::timeline::{Step, Trace};

    /// What a link of the file holds.
    fn inside(page: &str, name: &str) -> String {
        let (_, rest) =
            page.split_once(&format!("download=\"{name}\" href=\"data:application/json,")).unwrap();
        let url = rest.split_once('"').unwrap().0;
        let (mut out, mut at) = (vec![], 0);
        while at < url.len() {
            let byte = url.as_bytes()[at];
            if byte == b'%' {
                out.push(u8::from_str_radix(&url[at + 1..at + 3], 16).unwrap());
                at += 3;
            } else {
                out.push(byte);
                at += 1;
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_file_holds_plan_and_trace_and_draws_both() {
        let inputs = first();
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let plan = inputs.plan().unwrap().0.to_json();
        let step = Step { number: 7, timeline: solved.timeline.clone(), ..Step::default() };
        let trace = Trace { model: "vgg16".into(), steps: vec![step] };
        let measured = Measured::new(trace.clone(), "<run>.json").unwrap();
        let both = page(&solved, Some(&measured), &plan).unwrap();
        assert_eq!(both.matches("<svg").count(), 2);
        assert_eq!(inside(&both, "plan.json"), plan);
        assert_eq!(chrome::read(&inside(&both, "trace.json")).unwrap(), trace);
        assert!(both.contains("&lt;run&gt;.json") && !both.contains("<run>"));
        assert!(both.contains("step 7 of"), "which step is drawn");
        // Nothing is fetched from anywhere.
        assert!(!both.contains("<script") && !both.contains("src=") && !both.contains("<link"));
        let alone = page(&solved, None, &plan).unwrap();
        assert_eq!(
            (alone.matches("<svg").count(), alone.contains("trace.json\" href")),
            (1, false)
        );
    }
}
