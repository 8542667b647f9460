//! Speed of the kernels in GFLOP/s, each beside the plain matrix product of the same size in the
//! same run, and of the element-wise ones in GB/s. Best of several, because machines are shared.
//!
//! `cargo bench -p pipewright-kernels --bench kernels`, with a number of threads: `-- 2`.

#[path = "../tests/kernels/case.rs"]
mod case;

use case::{Case, Noise};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Function, Op, TensorSpec, Window};
use pipewright_kernels::cpu::{Matrix, MatrixMut, Product, launch, matmul, thread_pool};
use pipewright_kernels::{Call, Operands};
use std::time::{Duration, Instant};

fn main() {
    let threads = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1);
    thread_pool::join(threads).expect("threads");
    thread_pool::awake(threads, || all(threads));
}

fn all(threads: usize) {
    println!("{threads} threads");
    println!("{:38} {:>9} {:>9} {:>9} {:>9}", "GFLOP/s", "matmul", "forward", "input", "weight");
    for size in [512, 1024] {
        let op = Op::Linear { out_features: size, bias: true };
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![size])], size);
        case.threads = threads;
        let size = size as usize;
        products(&format!("linear {size}^3"), case, 1, (size, size, size));
    }
    for (channels, size, kernel, samples) in
        [(64, 56, 3, 4), (128, 28, 3, 8), (256, 14, 3, 8), (512, 7, 3, 8), (256, 14, 1, 8)]
    {
        let op = Op::Conv2d {
            out_channels: channels,
            kernel: [kernel; 2],
            stride: [1; 2],
            padding: [kernel / 2; 2],
            dilation: [1; 2],
            groups: 1,
            bias: false,
        };
        let name =
            format!("conv {kernel}x{kernel} {channels}->{channels} {size}x{size} x{samples}");
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![channels, size, size])], samples);
        case.threads = threads;
        let product = (channels * kernel * kernel, size * size);
        let product = (channels as usize, product.0 as usize, product.1 as usize);
        products(&name, case, samples, product);
    }
    for rows in [8, 32, 64] {
        let op = Op::Linear { out_features: 1024, bias: true };
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![1024])], rows);
        case.threads = threads;
        let rows = rows as usize;
        products(&format!("linear {rows} x 1024 x 1024"), case, 1, (rows, 1024, 1024));
    }
    for causal in [false, true] {
        let (heads, length, d) = (12, 256, 64);
        let op = Op::Attention { heads, kv_heads: heads, causal };
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![length, 3 * heads * d])], 2);
        case.threads = threads;
        // Forward is two such products a head and sample; causal ones do half of the work.
        let name = format!("attention 12 x 256 x 64 x2{}", if causal { " causal" } else { "" });
        products(&name, case, 2 * 2 * heads, (length as usize, d as usize, length as usize));
    }
    println!("(the attention's input gradient is five products, counted as two)");
    element_wise(threads);
}

