//! Tables of vectors: one per token, plus one per position and one for the kind of token. A rank of a tensor group has
//! some of the tokens; what it gives is a part of a sum, to which the first rank adds positions and kinds.

use super::elementwise::Wanted;
use super::layout::{NONE, Sum, reduce};
use super::{Buffers, ColumnSums, Combine, DevicePtr, Embedding, Plan, Source, rows};
use pipewright_core::graph::Op;
use pipewright_kernels::Call;

/// Sizes, and which tokens are this rank's.
fn shape(call: &Call) -> Embedding {
    let Op::Embedding { entries, .. } = *call.op else {
        unreachable!("{} is no embedding", call.op.name());
    };
    let [length, features] = [call.output.shape[0], call.output.shape[1]];
    let (rows, first) = (call.samples * length, u64::from(call.shard.tensor_rank) * entries);
    Embedding { rows, length, features, first, entries, ..Embedding::default() }
}

/// The tables of positions and of kinds, where they are, among `from`.
fn tables(call: &Call, from: &[DevicePtr]) -> [DevicePtr; 2] {
    let Op::Embedding { positions, kinds, .. } = call.op else {
        unreachable!("{} is no embedding", call.op.name());
    };
    let mut rest = from[1..].iter();
    [*positions > 0, *kinds > 0].map(|exists| rest.next_if(exists).unwrap_or_default())
}

pub fn embedding(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [positions, kinds] = match call.shard.tensor_rank {
        0 => tables(call, buffers.params),
        _ => [DevicePtr::NULL; 2],
    };
    let args = Embedding {
        tokens: buffers.reads[0],
        table: buffers.params[0],
        positions,
        kinds,
        out: buffers.writes[0],
        ..shape(call)
    };
    plan.over(Source::Layout, "embedding", args.rows * args.features, args);
}

pub fn embedding_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (tokens, gy, out) = (buffers.reads[0], buffers.reads[1], buffers.gradients[0]);
    let args = Embedding { tokens, table: gy, out, ..shape(call) };
    plan.blocks(Source::Layout, "embedding_gradient", args.rows, args);
    let [positions, kinds] = tables(call, buffers.gradients);
    if positions != DevicePtr::NULL {
        let shape = &call.output.shape;
        let sum = Sum { out: positions, shape, together: true, scale: 1.0 };
        reduce(call, plan, (Combine::Same, shape), NONE, gy, sum);
    }
    if kinds != DevicePtr::NULL {
        let (rows, n) = (args.rows, args.features);
        rows::column_sums(plan, ColumnSums { gy, plain: kinds, rows, n, ..ColumnSums::default() });
    }
}
