//! Exports: the plan that is shown, as files of other programs.

use crate::base::format::Clock;
use crate::base::texts::{n, tr};
use crate::draw::svg;
use crate::planner::engine::Solved;
use pipewright_core::graph::Graph;
use pipewright_core::plan::export::{megatron_layout, split_points};
use pipewright_core::timeline::{Step, Timeline, Trace, Work, chrome};
use std::fmt::Write;

/// A file that can be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The predicted step for Perfetto and chrome://tracing.
    Trace,
    /// Each action with its times.
    Spans,
    /// The timeline as a drawing.
    Drawing,
    /// The order of actions by lane, as PyTorch reads it.
    Schedule,
    /// PyTorch's split_spec.
    SplitPoints,
    /// Megatron-LM's layout of stages.
    Megatron,
}

impl Format {
    /// In the order of the menu.
    pub const ALL: [Format; 6] = [
        Format::Trace,
        Format::Spans,
        Format::Drawing,
        Format::Schedule,
        Format::SplitPoints,
        Format::Megatron,
    ];

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Format::Trace => n("Predicted step for Perfetto"),
            Format::Spans => n("Times of all actions"),
            Format::Drawing => n("Timeline as SVG"),
            Format::Schedule => n("PyTorch schedule"),
            Format::SplitPoints => n("PyTorch split points"),
            Format::Megatron => n("Megatron-LM layout"),
        }
    }

    /// The name of the file.
    pub fn file(self) -> &'static str {
        match self {
            Format::Trace => "predicted.json",
            Format::Spans => "timeline.csv",
            Format::Drawing => "timeline.svg",
            Format::Schedule => "schedule.csv",
            Format::SplitPoints => "split_spec.py",
            Format::Megatron => "layout.txt",
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// Why the plan cannot be put so, a sentence without its full stop.
    pub fn text(self, solved: &Solved, graph: &Graph) -> Result<String, String> {
        let cuts = &solved.inputs.cuts;
        match self {
            Format::Trace => Ok(trace(&solved.timeline, graph.name())),
            Format::Spans => Ok(spans(&solved.timeline)),
            Format::Drawing => {
                let lanes = solved.timeline.lanes.len();
                let time = Clock::of(solved.timeline.step).text(solved.timeline.step);
                let schedule = solved.inputs.order_title();
                let title = tr!(
                    "{model} on {lanes} lanes, {schedule}: {time}",
                    model = graph.name(),
                    lanes,
                    schedule,
                    time
                );
                svg::draw(&solved.timeline, &title)
            }
            Format::Schedule => Ok(solved.schedule.to_csv()),
            Format::SplitPoints => split_points(graph, cuts).map_err(|e| e.to_string()),
            Format::Megatron => megatron_layout(graph, cuts, solved.inputs.lanes())
                .map(|layout| format!("{layout}\n"))
                .map_err(|e| e.to_string()),
        }
    }
}

fn trace(timeline: &Timeline, model: &str) -> String {
    let step = Step { timeline: timeline.clone(), ..Step::default() };
    chrome::write(&Trace { model: model.into(), steps: vec![step] })
}

/// A line for each piece of work, times in microseconds.
fn spans(timeline: &Timeline) -> String {
    let mut out = String::from("lane,work,stage,micro_batch,start_us,end_us\n");
    let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
    for (lane, spans) in timeline.lanes.iter().map(|lane| &lane.spans).enumerate() {
        for span in spans {
            let (work, stage, micro_batch) = match span.work {
                Work::Run(action) => {
                    (action.kind.letter(), action.stage, action.micro_batch.to_string())
                }
                Work::Optimizer(stage) => ('U', stage, String::new()),
            };
            let (start, end) = (micros(span.start.0), micros(span.end.0));
            let _ = writeln!(out, "{lane},{work},{stage},{micro_batch},{start},{end}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets;

    fn first() -> (Solved, Ground) {
        let inputs = presets::first();
        let ground = Ground::of(&inputs);
        (solve(&inputs, &ground).unwrap(), ground)
    }

    #[test]
    fn what_is_exported_is_what_is_shown() {
        let (solved, ground) = first();
        let text = |format: Format| format.text(&solved, &ground.graph);
        let read = chrome::read(&text(Format::Trace).unwrap()).unwrap();
        assert_eq!(read.steps[0].timeline.step, solved.timeline.step);
        let lines = text(Format::Spans).unwrap();
        let work: usize = solved.timeline.lanes.iter().map(|lane| lane.spans.len()).sum();
        assert_eq!(lines.lines().count(), work + 1);
        assert!(lines.contains("\n0,F,0,0,0.000,"), "{lines}");
        assert!(text(Format::Schedule).unwrap().starts_with("0F0,"));
        assert!(text(Format::SplitPoints).unwrap().contains("SplitPoint.BEGINNING"));
        assert!(text(Format::Megatron).unwrap_err().contains("vgg16"));
        assert_eq!(text(Format::Drawing).unwrap().matches("<rect").count(), work + 1);
    }

    #[test]
    fn transformers_have_a_layout() {
        let inputs = crate::planner::link::read("model=gpt2&d=4&cluster=dgx-h100", None).inputs;
        let ground = Ground::of(&inputs);
        let solved = solve(&inputs, &ground).unwrap();
        let layout = Format::Megatron.text(&solved, &ground.graph).unwrap();
        assert!(layout.starts_with('E') && layout.trim_end().ends_with('L'), "{layout}");
    }
}
