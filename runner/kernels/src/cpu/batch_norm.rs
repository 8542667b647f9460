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
use super::planes::{Planes, PlanesMut, line, squares, sum};
use super::sums::pair_of_lanes;
use super::vector::vectorised;
use crate::{Call, Operands, Phase};

/// Sizes of a batch normalisation.
struct BatchNormShape {
    channels: usize,
    /// Elements that a channel's statistics are made of.
    count: f64,
    /// Elements of one plane, one channel of one sample.
    plane: usize,
}

impl BatchNormShape {
    fn new(call: &Call) -> Self {
        let shape = &call.output.shape;
        let plane = (shape[1] * shape[2]) as usize;
        Self { channels: shape[0] as usize, count: (call.samples as usize * plane) as f64, plane }
    }

    fn planes<'a>(&self, x: &'a [f32]) -> Planes<'a> {
        Planes::new(x, self.channels, self.plane)
    }

    fn planes_mut<'a>(&self, x: &'a mut [f32]) -> PlanesMut<'a> {
        PlanesMut::new(x, self.channels, self.plane)
    }
}

vectorised! {
    /// `Σgy` and `Σ(x - mean) gy`
    fn gradient_sums_of_plane(x: &[f32], gy: &[f32], mean: f32) -> [f32; 2] {
        pair_of_lanes(x, gy, |x, gy| [gy, (x - mean) * gy])
    }

    /// `gx = factor (gy - offset - (x - mean) slope)`
    fn gradient_line(
        gx: &mut [f32], x: &[f32], gy: &[f32], mean: f32, factor: f32, offset: f32, slope: f32,
    ) {
        for ((gx, x), gy) in gx.iter_mut().zip(x).zip(gy) {
            *gx = factor * (gy - offset - (x - mean) * slope);
        }
    }
}

/// A channel is one thread's from its sums to its last plane, which is still in that core's cache.
pub fn forward(call: &Call, eps: f32, momentum: f32, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let x = shape.planes(operands.reads[0]);
    let [y, saved] = operands.writes else {
        unreachable!("a batch normalisation writes its output and its statistics");
    };
    let [weight, bias, running_mean, running_var] = operands.params else {
        unreachable!("a batch normalisation has four parameters");
    };
    let (mean, scale) = saved.split_at_mut(shape.channels);
    if call.phase == Phase::Evaluate {
        mean.copy_from_slice(running_mean);
        scale.copy_from_slice(running_var);
    }
    let threads = chunks::worth(call.threads, y.len());
    let y = shape.planes_mut(y);
    chunks::for_each_pair(threads, (mean, scale), (1, 1), |channel, mean, var| {
        if call.phase != Phase::Evaluate {
            (mean[0], var[0]) = statistics(&shape, x, channel);
        }
        let scale = 1.0 / (var[0] + eps).sqrt() * weight[channel];
        // SAFETY: a channel is visited once.
        let y = unsafe { y.of(channel) };
        y.zip(x.of(channel)).for_each(|(y, x)| line(y, x, mean[0], scale, bias[channel]));
    });
    if call.phase == Phase::Train {
        let running = (&mut **running_mean, &mut **running_var);
        track(call, &shape, momentum, (mean, scale), running, operands.deferred);
    }
    scale.iter_mut().for_each(|s| *s = 1.0 / (*s + eps).sqrt());
}

/// Mean and variance of one channel. In two passes: the difference of two large sums would lose
/// the variance of a channel far from zero.
fn statistics(shape: &BatchNormShape, x: Planes, channel: usize) -> (f32, f32) {
    let total: f64 = x.of(channel).map(|x| f64::from(sum(x))).sum();
    let mean = (total / shape.count) as f32;
    let total: f64 = x.of(channel).map(|x| f64::from(squares(x, mean))).sum();
    (mean, (total / shape.count) as f32)
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
        blend(running_var, var, unbiased(shape.count), momentum);
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
        let count = shape.count * f64::from(call.turn.count);
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

/// What the gradients of a channel are made of.
struct Gradients<'a> {
    x: Planes<'a>,
    gy: Planes<'a>,
    mean: &'a [f32],
    scale: &'a [f32],
}

impl<'a> Gradients<'a> {
    fn new(shape: &BatchNormShape, reads: &[&'a [f32]]) -> Self {
        let [x, gy, saved] = reads else {
            unreachable!("a batch normalisation's gradient reads x, gy and its statistics");
        };
        let (mean, scale) = saved.split_at(shape.channels);
        Self { x: shape.planes(x), gy: shape.planes(gy), mean, scale }
    }

    /// `Σgy` and `Σ(gy x̂)` of one channel.
    fn sums(&self, channel: usize) -> (f64, f64) {
        let (mut plain, mut centred) = (0.0, 0.0);
        for (x, gy) in self.x.of(channel).zip(self.gy.of(channel)) {
            let [of_gy, of_both] = gradient_sums_of_plane(x, gy, self.mean[channel]);
            plain += f64::from(of_gy);
            centred += f64::from(of_both);
        }
        (plain, centred * f64::from(self.scale[channel]))
    }
}

/// A channel is one thread's, as forward; no scratch is needed for the sums.
pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let Operands { reads, writes, params, .. } = operands;
    let of = Gradients::new(&shape, reads);
    let threads = chunks::worth(call.threads, writes[0].len());
    let gx = shape.planes_mut(writes[0]);
    chunks::for_each_index(threads, shape.channels, |channel| {
        let (plain, centred) = of.sums(channel);
        let (mean, scale) = (of.mean[channel], of.scale[channel]);
        let offset = (plain / shape.count) as f32;
        let slope = (centred / shape.count) as f32 * scale;
        let factor = params[0][channel] * scale;
        // SAFETY: a channel is visited once.
        let gx = unsafe { gx.of(channel) };
        for ((gx, x), gy) in gx.zip(of.x.of(channel)).zip(of.gy.of(channel)) {
            gradient_line(gx, x, gy, mean, factor, offset, slope);
        }
    });
}

pub fn weight_gradient(call: &Call, operands: Operands) {
    let shape = BatchNormShape::new(call);
    let [weight, bias] = operands.gradients else {
        unreachable!("a batch normalisation has two trainable parameters");
    };
    let of = Gradients::new(&shape, operands.reads);
    let threads = chunks::worth(call.threads, operands.reads[0].len());
    chunks::for_each_pair(threads, (weight, bias), (1, 1), |channel, weight, bias| {
        let (plain, centred) = of.sums(channel);
        weight[0] += centred as f32;
        bias[0] += plain as f32;
    });
}
