//! `runner show`: what a plan is and why its step takes as long as it does, for people.

mod advice;
mod experts;
mod figures;
mod layers;
mod tensor;
mod why;
mod zero;

pub(in crate::commands) use experts::experts;

use super::plan::too_full;
use super::words::{self, column};
use crate::args::ShowArgs;
use crate::failure::Failure;
use pipewright_core::graph::{DType, Division, Graph};
use pipewright_core::ids::{NodeId, StageId};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, offers, predict};
use pipewright_core::simulate::StageCost;
use pipewright_core::units::{Bytes, Nanos};
use std::ops::Range;

/// Columns of the schedule that are printed.
const WIDTH: usize = 100;

/// Runs the command.
pub fn show(args: &ShowArgs) -> Result<(), Failure> {
    if let Some(model) = &args.layers {
        return layers::layers(model, &args.onnx, args.json);
    }
    let path =
        args.plan.as_deref().ok_or_else(|| Failure::usage("name a plan, or --layers MODEL"))?;
    let plan = super::read_plan(path)?;
    let prediction = predict(&plan)?;
    let advisor = args.advice.then(|| advice::look(&plan)).transpose()?;
    if let (Some(path), Some(advisor)) = (&args.output, &advisor) {
        advice::write(advisor, args.row, path)?;
    }
    if args.json {
        return figures::show(&plan, &prediction, advisor.as_ref());
    }
    say!(
        "{} on {}, {}, mini-batch {}, {}, data {}, {}, seed {}",
        prediction.graph.name(),
        plan.cluster.name,
        words::processes(&plan),
        words::division(&plan),
        plan.schedule.name,
        plan.data,
        words::counted(plan.steps, "step"),
        plan.seed
    );
    stages(&plan, &prediction);
    recomputation(&prediction).iter().for_each(|line| say!("{line}"));
    tensor::tensor(&plan, &prediction).iter().for_each(|line| say!("{line}"));
    experts(&plan, &prediction).iter().for_each(|line| say!("{line}"));
    zero::zero(&plan, &prediction).iter().for_each(|line| say!("{line}"));
    for line in communication(&plan, &prediction)? {
        say!("{line}");
    }
    say!();
    for (lane, line) in plan.schedule.lanes.iter().enumerate() {
        let short: String = line.chars().take(WIDTH).collect();
        let more = if short.len() < line.len() { " .." } else { "" };
        say!("lane {lane}: {short}{more}");
    }
    say!(
        "\npredicted step {}{}, bubble {:.1} %",
        prediction.timeline.step,
        super::model::without(&prediction.graph),
        100.0 * prediction.timeline.bubble()
    );
    say!("{}", plan.throughput(&prediction.graph, prediction.timeline.step));
    for line in too_full(&plan, &prediction) {
        say!("{line}");
    }
    why::why(&plan, &prediction)?;
    if let Some(advisor) = advisor {
        advice::say(&plan, &advisor);
    }
    Ok(())
}

fn stages(plan: &Plan, prediction: &Prediction) {
    let graph = &prediction.graph;
    let division = graph.division(&plan.cuts);
    say!("stage      forward     backward   parameters        sends  layers");
    let times = |of: fn(&StageCost) -> Nanos| prediction.stages.iter().map(of);
    let mut times =
        column(&times(|cost| cost.forward).chain(times(StageCost::backward)).collect::<Vec<_>>());
    let backward = times.split_off(prediction.stages.len());
    for (index, range) in division.stages.iter().enumerate() {
        let params = parameters(graph, range);
        let sent = sent(plan, &division, graph, StageId(index as u32));
        say!(
            "{index:>5}  {:>11}  {:>11}  {params:>11}  {:>11}  {}",
            times[index],
            backward[index],
            Bytes(sent).to_string(),
            touched(graph, range.start, range.end)
        );
    }
}

/// Numbers that a stage learns; of a tensor group those of all its ranks.
fn parameters(graph: &Graph, range: &Range<u32>) -> u64 {
    graph.elements_of(range.start as usize..range.end as usize)
}

/// Bytes that a stage hands on for each micro-batch, as they are stored; codecs are said elsewhere.
fn sent(plan: &Plan, division: &Division, graph: &Graph, stage: StageId) -> u64 {
    let bytes = |node: NodeId| {
        let (mut shown, output) = (node, &graph.node(node).output);
        while graph.node(shown).op.is_view() {
            shown = graph.node(shown).inputs[0];
        }
        let is_activation = output.dtype == DType::F32 && !graph.node(shown).op.is_source();
        let packed = is_activation && plan.training.precision.is_half();
        output.bytes().0 * plan.samples() / if packed { 2 } else { 1 }
    };
    division.sent_by(stage).map(|crossing| bytes(crossing.node)).sum()
}

/// How gradients and activations travel, where they are encoded, and whether it pays.
fn communication(plan: &Plan, prediction: &Prediction) -> Result<Vec<String>, Failure> {
    let (asked, mut lines) = (&plan.communication, vec![]);
    let hosts = if asked.hierarchical { ", between hosts only" } else { "" };
    if !asked.buckets.is_empty() {
        lines.push(format!("gradients: each bucket its own way{hosts}"));
    } else if !asked.gradients.is_plain() {
        let way = asked.gradients;
        let offers = offers(plan, prediction, &[(way, asked.hierarchical)])
            .map_err(|e| Failure::usage(e.to_string()))?;
        let verdict = offers.get(1).map_or("nobody sums", |offer| &offer.verdict);
        lines.push(format!("gradients: {way}{hosts}; {verdict}"));
    }
    if let Some(choose) = &asked.choose {
        let names: Vec<String> = choose.candidates.iter().map(ToString::to_string).collect();
        let every = choose.every;
        lines.push(format!("gradients: chosen every {every} steps among {}", names.join(", ")));
    }
    for (codec, place) in
        [(asked.edges.within, "on one node"), (asked.edges.across, "between nodes")]
    {
        if !codec.is_lossless() {
            lines.push(format!("values between stages {place}: {codec}"));
        }
    }
    Ok(lines)
}

/// A line for each stage of each lane that computes something again.
pub(super) fn recomputation(prediction: &Prediction) -> Vec<String> {
    let mut lines = vec![];
    for program in &prediction.programs {
        for stage in &program.stages {
            let (kernels, time) = prediction.again(stage.stage);
            if kernels == 0 {
                continue;
            }
            let cost = &prediction.stages[stage.stage.index()];
            let all = cost.forward + cost.backward();
            let more = 100.0 * time.0 as f64 / all.saturating_sub(time).0.max(1) as f64;
            let slots = &stage.slots;
            let run = if kernels == 1 { "kernel runs" } else { "kernels run" };
            lines.push(format!(
                "lane {}, stage {}: {kernels} {run} again, {more:+.1} % time; keeps {} a \
                 micro-batch, {} in flight",
                program.lane, stage.stage, slots.bytes, slots.count
            ));
        }
    }
    lines
}

/// First and last layer that a range of nodes touches.
fn touched(graph: &Graph, start: u32, end: u32) -> String {
    let of = |node: u32| {
        let after = graph.layers().partition_point(|layer| layer.first_node.0 <= node);
        graph.layers()[after - 1].name.as_str()
    };
    let (first, last) = (of(start), of(end - 1));
    if first == last { first.into() } else { format!("{first} .. {last}") }
}
