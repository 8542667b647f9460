//! Normalisation of each sample's channels: groups of them (Wu and He 2018), or each by itself
//! (instance norm, Ulyanov et al. 2016).
//!
//! `x [samples, C, ..]`; a group is a run of `n` elements. With sums over one group:
//!
//! ```text
//! forward          mean = Σx / n   s = 1 / sqrt(Σ(x - mean)² / n + eps)   x̂ = (x - mean) s
//!                  y = weight x̂ + bias, both per channel; instance norm has neither
//! input gradient   gx = s (g - Σg / n - x̂ Σ(g x̂) / n)   with g = weight gy
//! weight gradient  gweight += Σ(gy x̂)   gbias += Σgy   over the channel's elements
//! ```
//!
//! Mean and `s` of each group are saved.

use super::chunks;
use super::planes::{line, squares, sum};
use super::sums::lanes;
use super::vector::vectorised;
use crate::{Call, Operands};
use pipewright_core::graph::Op;

struct GroupNormShape {
    channels: usize,
    /// Channels of one group.
    together: usize,
    /// Elements of one channel of one sample.
    plane: usize,
    eps: f32,
}

impl GroupNormShape {
    fn new(call: &Call) -> Self {
        let channels = call.output.shape[0];
        let (groups, eps) = match call.op {
            Op::GroupNorm { groups, eps } => (*groups, *eps),
            Op::InstanceNorm2d { eps } => (channels, *eps),
            other => unreachable!("{} does not normalise channels", other.name()),
        };
        let plane = (call.output.elements() / channels) as usize;
        let together = (channels / groups) as usize;
        Self { channels: channels as usize, together, plane, eps }
    }

    /// Elements of one group.
    fn len(&self) -> usize {
        self.together * self.plane
    }

    /// The first channel of a group, groups of all samples being counted.
    fn channel(&self, group: usize) -> usize {
        group * self.together % self.channels
    }
}

vectorised! {
    /// `Σ g (x - mean)`
    fn covariance(x: &[f32], g: &[f32], mean: f32) -> f32 {
        lanes([x, g, g], |x, g, _| g * (x - mean))
    }

    /// `gx = slope gy - (x - mean) along - offset`
    fn gradient_line(
        gx: &mut [f32], x: &[f32], gy: &[f32], mean: f32, slope: f32, along: f32, offset: f32,
    ) {
        for ((gx, x), gy) in gx.iter_mut().zip(x).zip(gy) {
            *gx = slope * gy - (x - mean) * along - offset;
        }
    }
}

pub fn forward(call: &Call, operands: Operands) {
    let shape = GroupNormShape::new(call);
    let x = operands.reads[0];
    let [y, saved] = operands.writes else {
        unreachable!("a normalisation writes its output and its statistics");
    };
    let affine = match &*operands.params {
        [weight, bias] => Some((&**weight, &**bias)),
        _ => None,
    };
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each_pair(threads, (y, saved), (shape.len(), 2), |group, y, saved| {
        let x = &x[group * shape.len()..][..shape.len()];
        let n = shape.len() as f64;
        // Planes first: sums of sums lose less.
        let total = |f: &dyn Fn(&[f32]) -> f32| {
            x.chunks_exact(shape.plane).map(|x| f64::from(f(x))).sum::<f64>()
        };
        let mean = (total(&sum) / n) as f32;
        let variance = (total(&|x| squares(x, mean)) / n) as f32;
        let scale = 1.0 / (variance + shape.eps).sqrt();
        (saved[0], saved[1]) = (mean, scale);
        let planes = y.chunks_exact_mut(shape.plane).zip(x.chunks_exact(shape.plane));
        for (channel, (y, x)) in (shape.channel(group)..).zip(planes) {
            let (weight, bias) = affine.map_or((1.0, 0.0), |(w, b)| (w[channel], b[channel]));
            line(y, x, mean, scale * weight, bias);
        }
    });
}

pub fn input_gradient(call: &Call, operands: Operands) {
    let shape = GroupNormShape::new(call);
    let [x, gy, saved] = operands.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let weight = operands.params.first().map(|weight| &**weight);
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, operands.writes[0], shape.len(), |group, gx| {
        let part = group * shape.len()..(group + 1) * shape.len();
        let (mean, scale) = (saved[2 * group], saved[2 * group + 1]);
        let planes = || {
            let x = x[part.clone()].chunks_exact(shape.plane);
            let gy = gy[part.clone()].chunks_exact(shape.plane);
            let weights = (shape.channel(group)..).map(|c| weight.map_or(1.0, |w| w[c]));
            // Weights come last: past the last plane there is none.
            x.zip(gy).zip(weights)
        };
        let (mut plain, mut along) = (0.0f64, 0.0f64);
        for ((x, gy), weight) in planes() {
            plain += f64::from(weight * sum(gy));
            along += f64::from(weight * covariance(x, gy, mean));
        }
        let n = shape.len() as f64;
        let offset = scale * (plain / n) as f32;
        let along = scale * scale * scale * (along / n) as f32;
        for (gx, ((x, gy), weight)) in gx.chunks_exact_mut(shape.plane).zip(planes()) {
            gradient_line(gx, x, gy, mean, scale * weight, along, offset);
        }
    });
}

/// Channels are shared among threads; each adds samples in their order.
pub fn weight_gradient(call: &Call, operands: Operands) {
    let shape = GroupNormShape::new(call);
    let [x, gy, saved] = operands.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let [weight, bias] = operands.gradients else {
        unreachable!("a normalisation of groups has a scale and a shift");
    };
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each_pair(threads, (weight, bias), (1, 1), |channel, weight, bias| {
        for sample in 0..call.samples as usize {
            let plane = sample * shape.channels + channel;
            let part = plane * shape.plane..(plane + 1) * shape.plane;
            let group = plane / shape.together;
            let (mean, scale) = (saved[2 * group], saved[2 * group + 1]);
            weight[0] += covariance(&x[part.clone()], &gy[part.clone()], mean) * scale;
            bias[0] += sum(&gy[part]);
        }
    });
}
