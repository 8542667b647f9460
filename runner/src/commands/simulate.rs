//! `runner simulate`: the predicted step, as numbers and as a trace.

use super::words::{self, column};
use crate::args::SimulateArgs;
use crate::failure::Failure;
use pipewright_core::ids::LaneId;
use pipewright_core::predict::predict;
use pipewright_core::timeline::{Lane, Step, Trace, chrome};
use pipewright_core::units::Nanos;

/// Runs the command.
pub fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    let plan = super::read_plan(&args.plan)?;
    let prediction = predict(&plan)?;
    let timeline = &prediction.timeline;
    if args.json {
        let text = serde_json::to_string_pretty(&prediction.expectation()).expect("plain data");
        say!("{text}");
    } else {
        let without = super::model::without(&prediction.graph);
        let bubble = 100.0 * timeline.bubble();
        say!(
            "{}: step time {}{without}, bubble {bubble:.1} %",
            words::processes(&plan),
            timeline.step
        );
        // Ranks that share devices have rows of their own.
        let by_rank = timeline.lanes.len() == plan.ranks() as usize;
        say!("{}", plan.throughput(&prediction.graph, timeline.step));
        say!("lane   ranks      busy      idle          peak");
        let idle = |lane: &Lane| timeline.step.saturating_sub(lane.busy());
        let idle = column(&timeline.lanes.iter().map(idle).collect::<Vec<Nanos>>());
        for ((row, facts), idle) in (0u32..).zip(&timeline.lanes).zip(idle) {
            let (lane, ranks) = match by_rank {
                true => (plan.mesh().lane(row), row.to_string()),
                false => (LaneId(row), words::rank_words(&plan, LaneId(row))),
            };
            let busy = facts.busy();
            let share = 100.0 * busy.0 as f64 / timeline.step.0.max(1) as f64;
            say!(
                "{:>4}  {ranks:>6}  {share:>6.1} %  {idle:>10}  {:>10}",
                lane.0,
                facts.arena.to_string()
            );
        }
    }
    if let Some(path) = &args.output {
        let steps = vec![Step { number: 0, start: Nanos::ZERO, timeline: timeline.clone() }];
        let trace = Trace { model: prediction.graph.name().into(), steps };
        super::write_text(path, &chrome::write(&trace))?;
    }
    Ok(())
}
