//! Attention of separate tensors, and of queries, keys and values that lie side by side: on the matrix units
//! where they take it, else on the plain cores.

mod matrix;

use super::{Attention, Buffers, DevicePtr, Plan, Source, Storage};
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_kernels::Call;

/// Keys of a tile, or queries.
const TILE: u32 = 32;

/// Queries of a block, or keys: as many as there is shared memory for.
const ROWS: [u32; 4] = [64, 32, 16, 8];

/// Elements of the widest head that a thread has registers for.
pub const WIDEST: u32 = 256;

/// What keeps kernels from computing heads, if something does: their registers, or shared memory of so many
/// bytes.
pub fn missing(call: &Call, most_shared: u32) -> Option<String> {
    let (args, _) = shape(call);
    if args.d.max(args.e) > WIDEST {
        return Some(format!("attention with heads wider than {WIDEST}"));
    }
    let needed = match call.kind {
        ComputationKind::Forward => forward_bytes(&args, ROWS[3]),
        _ => keys_bytes(&args, ROWS[3]),
    };
    (needed > most_shared).then(|| {
        let wide = args.d.max(args.e);
        format!("attention with heads of {wide}: {needed} bytes of shared memory a block, of {most_shared}")
    })
}

/// Bytes of shared memory of a block of `rows` queries in the forward pass ...
fn forward_bytes(args: &Attention, rows: u32) -> u32 {
    4 * ((rows + TILE) * (args.d + 1) + TILE * (args.e + 1) + rows * (TILE + 1))
}

/// ... in the gradient of queries ...
fn queries_bytes(args: &Attention, rows: u32) -> u32 {
    4 * ((rows + TILE) * (args.d + args.e + 2) + rows * (TILE + 1))
}

/// ... and of `rows` keys in their gradient, which needs most.
fn keys_bytes(args: &Attention, rows: u32) -> u32 {
    queries_bytes(args, rows) + 4 * (2 * TILE + rows * (TILE + 1))
}

/// Sizes and strides. Items of separate tensors are samples with one head each.
fn shape(call: &Call) -> (Attention, u64) {
    match *call.op {
        Op::ScaledDotProduct { scale, causal } => {
            let last = |shape: &[u64]| [shape[shape.len() - 2], shape[shape.len() - 1]];
            let ([n, d], [s, e]) = (last(&call.inputs[0].shape), last(&call.inputs[2].shape));
            let items = call.samples * call.inputs[0].elements() / (n * d);
            let rows = |length: u64, width: u64| [length * width, 0, width];
            let args = Attention {
                q_strides: rows(n, d),
                k_strides: rows(s, d),
                v_strides: rows(s, e),
                y_strides: rows(n, e),
                n: n as u32,
                s: s as u32,
                d: d as u32,
                e: e as u32,
                heads: 1,
                heads_together: 1,
                causal: causal.into(),
                scale,
                ..Attention::default()
            };
            (args, items)
        }
        Op::Attention { heads, kv_heads, causal } => {
            let wide = call.inputs[0].shape.last().copied().unwrap_or(1);
            let n = call.inputs[0].elements() / wide;
            let d = wide / (heads + 2 * kv_heads);
            let inputs = [n * wide, d, wide];
            let args = Attention {
                q_strides: inputs,
                k_strides: inputs,
                v_strides: inputs,
                y_strides: [n * heads * d, d, heads * d],
                n: n as u32,
                s: n as u32,
                d: d as u32,
                e: d as u32,
                heads: heads as u32,
                heads_together: (heads / kv_heads) as u32,
                causal: causal.into(),
                scale: 1.0 / (d as f32).sqrt(),
                ..Attention::default()
            };
            (args, call.samples)
        }
        ref other => unreachable!("{} is no attention", other.name()),
    }
}

/// Where queries, keys and values are, or their gradients, from the first one's place.
fn parts(args: &Attention, of: &[DevicePtr], bytes: u64) -> [DevicePtr; 3] {
    match *of {
        [q, k, v] => [q, k, v],
        [x] => {
            let (d, heads) = (u64::from(args.d), u64::from(args.heads));
            let shared = heads / u64::from(args.heads_together);
            [0, heads * d, (heads + shared) * d].map(|place| x.after(place * bytes))
        }
        _ => unreachable!("an attention reads queries, keys and values, together or each"),
    }
}

