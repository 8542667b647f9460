//! JSON of `runner show`.

use super::touched;
use crate::commands::figures::{self, Figures};
use crate::failure::Failure;
use pipewright_core::ids::StageId;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{
    Advisor, Prediction, best_micro_batches, best_move, constant, explain,
};
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{IdlePart, Reason, reason};
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    figures: Figures<'a>,
    data: String,
    steps: u64,
    seed: u64,
    order: &'a [String],
    stage_list: Vec<Value>,
    idle: Option<Value>,
    critical_path: Vec<Value>,
    constant_ns: u64,
    best_micro_batches: Option<Value>,
    best_move: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Value>,
}

/// Prints it.
pub(super) fn show(
    plan: &Plan,
    prediction: &Prediction,
    advisor: Option<&Advisor>,
) -> Result<(), Failure> {
    let timeline = &prediction.timeline;
    let arrivals = Arrivals::on(timeline, &plan.cluster);
    let why = explain(timeline, &arrivals, &plan.cluster);
    let terms = why.terms.iter();
    let best = best_micro_batches(plan)?.map(|best| {
        let (from, to) = best.flat;
        json!({ "micro_batches": best.best, "step_ns": best.step.0, "within_1_percent": [from, to] })
    });
    let moved = best_move(plan, prediction)?
        .map(|found| json!({ "cut": found.cut, "after": found.after, "step_ns": found.step.0 }));
    figures::print(&Shown {
        figures: Figures::new(plan, prediction),
        data: plan.data.to_string(),
        steps: plan.steps,
        seed: plan.seed,
        order: &plan.schedule.lanes,
        stage_list: stages(plan, prediction),
        idle: reason(timeline, &arrivals).map(|reason| idle(&reason)),
        critical_path: terms
            .map(|term| json!({ "what": term.what.to_string(), "time_ns": term.time.0 }))
            .collect(),
        constant_ns: constant(plan, prediction, &why.path).0,
        best_micro_batches: best,
        best_move: moved,
        advice: advisor.map(super::advice::json),
    });
    Ok(())
}

/// Why the idlest lane is idle.
fn idle(reason: &Reason) -> Value {
    let part = |part: &IdlePart| json!({ "why": part.why.to_string(), "time_ns": part.time.0 });
    json!({
        "lane": reason.idlest.0,
        "idle_ns": reason.total().0,
        "busiest_lane": reason.busiest.0,
        "parts": reason.parts().iter().map(part).collect::<Vec<Value>>(),
    })
}

fn stages(plan: &Plan, prediction: &Prediction) -> Vec<Value> {
    let graph = &prediction.graph;
    let division = graph.division(&plan.cuts);
    let stage = |(index, range): (usize, &std::ops::Range<u32>)| {
        let cost = &prediction.stages[index];
        let id = StageId(index as u32);
        let holds = prediction.programs.iter().filter(|program| program.stage(id).is_some());
        let (again, again_time) = prediction.again(id);
        json!({
            "stage": index,
            "lanes": holds.map(|program| program.lane.0).collect::<Vec<u32>>(),
            "layers": touched(graph, range.start, range.end),
            "forward_ns": cost.forward.0,
            "backward_ns": cost.backward().0,
            "parameters": super::parameters(graph, range),
            "sends_bytes": super::sent(plan, &division, graph, id),
            "kernels_again": again,
            "again_ns": again_time.0,
        })
    };
    division.stages.iter().enumerate().map(stage).collect()
}
