//! Scaled dot-product attention, of separate tensors and of queries, keys and values that lie
//! side by side.
//!
//! For one head, with queries `q [n, d]`, keys `k [s, d]`, values `v [s, e]` (see [`head`]):
//!
//! ```text
//! forward   P = softmax(scale q kᵀ)    y = P v
//! ```
//!
//! A block of queries at a time, so that the scores of a block stay in the cache and all scores
//! never exist at once (FlashAttention, Dao et al. 2022). Only the logarithm of each query's sum
//! of exponentials is kept; the backward pass makes `P` again from it.

mod head;

use super::chunks;
use crate::{Call, Operands};
use head::{Gradients, Head, Rows};
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::attention_rows;

/// The sizes of one head, and what its scratch is.
fn separate(call: &Call) -> Head {
    let Op::ScaledDotProduct { scale, causal } = call.op else {
        unreachable!("{} is no attention", call.op.name());
    };
    let last = |shape: &[u64]| [shape[shape.len() - 2] as usize, shape[shape.len() - 1] as usize];
    let ([n, d], [s, e]) = (last(&call.inputs[0].shape), last(&call.inputs[2].shape));
    let rows = attention_rows(s as u64) as usize;
    Head { n, s, d, e, scale: *scale, causal: *causal, rows }
}

/// Lanes that work on different items, each with its scratch, and threads inside each product.
fn lanes(call: &Call, items: usize, workspace: usize, scratch: usize) -> (usize, usize) {
    let lanes = call.threads.min(items).min(workspace / scratch);
    if lanes > 1 { (lanes, 1) } else { (1, call.threads) }
}

pub fn separate_forward(call: &Call, operands: Operands) {
    let head = separate(call);
    let [q, k, v] = operands.reads else {
        unreachable!("an attention reads queries, keys and values");
    };
    let [y, saved] = operands.writes else {
        unreachable!("an attention writes its output and log-sum-exps");
    };
    let (items, scratch) = (saved.len() / head.n, head.scratch());
    let (lanes, threads) = lanes(call, items, operands.workspace.len(), scratch);
    let parts = [(&mut **y, head.n * head.e), (&mut **saved, head.n)];
    let scratch = (&mut *operands.workspace, scratch);
    chunks::for_each_item(lanes, items, parts, scratch, |i, [y, saved], scratch| {
        let q = Rows { data: &q[i * head.n * head.d..], stride: head.d };
        let k = Rows { data: &k[i * head.s * head.d..], stride: head.d };
        let v = Rows { data: &v[i * head.s * head.e..], stride: head.e };
        head.forward([q, k, v], (y, head.e), saved, scratch, threads);
    });
}

pub fn separate_input_gradient(call: &Call, operands: Operands) {
    let head = separate(call);
    let [q, k, v, y, gy, saved] = operands.reads else {
        unreachable!("an attention's gradient reads q, k, v, y, gy and log-sum-exps");
    };
    let (items, scratch) = (saved.len() / head.n, head.scratch());
    let (lanes, threads) = lanes(call, items, operands.workspace.len(), scratch);
    let lens = [head.n * head.d, head.s * head.d, head.s * head.e];
    // Gradients that nobody wants are empty.
    let mut writes = operands.writes.iter_mut();
    let parts = [0, 1, 2].map(|input| match call.wants(input) {
        true => (&mut **writes.next().expect("one gradient per wanted input"), lens[input]),
        false => (&mut [][..], 0),
    });
    let scratch = (&mut *operands.workspace, scratch);
    chunks::for_each_item(lanes, items, parts, scratch, |i, [gq, gk, gv], scratch| {
        let [q, k, v] = [(q, lens[0], head.d), (k, lens[1], head.d), (v, lens[2], head.e)]
            .map(|(data, len, stride)| Rows { data: &data[i * len..], stride });
        let [y, gy] =
            [y, gy].map(|data| Rows { data: &data[i * head.n * head.e..], stride: head.e });
        gk.fill(0.0);
        gv.fill(0.0);
        let gradients = Gradients::Separate([(gq, head.d), (gk, head.d), (gv, head.e)]);
        let saved = &saved[i * head.n..][..head.n];
        head.input_gradient([q, k, v, y, gy], saved, gradients, scratch, threads);
    });
}