/// A launch with a block for so many rows of each head: as many as there is shared memory for. Rows know
/// nothing of each other, so their number changes no bit.
fn tiles(
    plan: &mut Plan,
    name: &str,
    length: u32,
    heads: u32,
    items: u64,
    bytes: fn(&Attention, u32) -> u32,
    args: Attention,
) {
    let fits = |rows: &u32| bytes(&args, *rows) <= plan.most_shared();
    let rows = ROWS.into_iter().find(fits).unwrap_or(ROWS[3]);
    let wide = match args.d.max(args.e) {
        0..=64 => 64,
        65..=128 => 128,
        _ => 256,
    };
    each_sample(plan, args, items, |plan, args, count| {
        plan.blocks(Source::Attention, &format!("{name}_{wide}"), 1, args);
        let launch = plan.last();
        launch.grid = [length.div_ceil(rows), heads, count];
        (launch.block, launch.shared) = (4 * rows, bytes(&args, rows));
    });
}

/// Samples along z, of which a grid has at most 65535: more are several launches.
fn each_sample(
    plan: &mut Plan,
    args: Attention,
    items: u64,
    launch: impl Fn(&mut Plan, Attention, u32),
) {
    for first in (0..items).step_by(1 << 15) {
        let count = (items - first).min(1 << 15) as u32;
        let args = from_sample(args, first, plan.bytes());
        launch(plan, args, count);
    }
}

/// The same from a later sample on.
fn from_sample(args: Attention, sample: u64, bytes: u64) -> Attention {
    let to = |at: DevicePtr, strides: [u64; 3]| at.after(sample * strides[0] * bytes);
    let logarithms = u64::from(args.heads) * u64::from(args.n);
    Attention {
        q: to(args.q, args.q_strides),
        k: to(args.k, args.k_strides),
        v: to(args.v, args.v_strides),
        y: to(args.y, args.y_strides),
        gy: to(args.gy, args.y_strides),
        gq: to(args.gq, args.q_strides),
        gk: to(args.gk, args.k_strides),
        gv: to(args.gv, args.v_strides),
        saved: args.saved.after(4 * sample * logarithms),
        means: args.means.after(4 * sample * logarithms),
        ..args
    }
}

pub fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (args, items) = shape(call);
    let [q, k, v] = parts(&args, buffers.reads, plan.bytes());
    let args = Attention { q, k, v, y: buffers.writes[0], saved: buffers.writes[1], ..args };
    if matrix::takes(&args, plan) {
        return matrix::forward(args, items, plan);
    }
    tiles(plan, "attention", args.n, args.heads, items, forward_bytes, args);
}

pub fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (args, items) = shape(call);
    let (inputs, rest) = buffers.reads.split_at(buffers.reads.len() - 3);
    let [q, k, v] = parts(&args, inputs, plan.bytes());
    let (y, gy, saved) = (rest[0], rest[1], rest[2]);
    let [gq, gk, gv] = if inputs.len() == 1 {
        parts(&args, buffers.writes, plan.bytes())
    } else {
        let mut writes = buffers.writes.iter().copied();
        [0, 1, 2].map(|input| match call.wanted >> input & 1 {
            1 => writes.next().expect("one gradient per wanted input"),
            _ => DevicePtr::NULL,
        })
    };
    let args = Attention { q, k, v, y, gy, saved, gq, gk, gv, ..args };
    if matrix::takes(&args, plan) {
        return matrix::gradients(args, items, plan);
    }
    if call.wanted & 1 != 0 {
        tiles(plan, "attention_queries", args.n, args.heads, items, queries_bytes, args);
    }
    if inputs.len() == 1 || call.wanted & 6 != 0 {
        let heads = args.heads / args.heads_together;
        tiles(plan, "attention_keys", args.s, heads, items, keys_bytes, args);
    }
}
