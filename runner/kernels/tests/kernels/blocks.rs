//! Convolutions large enough to be cut into several products, which small vectors are not.

use crate::case::{Case, Launch, Noise};
use pipewright_core::graph::{Op, Pair, TensorSpec};

/// A convolution and its images.
struct Convolution {
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    groups: u64,
    /// Channels, rows, columns.
    image: [u64; 3],
    samples: u64,
}

/// Unfolded ones, and those of 3 x 3 in tiles: sizes that tiles do and do not divide, paddings that are turned to
/// none, one and two in the gradient, images of which several samples make a block and such that make several blocks.
fn convolutions() -> Vec<Convolution> {
    let (kernel, padding, image) = ([3, 5], [1, 2], [32, 63, 50]);
    let unfolded = [([1, 1], 1), ([2, 1], 2)].map(|(stride, groups)| Convolution {
        kernel,
        stride,
        padding,
        groups,
        image,
        samples: 2,
    });
    let tiles = [
        ([1, 1], 1, [65, 63, 50], 2),
        ([0, 2], 1, [64, 30, 31], 3),
        ([2, 1], 2, [256, 7, 8], 9),
        ([1, 0], 1, [64, 3, 300], 1),
    ];
    let tiles = tiles.map(|(padding, groups, image, samples)| Convolution {
        kernel: [3, 3],
        stride: [1, 1],
        padding,
        groups,
        image,
        samples,
    });
    unfolded.into_iter().chain(tiles).collect()
}

/// The forward pass against the definition at some positions; the gradients against the forward
/// pass: a convolution without bias is linear in `x` and in `W`, so `⟨y, r⟩ = ⟨x, gx⟩ = ⟨W, gW⟩`
/// for every upstream gradient `r`.
pub fn suite(launch: Launch) {
    for convolution in convolutions() {
        let Convolution { kernel, stride, padding, groups, image, samples } = convolution;
        // Those of one group do not divide into lines of the cache.
        let out_channels = if groups == 1 { 72 } else { 256 };
        let dilation = [1, 1];
        let op =
            Op::Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias: false };
        let mut case = Case::new(op, vec![TensorSpec::f32(image.to_vec())], samples);
        case.fill(21);
        let forward = case.forward(launch);
        let noise = &mut Noise(22);
        for _ in 0..2000 {
            let i = (noise.bits() % forward.output.len() as u64) as usize;
            let expected = definition(&case, &convolution, i);
            let got = f64::from(forward.output[i]);
            assert!((got - expected).abs() < 1e-4, "y[{i}] = {got}, expected {expected}");
        }
        // One direction after another: a gradient that is wrong in few places shows in some.
        for seed in 23..26 {
            let upstream = Noise(seed).vec(forward.output.len());
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
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Element `i` of the output, as the operation is defined.
fn definition(case: &Case, convolution: &Convolution, i: usize) -> f64 {
    let Convolution { kernel, stride, padding, groups, image, .. } = convolution;
    let [channels, height, width] = *image;
    let (out, i) = (&case.output.shape, i as u64);
    let (c, r) = (i % out[2], i / out[2] % out[1]);
    let (o, sample) = (i / (out[2] * out[1]) % out[0], i / (out[2] * out[1] * out[0]));
    let per_group = channels / groups;
    let group = o / (out[0] / groups);
    let mut sum = 0.0;
    for channel in 0..per_group {
        for (kr, kc) in (0..kernel[0]).flat_map(|kr| (0..kernel[1]).map(move |kc| (kr, kc))) {
            // Positions count from the padding's first element.
            let (row, column) = (r * stride[0] + kr, c * stride[1] + kc);
            let inside = (padding[0]..height + padding[0]).contains(&row)
                && (padding[1]..width + padding[1]).contains(&column);
            if inside {
                let plane = sample * channels + group * per_group + channel;
                let row = plane * height + row - padding[0];
                let x = (row * width + column - padding[1]) as usize;
                let w = ((o * per_group + channel) * kernel[0] + kr) * kernel[1] + kc;
                sum += f64::from(case.inputs[0][x]) * f64::from(case.params[0][w as usize]);
            }
        }
    }
    sum
}
