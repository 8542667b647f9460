//! Linear layers that multiply numbers of eight bits, in training.

use super::{Emulated, Make, Trained, compute, emulated, emulator, first_gpu, train};
use crate::common::{draft, draft_of};
use crate::vectors;
use pipewright_core::graph::{Graph, GraphBuilder, Op};
use pipewright_core::plan::{Draft, Plan, Precision, Program};
use pipewright_core::schedule::ScheduleKind;
use pipewright_kernels::cpu;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::{Backend, Driver, Engine};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes that are multiples of nothing, and what stands between the last layer and the loss.
fn mlp() -> Graph {
    let mut g = GraphBuilder::new("mlp");
    g.layer("one");
    let x = g.input(vec![1, 7, 7]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("one.fc", x, 40);
    let x = g.relu("one.relu", x);
    g.layer("two");
    let x = g.linear("two.fc", x, 24);
    let x = g.relu("two.relu", x);
    g.layer("three");
    let x = g.linear("three.fc", x, 10);
    let x = g.add("three.scale", Op::Affine { scale: 0.5, shift: 0.0 }, &[x]);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    g.finish().expect("a network")
}

fn transformer(stages: u32, tied: &str) -> Draft {
    let network = format!("transformer:layers=2,hidden=32,heads=2,sequence=6,vocabulary=24{tied}");
    draft(network.parse().unwrap(), stages)
}

fn plan(mut draft: Draft, precision: Precision) -> Plan {
    (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 4);
    draft.optimizer = "sgd:lr=0.005,momentum=0.9".parse().unwrap();
    draft.training.precision = precision;
    draft.plan().unwrap().0
}

/// Both networks, in so many stages.
fn drafts(stages: u32) -> [Draft; 2] {
    [transformer(stages, ""), draft_of(mlp(), stages)]
}

/// The losses of the whole network.
fn losses(trained: &Trained) -> Vec<f64> {
    let steps = trained[0].0.len();
    (0..steps).map(|step| trained.iter().map(|(losses, _)| losses[step]).sum()).collect()
}

fn off(found: &[f64], expected: &[f64]) -> f64 {
    let far = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs();
    found.iter().zip(expected).map(far).fold(0.0, f64::max)
}

/// Near bf16 and not the same; the same bits in three stages, losses and all that lasts.
#[test]
fn on_processors() {
    for (one, three) in drafts(1).into_iter().zip(drafts(3)) {
        let bf16 = losses(&train(&plan(one.clone(), Precision::Bf16), None));
        let alone = train(&plan(one, Precision::Fp8), None);
        let far = off(&losses(&alone), &bf16);
        assert!(0.0 < far && far < 0.01, "{:?} beside {bf16:?}", losses(&alone));
        for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
            let split =
                train(&plan(Draft { schedule: kind, ..three.clone() }, Precision::Fp8), None);
            assert_eq!(losses(&split), losses(&alone), "{kind}");
            let persistent_state = |ranks: &Trained| -> Vec<(String, Vec<u32>)> {
                let all = ranks.iter().flat_map(|(_, persistent_state)| persistent_state);
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
                let mut all: Vec<_> = all.map(|(name, v)| (name.clone(), bits(v))).collect();
                all.sort();
                all
            };
            assert!(persistent_state(&split) == persistent_state(&alone), "{kind}: weights");
        }
    }
}

/// Losses beside the processor's. Factors are the same but for parameters and activations whose last bit in
/// bf16 is another, which may make another code. On matrix units weights of attention and their gradients are
/// rounded before they are multiplied, which the processor's are not.
fn like_the_processor(make: &Make, tolerance: f64) {
    for (one, three) in drafts(1).into_iter().zip(drafts(3)) {
        for draft in [one, three] {
            let plan = plan(draft, Precision::Fp8);
            let (here, there) = (losses(&train(&plan, None)), losses(&train(&plan, Some(make))));
            assert!(off(&there, &here) < tolerance, "{there:?} is not {here:?}");
        }
    }
}

#[test]
fn on_the_emulator() {
    if emulator::is_there() {
        let plain = |program: &Program| {
            let mut backend = Emulated::default();
            backend.plain = true;
            Box::new(Engine::new(backend, program.tensors(), "a rank").unwrap()) as _
        };
        like_the_processor(&plain, 5e-3);
        like_the_processor(&emulated, 1e-2);
    }
}

#[test]
fn on_a_gpu() {
    if let Some(gpu) = first_gpu() {
        like_the_processor(&super::on_gpu(gpu), 1e-2);
    }
}

/// Each pass of each linear layer multiplies codes, but those of the layer that the loss judges; a table
/// that it shares with the embedding is none. Codes of weights are made once a step, for each of two passes.
#[test]
fn which_products() {
    if !emulator::is_there() {
        return;
    }
    // The first layer of the other network has no gradient of its samples.
    let cases = [
        (transformer(1, ""), 8 * 3, 8 * 2),
        (transformer(1, ",tied"), 8 * 3, 8 * 2),
        (draft_of(mlp(), 1), 2 + 3, 1 + 2),
    ];
    for (draft, products, weights) in cases {
        for precision in [Precision::Fp8, Precision::Bf16] {
            let plan = plan(draft.clone(), precision);
            let [eights, encoded] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
            let make = |program: &Program| {
                let mut backend = Emulated::default();
                (backend.eights, backend.encoded) = (eights.clone(), encoded.clone());
                Box::new(Engine::new(backend, program.tensors(), "a rank").unwrap()) as _
            };
            train(&plan, Some(&make));
            let is_eight = u64::from(precision == Precision::Fp8);
            let passes = u64::from(plan.micro_batches) * plan.steps * is_eight;
            assert_eq!(eights.load(Ordering::Relaxed), products * passes, "{precision:?}");
            let activations = (2 * products - weights) * passes;
            let expected = activations + weights * plan.steps * is_eight;
            assert_eq!(encoded.load(Ordering::Relaxed), expected, "{precision:?}");
        }
    }
}

/// PyTorch's golden vectors of linear layers, which are in single precision. Of a gradient an eighth may be
/// lost, of the others a sixteenth; the same numbers rounded by hand are up to 0.085 of the largest off.
fn golden<B: Backend>(make: impl Fn() -> B) {
    vectors::within(1e-1, &mut |call: &Call, operands: Operands| match call.op {
        Op::Linear { .. } => compute(&make, Precision::Fp8, call, operands),
        _ => cpu::launch(call, operands),
    });
}

#[test]
fn golden_on_the_emulator() {
    if emulator::is_there() {
        golden(Emulated::default);
    }
}

#[test]
fn golden_on_a_gpu() {
    if let Some(gpu) = first_gpu() {
        golden(|| Driver::open(&gpu).unwrap());
    }
}
