//! Forms that divide the layers: model parallel, pipeline, replicas of a pipeline.

use super::{Case, Doing, Form, FormCost, Part, share};
use crate::cost::collective::Collective;
use crate::cost::memory::Sharding;
use crate::ids::LaneId;
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// One stage for one micro-batch.
#[derive(Clone, Debug, Default)]
struct StageSums {
    forward: Nanos,
    backward: Nanos,
    parameters: Bytes,
    stash: Bytes,
}

struct Stages {
    stages: Vec<StageSums>,
    /// Time of the message between two stages, per micro-batch: (from, to) to time and bytes.
    messages: BTreeMap<(usize, usize), (Nanos, Bytes)>,
}

fn stages(case: &Case, parts: u32) -> Stages {
    let mut stages = vec![StageSums::default(); case.stages() as usize];
    let stage_of = |item: u32| case.cuts.partition_point(|cut| *cut <= item);
    for (index, item) in (0..).zip(&case.work.items) {
        let stage = &mut stages[stage_of(index)];
        stage.forward += item.forward;
        stage.backward += item.backward();
        stage.parameters += item.parameters;
        stage.stash += item.stash;
    }
    for stage in &mut stages {
        stage.forward = share(stage.forward, parts);
        stage.backward = share(stage.backward, parts);
    }
    // A value travels once to each stage that reads it.
    let mut sent = BTreeMap::new();
    for edge in &case.work.edges {
        let (from, to) = (stage_of(edge.from), stage_of(edge.to));
        if from != to {
            sent.insert((from, to, edge.from), edge.bytes);
        }
    }
    let mut messages: BTreeMap<(usize, usize), (Nanos, Bytes)> = BTreeMap::new();
    for ((from, to, _), bytes) in sent {
        messages.entry((from, to)).or_default().1 += bytes;
    }
    for ((from, to), (time, bytes)) in &mut messages {
        *bytes = Bytes(bytes.0.div_ceil(u64::from(parts)));
        let link = case.cluster.link(LaneId(*from as u32), LaneId(*to as u32));
        *time = link.time(*bytes);
    }
    Stages { stages, messages }
}

/// GPipe's order with `m` micro-batches; one micro-batch is model parallelism. Devices beyond the
/// stages are replicas, each with its part of the mini-batch; a replica's stages are neighbours.
///
/// The exact recurrence: a computation begins when its lane is free and its values have arrived.
/// O(micro-batches (stages + messages)).
pub(super) fn pipeline(form: Form, case: &Case, m: u32) -> FormCost {
    let count = case.stages();
    let replicas = case.devices / count;
    let Stages { stages, messages } = stages(case, m.saturating_mul(replicas));
    let mut free = vec![Nanos::ZERO; stages.len()];
    let mut parts = vec![];
    let mut begin = |stage: usize, doing, ready: Nanos, time: Nanos, free: &mut [Nanos]| {
        let start = ready.max(free[stage]);
        free[stage] = start + time;
        for replica in 0..replicas {
            let device = replica * count + stage as u32;
            parts.push(Part { device, doing, start, end: free[stage] });
        }
        free[stage]
    };
    let mut ends = vec![Nanos::ZERO; stages.len()];
    for _ in 0..m {
        for (s, stage) in stages.iter().enumerate() {
            let arrival = |((from, to), (time, _)): (&(usize, usize), &(Nanos, Bytes))| {
                (*to == s).then(|| ends[*from] + *time)
            };
            let ready = messages.iter().filter_map(arrival).max().unwrap_or_default();
            ends[s] = begin(s, Doing::Forward, ready, stage.forward, &mut free);
        }
    }
    for _ in 0..m {
        for (s, stage) in stages.iter().enumerate().rev() {
            let arrival = |((from, to), (time, _)): (&(usize, usize), &(Nanos, Bytes))| {
                (*from == s).then(|| ends[*to] + *time)
            };
            let ready = messages.iter().filter_map(arrival).max().unwrap_or_default();
            ends[s] = begin(s, Doing::Backward, ready, stage.backward, &mut free);
        }
    }
    let mut step = Nanos::ZERO;
    for (s, stage) in stages.iter().enumerate() {
        if replicas > 1 {
            let sum = case.collective(Collective::AllReduce, replicas, count, stage.parameters);
            begin(s, Doing::Communication, Nanos::ZERO, sum, &mut free);
        }
        let update = case.update(stage.parameters, replicas);
        step = step.max(begin(s, Doing::Update, Nanos::ZERO, update, &mut free));
    }
    let crossing: Bytes = messages.values().map(|(_, bytes)| *bytes).sum();
    let sums: Bytes = stages.iter().map(|s| Case::ring_traffic(replicas, s.parameters)).sum();
    let all_sums = if replicas > 1 { u64::from(count) } else { 0 };
    let runs = 2 * u64::from(m) * u64::from(replicas);
    let fullest = |s: &StageSums| {
        case.state_bytes(s.parameters, 1, Sharding::Whole)
            + Bytes(s.stash.0.div_ceil(u64::from(replicas)))
    };
    FormCost {
        form,
        devices: case.devices,
        step,
        peak: stages.iter().map(fullest).max().unwrap_or_default(),
        traffic: crossing * runs + sums,
        communications: messages.len() as u64 * runs + all_sums,
        parts,
    }
}
