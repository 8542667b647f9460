//! U-Net.

use crate::graph::{Conv, Function, Graph, GraphBuilder, GraphError, Interpolation, Op};
use crate::ids::NodeId;

/// Levels of the U, as in torchgpipe's benchmarks.
const DEPTH: u32 = 5;
/// Side of the image, as in its memory benchmark.
const SIDE: u64 = 192;

/// Ronneberger et al. 2015 as simplified in torchgpipe's benchmarks (Kim et al. 2020): `blocks`
/// convolutions per level, `channels` at the first level and twice as many at each further one,
/// one output per pixel; without dropout. A convolution with its normalisation is one layer. Skip
/// connections go from each level down to the same level up.
pub(super) fn unet(blocks: u32, channels: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(format!("unet:{blocks},{channels}"));
    g.layer("encoder0.0");
    let mut x = g.input(vec![3, SIDE, SIDE]);
    let mut skips = vec![];
    for level in 0..DEPTH {
        let width = channels << level;
        x = stack(&mut g, &format!("encoder{level}"), x, [width; 2], blocks, level == 0);
        skips.push(x);
        x = g.max_pool(&format!("encoder{level}.down"), x, 2, 2);
    }
    let width = channels << (DEPTH - 1);
    x = stack(&mut g, "bottleneck", x, [2 * width, width], blocks, false);
    for (level, skip) in (0..DEPTH).zip(skips).rev() {
        let name = format!("decoder{level}");
        g.layer(format!("{name}.up"));
        x = g.add(
            format!("{name}.up"),
            Op::Upsample { factor: 2, mode: Interpolation::Nearest },
            &[x],
        );
        x = g.add(format!("{name}.cat"), Op::Concat { axis: 0 }, &[x, skip]);
        let width = (channels << level) / 2;
        x = stack(&mut g, &name, x, [width; 2], blocks, false);
    }
    g.layer("segment");
    let x = g.conv("segment", x, 1, Conv { kernel: 1, stride: 1, padding: 0, bias: false });
    let targets = Op::Targets { count: SIDE * SIDE, classes: 2 };
    let targets = g.add("target", targets, &[]);
    g.add("loss", Op::SigmoidCrossEntropy, &[x, targets]);
    g.finish()
}

/// `count` convolutions; the last has `out` channels, those before it `mid`.
fn stack(
    g: &mut GraphBuilder,
    name: &str,
    x: NodeId,
    [mid, out]: [u64; 2],
    count: u32,
    open: bool,
) -> NodeId {
    let mut x = x;
    for i in 0..count {
        let name = format!("{name}.{i}");
        if !(open && i == 0) {
            g.layer(name.clone());
        }
        let width = if i + 1 == count { out } else { mid };
        let conv = Conv { kernel: 3, stride: 1, padding: 1, bias: false };
        x = g.conv(&format!("{name}.conv"), x, width, conv);
        x = g.add(format!("{name}.norm"), Op::InstanceNorm2d { eps: 1e-5 }, &[x]);
        x = g.activation(&format!("{name}.relu"), Function::LeakyRelu, x);
    }
    x
}
