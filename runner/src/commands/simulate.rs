//! `runner simulate`: the predicted step, as numbers and as a trace.

use super::words::{self, column};
use crate::args::SimulateArgs;
use crate::failure::Failure;
use pipewright_core::ids::LaneId;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::timeline::{Lane, Step, Trace, chrome};
use pipewright_core::units::Nanos;

/// Runs the command.
pub fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    let to_stdout = args.output.as_deref().is_some_and(|path| path == "-");
    if to_stdout && args.json {
        return Err(Failure::usage(
            "--json and -o - both print to the standard output; write one of them to a file",
        ));
    }
    let plan = super::read_plan(&args.plan)?;
    let prediction = predict(&plan)?;
    let timeline = &prediction.timeline;
    if args.json {
        let text = serde_json::to_string_pretty(&prediction.expectation()).expect("plain data");
        say!("{text}");
    } else {
        // Beside a trace on the standard output.
        let tell = |line: String| if to_stdout { note!("{line}") } else { say!("{line}") };
        table(&plan, &prediction).into_iter().for_each(tell);
    }
    if let Some(path) = &args.output {
        let steps = vec![Step { number: 0, start: Nanos::ZERO, timeline: timeline.clone() }];
        let trace = Trace { model: prediction.graph.name().into(), steps };
        super::write_text(path, &chrome::write(&trace))?;
    }
    Ok(())
}

/// The step, and a row for each lane.
fn table(plan: &Plan, prediction: &Prediction) -> Vec<String> {
    let timeline = &prediction.timeline;
    let without = super::model::without(&prediction.graph);
    let bubble = 100.0 * timeline.bubble();
    let who = words::processes(plan);
    let mut lines = vec![
        format!("{who}: step time {}{without}, bubble {bubble:.1} %", timeline.step),
        plan.throughput(&prediction.graph, timeline.step).to_string(),
        "lane   ranks      busy      idle          peak".into(),
    ];
    // Ranks that share devices have rows of their own.
    let by_rank = timeline.lanes.len() == plan.ranks() as usize;
    let idle = |lane: &Lane| timeline.step.saturating_sub(lane.busy());
    let idle = column(&timeline.lanes.iter().map(idle).collect::<Vec<Nanos>>());
    for ((row, facts), idle) in (0u32..).zip(&timeline.lanes).zip(idle) {
        let (lane, ranks) = match by_rank {
            true => (plan.mesh().lane(row), row.to_string()),
            false => (LaneId(row), words::rank_words(plan, LaneId(row))),
        };
        let share = 100.0 * facts.busy().0 as f64 / timeline.step.0.max(1) as f64;
        let over = facts.arena.saturating_sub(plan.cluster.device.memory);
        let over =
            if over.0 > 0 { format!("  {over} more than a device has") } else { String::new() };
        let peak = facts.arena.to_string();
        lines.push(format!(
            "{:>4}  {ranks:>6}  {share:>6.1} %  {idle:>10}  {peak:>10}{over}",
            lane.0
        ));
    }
    lines
}
