//! A learnt vector per token, plus one per position and one for the kind of token: the kind of
//! all tokens is the first, as long as no other kind can be told.
//!
//! Tokens are u32 `[samples, length]`; the tables come in the order of [`Op::params`].
//!
//! A rank of a tensor group has some entries of the tokens' table; what it gives is a part of a sum, to which the
//! first rank adds positions and kinds.

use super::chunks;
use crate::{Call, Operands, Shard};
use pipewright_core::graph::Op;

/// Which tables exist besides that of the tokens: positions, kinds.
fn tables(call: &Call) -> [bool; 2] {
    let Op::Embedding { positions, kinds, .. } = call.op else {
        unreachable!("{} is no embedding", call.op.name());
    };
    [*positions > 0, *kinds > 0]
}

/// The row of this rank's table that a token has; none where another rank has it.
fn entry(call: &Call, token: u32) -> Option<usize> {
    let (Shard { tensor_rank, degree, .. }, Op::Embedding { entries, .. }) = (call.shard, call.op)
    else {
        return None;
    };
    let row = u64::from(token).checked_sub(u64::from(tensor_rank) * entries);
    row.filter(|row| degree == 1 || row < entries).map(|row| row as usize)
}

/// # Panics
/// When a token is not in the table: data sets are checked when they are opened.
pub fn forward(call: &Call, operands: Operands) {
    let [length, features] = [call.output.shape[0] as usize, call.output.shape[1] as usize];
    let tokens: &[u32] = bytemuck::cast_slice(operands.reads[0]);
    let [positions, kinds] = tables(call);
    let is_first = call.shard.tensor_rank == 0;
    let params = &*operands.params;
    let kind = kinds.then(|| &params[1 + usize::from(positions)][..features]);
    let threads = chunks::worth(call.threads, operands.writes[0].len());
    chunks::for_each(threads, operands.writes[0], features, |i, y| {
        match entry(call, tokens[i]) {
            Some(entry) => y.copy_from_slice(row(params[0], entry, features)),
            None => y.fill(0.0),
        }
        let position = positions.then(|| row(params[1], i % length, features));
        for term in position.into_iter().chain(kind).filter(|_| is_first) {
            y.iter_mut().zip(term).for_each(|(y, term)| *y += term);
        }
    });
}

fn row(table: &[f32], index: usize, features: usize) -> &[f32] {
    &table[index * features..][..features]
}

/// A vector's gradient is the sum over the places where it was read, in their order.
pub fn weight_gradient(call: &Call, operands: Operands) {
    let [length, features] = [call.output.shape[0] as usize, call.output.shape[1] as usize];
    let tokens: &[u32] = bytemuck::cast_slice(operands.reads[0]);
    let [positions, kinds] = tables(call);
    let rows = || operands.reads[1].chunks_exact(features).enumerate();
    let mut add = |table: usize, index: usize, gy: &[f32]| {
        let gradient = &mut operands.gradients[table][index * features..][..features];
        gradient.iter_mut().zip(gy).for_each(|(g, gy)| *g += gy);
    };
    for (i, gy) in rows() {
        if let Some(entry) = entry(call, tokens[i]) {
            add(0, entry, gy);
        }
    }
    if positions {
        rows().for_each(|(i, gy)| add(1, i % length, gy));
    }
    if kinds {
        rows().for_each(|(_, gy)| add(1 + usize::from(positions), 0, gy));
    }
}
