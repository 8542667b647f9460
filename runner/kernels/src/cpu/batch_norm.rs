//! Batch normalisation (Ioffe and Szegedy 2015), per channel over samples and positions.
//!
//! `x [samples, C, H, W]`; with `n = samples H W` and all sums over one channel:
//!
//! ```text
//! forward          mean = Σx / n      var = Σ(x - mean)² / n      s = 1 / sqrt(var + eps)
//!                  x̂ = (x - mean) s   y = weight x̂ + bias
//! input gradient   gx = weight s (gy - Σgy / n - x̂ Σ(gy x̂) / n)
//! weight gradient  gweight += Σ(gy x̂)    gbias += Σgy
//! ```
//!
//! `mean` and `s` are saved, `[2, C]`. Running statistics take `var n / (n - 1)`, as in PyTorch: of
//! each micro-batch, or once a step of the whole mini-batch when they are deferred.

use super::chunks;
use super::sums::{sum, sum_of};
use crate::{Call, Operands, Phase};

/// Sizes, and where to find a channel.
struct BatchNormShape {
    samples: usize,
    channels: usize,
    /// Elements of one plane, one channel of one sample.
    plane: usize,
}

impl BatchNormShape {
    fn new(call: &Call) -> Self {
        let shape = &call.output.shape;
        let plane = (shape[1] * shape[2]) as usize;
        Self { samples: call.samples as usize, channels: shape[0] as usize, plane }
    }

    /// Elements that a channel's statistics are made of.
    fn count(&self) -> f64 {
        (self.samples * self.plane) as f64
    }

    /// The planes of one channel, sample by sample.
    fn planes<'a>(&self, x: &'a [f32], channel: usize) -> impl Iterator<Item = &'a [f32]> {
        let (plane, channels) = (self.plane, self.channels);
        x.chunks_exact(plane).skip(channel).step_by(channels)
    }
}

pub fn forward(call: &Call, eps: f32, momentum: f32, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let x = operands.reads[0];
    let [y, saved] = operands.writes else {
        unreachable!("a batch normalisation writes its output and its statistics");
    };
    let [weight, bias, running_mean, running_var] = operands.params else {
        unreachable!("a batch normalisation has four parameters");
    };
    let (mean, scale) = saved.split_at_mut(shape.channels);
    let threads = chunks::worth(call.threads, x.len());
    match call.phase {
        Phase::Train | Phase::Recompute => {
            chunks::for_each_pair(threads, (mean, scale), (1, 1), |channel, mean, var| {
                (mean[0], var[0]) = statistics(&shape, x, channel);
            });
            if call.phase == Phase::Train {
                let running = (&mut **running_mean, &mut **running_var);
                track(call, &shape, momentum, (mean, scale), running, operands.deferred);
            }
        }
        Phase::Evaluate => {
            mean.copy_from_slice(running_mean);
            scale.copy_from_slice(running_var);
        }
    }
    scale.iter_mut().for_each(|s| *s = 1.0 / (*s + eps).sqrt());
    chunks::for_each(threads, y, shape.plane, |plane, y| {
        let channel = plane % shape.channels;
        let x = &x[plane * shape.plane..][..shape.plane];
        let (mean, bias) = (mean[channel], bias[channel]);
        let scale = scale[channel] * weight[channel];
        y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - mean) * scale + bias);
    });
}

/// Mean and variance of one channel. In two passes: the difference of two large sums would lose
/// the variance of a channel far from zero.
fn statistics(shape: &BatchNormShape, x: &[f32], channel: usize) -> (f32, f32) {
    let total: f64 = shape.planes(x, channel).map(|x| f64::from(sum(x))).sum();
    let mean = (total / shape.count()) as f32;
    let squares = |x: &[f32]| f64::from(sum_of(x, x, |x, _| (x - mean) * (x - mean)));
    let total: f64 = shape.planes(x, channel).map(squares).sum();
    (mean, (total / shape.count()) as f32)
}

