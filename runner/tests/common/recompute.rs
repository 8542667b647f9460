//! Sequences with recomputation for tests: none of them is good, all of them are valid.

use pipewright_core::graph::autodiff::{ComputationKind, TrainingGraph};
use pipewright_core::plan::{Plan, Sequence, training_graphs};
use pipewright_core::predict::predict;

/// The plan with a sequence for each stage that `order` makes, and what it then predicts.
#[track_caller]
pub fn recomputing(plan: &Plan, order: impl Fn(usize, &TrainingGraph) -> Vec<u32>) -> Plan {
    let mut plan = plan.clone();
    let (graph, schedule) = plan.check().unwrap();
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    let sequences = graphs.iter().enumerate().map(|(stage, graph)| Sequence(order(stage, graph)));
    plan.recompute = sequences.collect();
    plan.prediction = predict(&plan).unwrap().expectation();
    plan
}

/// Keeps what is loaded, received or sent, and computes the rest again for each backward computation
/// that reads it: least memory between the passes, quadratic time in the stage's depth.
pub fn just_in_time(_: usize, graph: &TrainingGraph) -> Vec<u32> {
    let mut writer = vec![None; graph.values.len()];
    for (at, computation) in (0u32..).zip(&graph.computations[..graph.forward_end as usize]) {
        computation.writes.iter().for_each(|value| writer[value.index()] = Some(at));
    }
    let mut sequence: Vec<u32> = (0..graph.forward_end).collect();
    for (at, computation) in (0u32..).zip(&graph.computations).skip(sequence.len()) {
        // What it needs, needed for that, and so on, in the order of the forward pass.
        let mut needed = vec![false; graph.forward_end as usize];
        let mut open: Vec<u32> =
            computation.reads.iter().filter_map(|value| writer[value.index()]).collect();
        while let Some(computation) = open.pop() {
            if !std::mem::replace(&mut needed[computation as usize], true) {
                let reads = graph.computations[computation as usize].reads.iter();
                open.extend(reads.filter_map(|value| writer[value.index()]));
            }
        }
        sequence.extend((0..graph.forward_end).filter(|c| needed[*c as usize]));
        sequence.push(at);
    }
    sequence
}

/// Any order that the passes allow, with repetitions anywhere: what `seed` makes of it.
pub fn at_random(seed: u64) -> impl Fn(usize, &TrainingGraph) -> Vec<u32> {
    move |stage, graph| {
        let mut random = Random(seed ^ (stage as u64) << 32);
        let bounds = [0, graph.forward_end, graph.input_gradient_end];
        let ends = [graph.forward_end, graph.input_gradient_end, graph.computations.len() as u32];
        let mut there = written_by_nobody(graph);
        let (mut sequence, mut repeatable) = (vec![], vec![]);
        for (from, to) in bounds.into_iter().zip(ends) {
            let mut left: Vec<u32> = (from..to).collect();
            while !left.is_empty() {
                let ready = |c: &u32| {
                    let reads = &graph.computations[*c as usize].reads;
                    reads.iter().all(|value| there[value.index()])
                };
                let ready: Vec<usize> = (0..left.len()).filter(|i| ready(&left[*i])).collect();
                let next = left.remove(ready[random.below(ready.len())]);
                let computation = &graph.computations[next as usize];
                computation.writes.iter().for_each(|value| there[value.index()] = true);
                sequence.push(next);
                if computation.kind != ComputationKind::WeightGradient {
                    repeatable.push(next);
                }
                for _ in 0..random.below(4) {
                    sequence.push(repeatable[random.below(repeatable.len())]);
                }
            }
        }
        sequence
    }
}

fn written_by_nobody(graph: &TrainingGraph) -> Vec<bool> {
    let mut there = vec![true; graph.values.len()];
    let writes = graph.computations.iter().flat_map(|computation| &computation.writes);
    writes.for_each(|value| there[value.index()] = false);
    there
}

/// Knuth's linear congruential generator, upper bits.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        let multiplier = 6_364_136_223_846_793_005u64;
        self.0 = self.0.wrapping_mul(multiplier).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
