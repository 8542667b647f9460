//! Tensor groups on a GPU's kernels: they train what one rank trains.

use super::{Make, emulated, first_gpu, on_gpu, train};
use crate::common::tensor_groups::{all, divided};
use crate::emulator;
use pipewright_core::plan::{DataParallel, Draft, Precision};

/// Losses by step, of the only stage.
fn losses(draft: Draft, make: &Make) -> Vec<f64> {
    let trained = train(&draft.plan().unwrap().0, Some(make));
    let (losses, others) = trained.split_first().expect("a rank");
    assert!(others.iter().all(|(losses, _)| losses.iter().all(|loss| *loss == 0.0)), "told once");
    losses.0.clone()
}

#[track_caller]
fn near(within: f64, what: &str, found: &[f64], expected: &[f64]) {
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found / expected - 1.0).abs();
        assert!(off < within, "{what}, step {step}: {found} instead of {expected}");
    }
}

/// Sums are in another order, and of values in two bytes after they were rounded.
fn groups_train_what_one_rank_trains(make: &Make) {
    for (precision, within) in [(Precision::F32, 1e-5), (Precision::Bf16, 2e-3)] {
        for (name, mut draft) in all(5) {
            if precision.is_half() && name.contains("experts") {
                // Where logits tie in two bytes, a token may go to another expert.
                continue;
            }
            draft.training.precision = precision;
            let lone = losses(draft.clone(), make);
            for (tensor, slices) in [(2, false), (4, false), (2, true), (4, true)] {
                let found = losses(divided(&draft, tensor, slices), make);
                let what = format!("{name}, groups of {tensor}, slices {slices}, {precision:?}");
                near(within, &what, &found, &lone);
            }
        }
    }
}

/// Replicas that divide experts train what replicas with all of them train.
fn expert_groups_train_what_replicas_train(make: &Make) {
    for (name, draft) in all(5).into_iter().filter(|(name, _)| name.contains("experts")) {
        for (tensor, replicas, experts) in [(1, 2, 2), (1, 4, 4), (1, 4, 2), (2, 2, 2)] {
            let of = |experts| -> Vec<f64> {
                let mut draft = Draft { mini_batch: 16, ..divided(&draft, tensor, false) };
                draft.data_parallel = DataParallel::ddp(replicas).with_experts(experts);
                let plan = Draft { micro_batches: 2, ..draft }.plan().unwrap().0;
                let ranks = train(&plan, Some(make));
                let sum = |step: usize| ranks.iter().map(|(losses, _)| losses[step]).sum();
                (0..plan.steps as usize).map(sum).collect()
            };
            let what = format!("{name}, t {tensor}, {experts} of {replicas} replicas");
            near(1e-5, &what, &of(experts), &of(1));
        }
    }
}

#[test]
fn expert_groups_on_the_emulator() {
    if emulator::is_there() {
        expert_groups_train_what_replicas_train(&emulated);
    }
}

/// All ranks on one.
#[test]
fn expert_groups_on_a_gpu() {
    let Some(gpu) = first_gpu() else { return };
    expert_groups_train_what_replicas_train(&on_gpu(gpu));
}

#[test]
fn groups_on_the_emulator() {
    if emulator::is_there() {
        groups_train_what_one_rank_trains(&emulated);
    }
}

/// All ranks of a group on one.
#[test]
fn groups_on_a_gpu() {
    let Some(gpu) = first_gpu() else { return };
    groups_train_what_one_rank_trains(&on_gpu(gpu));
}
