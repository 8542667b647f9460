//! `runner check`: everything that can be known about a plan without running it.

use crate::args::CheckArgs;
use crate::failure::{Code, Failure};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, predict};

/// Runs the command.
pub fn check(args: &CheckArgs) -> Result<(), Failure> {
    let plan = super::read_plan(&args.plan)?;
    let prediction = predict(&plan)?;
    if let Some(ranks) = args.ranks.filter(|ranks| *ranks != plan.ranks()) {
        let message = wrong_ranks(&plan, ranks, "--ranks");
        return Err(Failure::new(Code::Hardware, message));
    }
    say!(
        "{}: {} parameters, {} stages, {} micro-batches of {} samples, schedule {}",
        prediction.graph.name(),
        prediction.graph.trainable_elements(),
        plan.cuts.len() + 1,
        plan.micro_batches,
        plan.samples(),
        plan.schedule.name
    );
    ranks(&plan, &prediction);
    if args.programs {
        programs(&prediction);
    }
    if plan.prediction != prediction.expectation() {
        say!(
            "note: the plan was edited since its prediction was made; it now predicts {} per step",
            prediction.timeline.step
        );
    }
    say!("the plan is sound");
    Ok(())
}

/// The sentence for a plan on the wrong number of ranks.
pub(super) fn wrong_ranks(plan: &Plan, given: u32, by: &str) -> String {
    let (lanes, needs) = (plan.lanes(), plan.ranks());
    let copies = match plan.data_parallel.replicas {
        1 => String::new(),
        replicas => format!(" x {replicas} replicas"),
    };
    format!(
        "the plan needs {lanes} lanes{copies} = {needs} ranks, {by} gave {given}. \
         Use -n {needs}, or plan again: runner plan --ranks {given} .."
    )
}

fn ranks(plan: &Plan, prediction: &Prediction) {
    say!("rank  stages  kernels  instructions    in flight         memory");
    let capacity = plan.cluster.device.memory;
    for program in &prediction.programs {
        let stages: Vec<String> = program.stages.iter().map(|s| s.stage.to_string()).collect();
        let kernels: usize = program.stages.iter().map(|s| s.kernels.len()).sum();
        let slots: u32 = program.stages.iter().map(|s| s.slots.count).sum();
        let over = program.arena.saturating_sub(capacity);
        let note =
            if over.0 > 0 { format!("  {over} more than a device has") } else { String::new() };
        say!(
            "{:>4}  {:>6}  {kernels:>7}  {:>12}  {slots:>11}  {:>13}{note}",
            program.lane.0,
            stages.join(","),
            program.train.len(),
            program.arena.to_string(),
        );
    }
}

fn programs(prediction: &Prediction) {
    for program in &prediction.programs {
        say!("rank {}:", program.lane);
        for (index, instruction) in program.train.iter().enumerate() {
            say!("  {index:>4}  {instruction:?}");
        }
    }
}
