//! `runner show`: what a plan is and why its step takes as long as it does, for people.

mod layers;
mod why;

use crate::args::ShowArgs;
use crate::failure::Failure;
use pipewright_core::graph::Graph;
use pipewright_core::ids::StageId;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, offers, predict};
use pipewright_core::units::Bytes;

/// Columns of the schedule that are printed.
const WIDTH: usize = 100;

/// Runs the command.
pub fn show(args: &ShowArgs) -> Result<(), Failure> {
    if let Some(model) = &args.layers {
        return layers::layers(model, &args.onnx);
    }
    let path =
        args.plan.as_deref().ok_or_else(|| Failure::usage("name a plan, or --layers MODEL"))?;
    let plan = super::read_plan(path)?;
    let prediction = predict(&plan)?;
    say!(
        "{} on {} ({} ranks), mini-batch {} = {} x {}, {}, data {}, {} steps, seed {}",
        prediction.graph.name(),
        plan.cluster.name,
        plan.ranks(),
        plan.mini_batch,
        plan.micro_batches,
        plan.samples(),
        plan.schedule.name,
        plan.data,
        plan.steps,
        plan.seed
    );
    stages(&plan, &prediction);
    recomputation(&prediction).iter().for_each(|line| say!("{line}"));
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
    why::why(&plan, &prediction)
}

fn stages(plan: &Plan, prediction: &Prediction) {
    let graph = &prediction.graph;
    let division = graph.division(&plan.cuts);
    say!("stage      forward     backward   parameters        sends  layers");
    for (index, range) in division.stages.iter().enumerate() {
        let cost = &prediction.stages[index];
        let nodes = &graph.nodes()[range.start as usize..range.end as usize];
        let params: u64 =
            nodes.iter().flat_map(|n| &n.params).map(|p| graph.param(*p).elements()).sum();
        let sent: u64 = division
            .sent_by(StageId(index as u32))
            .map(|c| graph.node(c.node).output.bytes().0 * plan.samples())
            .sum();
        say!(
            "{index:>5}  {:>11}  {:>11}  {params:>11}  {:>11}  {}",
            cost.forward.to_string(),
            cost.backward().to_string(),
            Bytes(sent).to_string(),
            touched(graph, range.start, range.end)
        );
    }
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
            lines.push(format!(
                "lane {}, stage {}: {kernels} kernels run again, {more:+.1} % time; keeps {} a \
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
