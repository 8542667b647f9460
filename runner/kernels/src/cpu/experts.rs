//! Tokens of a mixture of experts: to rows of their experts, and back.
//!
//! `x [samples, tokens, features]`, shares `[samples, tokens, all experts]`, rows `[samples, experts, capacity,
//! features]`. Whoever has a share that is not zero has a row, in the order of tokens, as long as there are rows. A
//! rank of a tensor group has some of the experts; tokens of the others are nothing here, and what it gives is a part
//! of a sum.

use super::chunks;
use super::softmax::row_dot;
use super::vector::vectorised;
use crate::{Call, Operands, Shard};
use pipewright_core::graph::{Op, TensorSpec};

/// The row of a token that has none.
const NOWHERE: u32 = u32::MAX;

vectorised! {
    /// `y += factor x`
    fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
    }

    /// `y = factor x`
    fn scaled(y: &mut [f32], x: &[f32], factor: f32) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x);
    }
}

struct Routing<'a> {
    shares: &'a [f32],
    tokens: usize,
    features: usize,
    capacity: usize,
    /// Experts of this rank, the first of them, and all.
    experts: usize,
    first: usize,
    all: usize,
}

impl<'a> Routing<'a> {
    fn new(call: &Call, shares: &'a [f32]) -> Self {
        let (spec, rows): (&TensorSpec, &TensorSpec) = match call.op {
            Op::Dispatch { .. } => (call.inputs[1], call.output),
            _ => (call.inputs[0], call.inputs[1]),
        };
        let size = |spec: &TensorSpec, axis: usize| spec.shape[axis] as usize;
        let experts = size(rows, 0);
        let Shard { tensor_rank, degree, .. } = call.shard;
        let first = if degree > 1 { tensor_rank as usize * experts } else { 0 };
        let (tokens, all) = (size(spec, 0), size(spec, 1));
        Self {
            shares,
            tokens,
            features: size(rows, 2),
            capacity: size(rows, 1),
            experts,
            first,
            all,
        }
    }

    /// What the token has of an expert of this rank; tokens of all samples are counted.
    fn share(&self, token: usize, expert: usize) -> f32 {
        self.shares[token * self.all + self.first + expert]
    }

    /// Block `i`: the tokens of its expert in its sample, row by row, with their shares.
    fn rows(&self, i: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let (sample, expert) = (i / self.experts, i % self.experts);
        let tokens = sample * self.tokens..(sample + 1) * self.tokens;
        let shares = tokens.map(move |token| (token, self.share(token, expert)));
        shares.filter(|(_, share)| *share != 0.0).take(self.capacity)
    }

    /// Words of the rows of an expert.
    fn block(&self) -> usize {
        self.capacity * self.features
    }

    /// Writes the row of each expert that each token has.
    fn place<'b>(&self, threads: usize, workspace: &'b mut [f32]) -> &'b [u32] {
        let words = self.shares.len() / self.all * self.experts;
        let into: &mut [u32] = bytemuck::cast_slice_mut(&mut workspace[..words]);
        let threads = chunks::worth(threads, into.len());
        chunks::for_each(threads, into, self.tokens * self.experts, |sample, places| {
            places.fill(NOWHERE);
            for expert in 0..self.experts {
                let rows = self.rows(sample * self.experts + expert);
                for (row, (token, _)) in (0..).zip(rows) {
                    places[(token - sample * self.tokens) * self.experts + expert] = row;
                }
            }
        });
        into
    }

    /// The experts of this rank that have a row of a token, and where its words begin.
    fn placed<'b>(
        &'b self,
        places: &'b [u32],
        token: usize,
    ) -> impl Iterator<Item = (usize, usize)> + 'b {
        let sample = token / self.tokens;
        let own = places[token * self.experts..][..self.experts].iter().enumerate();
        own.filter(|(_, row)| **row != NOWHERE).map(move |(expert, row)| {
            let block = sample * self.experts + expert;
            (expert, block * self.block() + *row as usize * self.features)
        })
    }
}

pub fn dispatch_forward(call: &Call, operands: Operands) {
    let (x, routing) = (operands.reads[0], Routing::new(call, operands.reads[1]));
    fill_rows(call, &routing, operands.writes[0], |row, token, _| {
        row.copy_from_slice(&x[token * row.len()..][..row.len()]);
    });
}

/// Writes rows of tokens by `write(row, token, share)`, and zero where there is no token.
fn fill_rows(
    call: &Call,
    routing: &Routing,
    rows: &mut [f32],
    write: impl Fn(&mut [f32], usize, f32) + Sync,
) {
    let threads = chunks::worth(call.threads, rows.len());
    chunks::for_each(threads, rows, routing.block(), |i, block| {
        let mut rest = block.chunks_exact_mut(routing.features);
        for (token, share) in routing.rows(i) {
            write(rest.next().expect("no more tokens than rows"), token, share);
        }
        rest.for_each(|row| row.fill(0.0));
    });
}

/// A token's gradient is the sum of its rows'.
pub fn dispatch_input_gradient(call: &Call, operands: Operands) {
    let (routing, gy) = (Routing::new(call, operands.reads[0]), operands.reads[1]);
    sum_rows(call, &routing, gy, operands.workspace, operands.writes[0], |_, _| 1.0);
}

pub fn combine_forward(call: &Call, operands: Operands) {
    let (routing, rows) = (Routing::new(call, operands.reads[0]), operands.reads[1]);
    let share = |token, expert| routing.share(token, expert);
    sum_rows(call, &routing, rows, operands.workspace, operands.writes[0], share);
}

/// Of each token the sum of its rows times `factor(token, expert)`, in the order of experts.
fn sum_rows(
    call: &Call,
    routing: &Routing,
    rows: &[f32],
    workspace: &mut [f32],
    out: &mut [f32],
    factor: impl Fn(usize, usize) -> f32 + Sync,
) {
    let places = routing.place(call.threads, workspace);
    let threads = chunks::worth(call.threads, out.len());
    chunks::for_each(threads, out, routing.features, |token, out| {
        out.fill(0.0);
        for (expert, at) in routing.placed(places, token) {
            add_scaled(out, &rows[at..][..out.len()], factor(token, expert));
        }
    });
}

/// `gshares` is what a row and its token's gradient have in common, `grows` the gradient times the share.
pub fn combine_input_gradient(call: &Call, operands: Operands) {
    let Operands { reads, writes, workspace, .. } = operands;
    let [shares, rows, gy] = *reads else {
        unreachable!("a sum over experts reads shares, rows and gy");
    };
    let routing = Routing::new(call, shares);
    let features = routing.features;
    let mut writes = writes.iter_mut();
    if call.wants(0) {
        let gshares = writes.next().expect("one gradient per wanted input");
        let places = routing.place(call.threads, workspace);
        let threads = chunks::worth(call.threads, gy.len());
        chunks::for_each(threads, gshares, routing.all, |token, gshares| {
            gshares.fill(0.0);
            let gy = &gy[token * features..][..features];
            for (expert, at) in routing.placed(places, token) {
                gshares[routing.first + expert] = row_dot(gy, &rows[at..][..features]);
            }
        });
    }
    if call.wants(1) {
        let grows = writes.next().expect("one gradient per wanted input");
        fill_rows(call, &routing, grows, |row, token, share| {
            scaled(row, &gy[token * features..][..features], share);
        });
    }
}
