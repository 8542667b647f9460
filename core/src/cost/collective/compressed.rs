//! All-reduces of compressed gradients, and whether compression pays.

use super::{Algorithm, Channel, Collective, all_reduce, best_all_reduce, others, time};

/// What a codec does to gradients, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    /// Bytes on the wire per byte of gradient: 1/2 for bf16, 1/4 for fp8, about 1/32 for 1 bit.
    pub ratio: f64,
    /// Bytes of gradient that it encodes, or decodes, in a second.
    pub bytes_per_sec: f64,
}

impl Codec {
    fn pass(&self, bytes: f64) -> f64 {
        bytes / self.bytes_per_sec
    }
}

/// Quantise, exchange parts, sum in single precision, quantise again, gather: two roundings at any
/// p, and the ring's bytes times the ratio (DeepSpeed, Bagua, torchft).
/// `2 (p - 1) α + 2 r n (p - 1)/p β` and 2 n through the codec each way.
pub fn two_shot(p: u32, n: f64, codec: &Codec, over: impl Into<Channel>) -> f64 {
    if p <= 1 {
        return 0.0;
    }
    let over = over.into();
    let wire = 2.0 * f64::from(p - 1) * over.alpha + 2.0 * codec.ratio * n * others(p) * over.beta;
    wire + n * others(p) * over.gamma + codec.pass(4.0 * n)
}

/// Everybody gathers everybody's compressed gradient and sums: `(p - 1) α + (p - 1) r n β`, one
/// encoding and p decodings of n (PyTorch's quantisation hooks, top-k, GRACE).
pub fn compressed_all_gather(p: u32, n: f64, codec: &Codec, over: impl Into<Channel>) -> f64 {
    if p <= 1 {
        return 0.0;
    }
    let over = over.into();
    let rest = f64::from(p - 1);
    let wire = rest * (over.alpha + codec.ratio * n * over.beta);
    wire + rest * n * over.gamma + codec.pass(n * f64::from(p + 1))
}

/// Oyama's form: single-precision reduction in the node, one compressed all-reduce of everything
/// between the nodes' leaders, broadcast in the node. The network carries `2 r n (m - 1)/m` on one
/// adapter of each node.
pub fn oyama(
    per_node: u32,
    nodes: u32,
    n: f64,
    codec: &Codec,
    local: impl Into<Channel>,
    network: impl Into<Channel>,
) -> f64 {
    let local: Channel = local.into();
    let within = time(Collective::Reduce, per_node, n, local)
        + time(Collective::Broadcast, per_node, n, local);
    if nodes <= 1 {
        return within;
    }
    let between = all_reduce(Algorithm::Ring, nodes, codec.ratio * n, network);
    within + between + codec.pass(2.0 * n)
}

/// How compressed gradients would be summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// [`two_shot`].
    TwoShot,
    /// [`compressed_all_gather`].
    AllGather,
}

/// Whether a codec makes an all-reduce faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Compressed is faster.
    pub pays: bool,
    /// Seconds of the best plain all-reduce.
    pub plain: f64,
    /// Seconds of the better compressed one.
    pub compressed: f64,
    /// Which that is.
    pub method: Method,
    /// One sentence with the figures that decide.
    pub reason: String,
}

/// Compares the best plain all-reduce of `n` bytes with the compressed ones, nothing overlapped.
///
/// Agarwal et al. 2022 found 6 of more than 200 set-ups in which compression was faster: "it would
/// be slower" is the normal answer on a good network.
pub fn verdict(p: u32, n: f64, codec: &Codec, over: impl Into<Channel>) -> Verdict {
    let over = over.into();
    let (_, plain) = best_all_reduce(p, n, over);
    let two = two_shot(p, n, codec, over);
    let all = compressed_all_gather(p, n, codec, over);
    let (method, compressed) =
        if all < two { (Method::AllGather, all) } else { (Method::TwoShot, two) };
    let passes = match method {
        Method::TwoShot => 4.0,
        Method::AllGather => f64::from(p + 1),
    };
    let spent = 1e3 * codec.pass(passes * n);
    let wire = 1e3 * compressed - spent;
    let (before, after) = (1e3 * plain, 1e3 * compressed);
    let pays = compressed < plain;
    let reason = if p <= 1 {
        "one rank sends nothing, so there is nothing to compress".to_owned()
    } else if pays {
        format!(
            "compression pays: {after:.3} ms instead of {before:.3} ms ({wire:.3} ms wire, {spent:.3} ms codec)"
        )
    } else if spent >= before {
        format!(
            "compression would be slower: the codec alone takes {spent:.3} ms, the plain all-reduce {before:.3} ms"
        )
    } else if wire >= before {
        format!(
            "compression would be slower: its messages take {wire:.3} ms, the plain all-reduce {before:.3} ms; latency, not bytes, bounds it"
        )
    } else {
        format!(
            "compression would be slower: {wire:.3} ms wire and {spent:.3} ms codec, the plain all-reduce takes {before:.3} ms"
        )
    };
    Verdict { pays, plain, compressed, method, reason }
}
