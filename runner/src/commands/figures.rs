//! Figures of a plan as JSON, the same keys in every command: docs/json.md says what they mean.

use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, Throughput};
use serde::Serialize;

/// What a plan is and what it is predicted to take.
#[derive(Serialize)]
pub(super) struct Figures<'a> {
    model: &'a str,
    cluster: &'a str,
    ranks: u32,
    lanes: u32,
    replicas: u32,
    #[serde(skip_serializing_if = "is_one")]
    tensor: u32,
    #[serde(skip_serializing_if = "is_none")]
    zero: u8,
    stages: u32,
    schedule: &'a str,
    mini_batch: u64,
    micro_batches: u32,
    micro_batch_samples: u64,
    #[serde(flatten)]
    step: StepFigures,
    /// By rank.
    memory_bytes: Vec<u64>,
    device_memory_bytes: u64,
}

fn is_one(tensor: &u32) -> bool {
    *tensor == 1
}

fn is_none(zero: &u8) -> bool {
    *zero == 0
}

/// What a step takes, and what gets done in it.
#[derive(Serialize)]
struct StepFigures {
    step_ns: u64,
    bubble: f64,
    sent_bytes: u64,
    #[serde(flatten)]
    throughput: Throughput,
}

impl<'a> Figures<'a> {
    /// Of a plan with its own prediction.
    pub fn new(plan: &'a Plan, prediction: &'a Prediction) -> Self {
        let timeline = &prediction.timeline;
        let memory = |rank| prediction.programs[plan.mesh().lane(rank).index()].arena.0;
        Self {
            model: prediction.graph.name(),
            cluster: &plan.cluster.name,
            ranks: plan.ranks(),
            lanes: plan.lanes(),
            replicas: plan.data_parallel.replicas,
            tensor: plan.tensor,
            zero: plan.data_parallel.zero,
            stages: plan.stages(),
            schedule: &plan.schedule.name,
            mini_batch: plan.mini_batch,
            micro_batches: plan.micro_batches,
            micro_batch_samples: plan.samples(),
            step: StepFigures {
                step_ns: timeline.step.0,
                bubble: timeline.bubble(),
                sent_bytes: timeline.traffic().0,
                throughput: plan.throughput(&prediction.graph, timeline.step),
            },
            memory_bytes: (0..plan.ranks()).map(memory).collect(),
            device_memory_bytes: plan.cluster.device.memory.0,
        }
    }
}

/// Prints one object.
pub(super) fn print(object: &impl Serialize) {
    say!("{}", serde_json::to_string_pretty(object).expect("plain data"));
}