/// Updates the running statistics by those of the micro-batch; deferred ones by those of the
/// mini-batch, which `deferred` holds from turn to turn, when it is complete.
///
/// With `k` micro-batches of one size so far (Chan et al. 1983), `d = mean - mean'`:
/// `mean' += d / k`, `var' += (var - var' + d² (k - 1) / k) / k`. In contrast to torchgpipe the
/// deferred variance is the unbiased one too, as it is without micro-batches.
fn track(
    call: &Call,
    shape: &BatchNormShape,
    momentum: f32,
    (mean, var): (&[f32], &[f32]),
    (running_mean, running_var): (&mut [f32], &mut [f32]),
    deferred: &mut [&mut [f32]],
) {
    let unbiased = |count: f64| (count / (count - 1.0).max(1.0)) as f32;
    let [all_mean, all_var] = deferred else {
        blend(running_mean, mean, 1.0, momentum);
        blend(running_var, var, unbiased(shape.count()), momentum);
        return;
    };
    let (old, new) = (call.turn.index as f32, call.turn.index as f32 + 1.0);
    let all = all_mean.iter_mut().zip(all_var.iter_mut());
    for ((all_mean, all_var), (mean, var)) in all.zip(mean.iter().zip(var)) {
        let difference = mean - *all_mean;
        *all_mean += difference / new;
        *all_var += (var - *all_var + difference * difference * old / new) / new;
    }
    if call.turn.index + 1 == call.turn.count {
        let count = shape.count() * f64::from(call.turn.count);
        blend(running_mean, all_mean, 1.0, momentum);
        blend(running_var, all_var, unbiased(count), momentum);
        all_mean.fill(0.0);
        all_var.fill(0.0);
    }
}

/// Moves running statistics towards `factor` times the new ones.
fn blend(running: &mut [f32], new: &[f32], factor: f32, momentum: f32) {
    for (running, new) in running.iter_mut().zip(new) {
        *running = (1.0 - momentum) * *running + momentum * (factor * new);
    }
}

/// `Σgy` and `Σ(gy x̂)` of one channel.
fn gradient_sums(shape: &BatchNormShape, reads: &[&[f32]], channel: usize) -> (f64, f64) {
    let [x, gy, saved] = reads else {
        unreachable!("a batch normalisation's gradient reads x, gy and its statistics");
    };
    let (mean, scale) = (saved[channel], saved[shape.channels + channel]);
    let (mut plain, mut centred) = (0.0, 0.0);
    for (x, gy) in shape.planes(x, channel).zip(shape.planes(gy, channel)) {
        plain += f64::from(sum(gy));
        centred += f64::from(sum_of(x, gy, |x, gy| (x - mean) * gy));
    }
    (plain, centred * f64::from(scale))
}

/// Channel after channel: no scratch is needed for the sums, and a channel is written by one
/// thread only because nothing else is split.
pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let Operands { reads, writes, params, .. } = operands;
    let [x, _, saved] = reads else {
        unreachable!("a batch normalisation's gradient reads x, gy and its statistics");
    };
    for channel in 0..shape.channels {
        let (plain, centred) = gradient_sums(&shape, reads, channel);
        let (mean, scale) = (saved[channel], saved[shape.channels + channel]);
        let offset = (plain / shape.count()) as f32;
        let slope = (centred / shape.count()) as f32 * scale;
        let factor = params[0][channel] * scale;
        let gradients = writes[0].chunks_exact_mut(shape.plane).skip(channel);
        let planes = shape.planes(x, channel).zip(shape.planes(reads[1], channel));
        for (gx, (x, gy)) in gradients.step_by(shape.channels).zip(planes) {
            for ((gx, x), gy) in gx.iter_mut().zip(x).zip(gy) {
                *gx = factor * (gy - offset - (x - mean) * slope);
            }
        }
    }
}

pub fn weight_gradient(call: &Call, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let [weight, bias] = operands.gradients else {
        unreachable!("a batch normalisation has two trainable parameters");
    };
    for (channel, (weight, bias)) in weight.iter_mut().zip(bias.iter_mut()).enumerate() {
        let (plain, centred) = gradient_sums(&shape, operands.reads, channel);
        *weight += centred as f32;
        *bias += plain as f32;
    }
}
