//! AmoebaNet-D.

use crate::graph::{Graph, GraphBuilder, GraphError, Op, Pair, Window};
use crate::ids::NodeId;

/// What a cell does to one of its states.
#[derive(Clone, Copy)]
enum CellOp {
    Keep,
    Average,
    Max2,
    Point,
    Square,
    Cross,
}

/// Two steps on earlier states whose results are added to a new one.
type Pairs = [[(usize, CellOp); 2]; 5];

use CellOp::{Average, Cross, Keep, Max2, Point, Square};

/// The cells of torchgpipe's genotype, which is TensorFlow's; "3 x 3 maximum" averages there.
const NORMAL: Pairs = [
    [(1, Point), (1, Average)],
    [(1, Keep), (0, Cross)],
    [(0, Point), (0, Cross)],
    [(2, Average), (2, Keep)],
    [(1, Average), (5, Point)],
];
const NORMAL_CONCAT: &[usize] = &[0, 3, 4, 6];
const REDUCTION: Pairs = [
    [(0, Max2), (0, Average)],
    [(2, Keep), (1, Square)],
    [(2, Cross), (2, Average)],
    [(3, Keep), (1, Max2)],
    [(2, Average), (3, Point)],
];
const REDUCTION_CONCAT: &[usize] = &[4, 5, 6];

/// What the next cell needs to know.
struct Cells {
    g: GraphBuilder,
    /// Values of the cell before the previous one, and of the previous one.
    states: [NodeId; 2],
    channels: u64,
    reduced: bool,
}

/// Real et al. 2019 as in torchgpipe's benchmarks (Kim et al. 2020) for 224 x 224 images and 1,000
/// classes: `layers` normal cells (a multiple of 3), `filters` at the end of the stem's doubling.
/// A cell is one layer. Averages count padding as zeros, and the shift by one pixel in a
/// factorised reduction is left out: shapes, parameters and work are the same.
pub(super) fn amoebanet_d(layers: u32, filters: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(format!("amoebanet-d:{layers},{filters}"));
    g.layer("stem1");
    let x = g.input(vec![3, 224, 224]);
    let channels = filters / 4;
    let x = g.relu("stem1.relu", x);
    let x = conv(&mut g, "stem1.conv", x, channels, [3; 2], [2; 2]);
    let x = norm(&mut g, "stem1.bn", x);
    let mut cells = Cells { g, states: [x, x], channels, reduced: false };
    cells.cell("stem2", true);
    cells.cell("stem3", true);
    for (i, group) in ["cell1", "cell3", "cell5"].into_iter().enumerate() {
        for repeat in 1..=layers / 3 {
            cells.cell(&format!("{group}_normal{repeat}"), false);
        }
        if i < 2 {
            cells.cell(&format!("cell{}_reduction", 2 * i + 2), true);
        }
    }
    let Cells { mut g, states, .. } = cells;
    g.layer("classify");
    let x = g.add("classify.pool", Op::GlobalAvgPool, &[states[1]]);
    let x = g.add("classify.flat", Op::Flatten, &[x]);
    let x = g.linear("classify.fc", x, 1000);
    g.loss(x, 1000);
    g.finish()
}

