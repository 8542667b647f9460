//! One step of the schedule, small: lanes, and their passes by micro-batch.

use crate::base::format::escape;
use crate::base::texts::tr;
use crate::screens::playground::model::pipeline::Pipeline;
use pipewright_core::schedule::ActionKind;
use pipewright_core::timeline::Work;
use std::fmt::Write;

/// Height of a lane.
const PITCH: f64 = 22.0;
const LEFT: f64 = 22.0;

/// Draws it; as high as there are lanes.
pub fn draw(pipeline: &Pipeline, width: f64) -> String {
    let lanes = &pipeline.lanes;
    let height = PITCH * lanes.len() as f64;
    let end = lanes.iter().filter_map(|lane| lane.spans.last()).map(|span| span.end.0).max();
    let scale = (width - LEFT) / end.unwrap_or(1).max(1) as f64;
    let what = tr!("One step of the schedule on {lanes} lanes", lanes = lanes.len());
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label=\"{}\">",
        escape(&what)
    );
    for (at, lane) in lanes.iter().enumerate() {
        let y = PITCH * at as f64;
        let middle = y + PITCH / 2.0 + 3.0;
        let _ = write!(out, "<text x='0' y='{middle:.1}' class='ax'>L{at}</text>");
        for span in &lane.spans {
            let Work::Run(action) = span.work else { continue };
            let class = match action.kind {
                ActionKind::Forward => "f",
                ActionKind::Backward | ActionKind::BackwardInput => "b",
                ActionKind::BackwardWeight => "w",
            };
            let x = LEFT + span.start.0 as f64 * scale;
            let wide = (span.end.0 - span.start.0) as f64 * scale;
            let _ = write!(
                out,
                "<rect x='{x:.1}' y='{:.1}' width='{:.1}' height='{}' rx='1' class='run {class}'/>",
                y + 1.0,
                (wide - 1.0).max(0.6),
                PITCH - 3.0
            );
            if wide >= 11.0 {
                let (x, m) = (x + wide / 2.0 - 0.5, action.micro_batch);
                let _ = write!(
                    out,
                    "<text x='{x:.1}' y='{middle:.1}' text-anchor='middle' class='ct'>{m}</text>"
                );
            }
        }
    }
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::schedule::ScheduleKind;

    #[test]
    fn a_rectangle_an_action() {
        for (kind, actions) in [(ScheduleKind::OneFOneB, 64), (ScheduleKind::ZbH1, 96)] {
            let pipeline = Pipeline::new(kind, 4, 5, 8).unwrap();
            let svg = draw(&pipeline, 288.0);
            assert_eq!(svg.matches("<rect").count(), actions, "{kind}");
            assert!(svg.contains("run w") == (kind == ScheduleKind::ZbH1));
        }
    }
}
