//! Convolutions large enough to be cut into several products, which small vectors are not.

use crate::case::{Case, Launch, Noise};
use pipewright_core::graph::{Op, TensorSpec};

/// The forward pass against the definition at some positions; the gradients against the forward
/// pass: a convolution without bias is linear in `x` and in `W`, so `⟨y, r⟩ = ⟨x, gx⟩ = ⟨W, gW⟩`
/// for every upstream gradient `r`.
pub fn suite(launch: Launch) {
    for (stride, groups) in [([1, 1], 1), ([2, 1], 2)] {
        let op = Op::Conv2d {
            out_channels: 24,
            kernel: [3, 5],
            stride,
            padding: [1, 2],
            dilation: [1, 1],
            groups,
            bias: false,
        };
        let mut case = Case::new(op, vec![TensorSpec::f32(vec![32, 63, 50])], 2);
        case.fill(21);
        let forward = case.forward(launch);
        let noise = &mut Noise(22);
        for _ in 0..2000 {
            let i = (noise.bits() % forward.output.len() as u64) as usize;
            let expected = definition(&case, stride, groups, i);
            let got = f64::from(forward.output[i]);
            assert!((got - expected).abs() < 1e-4, "y[{i}] = {got}, expected {expected}");
        }
        let upstream = noise.vec(forward.output.len());
        let backward = case.backward(launch, &forward, &upstream);
        let whole = dot(&forward.output, &upstream);
        for (a, b) in
            [(&case.inputs[0], &backward.inputs[0]), (&case.params[0], &backward.params[0])]
        {
            let part = dot(a, b);
            assert!((part - whole).abs() < 1e-2, "{part}, the output says {whole}");
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Element `i` of the output, as the operation is defined.
fn definition(case: &Case, stride: [u64; 2], groups: u64, i: usize) -> f64 {
    let [channels, height, width] = [32, 63, 50];
    let (out, i) = (&case.output.shape, i as u64);
    let (c, r) = (i % out[2], i / out[2] % out[1]);
    let (o, sample) = (i / (out[2] * out[1]) % out[0], i / (out[2] * out[1] * out[0]));
    let per_group = channels / groups;
    let group = o / (out[0] / groups);
    let mut sum = 0.0;
    for channel in 0..per_group {
        for (kr, kc) in (0..3).flat_map(|kr| (0..5).map(move |kc| (kr, kc))) {
            let (row, column) = (r * stride[0] + kr, c * stride[1] + kc);
            // Positions count from the padding's first element.
            if (1..height + 1).contains(&row) && (2..width + 2).contains(&column) {
                let plane = sample * channels + group * per_group + channel;
                let x = ((plane * height + row - 1) * width + column - 2) as usize;
                let w = (((o * per_group + channel) * 3 + kr) * 5 + kc) as usize;
                sum += f64::from(case.inputs[0][x]) * f64::from(case.params[0][w]);
            }
        }
    }
    sum
}
