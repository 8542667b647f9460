//! Time of a sum of gradients as the runner does it: plain, in two shots or by MPI operator, flat or
//! hierarchical.
//!
//! | symbol | meaning |
//! |---|---|
//! | p, n, r | ranks, bytes in single precision, bytes on the wire per byte of these |
//! | E, D, S | bytes that a rank encodes, decodes, adds in a second |
//! | W, C | seconds that the wire, and a rank's processor, work on the sum |
//! | x | [`Cluster::codec_exposure`] |
//!
//! Two shots: every rank encodes everything (n/E), decodes its part from everybody and adds (n/D +
//! n/S), encodes the sum (n/p/E) and decodes all sums (n/D). Wire and processors work at the same time,
//! chunk by chunk, so a sum of k chunks a part takes `max(W, C) + max(x, 1/k) min(W, C)` and the start of
//! its messages: hosts whose processors also do the network's work, or others', hide less than all. Within a node of CPUs the processors move the bytes: there it is W + C.
//!
//! The ranks of a node share its adapters. A ring of neighbours crosses each node's border once; in
//! two flat shots each rank of a node sends to all other nodes: `most` times as much. By hosts, each
//! host sums in single precision, its `least` shards send `2 r n (m - 1)/m` together, and everybody gets
//! the sums.

use super::{
    Algorithm, Channel, Collective, Group, all_reduce, best_all_reduce, hierarchical, lg, others,
    time,
};
use crate::compress::division::CHUNK;
use crate::compress::{self, Method, Reduction};
use crate::cost::codec_speed::ratio;
use crate::cost::{Cluster, CodecSpeed, Link};

/// What a sum takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// From when all ranks have come to when all have the sum.
    pub seconds: f64,
    /// Work of each rank's processor on codes, in seconds of a whole device.
    pub codec: f64,
    /// Bytes that a rank sends; by hosts those that go to other hosts.
    pub sent: f64,
}

/// Prices the sum of `n` bytes of single precision over `group`. Single precision goes the transport's
/// own way, `by_hosts` or not. O(1); 0 for one rank.
pub fn price(cluster: &Cluster, group: &Group, by_hosts: bool, way: Reduction, n: f64) -> Price {
    if group.ranks <= 1 {
        return Price::default();
    }
    match way.algorithm {
        _ if way.is_plain() || by_hosts && group.nodes == 1 => plain(cluster, group, n),
        compress::Algorithm::Operator => operator(cluster, group, way.method, n),
        compress::Algorithm::TwoShot if by_hosts && group.most > 1 => {
            hosts(cluster, group, way.method, n)
        }
        compress::Algorithm::TwoShot => two_shots(cluster, group, way.method, n, 1),
    }
}

/// Two shots between hosts, single precision within.
fn hosts(cluster: &Cluster, group: &Group, method: Method, n: f64) -> Price {
    let shards = group.least.max(1);
    let host = Group { ranks: group.most, nodes: 1, ..*group };
    let shard = Group { ranks: group.nodes, most: 1, least: 1, ..*group };
    let between = two_shots(cluster, &shard, method, n / f64::from(shards), shards);
    Price { seconds: plain(cluster, &host, n).seconds + between.seconds, ..between }
}

/// The link among a group's ranks of one node.
fn local(cluster: &Cluster, group: &Group) -> Channel {
    Channel::from(cluster.link_of(group.level))
}

/// How many ranks of a node share an adapter when `ranks` of them send.
fn crowd(cluster: &Cluster, ranks: u32) -> f64 {
    (f64::from(ranks) / f64::from(cluster.adapters)).max(1.0)
}

/// The transport's own all-reduce by its best algorithm.
fn plain(cluster: &Cluster, group: &Group, n: f64) -> Price {
    let p = group.ranks;
    let sent = 2.0 * n * others(p);
    let seconds = match fitted(cluster, group) {
        Some(link) => best_all_reduce(p, n, link).1,
        None => over_nodes(cluster, group, n),
    };
    Price { seconds, codec: 0.0, sent }
}

/// The link that was fitted to whole calls where it was measured: then additions, and what is shared, are in it.
fn fitted<'a>(cluster: &'a Cluster, group: &Group) -> Option<&'a Link> {
    match group.nodes {
        0 | 1 => Some(cluster.collectives.as_ref().unwrap_or(cluster.link_of(group.level))),
        _ => cluster.network_collectives.as_ref(),
    }
}

/// Prices one half of a plain sum of `n` bytes, a reduce-scatter or an all-gather: both together send what a ring's
/// all-reduce does. O(1); 0 for one rank.
pub fn half(cluster: &Cluster, group: &Group, call: Collective, n: f64) -> Price {
    let p = group.ranks;
    if p <= 1 {
        return Price::default();
    }
    let seconds = match fitted(cluster, group) {
        Some(link) => time(call, p, n, link),
        None => over_nodes(cluster, group, n) / 2.0,
    };
    Price { seconds, codec: 0.0, sent: n * others(p) }
}

/// Prices an all-to-all of `n` bytes on each rank. Between nodes each rank sends to all ranks of the others, and those of
/// a node share its adapters; within it goes on meanwhile. O(1); 0 for one rank.
pub fn all_to_all(cluster: &Cluster, group: &Group, n: f64) -> Price {
    let p = group.ranks;
    if p <= 1 {
        return Price::default();
    }
    let within =
        time(Collective::AllToAll, group.most, n * part(group.most, p), local(cluster, group));
    let seconds = match group.nodes {
        0 | 1 => within,
        _ => {
            let network = Channel::from(&cluster.network);
            let beta = network.beta * crowd(cluster, group.most);
            let outside = f64::from(p - group.most.min(p - 1));
            let across = outside * network.alpha + n * outside / f64::from(p) * beta;
            within.max(across)
        }
    };
    Price { seconds, codec: 0.0, sent: n * others(p) }
}

