//! Replicas that divide updates and gradients, on devices: the same training, to the bit, as on replicas that do not.

use super::training::{On, Run, plan, same, train};
use crate::common::draft_of;
use crate::emulator;
use pipewright_core::graph::{Graph, GraphBuilder, Op};
use pipewright_core::plan::{DataParallel, Precision};
use pipewright_core::predict::predict;

/// Losses, norms and parameters are those of replicas that keep everything: sums and parameters by way of the hosts,
/// encoded on the device, and from device to device.
#[test]
fn divided_updates() {
    if !emulator::is_there() {
        return;
    }
    let cases = [
        (1, 2, "fp32", Precision::F32),
        (2, 2, "fp32", Precision::Bf16),
        (1, 4, "fp32", Precision::Bf16),
        (1, 2, "fp8-e5m2+feedback", Precision::F32),
    ];
    for (stages, replicas, gradients, precision) in cases {
        let mut plan = plan(stages, DataParallel::ddp(replicas), gradients.parse().unwrap());
        plan.optimizer = "adamw:lr=0.003".parse().unwrap();
        plan.training.precision = precision;
        let mut zero = plan.clone();
        zero.data_parallel.zero = 1;
        let graph = predict(&plan).unwrap().graph;
        let is_parameter = |name: &str| graph.params().iter().any(|param| param.name == name);
        let parameters = |mut runs: Vec<Run>| {
            for step in runs.iter_mut().flat_map(|run| &mut run.steps) {
                step.state.retain(|name, _| is_parameter(name));
                assert!(!step.state.is_empty());
            }
            runs
        };
        for on in [On::Device, On::Talking { eager: true }, On::Talking { eager: false }] {
            let talks = matches!(on, On::Talking { .. });
            let what = format!("{gradients}, {stages} x {replicas}, {precision:?}, talks {talks}");
            let [whole, zero] = [&plan, &zero].map(|plan| parameters(train(plan, &on, true)));
            same(&what, &whole, &zero);
        }
    }
}

/// Layers of one size: what is under way is little of it.
fn layers() -> Graph {
    let mut g = GraphBuilder::new("layers");
    g.layer("all");
    let mut x = g.input(vec![24]);
    for layer in 0..32 {
        x = g.linear(&format!("fc{layer}"), x, 24);
        x = g.relu(&format!("relu{layer}"), x);
    }
    let x = g.linear("head", x, 10);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    g.finish().expect("a network")
}

/// Each keeps the sums of its part (two of them: more add up in the order of parts' owners): of one micro-batch those of replicas that keep everything, of several the same
/// whoever sums.
#[test]
fn divided_gradients() {
    if !emulator::is_there() {
        return;
    }
    let cases = [
        (1, 2, 1, Precision::F32),
        (1, 2, 1, Precision::Bf16),
        (1, 2, 2, Precision::F32),
        (2, 2, 4, Precision::Bf16),
    ];
    for (stages, replicas, micro_batches, precision) in cases {
        let mut draft = draft_of(layers(), stages);
        draft.data_parallel = DataParallel::ddp(replicas);
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, micro_batches, 3);
        draft.training.precision = precision;
        let whole = draft.clone().plan().unwrap().0;
        draft.data_parallel.zero = 2;
        let zero = draft.plan().unwrap().0;
        let programs = predict(&zero).unwrap().programs;
        assert!(programs.iter().flat_map(|p| &p.stages).all(|stage| stage.divides_gradients()));
        let here = train(&zero, &On::HostSums, true);
        let what = format!("{stages} x {replicas}, {micro_batches} micro-batches, {precision:?}");
        for on in [On::Device, On::Talking { eager: true }, On::Talking { eager: false }] {
            same(&what, &here, &train(&zero, &on, true));
        }
        if micro_batches == 1 {
            let losses = |runs: Vec<Run>| -> Vec<u64> {
                runs.iter().flat_map(|run| &run.steps).map(|step| step.loss.to_bits()).collect()
            };
            assert_eq!(losses(here), losses(train(&whole, &On::HostSums, true)), "{what}");
        }
    }
}
