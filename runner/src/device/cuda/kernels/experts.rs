//! Mixtures of experts: shares, rows of tokens, and the products of all experts.

use super::{Buffers, DevicePtr, Plan, Product, Routing, Source, TopK};
use pipewright_core::graph::Op;
use pipewright_kernels::{Call, Shard};

fn top(call: &Call) -> TopK {
    let Op::TopKSoftmax { k, normalize } = *call.op else {
        unreachable!("{} takes no largest", call.op.name());
    };
    let n = call.output.shape.last().copied().unwrap_or(1);
    let rows = call.samples * call.output.elements() / n;
    TopK { rows, n, k: k as u32, normalize: normalize.into(), ..TopK::default() }
}

/// A block a row, of no more threads than the row has elements.
fn each_row(plan: &mut Plan, kernel: &str, args: TopK) {
    plan.blocks(Source::Experts, kernel, args.rows, args);
    plan.last().block = args.n.next_multiple_of(32).clamp(32, super::BLOCK.into()) as u32;
}

pub fn top_k(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    each_row(plan, "top_k", TopK { x, out, ..top(call) });
}

pub fn top_k_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, y, gy] = *buffers.reads else {
        unreachable!("the gradient of shares reads x, y and gy");
    };
    each_row(plan, "top_k_gradient", TopK { x, y, gy, out: buffers.writes[0], ..top(call) });
}

/// Finds the places of tokens, in scratch.
fn routing(call: &Call, shares: DevicePtr, plan: &mut Plan) -> Routing {
    let (spec, rows) = match call.op {
        Op::Dispatch { .. } => (call.inputs[1], call.output),
        _ => (call.inputs[0], call.inputs[1]),
    };
    let [tokens, all] = [spec.shape[0], spec.shape[1]];
    let [experts, capacity, features] = [rows.shape[0], rows.shape[1], rows.shape[2]];
    let Shard { tensor_rank, degree, .. } = call.shard;
    let first = if degree > 1 { u64::from(tensor_rank) * experts } else { 0 };
    let samples = call.samples;
    let words = [tokens, capacity].map(|count| 4 * samples * experts * count);
    let places = plan.scratch(words[0] + words[1]);
    let sources = places.after(words[0]);
    let sizes = Routing { samples, tokens, features, capacity, ..Routing::default() };
    let args = Routing { shares, places, sources, experts, first, all, ..sizes };
    plan.blocks(Source::Experts, "place_tokens", samples * experts, args);
    args
}

fn rows_of_tokens(plan: &mut Plan, args: Routing) {
    let rows = args.samples * args.experts * args.capacity;
    plan.blocks(Source::Experts, "rows_of_tokens", rows, args);
}

fn tokens_of_rows(plan: &mut Plan, args: Routing) {
    plan.blocks(Source::Experts, "tokens_of_rows", args.samples * args.tokens, args);
}

pub fn dispatch(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let args = routing(call, buffers.reads[1], plan);
    rows_of_tokens(plan, Routing { x: buffers.reads[0], out: buffers.writes[0], ..args });
}

pub fn dispatch_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let args = routing(call, buffers.reads[0], plan);
    tokens_of_rows(plan, Routing { x: buffers.reads[1], out: buffers.writes[0], ..args });
}

pub fn combine(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let args = Routing { weighted: 1, ..routing(call, buffers.reads[0], plan) };
    tokens_of_rows(plan, Routing { x: buffers.reads[1], out: buffers.writes[0], ..args });
}

pub fn combine_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [shares, rows, gy] = *buffers.reads else {
        unreachable!("a sum over experts reads shares, rows and gy");
    };
    let args = Routing { weighted: 1, ..routing(call, shares, plan) };
    let mut writes = buffers.writes.iter().copied();
    if let Some(out) = writes.next().filter(|_| call.wanted & 1 != 0) {
        let tokens = args.samples * args.tokens;
        plan.blocks(
            Source::Experts,
            "share_gradient",
            tokens,
            Routing { x: rows, gy, out, ..args },
        );
    }
    // The last of those that are written.
    if let Some(out) = buffers.writes.last().copied().filter(|_| call.wanted & 2 != 0) {
        rows_of_tokens(plan, Routing { x: gy, out, ..args });
    }
}

/// Experts, rows of each, inputs and outputs.
fn grouped(call: &Call) -> [u64; 4] {
    let [experts, rows, inputs] = call.inputs[0].shape[..] else {
        unreachable!("experts have rows of features");
    };
    [experts, rows, inputs, call.output.shape[2]]
}

/// `y [e] = x [e] W [e]ᵀ`
pub fn grouped_linear(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [experts, rows, inputs, outputs] = grouped(call);
    let [a, b, c] = [buffers.reads[0], buffers.params[0], buffers.writes[0]];
    plan.product(
        Product {
            a,
            b,
            c,
            a_strides: [inputs, 1],
            b_strides: [1, inputs],
            c_strides: [outputs, 1],
            a_batch: [experts * rows * inputs, rows * inputs],
            b_batch: [0, inputs * outputs],
            c_batch: [experts * rows * outputs, rows * outputs],
            m: rows as u32,
            n: outputs as u32,
            k: inputs as u32,
            batch: [call.samples as u32, experts as u32],
            ..Product::default()
        },
        false,
    );
}

/// `gx [e] = gy [e] W [e]`
pub fn grouped_linear_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [experts, rows, inputs, outputs] = grouped(call);
    let [a, b, c] = [buffers.reads[0], buffers.params[0], buffers.writes[0]];
    plan.product(
        Product {
            a,
            b,
            c,
            a_strides: [outputs, 1],
            b_strides: [inputs, 1],
            c_strides: [inputs, 1],
            a_batch: [experts * rows * outputs, rows * outputs],
            b_batch: [0, inputs * outputs],
            c_batch: [experts * rows * inputs, rows * inputs],
            m: rows as u32,
            n: inputs as u32,
            k: outputs as u32,
            batch: [call.samples as u32, experts as u32],
            ..Product::default()
        },
        false,
    );
}

/// `gW [e] += gy [e]ᵀ x [e]`, sample by sample.
pub fn grouped_linear_weights(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [experts, rows, inputs, outputs] = grouped(call);
    let [x, gy] = *buffers.reads else { unreachable!("a linear layer's gradient reads x and gy") };
    for sample in 0..call.samples {
        let first = sample * experts * rows * plan.bytes();
        plan.product(
            Product {
                a: gy.after(first * outputs),
                b: x.after(first * inputs),
                c: buffers.gradients[0],
                a_strides: [1, outputs],
                b_strides: [inputs, 1],
                c_strides: [inputs, 1],
                a_batch: [0, rows * outputs],
                b_batch: [0, rows * inputs],
                c_batch: [0, inputs * outputs],
                m: outputs as u32,
                n: inputs as u32,
                k: rows as u32,
                batch: [1, experts as u32],
                accumulate: 1,
            },
            true,
        );
    }
}
