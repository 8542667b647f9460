//! Kernels along axes: broadcasts, moves and sums.

use super::axes::{Axes, elements, strides};
use super::elementwise::{Wanted, fill, sum_of};
use super::{
    Broadcast, Buffers, Combine, DevicePtr, Launch, Plan, Reduce, Rope, Source, Strided,
    TokenPosition, Transposed,
};
use pipewright_core::graph::{Op, RopeScaling};
use pipewright_kernels::Call;

/// `out [whole] = a op b` for every sample.
fn broadcast(
    call: &Call,
    plan: &mut Plan,
    (op, whole): (Combine, &[u64]),
    (a, a_shape): (DevicePtr, &[u64]),
    (b, b_shape): (DevicePtr, &[u64]),
    out: DevicePtr,
) {
    let (of_a, of_b) = (strides(a_shape, whole.len()), strides(b_shape, whole.len()));
    let mut axes = Axes::<2>::new();
    axes.push(0, call.samples, [of_a[0], of_b[0]]);
    for (i, size) in whole.iter().enumerate() {
        axes.push(0, *size, [of_a[i + 1], of_b[i + 1]]);
    }
    let count = call.samples * elements(whole);
    let args = Broadcast {
        a,
        b,
        out,
        count,
        a_strides: axes.strides[0],
        b_strides: axes.strides[1],
        sizes: axes.sizes,
        rank: axes.rank as u32,
        op: op as u32,
    };
    plan.over(Source::Layout, "broadcast", count, args);
}

/// Where a sum goes.
pub(super) struct Sum<'a> {
    pub out: DevicePtr,
    /// Of one sample, or of all if `together`.
    pub shape: &'a [u64],
    /// Whether samples are summed too, and added to what is there, in f32.
    pub together: bool,
    pub scale: f32,
}

/// Sums of `op(a, b, g)`, which has the shape `whole`, over the axes that `sum` lacks.
pub(super) fn reduce(
    call: &Call,
    plan: &mut Plan,
    (op, whole): (Combine, &[u64]),
    [(a, a_shape), (b, b_shape)]: [(DevicePtr, &[u64]); 2],
    g: DevicePtr,
    sum: Sum,
) {
    let rank = whole.len();
    let mut own = strides(sum.shape, rank);
    if sum.together {
        own[0] = 0;
    }
    let (of_a, of_b) = (strides(a_shape, rank), strides(b_shape, rank));
    let of_g = strides(whole, rank);
    let mut axes = Axes::<4>::new();
    let (mut outputs, mut terms, mut kept) = (1, 1, 0);
    for pass in [true, false] {
        for (i, size) in std::iter::once(&call.samples).chain(whole).enumerate() {
            let is_kept = own[i] != 0 || *size == 1;
            if is_kept == pass {
                axes.push(kept, *size, [of_a[i], of_b[i], of_g[i], own[i]]);
                *(if pass { &mut outputs } else { &mut terms }) *= size;
            }
        }
        if pass {
            kept = axes.rank;
        }
    }
    let args = Reduce {
        a,
        b,
        g,
        out: sum.out,
        outputs,
        terms,
        a_strides: axes.strides[0],
        b_strides: axes.strides[1],
        g_strides: axes.strides[2],
        sizes: axes.sizes,
        kept: kept as u32,
        rank: axes.rank as u32,
        op: op as u32,
        accumulate: sum.together.into(),
        scale: sum.scale,
    };
    // Threads side by side read side by side: along outputs if these have the last axis.
    let last_is_summed = axes.rank > kept && axes.strides[2][axes.rank - 1] == 1;
    if terms >= 64 && (last_is_summed || outputs < 1 << 12) {
        plan.blocks(Source::Layout, "reduce_block", outputs, args);
    } else {
        plan.over(Source::Layout, "reduce", outputs, args);
    }
}

pub fn binary(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [a, b] = *buffers.reads else {
        unreachable!("a binary operation reads two tensors");
    };
    let (shapes, whole) = ([&call.inputs[0].shape, &call.inputs[1].shape], &call.output.shape);
    if matches!(call.op, Op::Add) && shapes.iter().all(|shape| *shape == whole) {
        let count = call.samples * elements(whole);
        return sum_of(plan, buffers.reads, buffers.writes[0], count);
    }
    let op = match call.op {
        Op::Add => Combine::Sum,
        Op::Subtract => Combine::Difference,
        Op::Multiply => Combine::Product,
        _ => Combine::Quotient,
    };
    broadcast(call, plan, (op, whole), (a, shapes[0]), (b, shapes[1]), buffers.writes[0]);
}

