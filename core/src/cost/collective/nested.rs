//! All-reduces over links of two kinds or two directions.

use super::{Algorithm, Channel, all_reduce, others};

/// 2D torus of `x` by `y` ranks: reduce-scatter in the row, all-reduce in the column on n / x,
/// all-gather in the row. `2 (x - 1) α + 2 (y - 1) α + 2 n (p - 1)/p β`: the ring's bytes with far
/// fewer messages (Mikami et al. 2018).
pub fn torus(x: u32, y: u32, n: f64, over: impl Into<Channel>) -> f64 {
    let over = over.into();
    hierarchical(x, y, n, over, over)
}

/// `per_node` ranks on each of `nodes` nodes: reduce-scatter in the node, ring all-reduce of each
/// rank's part between the nodes, all-gather in the node. All ranks use the network at once, each
/// at its full bandwidth.
pub fn hierarchical(
    per_node: u32,
    nodes: u32,
    n: f64,
    local: impl Into<Channel>,
    network: impl Into<Channel>,
) -> f64 {
    let local = local.into();
    if per_node == 0 {
        return 0.0;
    }
    let within = all_reduce(Algorithm::Ring, per_node, n, local);
    let part = n * (1.0 - others(per_node));
    within + all_reduce(Algorithm::Ring, nodes, part, network)
}