impl Cells {
    fn cell(&mut self, name: &str, reduction: bool) {
        self.g.layer(name);
        if reduction {
            self.channels *= 2;
        }
        let (g, c) = (&mut self.g, self.channels);
        let [before, previous] = self.states;
        let first = relu_conv_norm(g, &format!("{name}.reduce1"), previous, c, [1; 2], [1; 2]);
        let second = format!("{name}.reduce2");
        let second = if self.reduced {
            factorized(g, &second, before, c)
        } else if g.channels(before) != c {
            relu_conv_norm(g, &second, before, c, [1; 2], [1; 2])
        } else {
            before
        };
        let mut states = vec![first, second];
        let (pairs, concat) = match reduction {
            true => (REDUCTION, REDUCTION_CONCAT),
            false => (NORMAL, NORMAL_CONCAT),
        };
        for (i, pair) in pairs.into_iter().enumerate() {
            let parts =
                pair.map(|(state, step)| (state, step, if reduction && state < 2 { 2 } else { 1 }));
            let mut ends = [first; 2];
            for (j, (state, step, stride)) in parts.into_iter().enumerate() {
                ends[j] =
                    apply(g, &format!("{name}.{}", 2 * i + j), states[state], step, c, stride);
            }
            states.push(g.add(format!("{name}.add{i}"), Op::Add, &ends));
        }
        let joined: Vec<NodeId> = concat.iter().map(|i| states[*i]).collect();
        let output = g.add(format!("{name}.cat"), Op::Concat { axis: 0 }, &joined);
        self.states = [previous, output];
        self.reduced = reduction;
    }
}

fn apply(g: &mut GraphBuilder, name: &str, x: NodeId, step: CellOp, c: u64, stride: u64) -> NodeId {
    let window = |kernel: u64, padding: u64| Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        ceil_mode: false,
    };
    let part = |end: &str| format!("{name}.{end}");
    match step {
        Keep if stride == 1 => x,
        Keep => factorized(g, name, x, c),
        Average => g.add(name, Op::AvgPool2d { window: window(3, 1), count_padding: true }, &[x]),
        Max2 => g.add(name, Op::MaxPool2d { window: window(2, 0) }, &[x]),
        Point => relu_conv_norm(g, name, x, c, [1; 2], [stride; 2]),
        Square => {
            let x = relu_conv_norm(g, &part("0"), x, c / 4, [1; 2], [1; 2]);
            let x = relu_conv_norm(g, &part("1"), x, c / 4, [3; 2], [stride; 2]);
            relu_conv_norm(g, &part("2"), x, c, [1; 2], [1; 2])
        }
        Cross => {
            let x = relu_conv_norm(g, &part("0"), x, c / 4, [1; 2], [1; 2]);
            let x = relu_conv_norm(g, &part("1"), x, c / 4, [1, 7], [1, stride]);
            let x = relu_conv_norm(g, &part("2"), x, c / 4, [7, 1], [stride, 1]);
            relu_conv_norm(g, &part("3"), x, c, [1; 2], [1; 2])
        }
    }
}

/// Half the resolution: two point-wise convolutions of every second pixel, side by side.
fn factorized(g: &mut GraphBuilder, name: &str, x: NodeId, channels: u64) -> NodeId {
    let x = g.relu(&format!("{name}.relu"), x);
    let a = conv(g, &format!("{name}.conv1"), x, channels / 2, [1; 2], [2; 2]);
    let b = conv(g, &format!("{name}.conv2"), x, channels / 2, [1; 2], [2; 2]);
    let x = g.add(format!("{name}.cat"), Op::Concat { axis: 0 }, &[a, b]);
    norm(g, &format!("{name}.bn"), x)
}

fn relu_conv_norm(
    g: &mut GraphBuilder,
    name: &str,
    x: NodeId,
    channels: u64,
    kernel: Pair,
    stride: Pair,
) -> NodeId {
    let x = g.relu(&format!("{name}.relu"), x);
    let x = conv(g, &format!("{name}.conv"), x, channels, kernel, stride);
    norm(g, &format!("{name}.bn"), x)
}

fn conv(
    g: &mut GraphBuilder,
    name: &str,
    x: NodeId,
    out: u64,
    kernel: Pair,
    stride: Pair,
) -> NodeId {
    let op = Op::Conv2d {
        out_channels: out,
        kernel,
        stride,
        padding: kernel.map(|k| k / 2),
        dilation: [1; 2],
        groups: 1,
        bias: false,
    };
    g.add(name, op, &[x])
}

fn norm(g: &mut GraphBuilder, name: &str, x: NodeId) -> NodeId {
    g.add(name, Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 }, &[x])
}