pub fn binary_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let none = (DevicePtr::NULL, &[][..]);
    let (operands, g) = match *buffers.reads {
        [a, b, g] => ([(a, &call.inputs[0].shape[..]), (b, &call.inputs[1].shape[..])], g),
        [g] => ([none, none], g),
        _ => unreachable!("a binary operation's gradient reads gy, and both operands or none"),
    };
    let mut writes = buffers.writes.iter();
    for input in 0..2 {
        let Some(out) = writes.next_if(call.wanted >> input & 1 == 1) else { continue };
        let op = match (call.op, input) {
            (Op::Add, _) | (Op::Subtract, 0) => Combine::Same,
            (Op::Subtract, _) => Combine::Negative,
            (Op::Multiply, 0) => Combine::ProductLeft,
            (Op::Multiply, _) => Combine::ProductRight,
            (_, 0) => Combine::QuotientLeft,
            _ => Combine::QuotientRight,
        };
        let sum = Sum { out, shape: &call.inputs[input].shape, together: false, scale: 1.0 };
        reduce(call, plan, (op, &call.output.shape), operands, g, sum);
    }
}

/// A shape whose `axes` have size 1.
fn kept(shape: &[u64], axes: &[u64]) -> Vec<u64> {
    let size = |(axis, size): (u64, &u64)| if axes.contains(&axis) { 1 } else { *size };
    (0..).zip(shape).map(size).collect()
}

pub(super) const NONE: [(DevicePtr, &[u64]); 2] = [(DevicePtr::NULL, &[]); 2];

/// An image with channels innermost, and the same with each plane a single position.
fn last_plane(call: &Call) -> [Vec<u64>; 2] {
    let [channels, rows, columns] = call.inputs[0].shape[..] else {
        unreachable!("an image has three axes");
    };
    [vec![rows * columns, channels], vec![1, channels]]
}

/// The mean of each channel's plane.
pub fn global_mean(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    if !buffers.channels_last {
        return mean(call, &[1, 2], buffers, plan);
    }
    let [whole, shape] = last_plane(call);
    let sum = Sum {
        out: buffers.writes[0],
        shape: &shape,
        together: false,
        scale: 1.0 / whole[0] as f32,
    };
    reduce(call, plan, (Combine::Same, &whole), NONE, buffers.reads[0], sum);
}

/// Its gradient: to each position of a plane a share.
pub fn global_mean_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    if !buffers.channels_last {
        return mean_gradient(call, &[1, 2], buffers, plan);
    }
    let [whole, shape] = last_plane(call);
    let (from, to) = (strides(&shape, 2), strides(&whole, 2));
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    copy(call.samples, plan, &whole, (x, &from), (out, &to), 1.0 / whole[0] as f32);
}

pub fn mean(call: &Call, axes: &[u64], buffers: &Buffers, plan: &mut Plan) {
    let whole = &call.inputs[0].shape;
    let shape = kept(whole, axes);
    let scale = 1.0 / (elements(whole) / elements(&shape)) as f32;
    let sum = Sum { out: buffers.writes[0], shape: &shape, together: false, scale };
    reduce(call, plan, (Combine::Same, whole), NONE, buffers.reads[0], sum);
}

pub fn mean_gradient(call: &Call, axes: &[u64], buffers: &Buffers, plan: &mut Plan) {
    let whole = &call.inputs[0].shape;
    let shape = kept(whole, axes);
    let scale = 1.0 / (elements(whole) / elements(&shape)) as f32;
    let (from, to) = (strides(&shape, whole.len()), strides(whole, whole.len()));
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    copy(call.samples, plan, whole, (x, &from), (out, &to), scale);
}

/// Copies elements along `sizes`, samples first, between strides.
pub(super) fn copy(
    samples: u64,
    plan: &mut Plan,
    sizes: &[u64],
    (x, from): (DevicePtr, &[u64]),
    (out, to): (DevicePtr, &[u64]),
    scale: f32,
) {
    let mut axes = Axes::<2>::new();
    for (i, size) in std::iter::once(&samples).chain(sizes).enumerate() {
        axes.push(0, *size, [from[i], to[i]]);
    }
    let (count, rank) = (samples * elements(sizes), axes.rank as u32);
    let (from, to) = (axes.strides[0], axes.strides[1]);
    let args = Strided { x, out, count, from, to, sizes: axes.sizes, rank, scale };
    if scale != 1.0 {
        return plan.over(Source::Layout, "strided", count, args);
    }
    if let Some(words) = words(&axes, &args, plan.bytes()) {
        let kernel = "strided_words".into();
        plan.plain(Launch::over(Source::Layout, kernel, words.count, &words));
    } else if let Some(tiles) = tiles(&axes, &args) {
        plan.blocks(Source::Layout, "transposed", tiles.tiles, tiles);
    } else {
        plan.over(Source::Layout, "strided", count, args);
    }
}

