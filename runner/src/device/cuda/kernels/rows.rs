//! Softmax, norms of rows and losses; sums over rows.

use super::{Buffers, ColumnSums, DevicePtr, Launch, Loss, NormRows, Plan, Rows, Source, Tail};
use pipewright_core::graph::Op;
use pipewright_kernels::Call;

/// Rows and columns of the call's output, the last axis being the columns.
fn shape(call: &Call) -> (u64, u64) {
    let n = call.output.shape.last().copied().unwrap_or(1);
    (call.samples * call.output.elements() / n, n)
}

/// Elements that a row's thread takes at once.
fn at_once(plan: &Plan) -> u64 {
    16 / plan.bytes()
}

/// As many threads of a block as a row of `n` elements keeps busy.
pub fn threads(plan: &Plan, n: u64) -> u32 {
    let threads = n.div_ceil(at_once(plan)).next_multiple_of(32);
    threads.clamp(32, super::BLOCK.into()) as u32
}

/// A launch with a block a row.
fn each_row(plan: &mut Plan, kernel: &str, rows: u64, n: u64, args: impl super::Arguments) {
    plan.blocks(Source::Rows, kernel, rows, args);
    plan.last().block = threads(plan, n);
}

/// Elements of rows that a loss goes over by its largest blocks: rows of a vocabulary, few of which are under
/// way at a time then, so that what is read again is still in the cache.
const LARGE_ROW: u64 = 1 << 14;

pub fn softmax(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, n) = shape(call);
    let logarithm = matches!(call.op, Op::LogSoftmax).into();
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    each_row(plan, "softmax", rows, n, Rows { x, gy: DevicePtr::NULL, out, rows, n, logarithm });
}

pub fn softmax_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (rows, n) = shape(call);
    let logarithm = matches!(call.op, Op::LogSoftmax).into();
    let (x, gy, out) = (buffers.reads[0], buffers.reads[1], buffers.writes[0]);
    each_row(plan, "softmax_gradient", rows, n, Rows { x, gy, out, rows, n, logarithm });
}

fn norm_rows(call: &Call) -> NormRows {
    let (rows, n) = shape(call);
    let (eps, centred) = match *call.op {
        Op::LayerNorm { eps } => (eps, 1),
        Op::RmsNorm { eps } => (eps, 0),
        ref other => unreachable!("{} does not normalise rows", other.name()),
    };
    NormRows { rows, n, eps, centred, ..NormRows::default() }
}

/// The norm, of what lies there or of the sum of two tensors, which is written there.
pub fn norm(call: &Call, buffers: &Buffers, terms: [DevicePtr; 2], plan: &mut Plan) {
    let args = NormRows {
        terms,
        x: buffers.reads[0],
        out: buffers.writes[0],
        saved: buffers.writes[1],
        weight: buffers.params[0],
        bias: buffers.params.get(1).copied().unwrap_or_default(),
        ..norm_rows(call)
    };
    each_row(plan, "norm_rows", args.rows, args.n, args);
}

pub fn norm_gradient(call: &Call, buffers: &Buffers, tail: Tail, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let (out, weight) = (buffers.writes[0], buffers.params[0]);
    let args = NormRows { x, gy, saved, out, weight, tail, ..norm_rows(call) };
    each_row(plan, "norm_rows_gradient", args.rows, args.n, args);
}

pub fn norm_weights(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let NormRows { rows, n, centred, .. } = norm_rows(call);
    let plain = buffers.gradients.get(1).copied().unwrap_or_default();
    let along = buffers.gradients[0];
    let sums = ColumnSums { x, gy, saved, plain, along, rows, n, centred, ..ColumnSums::default() };
    column_sums(plan, sums);
}

/// Fewest rows of a part: several for each of a block's warps.
const PART: u64 = 64;

/// Blocks that keep a GPU busy.
const ENOUGH: u64 = 1024;

/// Adds sums over rows to gradients. How many parts there are follows from the shape alone.
pub fn column_sums(plan: &mut Plan, sums: ColumnSums) {
    let blocks = sums.n.div_ceil(32 * at_once(plan));
    let parts = (ENOUGH / blocks).clamp(1, (sums.rows / PART).max(1));
    let scratch = if parts > 1 { plan.scratch(8 * parts * sums.n) } else { DevicePtr::NULL };
    let sums = ColumnSums { parts, scratch, ..sums };
    plan.blocks(Source::Rows, "column_sums", blocks, sums);
    plan.last().grid[1] = parts as u32;
    if parts > 1 {
        let blocks = sums.n.div_ceil(32);
        plan.plain(Launch::blocks(Source::Rows, "column_parts".into(), blocks, &sums));
        plan.last().grid[1] = 2;
    }
}

/// Rows, their width, how many sum up to a sample's loss, and label smoothing.
fn loss_shape(call: &Call) -> (&'static str, Loss) {
    let elements = call.inputs[0].elements();
    match *call.op {
        Op::SoftmaxCrossEntropy { label_smoothing } => {
            let n = call.inputs[0].shape.last().copied().expect("logits have classes");
            let divisor = (elements / n) as f32;
            let (rows, smoothing) = (call.samples * elements / n, label_smoothing);
            ("cross_entropy", Loss { rows, n, divisor, smoothing, ..Loss::default() })
        }
        ref op => {
            let name = match op {
                Op::SigmoidCrossEntropy => "sigmoid_entropy",
                _ => "squared_error",
            };
            let (rows, n, divisor) = (call.samples, elements, elements as f32);
            (name, Loss { rows, n, divisor, ..Loss::default() })
        }
    }
}

/// Bytes of what a row of a loss says.
pub const TALLY: u64 = 16;

pub fn loss(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (kernel, args) = loss_shape(call);
    let scratch = plan.scratch(TALLY * args.rows);
    let args = Loss {
        x: buffers.reads[0],
        target: buffers.reads[1],
        saved: buffers.writes.get(1).copied().unwrap_or_default(),
        loss: buffers.writes[0],
        scratch,
        ..args
    };
    each_row(plan, kernel, args.rows, args.n, args);
    if matches!(call.op, Op::SoftmaxCrossEntropy { .. }) && args.n >= LARGE_ROW {
        plan.last().block = 1024;
    }
    plan.plain(Launch::blocks(Source::Rows, "tally".into(), 1, &args));
}

pub fn loss_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (kernel, args) = loss_shape(call);
    let factor = if matches!(call.op, Op::MeanSquaredError) { 2.0 } else { 1.0 };
    let args = Loss {
        x: buffers.reads[0],
        target: buffers.reads[1],
        saved: buffers.reads.get(2).copied().unwrap_or_default(),
        out: buffers.writes[0],
        scale: factor * call.loss_scale / args.divisor,
        ..args
    };
    let kernel = format!("{kernel}_gradient");
    each_row(plan, &kernel, args.rows, args.n, args);
}