/// What share of `p` so many are.
fn part(ranks: u32, p: u32) -> f64 {
    f64::from(ranks) / f64::from(p)
}

/// Seconds of the best plain sum over several nodes.
fn over_nodes(cluster: &Cluster, group: &Group, n: f64) -> f64 {
    let p = group.ranks;
    let sum = cluster.codec_speed(compress::CodecKind::Fp32).decode_bytes_per_sec;
    let gamma = 1.0 / (sum * group.share);
    let network = Channel { gamma, ..Channel::from(&cluster.network) };
    if group.most <= 1 {
        return best_all_reduce(p, n, network).1;
    }
    let shared = Channel { beta: network.beta * crowd(cluster, group.most), ..network };
    let within = local(cluster, group);
    // A ring crosses a node's border as often as the node has adapters for.
    let rings = f64::from(cluster.adapters.min(group.most));
    let across =
        all_reduce(Algorithm::Ring, p, n, Channel { beta: network.beta / rings, ..network });
    let ring = across.max(all_reduce(Algorithm::Ring, p, n, Channel { alpha: 0.0, ..within }));
    let by_hosts = hierarchical(group.most, group.nodes, n, within, shared);
    best_all_reduce(p, n, shared).1.min(ring).min(by_hosts)
}

/// Two shots over all of `group`, while each node has `shards` such sums under way.
fn two_shots(cluster: &Cluster, group: &Group, method: Method, n: f64, shards: u32) -> Price {
    let p = f64::from(group.ranks);
    let r = ratio(method.codec);
    let speed = cluster.codec_speed(method.codec);
    let work = Work::new(cluster, speed, method.feedback, p);
    let codec = n * work.per_byte;
    let near = f64::from(group.most - 1);
    let far = p - 1.0 - near;
    let to_each = 2.0 * r * n / p;
    let network = both_ways(cluster);
    let local = local(cluster, group);
    let across = to_each * far * network.beta * crowd(cluster, group.most * shards);
    let within = to_each * near * local.beta;
    let alpha = if group.nodes > 1 { network.alpha } else { local.alpha };
    let processors = codec / group.share;
    let (wire, processors) = match cluster.receivers_copy {
        true => (across, processors + within / group.share),
        false => (across.max(within), processors),
    };
    let start = 2.0 * (p - 1.0) * alpha;
    // The first and the last chunk of a part find one of the two idle.
    let chunks = (n / p / (4 * CHUNK) as f64).ceil().max(1.0);
    let exposed = cluster.codec_exposure.max(1.0 / chunks);
    let seconds = wire.max(processors) + exposed * wire.min(processors) + start;
    Price { seconds, codec, sent: to_each * (p - 1.0) }
}

/// The link between nodes while every rank sends and receives at once. A link was measured one way at a
/// time; sums that were measured went both ways, as these do.
fn both_ways(cluster: &Cluster) -> Channel {
    let network = Channel::from(&cluster.network);
    let sums = cluster.network_collectives.as_ref().map_or(network, Channel::from);
    Channel { beta: network.beta.max(sums.beta), ..network }
}

/// What two shots cost a processor.
struct Work {
    /// Seconds of a whole device for each byte of single precision.
    per_byte: f64,
}

impl Work {
    fn new(cluster: &Cluster, speed: CodecSpeed, feedback: bool, p: f64) -> Self {
        let sum = 1.0 / cluster.codec_speed(compress::CodecKind::Fp32).decode_bytes_per_sec;
        let (encode, decode) = (1.0 / speed.encode_bytes_per_sec, 1.0 / speed.decode_bytes_per_sec);
        let mut per_byte = (1.0 + 1.0 / p) * encode + 2.0 * decode + sum;
        if feedback {
            // What is sent to others is decoded too; residuals are added before, taken off after.
            per_byte += (1.0 - 1.0 / p) * decode + 2.0 * (1.0 + 1.0 / p) * sum;
        }
        Self { per_byte }
    }
}

/// MPI's all-reduce of codes with an operation that adds two of them; one after the other: everything is
/// encoded, summed, decoded. Open MPI's rules: recursive doubling below 10 000 bytes, else a ring.
fn operator(cluster: &Cluster, group: &Group, method: Method, n: f64) -> Price {
    let p = group.ranks;
    let speed = cluster.codec_speed(method.codec);
    let codes = ratio(method.codec) * n;
    // Adding two codes decodes both and encodes the sum.
    let add = 2.0 / speed.decode_bytes_per_sec + 1.0 / speed.encode_bytes_per_sec;
    let (algorithm, added) = match codes < 1e4 {
        true => (Algorithm::RecursiveDoubling, lg(p)),
        false => (Algorithm::Ring, others(p)),
    };
    let codec =
        n * (1.0 / speed.encode_bytes_per_sec + 1.0 / speed.decode_bytes_per_sec + added * add);
    let link =
        if group.nodes > 1 { Channel::from(&cluster.network) } else { local(cluster, group) };
    let crossing = match algorithm {
        Algorithm::Ring => 1.0,
        _ => crowd(cluster, group.most),
    };
    let over = Channel { beta: link.beta * crossing, ..link };
    // A common scale first: the largest magnitude of each tensor, a few bytes.
    let scale = 2.0 * lg(p) * link.alpha;
    let wire = all_reduce(algorithm, p, codes, over);
    Price {
        seconds: scale + wire + codec / group.share,
        codec,
        sent: super::wire_bytes(algorithm, p, codes),
    }
}