/// The same copy by sixteen bytes at a time, where these are neighbours in both tensors.
fn words(axes: &Axes<2>, args: &Strided, bytes: u64) -> Option<Strided> {
    let (last, each) = (axes.rank.checked_sub(1)?, 16 / bytes);
    let is_whole = axes.strides.iter().all(|strides| {
        strides[last] == 1 && strides[..last].iter().all(|stride| stride.is_multiple_of(each))
    });
    let is_aligned = (args.x.0 | args.out.0).is_multiple_of(16);
    if !is_whole || !is_aligned || !u64::from(axes.sizes[last]).is_multiple_of(each) {
        return None;
    }
    let mut words = Strided { count: args.count / each, ..*args };
    words.sizes[last] /= each as u32;
    for axis in 0..last {
        words.from[axis] /= each;
        words.to[axis] /= each;
    }
    Some(words)
}

/// The sides of a tile of `transposed`.
const SIDE: u64 = 32;

/// The same copy by tiles, where each tensor has its neighbours along an axis of its own.
pub(super) fn tiles(axes: &Axes<2>, args: &Strided) -> Option<Transposed> {
    let neighbours = |of: usize| (0..axes.rank).find(|axis| axes.strides[of][*axis] == 1);
    let (read, write) = (neighbours(0)?, neighbours(1)?);
    let [across, down] = [read, write].map(|axis| u64::from(axes.sizes[axis]));
    // Narrower than this a tile is mostly empty.
    if read == write || across.min(down) < SIDE / 4 {
        return None;
    }
    Some(Transposed {
        x: args.x,
        out: args.out,
        tiles: args.count / (across * down) * across.div_ceil(SIDE) * down.div_ceil(SIDE),
        from: args.from,
        to: args.to,
        sizes: args.sizes,
        rank: args.rank,
        read: read as u32,
        write: write as u32,
    })
}

/// Strides of a slice in the tensor that it is of, and where its first element is.
fn slice(shape: &[u64], axis: u64, start: u64, step: u64) -> (Vec<u64>, u64) {
    let axis = axis as usize;
    let mut along = strides(shape, shape.len());
    let own: u64 = shape[axis + 1..].iter().product();
    along[axis + 1] = own * step;
    (along, own * start)
}

pub fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (shape, out) = (&call.output.shape, buffers.writes[0]);
    let to = strides(shape, shape.len());
    match call.op {
        Op::Slice { axis, start, step, .. } => {
            let (from, first) = slice(&call.inputs[0].shape, *axis, *start, *step);
            let x = buffers.reads[0].after(first * plan.bytes());
            copy(call.samples, plan, shape, (x, &from), (out, &to), 1.0);
        }
        Op::Permute { axes } => {
            let from = permuted(&call.inputs[0].shape, axes);
            copy(call.samples, plan, shape, (buffers.reads[0], &from), (out, &to), 1.0);
        }
        Op::FirstPosition => {
            let mut from = to.clone();
            from[0] = call.inputs[0].elements();
            copy(call.samples, plan, shape, (buffers.reads[0], &from), (out, &to), 1.0);
        }
        Op::Concat { axis } => {
            let mut start = 0;
            for (x, input) in buffers.reads.iter().zip(call.inputs) {
                let (to, first) = slice(shape, *axis, start, 1);
                let from = strides(&input.shape, input.shape.len());
                let out = out.after(first * plan.bytes());
                copy(call.samples, plan, &input.shape, (*x, &from), (out, &to), 1.0);
                start += input.shape[*axis as usize];
            }
        }
        Op::Parameter { .. } => {
            let mut from = to.clone();
            from[0] = 0;
            copy(call.samples, plan, shape, (buffers.params[0], &from), (out, &to), 1.0);
        }
        other => unreachable!("{} moves no elements", other.name()),
    }
}

/// Strides of a permutation's output in its input.
fn permuted(shape: &[u64], axes: &[u64]) -> Vec<u64> {
    let own = strides(shape, shape.len());
    std::iter::once(own[0]).chain(axes.iter().map(|axis| own[*axis as usize + 1])).collect()
}

