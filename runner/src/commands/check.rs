//! `runner check`: everything that can be known about a plan without running it.

mod instructions;

use super::figures::{self, Figures};
use super::words::{self, counted};
use crate::args::CheckArgs;
use crate::failure::{Code, Failure};
use pipewright_core::plan::{Plan, Program};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::units::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

/// Runs the command.
pub fn check(args: &CheckArgs) -> Result<(), Failure> {
    let plan = super::read_plan(&args.plan)?;
    let prediction = predict(&plan)?;
    if let Some(ranks) = args.ranks.filter(|ranks| *ranks != plan.ranks()) {
        let message = wrong_ranks(&plan, ranks, "--ranks");
        return Err(Failure::new(Code::Hardware, message));
    }
    if args.json {
        figures::print(&object(&plan, &prediction, args.programs));
        return Ok(());
    }
    tell!(
        "{}: {}, {}, {}, mini-batch {}, schedule {}",
        prediction.graph.name(),
        counted(prediction.graph.trainable_elements(), "parameter"),
        counted(plan.stages(), "stage"),
        words::processes(&plan),
        words::division(&plan),
        plan.schedule.name
    );
    lanes(&plan, &prediction);
    if args.programs {
        programs(&plan, &prediction);
    }
    if plan.prediction != prediction.expectation() {
        tell!(
            "note: the plan was edited since its prediction was made; it now predicts {} per step",
            prediction.timeline.step
        );
    }
    tell!("the plan is sound");
    Ok(())
}

/// The sentence for a plan on the wrong number of ranks.
pub(super) fn wrong_ranks(plan: &Plan, given: u32, by: &str) -> String {
    let needs = plan.ranks();
    let flag = if by == "mpirun" { "-n" } else { by };
    format!(
        "the plan needs {}, {by} gave {given}. Use {flag} {needs}, or plan again: runner plan --ranks {given} ..",
        words::processes(plan)
    )
}

fn lanes(plan: &Plan, prediction: &Prediction) {
    tell!("lane   ranks  stages  kernels  instructions    in flight         memory");
    for (program, facts) in prediction.programs.iter().map(|program| (program, Facts::of(program)))
    {
        let stages: Vec<String> = facts.stages.iter().map(u32::to_string).collect();
        let over = facts.over(plan);
        let note =
            if over.0 > 0 { format!("  {over} more than a device has") } else { String::new() };
        tell!(
            "{:>4}  {:>6}  {:>6}  {:>7}  {:>12}  {:>11}  {:>13}{note}",
            program.lane.0,
            words::rank_words(plan, program.lane),
            stages.join(","),
            facts.kernels,
            facts.instructions,
            facts.in_flight,
            facts.memory.to_string(),
        );
    }
}

/// What is known of the ranks of a lane, which all run one program.
struct Facts {
    stages: Vec<u32>,
    kernels: usize,
    instructions: usize,
    in_flight: u32,
    memory: Bytes,
}

impl Facts {
    fn of(program: &Program) -> Self {
        let stages = &program.stages;
        Self {
            stages: stages.iter().map(|s| s.stage.0).collect(),
            kernels: stages.iter().map(|s| s.kernels.len()).sum(),
            instructions: program.train.len(),
            in_flight: stages.iter().map(|s| s.slots.count).sum(),
            memory: program.arena,
        }
    }

    /// Memory that a device does not have.
    fn over(&self, plan: &Plan) -> Bytes {
        self.memory.saturating_sub(plan.cluster.device.memory)
    }
}

/// All of it as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    figures: Figures<'a>,
    parameters: u64,
    /// Whether the plan's own record of its prediction is another.
    edited: bool,
    programs: Vec<Value>,
}

fn object<'a>(plan: &'a Plan, prediction: &'a Prediction, whole: bool) -> Checked<'a> {
    let lane = |program: &Program| {
        let facts = Facts::of(program);
        let mut lane = json!({
            "lane": program.lane.0,
            "ranks": words::ranks_of(plan, program.lane).collect::<Vec<u32>>(),
            "stages": facts.stages,
            "kernels": facts.kernels,
            "instructions": facts.instructions,
            "in_flight": facts.in_flight,
            "memory_bytes": facts.memory.0,
            "over_bytes": facts.over(plan).0,
        });
        if whole {
            let lines: Vec<String> = program.train.iter().map(instructions::words).collect();
            lane["program"] = lines.into();
        }
        lane
    };
    Checked {
        figures: Figures::new(plan, prediction),
        parameters: prediction.graph.trainable_elements(),
        edited: plan.prediction != prediction.expectation(),
        programs: prediction.programs.iter().map(lane).collect(),
    }
}

fn programs(plan: &Plan, prediction: &Prediction) {
    for program in &prediction.programs {
        say!("lane {}, ranks {}:", program.lane, words::rank_words(plan, program.lane));
        for (index, instruction) in program.train.iter().enumerate() {
            say!("  {index:>4}  {}", instructions::words(instruction));
        }
    }
}