/// Queries, keys and values in one tensor.
struct Packed {
    head: Head,
    heads: usize,
    kv_heads: usize,
    /// Elements of one position: of all heads of queries, keys and values; of the output.
    wide: usize,
    out: usize,
}

impl Packed {
    fn new(call: &Call) -> Self {
        let Op::Attention { heads, kv_heads, causal } = call.op else {
            unreachable!("{} is no packed attention", call.op.name());
        };
        let (heads, kv_heads) = (*heads as usize, *kv_heads as usize);
        let wide = call.inputs[0].shape.last().copied().unwrap_or(1) as usize;
        let n = call.inputs[0].elements() as usize / wide;
        let d = wide / (heads + 2 * kv_heads);
        let scale = 1.0 / (d as f32).sqrt();
        let rows = attention_rows(n as u64) as usize;
        let head = Head { n, s: n, d, e: d, scale, causal: *causal, rows };
        Self { head, heads, kv_heads, wide, out: heads * d }
    }

    /// Where a head's queries, keys and values begin in a position.
    fn starts(&self, head: usize) -> [usize; 3] {
        let shared = head / (self.heads / self.kv_heads);
        let d = self.head.d;
        [head * d, (self.heads + shared) * d, (self.heads + self.kv_heads + shared) * d]
    }
}

pub fn packed_forward(call: &Call, operands: Operands) {
    let packed = Packed::new(call);
    let Packed { head, wide, out, .. } = &packed;
    let x = operands.reads[0];
    let [y, saved] = operands.writes else {
        unreachable!("an attention writes its output and log-sum-exps");
    };
    let (items, scratch) = (call.samples as usize, head.scratch());
    let (lanes, threads) = lanes(call, items, operands.workspace.len(), scratch);
    let parts = [(&mut **y, head.n * out), (&mut **saved, head.n * packed.heads)];
    let scratch = (&mut *operands.workspace, scratch);
    chunks::for_each_item(lanes, items, parts, scratch, |i, [y, saved], scratch| {
        let x = &x[i * head.n * wide..][..head.n * wide];
        for (h, saved) in saved.chunks_exact_mut(head.n).enumerate() {
            let inputs = packed.starts(h).map(|at| Rows { data: &x[at..], stride: *wide });
            head.forward(inputs, (&mut y[h * head.d..], *out), saved, scratch, threads);
        }
    });
}

pub fn packed_input_gradient(call: &Call, operands: Operands) {
    let packed = Packed::new(call);
    let Packed { head, wide, out, .. } = &packed;
    let [x, y, gy, saved] = operands.reads else {
        unreachable!("an attention's gradient reads qkv, y, gy and log-sum-exps");
    };
    let (items, scratch) = (call.samples as usize, head.scratch());
    let (lanes, threads) = lanes(call, items, operands.workspace.len(), scratch);
    let parts = [(&mut *operands.writes[0], head.n * wide)];
    let scratch = (&mut *operands.workspace, scratch);
    chunks::for_each_item(lanes, items, parts, scratch, |i, [gx], scratch| {
        let x = &x[i * head.n * wide..][..head.n * wide];
        let (y, gy) = (&y[i * head.n * out..], &gy[i * head.n * out..]);
        gx.fill(0.0);
        for h in 0..packed.heads {
            let starts = packed.starts(h);
            let [q, k, v] = starts.map(|at| Rows { data: &x[at..], stride: *wide });
            let [y, gy] = [y, gy].map(|y| Rows { data: &y[h * head.d..], stride: *out });
            let saved = &saved[(i * packed.heads + h) * head.n..][..head.n];
            let gradients = Gradients::Packed { data: &mut *gx, starts, stride: *wide };
            head.input_gradient([q, k, v, y, gy], saved, gradients, scratch, threads);
        }
    });
}
