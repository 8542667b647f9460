//! Work around the layers, in GB/s of memory moved: updates of parameters, dropout, gradient norms,
//! packing to bf16; and losses, in millions of logits a second. Memory's own speed, a copy, is the
//! first row.
//!
//! `cargo bench -p pipewright-runner --bench training`

use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::{Optimizer, Precision};
use pipewright_kernels::cpu::{launch, packed, squares};
use pipewright_kernels::{Call, Draw, Operands, Parameter, Phase, Rule, Shard, Turn, Update};
use std::time::{Duration, Instant};

/// Words of a tensor: larger than any cache.
const WORDS: usize = 1 << 24;

fn main() {
    println!("{:32} {:>9}", "", "GB/s");
    let (from, mut into) = (vec![1.0f32; WORDS], vec![0.0f32; WORDS]);
    row("copy", 2.0, || into.copy_from_slice(&from));
    for text in ["sgd:momentum=0", "sgd", "sgd:nesterov=true", "adam", "adamw", "lars"] {
        optimizer(text);
    }
    row("length of gradients", 1.0, || {
        std::hint::black_box(squares(1, &from));
    });
    let mut words = vec![0.0f32; WORDS / 2];
    for (name, precision) in [("bf16", Precision::Bf16), ("f16", Precision::F16)] {
        let pack = || packed::pack(precision, 1, &from, &mut words);
        row(&format!("{name}: pack"), 1.5, pack);
        let unpack = || packed::unpack(precision, 1, &words, &mut into);
        row(&format!("{name}: unpack"), 1.5, unpack);
    }
    dropout(&from, &mut into);
    loss();
}

fn optimizer(text: &str) {
    let optimizer: Optimizer = text.parse().expect("an optimizer");
    let rule = Rule::new(optimizer);
    let (mut weight, mut gradient) = (vec![1.0f32; WORDS], vec![0.5f32; WORDS]);
    let mut states = vec![vec![0.0f32; WORDS]; optimizer.state_tensors()];
    let update = Update { rate: 1e-3, number: 1, scale: 1.0, threads: 1 };
    // All are read and written; LARS reads weight and gradient once more.
    let moved = 2 * (2 + states.len()) + if text == "lars" { 2 } else { 0 };
    row(text, moved as f64, || {
        let mut state: Vec<&mut [f32]> = states.iter_mut().map(|s| &mut s[..]).collect();
        let (weight, gradient) = (&mut weight[..], &mut gradient[..]);
        rule.update(&update, Parameter { weight, gradient, state: &mut state, axes: 2 });
    });
}

fn dropout(from: &[f32], into: &mut [f32]) {
    let spec = TensorSpec::f32(vec![WORDS as u64 / 64]);
    let op = Op::Dropout { probability: 0.1 };
    row("dropout", 2.0, || compute(&op, &[&spec], (64, &spec), &[from], &mut [&mut *into]));
}

fn loss() {
    let (samples, classes) = (2048usize, 4096usize);
    let logits: Vec<f32> = (0..samples * classes).map(|i| (i as f32 * 0.7).sin()).collect();
    let targets: Vec<f32> = (0..samples).map(|i| f32::from_bits(i as u32)).collect();
    let specs = [
        TensorSpec::f32(vec![classes as u64]),
        TensorSpec { shape: vec![], dtype: DType::U32 },
        TensorSpec::f32(vec![]),
    ];
    let (mut sum, mut saved) = (vec![0.0; 2], vec![0.0; logits.len()]);
    for label_smoothing in [0.0, 0.1] {
        let op = Op::SoftmaxCrossEntropy { label_smoothing };
        let reads: &[&[f32]] = &[&logits, &targets];
        let time = best(|| {
            let writes: &mut [&mut [f32]] = &mut [&mut sum, &mut saved];
            compute(&op, &[&specs[0], &specs[1]], (samples as u64, &specs[2]), reads, writes);
        });
        let rate = logits.len() as f64 / time.as_secs_f64() / 1e6;
        println!("{:32} {rate:9.1} M/s", format!("cross entropy, smoothing {label_smoothing}"));
    }
}

fn compute<'t>(
    op: &Op,
    inputs: &[&TensorSpec],
    (samples, output): (u64, &TensorSpec),
    reads: &[&'t [f32]],
    writes: &mut [&'t mut [f32]],
) {
    let call = Call {
        op,
        kind: ComputationKind::Forward,
        inputs,
        wanted: 0,
        output,
        samples,
        phase: Phase::Train,
        loss_scale: 1.0,
        threads: 1,
        draw: Draw::default(),
        turn: Turn::default(),
        shard: Shard::default(),
        precision: Precision::F32,
    };
    let operands = Operands {
        reads,
        writes,
        params: &mut [],
        gradients: &mut [],
        deferred: &mut [],
        workspace: &mut [],
    };
    launch(&call, operands);
}

/// `tensors` is how many tensors of [`WORDS`] words are read or written.
fn row(name: &str, tensors: f64, work: impl FnMut()) {
    let rate = tensors * 4.0 * WORDS as f64 / best(work).as_secs_f64() / 1e9;
    println!("{name:32} {rate:9.1}");
}

fn best(mut work: impl FnMut()) -> Duration {
    let mut time = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..7).map(|_| time()).min().expect("seven")
}
