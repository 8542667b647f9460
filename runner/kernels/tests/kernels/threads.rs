//! Results do not depend on the number of threads, on where data lies, or on a sample's place.

use crate::case::{Backward, Case, Forward, Noise};
use crate::nodes::{self, Sizes};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_kernels::cpu;
use pipewright_kernels::{Call, Draw, Operands, Phase, Shard, Turn};

/// Nodes large enough that work is split.
fn large() -> Vec<Case> {
    let target = TensorSpec { shape: vec![], dtype: DType::U32 };
    let loss = Op::SoftmaxCrossEntropy { label_smoothing: 0.0 };
    let loss = Case::new(loss, vec![TensorSpec::f32(vec![1000]), target], 64);
    let mut cases = nodes::every(nodes::LARGE);
    // One sample: nothing but the products can be split.
    cases.extend(nodes::every(Sizes { samples: 1, ..nodes::LARGE }));
    // Small images, of which convolutions take several together, in more than one product.
    cases.extend(nodes::every(Sizes { samples: 22, image: [8, 9, 7], sequence: [6, 8] }));
    cases.push(loss);
    cases.extend(nodes::in_tiles());
    cases
}

/// Everything that comes out of a node, with its parameters afterwards.
fn results(case: &Case, threads: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut case = case.clone();
    case.threads = threads;
    case.fill(7);
    let launch = &mut |call: &Call, operands: Operands| cpu::launch(call, operands);
    let forward = case.forward(launch);
    let gradient = Noise(8).vec(forward.output.len());
    let Backward { inputs, params } = case.backward(launch, &forward, &gradient);
    let Forward { output, saved } = forward;
    let bits = |x: &[f32]| bytemuck::cast_slice::<f32, u32>(x).to_vec();
    let mut all: Vec<Vec<u32>> = params.iter().chain(&case.params).map(|x| bits(x)).collect();
    all.extend(inputs.iter().map(|x| bits(x)));
    all.push(bits(&saved.unwrap_or_default()));
    (bits(&output), all)
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    // More threads than this machine may have cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    for case in large() {
        let alone = results(&case, 1);
        for threads in [2, 3] {
            let together = pool.install(|| results(&case, threads));
            assert!(alone == together, "{:?} with {threads} threads", case.op);
        }
    }
}

#[test]
fn sums_are_folded_in_the_given_order() {
    // (2^24 + 1) + 1 rounds twice, 2^24 + (1 + 1) does not round.
    let (large, one) = (vec![16_777_216.0; 70_000], vec![1.0; 70_000]);
    let spec = TensorSpec::f32(vec![70_000]);
    let sum = |terms: &[&[f32]], threads| {
        let mut out = vec![f32::NAN; 70_000];
        let call = Call {
            op: &Op::Relu,
            kind: ComputationKind::SumGradients,
            inputs: &[&spec],
            output: &spec,
            samples: 1,
            phase: Phase::Train,
            loss_scale: 1.0,
            wanted: 0,
            threads,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: Precision::F32,
        };
        let writes: &mut [&mut [f32]] = &mut [&mut out];
        let operands = Operands {
            reads: terms,
            writes,
            params: &mut [],
            gradients: &mut [],
            deferred: &mut [],
            workspace: &mut [],
        };
        cpu::launch(&call, operands);
        out
    };
    for threads in [1, 2, 3] {
        assert!(sum(&[&large, &one, &one], threads).iter().all(|x| *x == 16_777_216.0));
        assert!(sum(&[&one, &one, &large], threads).iter().all(|x| *x == 16_777_218.0));
    }
}

/// The tensors behind one word each.
fn tails(tensors: &mut [Vec<f32>]) -> Vec<&mut [f32]> {
    tensors.iter_mut().map(|x| &mut x[1..]).collect()
}

#[test]
fn where_data_lies_does_not_matter() {
    for case in large() {
        let mut case = case;
        case.fill(7);
        let aligned = results(&case, 1);
        // Every operand moved by one word, off any alignment of vectors.
        let mut moved = case.clone();
        let launch = &mut |call: &Call, operands: Operands| {
            let shift = |x: &[f32]| [&[f32::NAN], x].concat();
            let Operands { reads, writes, params, workspace, .. } = operands;
            let reads: Vec<Vec<f32>> = reads.iter().map(|x| shift(x)).collect();
            let reads: Vec<&[f32]> = reads.iter().map(|x| &x[1..]).collect();
            let [mut written, mut params] = [
                writes.iter().map(|x| shift(x)).collect(),
                params.iter().map(|x| shift(x)).collect(),
            ] as [Vec<Vec<f32>>; 2];
            let operands = Operands {
                reads: &reads,
                writes: &mut tails(&mut written),
                params: &mut tails(&mut params),
                gradients: &mut [],
                deferred: &mut [],
                workspace: &mut workspace[..],
            };
            cpu::launch(call, operands);
            for (write, moved) in writes.iter_mut().zip(&written) {
                write.copy_from_slice(&moved[1..]);
            }
        };
        let forward = moved.forward(launch);
        assert!(aligned.0 == bytemuck::cast_slice::<f32, u32>(&forward.output), "{:?}", case.op);
    }
}

/// Not so for a micro-batch of one: a product with one row takes another path in `gemm`.
#[test]
fn a_samples_place_in_the_micro_batch_does_not_matter() {
    let launch = &mut |call: &Call, operands: Operands| cpu::launch(call, operands);
    for mut case in large() {
        let together = matches!(case.op, Op::BatchNorm2d { .. } | Op::SoftmaxCrossEntropy { .. });
        if together || case.inputs.is_empty() {
            continue;
        }
        case.fill(7);
        let forward = case.forward(launch);
        for (input, spec) in case.inputs.iter_mut().zip(&case.specs) {
            input.rotate_left(spec.elements() as usize);
        }
        let mut rotated = case.forward(launch);
        rotated.output.rotate_right(case.output.elements() as usize);
        assert!(forward.output == rotated.output, "{:?}", case.op);
    }
}

/// Gradients that nobody waits for are not written, and the others stay the same.
#[test]
fn each_gradient_can_be_had_alone() {
    let launch = &mut |call: &Call, operands: Operands| cpu::launch(call, operands);
    for mut case in nodes::every(nodes::SMALL) {
        case.fill(7);
        let forward = case.forward(launch);
        let gradient = Noise(8).vec(forward.output.len());
        let all = case.backward(launch, &forward, &gradient);
        for (i, input) in all.inputs.iter().enumerate() {
            if let Some(alone) = case.one_gradient(launch, &forward, &gradient, i) {
                assert!(*input == alone, "input {i} of {:?}", case.op);
            }
        }
    }
}
