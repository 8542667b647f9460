//! Tensor groups whose ranks have devices: what is added up within passes and given to each other in slices.

use super::alike;
use super::processor::Distant;
use crate::common::tensor_groups::{all, divided, in_stages};
use pipewright_core::cost::Halves;
use pipewright_core::plan::{Plan, Precision};
use pipewright_core::predict::{evaluation, predict_with};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::open;
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn sums_within_passes_and_slices() {
    for (name, draft) in all(3) {
        for (tensor, slices) in [(2, false), (4, false), (2, true), (4, true)] {
            for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
                let mut draft = divided(&draft, tensor, slices);
                draft.training.precision = precision;
                let what = format!("{name}, groups of {tensor}, slices {slices}, {precision:?}");
                alike(&what, &draft.plan().unwrap().0);
            }
        }
    }
}

/// Eight ranks: two stages, two replicas, groups of two; clipped and skipping.
#[test]
fn groups_with_stages_and_replicas() {
    for (name, draft) in all(2) {
        for (slices, kind) in [(false, ScheduleKind::ZbH1), (true, ScheduleKind::OneFOneB)] {
            let mut draft = in_stages(&divided(&draft, 2, slices), kind);
            draft.training.clip_norm = Some(0.1);
            draft.training.skip_nonfinite = Some(2);
            let plan = draft.plan().unwrap().0;
            assert_eq!(plan.ranks(), 8);
            alike(&format!("{name}, {kind}, slices {slices}"), &plan);
        }
    }
}

/// What a rank is told of test samples after training, and the tensors that it brings together of a group's shards.
type Told = ((u64, u64), BTreeMap<String, Vec<u32>>);

fn after_training(plan: &Plan, distant: bool) -> Vec<Told> {
    let halves = if distant { Halves::AsTheyLie } else { Halves::Unpacked };
    let prediction = predict_with(plan, halves).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let tests = evaluation(plan, halves).unwrap();
    let on_rank = |transport: LocalTransport| {
        let lane = plan.mesh().lane(transport.rank()).index();
        let program = &prediction.programs[lane];
        let parts = (plan, &prediction.graph, program);
        let mut rank = match distant {
            false => Rank::new(parts, &data, transport, 1),
            true => {
                let device = Distant::new(program.tensors(), Arc::default());
                Rank::on(Box::new(device), parts, &data, transport, 1)
            }
        };
        rank.connect(&prediction.groups).unwrap();
        for step in 0..plan.steps {
            rank.step(step).unwrap();
        }
        let shards = rank.gather_shards().unwrap();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        let shards = shards.into_iter().map(|(name, values)| (name, bits(values))).collect();
        let counts = rank.evaluate(&tests[lane], 0).unwrap();
        ((counts.loss.to_bits(), counts.correct), shards)
    };
    std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport));
        let ranks: Vec<_> = local(plan.ranks(), 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Shards come from where they are newest.
#[test]
fn checkpoints_and_evaluations() {
    for (name, draft) in all(2) {
        let plan = divided(&draft, 2, true).plan().unwrap().0;
        let (here, there) = (after_training(&plan, false), after_training(&plan, true));
        assert!(here[0].1.len() > 4 && here[0].0.0 > 0, "{name}: something is told");
        assert!(here == there, "{name}");
    }
}
