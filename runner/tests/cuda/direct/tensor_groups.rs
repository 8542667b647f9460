//! Tensor groups whose devices add up and give each other slices from memory to memory.

use super::world::World;
use super::{Trained, alike, connected, train};
use crate::common::tensor_groups::{all, divided, in_stages};
use pipewright_core::cost::Halves;
use pipewright_core::plan::{DataParallel, Draft, Plan, Precision};
use pipewright_core::predict::{evaluation, predict, predict_with};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::open;
use pipewright_runner::device::cuda::nccl::Routes;
use pipewright_runner::execute::RunError;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::sync::Barrier;

/// Of what a stage computes and keeps for its passes the host reads and writes nothing.
#[track_caller]
fn untouched(what: &str, plan: &Plan, trained: &[Trained]) {
    let prediction = predict_with(plan, Halves::AsTheyLie).unwrap();
    for (rank, (_, copies)) in (0..).zip(trained) {
        let program = &prediction.programs[plan.mesh().place(rank).0.index()];
        for stage in &program.stages {
            let (slots, outbox) = (stage.slots, stage.outbox);
            for (begin, bytes) in [
                (slots.offset, slots.total()),
                (outbox.offset, outbox.total()),
                (stage.transient.offset, stage.transient.bytes),
            ] {
                let (begin, end) = (begin.0, (begin + bytes).0);
                let touched = copies.iter().find(|copy| copy.start < end && begin < copy.end);
                assert_eq!(touched, None, "{what}: rank {rank}, {begin}..{end}");
            }
        }
    }
}

/// Two ranks add up the same numbers whoever does it, and round once.
#[test]
fn groups_of_two_have_the_bits_of_hosts() {
    for (name, draft) in all(2) {
        for slices in [false, true] {
            for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
                let mut draft = divided(&draft, 2, slices);
                draft.training.precision = precision;
                let plan = draft.plan().unwrap().0;
                let what = format!("{name}, slices {slices}, {precision:?}");
                untouched(&what, &plan, &alike(&what, &plan));
            }
        }
    }
}

/// Rows of experts go by the hosts, sums from device to device.
#[test]
fn expert_groups_have_the_bits_of_hosts() {
    for (name, draft) in all(2).into_iter().filter(|(name, _)| name.contains("experts")) {
        for (tensor, precision) in [(1, Precision::F32), (2, Precision::F32), (1, Precision::Bf16)]
        {
            let mut draft = Draft { mini_batch: 16, ..divided(&draft, tensor, false) };
            draft.data_parallel = DataParallel::ddp(2).with_experts(2);
            draft.training.precision = precision;
            alike(&format!("{name}, t {tensor}, {precision:?}"), &draft.plan().unwrap().0);
        }
    }
}

/// Sums of four come in another order than the hosts', of values in two bytes with other roundings.
#[test]
fn groups_of_four() {
    let losses = |trained: &[Trained]| -> Vec<f64> {
        trained[0].0.iter().map(|(loss, _)| f64::from_bits(*loss)).collect()
    };
    for (precision, within) in [(Precision::F32, 1e-5), (Precision::Bf16, 2e-3)] {
        for (name, draft) in all(3) {
            if precision.is_half() && name.contains("experts") {
                // Where logits tie in two bytes, a token may go to another expert.
                continue;
            }
            for slices in [false, true] {
                let mut draft = divided(&draft, 4, slices);
                draft.training.precision = precision;
                let plan = draft.plan().unwrap().0;
                let what = format!("{name}, slices {slices}, {precision:?}");
                let staged = losses(&train(&plan, None));
                for eager in [true, false] {
                    let direct = train(&plan, Some(&World::new(eager)));
                    untouched(&what, &plan, &direct);
                    for (found, expected) in losses(&direct).iter().zip(&staged) {
                        let off = (found / expected - 1.0).abs();
                        assert!(off < within, "{what}: {found} instead of {expected}");
                    }
                }
            }
        }
    }
}

/// Messages between stages and sums of replicas are under way beside a group's sums.
#[test]
fn groups_with_stages_and_replicas() {
    for (name, draft) in all(2) {
        for (slices, kind) in [(false, ScheduleKind::ZbH1), (true, ScheduleKind::OneFOneB)] {
            let plan = in_stages(&divided(&draft, 2, slices), kind).plan().unwrap().0;
            let what = format!("{name}, {kind}, slices {slices}");
            untouched(&what, &plan, &alike(&what, &plan));
        }
    }
}

/// A rank dies in the middle of training: who waits for its part of a sum ends with an error that says so.
#[test]
fn a_rank_that_dies() {
    let plan = divided(&all(9).remove(0).1, 2, false).plan().unwrap().0;
    let prediction = predict(&plan).unwrap();
    let tests = evaluation(&plan, plan.cluster.device.halves()).unwrap();
    let routes = Routes::new(&plan, &prediction, &tests, &[0; 2]).unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let (world, begun) = (World::new(false), Barrier::new(2));
    let on_rank = |transport: LocalTransport| -> Option<RunError> {
        let number = transport.rank();
        let parts = (&plan, &prediction, &prediction.programs[0]);
        let mut rank = connected(parts, (&world, &routes), &data, transport);
        rank.step(0).unwrap();
        begun.wait();
        if number == 1 {
            world.kill(1);
            return None;
        }
        (1..9).find_map(|step| rank.step(step).err())
    };
    let errors: Vec<Option<RunError>> = std::thread::scope(|scope| {
        let start = |transport| scope.spawn(|| on_rank(transport));
        let ranks: Vec<_> = local(2, 64).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let error = errors[0].as_ref().expect("it cannot go on");
    assert!(error.is_loss(), "{error}");
    let text = error.to_string();
    let words = "rank 0, sums of ranks [0, 1]";
    assert!(text.contains(words) && text.ends_with("a peer has gone"), "{text}");
}
