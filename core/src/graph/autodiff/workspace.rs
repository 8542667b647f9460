//! Scratch of computations.

use super::{Extent, Winograd, positions};
use crate::graph::{Graph, Node, Op, Pair, TensorSpec};
use crate::ids::NodeId;
use crate::units::Bytes;

/// Lanes of threads that an attention has scratch for.
const ATTENTION_LANES: u64 = 8;

/// Queries whose scores an attention over `keys` keys makes at a time: as many as stay in the
/// second-level cache.
pub fn attention_rows(keys: u64) -> u64 {
    ((1 << 16) / keys.max(1)).clamp(16, 64)
}

/// Samples that one product of a convolution takes together, where the small image is of
/// `positions`: enough of them that reading the weights pays.
pub fn samples_together(positions: u64) -> u64 {
    const ENOUGH: u64 = 256;
    match positions.max(1) {
        few if few <= ENOUGH / 2 => ENOUGH / few,
        _ => 1,
    }
}

/// Scratch of every computation of a node. A convolution unfolds one group at a time (im2col):
/// `channels / groups x kernel` rows by one column an output position, of one sample or of several
/// with small images, whose outputs are then gathered too; a 1 x 1 convolution of one sample
/// without stride or padding is a matrix product as it stands, and one of 3 x 3 has its tiles ([`Winograd`]). A transposed one unfolds its
/// output's gradient in the same way. An attention holds the scores of a block of queries and
/// their gradients, a rotary embedding the cosines and sines of all positions; of a mixture of experts the
/// row of each expert that a token has.
pub(super) fn workspace(graph: &Graph, node: &Node) -> Extent {
    let input = |slot: usize| &graph.node(node.inputs[slot]).output;
    let attention = |keys: u64| {
        let scores = attention_rows(keys).saturating_mul(keys);
        Extent::fixed(Bytes(4) * (2 * ATTENTION_LANES).saturating_mul(scores))
    };
    // `large` is the image that is unfolded, `small` the one with a position a window.
    let unfolded = |large: &TensorSpec, small: &TensorSpec, kernel: &Pair, groups: u64, plain| {
        let positions = small.shape[1] * small.shape[2];
        let rows = large.shape[0] / groups * kernel[0] * kernel[1];
        match samples_together(positions) {
            1 if plain => 0,
            1 => rows * positions,
            samples => (rows + small.shape[0] / groups) * positions * samples,
        }
    };
    let words = |words: u64| Extent::fixed(Bytes(4) * words);
    let placed = |shares: NodeId, experts: u64| {
        Extent::per_sample(Bytes(4) * (graph.whole(shares).shape[0] * experts))
    };
    match &node.op {
        Op::Conv2d { kernel, stride, padding, groups, .. } => {
            let plain = *kernel == [1, 1] && *stride == [1, 1] && *padding == [0, 0];
            let unfolded = unfolded(input(0), &node.output, kernel, *groups, plain);
            words(match Winograd::new(&node.op, input(0), &node.output) {
                // Few samples with small images are unfolded all the same.
                Some(fewer) if !fewer.pays(1) => unfolded.max(fewer.workspace()),
                Some(fewer) => fewer.workspace(),
                None => unfolded,
            })
        }
        Op::ConvTranspose2d { kernel, groups, .. } => {
            words(unfolded(&node.output, input(0), kernel, *groups, false))
        }
        Op::Attention { .. } => attention(positions(input(0))),
        Op::ScaledDotProduct { .. } => {
            attention(input(1).shape.iter().rev().nth(1).copied().unwrap_or(1))
        }
        Op::Rope { .. } => {
            Extent::fixed(Bytes(4) * node.output.shape.iter().rev().take(2).product())
        }
        Op::Dispatch { experts, .. } => placed(node.inputs[1], *experts),
        Op::Combine => placed(node.inputs[0], input(1).shape[0]),
        _ => Extent::default(),
    }
}
