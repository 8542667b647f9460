//! Convolutions with a kernel of its own for every channel, as in MobileNet, EfficientNet and
//! ConvNeXt: planes by themselves. As products they would be vectors times vectors.

use super::{Weights, add_sums};
use crate::Geometry;
use crate::cpu::chunks;
use crate::cpu::vector::vectorised;
use crate::{Call, Operands};

/// Running sums of a kernel element's gradient.
const LANES: usize = 16;

/// The sizes, where every group has one channel on either side.
pub fn depthwise(call: &Call) -> Option<Geometry> {
    let g = Geometry::new(call);
    (g.groups > 1 && g.channels == 1 && g.out_channels == 1).then_some(g)
}

/// `y = b + Σ w x`
pub fn forward(call: &Call, g: &Geometry, x: &[f32], (weight, bias): Weights, y: &mut [f32]) {
    let (kernel, size) = (g.kernel[0] * g.kernel[1], g.size[0] * g.size[1]);
    let threads = chunks::worth(call.threads, y.len());
    chunks::for_each(threads, y, g.positions(), |plane, y| {
        let channel = plane % g.groups;
        y.fill(bias.map_or(0.0, |bias| bias[channel]));
        add_windows(g, &x[plane * size..][..size], &weight[channel * kernel..][..kernel], y);
    });
}

/// `gx = Σ w gy` over the windows that an element is in.
pub fn input_gradient(call: &Call, g: &Geometry, gy: &[f32], weight: &[f32], gx: &mut [f32]) {
    let (kernel, len) = (g.kernel[0] * g.kernel[1], g.positions());
    let threads = chunks::worth(call.threads, gx.len());
    chunks::for_each(threads, gx, g.size[0] * g.size[1], |plane, gx| {
        let channel = plane % g.groups;
        gx.fill(0.0);
        spread_windows(g, &gy[plane * len..][..len], &weight[channel * kernel..][..kernel], gx);
    });
}

/// `gw += Σ x gy` over samples, in their order, and positions.
pub fn weight_gradient(call: &Call, g: &Geometry, operands: Operands) {
    let Operands { reads, gradients, .. } = operands;
    let (x, gy) = (reads[0], reads[1]);
    let (size, len) = (g.size[0] * g.size[1], g.positions());
    let threads = chunks::worth(call.threads, x.len());
    chunks::for_each(threads, gradients[0], g.kernel[0] * g.kernel[1], |channel, gw| {
        for plane in (channel..call.samples as usize * g.groups).step_by(g.groups) {
            add_sums_of_windows(g, &x[plane * size..][..size], &gy[plane * len..][..len], gw);
        }
    });
    add_sums(call, gy, gradients.get_mut(1));
}

/// Calls `visit(kernel element, first input, outputs)` for every kernel element and output row: the
/// outputs of the row whose input lies inside, and where that of the first of them is.
#[inline(always)]
fn for_each_row(g: &Geometry, mut visit: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    for kr in 0..g.kernel[0] {
        for kc in 0..g.kernel[1] {
            let across = g.inside(1, kc, 0..g.out[1]);
            if across.is_empty() {
                continue;
            }
            let column = across.start * g.stride[1] + kc * g.dilation[1] - g.padding[1];
            for r in g.inside(0, kr, 0..g.out[0]) {
                let row = r * g.stride[0] + kr * g.dilation[0] - g.padding[0];
                let outputs = r * g.out[1] + across.start..r * g.out[1] + across.end;
                visit(kr * g.kernel[1] + kc, row * g.size[1] + column, outputs);
            }
        }
    }
}

vectorised! {
    fn add_windows(g: &Geometry, x: &[f32], weight: &[f32], y: &mut [f32]) {
        let stride = g.stride[1];
        for_each_row(g, |k, first, outputs| {
            let (w, y) = (weight[k], &mut y[outputs]);
            if stride == 1 {
                for (y, x) in y.iter_mut().zip(&x[first..]) {
                    *y += w * x;
                }
            } else {
                for (y, x) in y.iter_mut().zip(x[first..].iter().step_by(stride)) {
                    *y += w * x;
                }
            }
        });
    }

    fn spread_windows(g: &Geometry, gy: &[f32], weight: &[f32], gx: &mut [f32]) {
        let stride = g.stride[1];
        for_each_row(g, |k, first, outputs| {
            let (w, gy) = (weight[k], &gy[outputs]);
            if stride == 1 {
                for (gx, gy) in gx[first..].iter_mut().zip(gy) {
                    *gx += w * gy;
                }
            } else {
                for (gx, gy) in gx[first..].iter_mut().step_by(stride).zip(gy) {
                    *gx += w * gy;
                }
            }
        });
    }

    fn add_sums_of_windows(g: &Geometry, x: &[f32], gy: &[f32], gw: &mut [f32]) {
        let stride = g.stride[1];
        let mut lanes = [0.0f32; LANES];
        let mut element = 0;
        for_each_row(g, |k, first, outputs| {
            if k != element {
                gw[element] += lanes.iter().sum::<f32>();
                (lanes, element) = ([0.0; LANES], k);
            }
            let gy = &gy[outputs];
            if stride == 1 {
                let (x, gy) = (x[first..][..gy.len()].chunks(LANES), gy.chunks(LANES));
                for (x, gy) in x.zip(gy) {
                    for (lane, (x, gy)) in lanes.iter_mut().zip(x.iter().zip(gy)) {
                        *lane += x * gy;
                    }
                }
            } else {
                for (i, (x, gy)) in x[first..].iter().step_by(stride).zip(gy).enumerate() {
                    lanes[i % LANES] += x * gy;
                }
            }
        });
        gw[element] += lanes.iter().sum::<f32>();
    }
}
