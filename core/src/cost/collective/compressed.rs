//! Published forms of all-reduces of compressed gradients: what their messages take, without
//! encoding and decoding. `ratio` is bytes on the wire per byte of gradient: 1/2 for bf16, 1/4 for
//! fp8, about 1/32 for 1 bit.

use super::{Algorithm, Channel, Collective, all_reduce, others, time};

/// Quantise, exchange parts, sum in single precision, quantise again, gather: two roundings at any
/// p, and the ring's bytes times the ratio (DeepSpeed, Bagua, torchft).
/// `2 (p - 1) α + 2 r n (p - 1)/p β`.
pub fn two_shot(p: u32, n: f64, ratio: f64, over: impl Into<Channel>) -> f64 {
    if p <= 1 {
        return 0.0;
    }
    let over = over.into();
    2.0 * f64::from(p - 1) * over.alpha + 2.0 * ratio * n * others(p) * over.beta
}

/// Everybody gathers everybody's compressed gradient and sums: `(p - 1) α + (p - 1) r n β` (PyTorch's
/// quantisation hooks, top-k, GRACE).
pub fn compressed_all_gather(p: u32, n: f64, ratio: f64, over: impl Into<Channel>) -> f64 {
    if p <= 1 {
        return 0.0;
    }
    let over = over.into();
    f64::from(p - 1) * (over.alpha + ratio * n * over.beta)
}

/// Oyama's form: single-precision reduction in the node, one compressed all-reduce of everything
/// between the nodes' leaders, broadcast in the node. The network carries `2 r n (m - 1)/m` on one
/// adapter of each node.
pub fn oyama(
    per_node: u32,
    nodes: u32,
    n: f64,
    ratio: f64,
    local: impl Into<Channel>,
    network: impl Into<Channel>,
) -> f64 {
    let local: Channel = local.into();
    let within = time(Collective::Reduce, per_node, n, local)
        + time(Collective::Broadcast, per_node, n, local);
    within + all_reduce(Algorithm::Ring, nodes, ratio * n, network)
}