pub fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (shape, gy) = (&call.output.shape, buffers.reads[0]);
    let from = strides(shape, shape.len());
    let out = |i: usize| buffers.writes[i];
    let count = call.samples * call.inputs[0].elements();
    match call.op {
        Op::Slice { axis, start, step, .. } => {
            let (to, first) = slice(&call.inputs[0].shape, *axis, *start, *step);
            fill(plan, out(0), count, 0.0);
            let gx = out(0).after(first * plan.bytes());
            copy(call.samples, plan, shape, (gy, &from), (gx, &to), 1.0);
        }
        Op::Permute { axes } => {
            let to = permuted(&call.inputs[0].shape, axes);
            copy(call.samples, plan, shape, (gy, &from), (out(0), &to), 1.0);
        }
        Op::FirstPosition => {
            let mut to = from.clone();
            to[0] = call.inputs[0].elements();
            fill(plan, out(0), count, 0.0);
            copy(call.samples, plan, shape, (gy, &from), (out(0), &to), 1.0);
        }
        Op::Concat { axis } => {
            let mut writes = buffers.writes.iter();
            let mut start = 0;
            for (i, input) in call.inputs.iter().enumerate() {
                let (from, first) = slice(shape, *axis, start, 1);
                start += input.shape[*axis as usize];
                let Some(gx) = writes.next_if(call.wanted >> i & 1 == 1) else { continue };
                let to = strides(&input.shape, input.shape.len());
                let gy = gy.after(first * plan.bytes());
                copy(call.samples, plan, &input.shape, (gy, &from), (gx, &to), 1.0);
            }
        }
        other => unreachable!("{} moves no elements", other.name()),
    }
}

/// The larger image's axes: each of the smaller one's is followed by its repetitions.
fn repeated(call: &Call, factor: u64) -> (Vec<u64>, Vec<u64>) {
    let [c, h, w] = call.inputs[0].shape[..] else { unreachable!("an image has three axes") };
    (vec![c, h, factor, w, factor], vec![c, h, 1, w, 1])
}

pub fn nearest(call: &Call, factor: u64, buffers: &Buffers, plan: &mut Plan) {
    let (large, small) = repeated(call, factor);
    let (from, to) = (strides(&small, 5), strides(&large, 5));
    copy(call.samples, plan, &large, (buffers.reads[0], &from), (buffers.writes[0], &to), 1.0);
}

pub fn nearest_gradient(call: &Call, factor: u64, buffers: &Buffers, plan: &mut Plan) {
    let (large, small) = repeated(call, factor);
    let sum = Sum { out: buffers.writes[0], shape: &small, together: false, scale: 1.0 };
    reduce(call, plan, (Combine::Same, &large), NONE, buffers.reads[0], sum);
}

/// Sums over the samples.
pub fn parameter_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let shape = &call.output.shape;
    let sum = Sum { out: buffers.gradients[0], shape, together: true, scale: 1.0 };
    reduce(call, plan, (Combine::Same, shape), NONE, buffers.reads[0], sum);
}

pub fn rope(
    call: &Call,
    base: f32,
    scaling: Option<RopeScaling>,
    sign: f32,
    buffers: &Buffers,
    plan: &mut Plan,
) {
    let mut sizes = call.output.shape.iter().rev().copied();
    let (width, length) = (sizes.next().unwrap_or(1), sizes.next().unwrap_or(1));
    let vectors = call.samples * call.output.elements() / width;
    let table = plan.scratch(4 * length * width);
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    // A factor of one changes nothing.
    let RopeScaling { factor, low_freq_factor, high_freq_factor, original_length } =
        scaling.unwrap_or(RopeScaling::linear(1.0));
    let (low, high, original) = (low_freq_factor, high_freq_factor, original_length);
    let args =
        Rope { x, table, out, vectors, length, width, base, sign, factor, low, high, original };
    let items = length * width / 2;
    plan.plain(Launch::over(Source::Layout, "rope_table".into(), items, &args));
    plan.over(Source::Layout, "rope", vectors * width / 2, args);
}

/// The position of a token of each sample.
pub fn token(call: &Call, token: Option<u32>, buffers: &Buffers, plan: &mut Plan) {
    let args = token_position(call, token, buffers.writes[0]);
    let args = TokenPosition { from: buffers.reads[0], tokens: buffers.reads[1], ..args };
    plan.over(Source::Layout, "token_position", args.samples * args.features, args);
}

/// Zero but for that position.
pub fn token_gradient(call: &Call, token: Option<u32>, buffers: &Buffers, plan: &mut Plan) {
    let out = buffers.writes[0];
    fill(plan, out, call.samples * call.inputs[0].elements(), 0.0);
    let args = token_position(call, token, out);
    let [tokens, from] = [buffers.reads[0], buffers.reads[1]];
    let args = TokenPosition { from, tokens, backward: 1, ..args };
    plan.over(Source::Layout, "token_position", args.samples * args.features, args);
}

fn token_position(call: &Call, token: Option<u32>, out: DevicePtr) -> TokenPosition {
    TokenPosition {
        out,
        samples: call.samples,
        length: call.inputs[0].shape[0],
        features: call.output.elements(),
        token: token.unwrap_or_default(),
        largest: u32::from(token.is_none()),
        ..TokenPosition::default()
    }
}
