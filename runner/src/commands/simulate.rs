//! `runner simulate`: the predicted step, as numbers and as a trace.

use crate::args::SimulateArgs;
use crate::failure::Failure;
use pipewright_core::ids::LaneId;
use pipewright_core::predict::predict;
use pipewright_core::timeline::{Step, Trace, chrome};
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
        say!("step time {}{without}, bubble {:.1} %", timeline.step, 100.0 * timeline.bubble());
        say!("{}", plan.throughput(&prediction.graph, timeline.step));
        say!("lane      busy      idle          peak");
        for (lane, facts) in (0..).map(LaneId).zip(&timeline.lanes) {
            let busy = facts.busy();
            let share = 100.0 * busy.0 as f64 / timeline.step.0.max(1) as f64;
            let idle = timeline.step.saturating_sub(busy).to_string();
            say!("{lane:>4}  {share:>6.1} %  {idle:>10}  {:>10}", facts.arena.to_string());
        }
    }
    if let Some(path) = &args.output {
        let steps = vec![Step { number: 0, start: Nanos::ZERO, timeline: timeline.clone() }];
        let trace = Trace { model: prediction.graph.name().into(), steps };
        super::write_text(path, &chrome::write(&trace))?;
    }
    Ok(())
}