/// Kernels that memory bounds, beside a plain copy of as many bytes.
fn element_wise(threads: usize) {
    let title = "GB/s of input and output";
    println!("\n{title:38} {:>9} {:>9} {:>9} {:>9}", "copy", "forward", "input", "weight");
    let image = || vec![TensorSpec::f32(vec![64, 56, 56])];
    let sequence = || vec![TensorSpec::f32(vec![256, 768])];
    let window = |kernel| Window {
        kernel: [kernel; 2],
        stride: [2; 2],
        padding: [kernel / 3; 2],
        ceil_mode: false,
    };
    let function = |function| Op::Activation { function };
    let depthwise = |stride: u64| Op::Conv2d {
        out_channels: 64,
        kernel: [3; 2],
        stride: [stride; 2],
        padding: [1; 2],
        dilation: [1; 2],
        groups: 64,
        bias: false,
    };
    for (op, specs) in [
        (depthwise(1), image()),
        (depthwise(2), image()),
        (Op::Relu, image()),
        (Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, image()),
        (Op::MaxPool2d { window: window(2) }, image()),
        (Op::MaxPool2d { window: window(3) }, image()),
        (Op::AvgPool2d { window: window(3), count_padding: true }, image()),
        (Op::GlobalAvgPool, image()),
        (Op::Multiply, [image(), vec![TensorSpec::f32(vec![64, 1, 1])]].concat()),
        (function(Function::Gelu), sequence()),
        (function(Function::GeluTanh), sequence()),
        (function(Function::Silu), sequence()),
        (Op::LayerNorm { eps: 1e-5 }, sequence()),
        (Op::Softmax, vec![TensorSpec::f32(vec![256, 256])]),
        (Op::Permute { axes: vec![1, 0, 2] }, vec![TensorSpec::f32(vec![256, 12, 64])]),
    ] {
        let name = format!("{} {:?} x8", label(&op), specs[0].shape);
        let mut case = Case::new(op, specs, 8);
        case.threads = threads;
        let (case, times) = times(case);
        let words = case.inputs[0].len() as u64 + case.samples * case.output.elements();
        let half = vec![1.0f32; words as usize / 2];
        let mut other = half.clone();
        let copy = best(|| std::hint::black_box(&mut other).copy_from_slice(&half));
        let [forward, input, weight] = times.map(|time| rate(4 * words, time));
        row(&name, [rate(4 * words, copy), forward, input, weight]);
    }
}

fn label(op: &Op) -> String {
    match op {
        Op::Activation { function } => format!("{function:?}").to_lowercase(),
        Op::MaxPool2d { window } => format!("max_pool {0}x{0}", window.kernel[0]),
        Op::Conv2d { stride, .. } => format!("depthwise 3x3 stride {}", stride[0]),
        _ => op.name().into(),
    }
}

/// Prints the speed of a node that is `repeats` products of `m, k, n` in each direction.
fn products(name: &str, case: Case, repeats: u64, (m, k, n): (usize, usize, usize)) {
    let threads = case.threads;
    let mut noise = Noise(5);
    let (a, b) = (noise.vec(m * k), noise.vec(k * n));
    let mut out = vec![0.0; m * n];
    let plain = best(|| {
        let out = MatrixMut::new(&mut out, (m, n), n);
        let (a, b) = (Matrix::new(&a, (m, k), k), Matrix::new(&b, (k, n), n));
        matmul(out, a, b, Product::Overwrite, threads);
    });
    let flops = 2 * (m * k * n) as u64;
    let (_, times) = times(case);
    let [forward, input, weight] = times.map(|time| rate(repeats * flops, time));
    row(name, [rate(flops, plain), forward, input, weight]);
}

fn row<const N: usize>(name: &str, rates: [f64; N]) {
    let cell =
        |rate: f64| if rate.is_finite() { format!("{rate:9.1}") } else { format!("{:>9}", "") };
    println!("{name:38} {}", rates.map(cell).join(" "));
}

/// 1e9 per second.
fn rate(amount: u64, time: Duration) -> f64 {
    amount as f64 / time.as_nanos() as f64
}

/// Best times of forward, input gradient and weight gradient (zero without one).
fn times(mut case: Case) -> (Case, [Duration; 3]) {
    case.fill(6);
    let mut best = [Duration::MAX; 3];
    let mut timed = |call: &Call, operands: Operands| {
        let start = Instant::now();
        launch(call, operands);
        let slot = match call.kind {
            ComputationKind::Forward | ComputationKind::PartialLoss => 0,
            ComputationKind::InputGradient => 1,
            _ => 2,
        };
        best[slot] = best[slot].min(start.elapsed());
    };
    let mut forward = case.empty_forward();
    let mut backward = case.empty_backward();
    let gradient = Noise(7).vec(forward.output.len());
    for _ in 0..ROUNDS {
        case.forward_into(&mut timed, &mut forward);
        case.backward_into(&mut timed, &forward, &gradient, &mut backward);
    }
    (case, best.map(|time| if time == Duration::MAX { Duration::ZERO } else { time }))
}

const ROUNDS: usize = 20;

fn best(mut work: impl FnMut()) -> Duration {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).map(|_| time(&mut work)).min().unwrap_or_default()
}
