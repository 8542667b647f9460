//! Seconds of collective operations in the alpha-beta-gamma model.
//!
//! | symbol | meaning |
//! |---|---|
//! | p | ranks |
//! | n | bytes of the whole array, which every rank holds before or after the operation |
//! | α | seconds to start a message |
//! | β | seconds per byte and direction |
//! | γ | seconds per byte reduced |
//! | lg | logarithm to base 2, rounded up where p is no power of two |
//!
//! Full-duplex links, one port per rank. Formulas: Thakur, Rabenseifner and Gropp 2005 (and the
//! comments of MPICH's sources), Patarasuk and Yuan 2009 for the ring, Sanders, Speck and Träff
//! 2009 for the double tree. Everything is O(1), and 0 for one rank. [`price`] puts them together
//! for the sums that the runner makes, encoded or not.

mod compressed;
mod group;
mod nested;
mod price;

pub use compressed::{compressed_all_gather, oyama, two_shot};
pub use group::Group;
pub use nested::{hierarchical, torus};
pub use price::{Price, all_to_all, half, price};

use super::Link;

/// α, β and γ of the links among a group of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// Seconds to start a message.
    pub alpha: f64,
    /// Seconds per byte.
    pub beta: f64,
    /// Seconds to reduce a byte.
    pub gamma: f64,
}

impl From<&Link> for Channel {
    /// Reductions at the pace of the wire, γ = 0.
    fn from(link: &Link) -> Self {
        Self { alpha: link.latency_ns.secs(), beta: 1.0 / link.bytes_per_sec, gamma: 0.0 }
    }
}

/// How an all-reduce is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Reduce-scatter and all-gather around a ring: fewest bytes, most messages.
    Ring,
    /// Exchanges of everything with partners at distance 1, 2, 4...: fewest messages. MPICH does
    /// this for user-defined operators at every size.
    RecursiveDoubling,
    /// Recursive halving, then recursive doubling.
    Rabenseifner,
    /// Reduction to a root and broadcast, along binomial trees.
    Binomial,
    /// Two trees, each for one half of the array, pipelined in many chunks.
    DoubleTree,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 5] =
        [Self::Ring, Self::RecursiveDoubling, Self::Rabenseifner, Self::Binomial, Self::DoubleTree];
}

/// ⌈lg p⌉, 0 for no rank.
fn lg(p: u32) -> f64 {
    f64::from(p.max(1).next_power_of_two().ilog2())
}

/// (p - 1) / p, the share of an array that is not a rank's own.
fn others(p: u32) -> f64 {
    1.0 - 1.0 / f64::from(p.max(1))
}

/// Messages in a row, and bytes sent per rank and bytes reduced per rank, both in units of n.
fn steps(algorithm: Algorithm, p: u32) -> (f64, f64, f64) {
    if p <= 1 {
        return (0.0, 0.0, 0.0);
    }
    let share = others(p);
    match algorithm {
        Algorithm::Ring => (2.0 * f64::from(p - 1), 2.0 * share, share),
        Algorithm::RecursiveDoubling => (lg(p), lg(p), lg(p)),
        Algorithm::Rabenseifner if p.is_power_of_two() => (2.0 * lg(p), 2.0 * share, share),
        Algorithm::Rabenseifner => {
            // The ranks beyond the power of two hand everything to a partner and get it back.
            let below = f64::from(p.ilog2());
            (2.0 * below + 2.0, 2.0 * share + 2.0, 1.0 + share)
        }
        Algorithm::Binomial => (2.0 * lg(p), 2.0 * lg(p), lg(p)),
        Algorithm::DoubleTree => (2.0 * lg(p), 2.0, 1.0),
    }
}

/// Seconds of an all-reduce of `n` bytes among `p` ranks.
pub fn all_reduce(algorithm: Algorithm, p: u32, n: f64, over: impl Into<Channel>) -> f64 {
    let (messages, sent, reduced) = steps(algorithm, p);
    let over = over.into();
    messages * over.alpha + n * (sent * over.beta + reduced * over.gamma)
}

/// Bytes that the busiest rank sends in an all-reduce.
pub fn wire_bytes(algorithm: Algorithm, p: u32, n: f64) -> f64 {
    let (_, sent, _) = steps(algorithm, p);
    match algorithm {
        // The root sends in the broadcast only, the other ranks mostly in the reduction.
        Algorithm::Binomial => n * sent / 2.0,
        _ => n * sent,
    }
}

/// The fastest algorithm with its seconds; of equal ones the first of [`Algorithm::ALL`].
pub fn best_all_reduce(p: u32, n: f64, over: impl Into<Channel>) -> (Algorithm, f64) {
    let over = over.into();
    let timed = Algorithm::ALL.map(|algorithm| (algorithm, all_reduce(algorithm, p, n, over)));
    timed.into_iter().reduce(|best, next| if next.1 < best.1 { next } else { best }).expect("five")
}

/// An operation of a group of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Everybody gets the sum.
    AllReduce,
    /// Everybody gets its part of the sum.
    ReduceScatter,
    /// Everybody gets all parts.
    AllGather,
    /// Everybody has a part for everybody.
    AllToAll,
    /// Everybody gets the root's array.
    Broadcast,
    /// The root gets the sum.
    Reduce,
    /// Everybody gets its part of the root's array.
    Scatter,
    /// The root gets all parts.
    Gather,
}

/// Seconds of a collective with the better of its usual algorithms for few and for many bytes.
///
/// | operation | few bytes | many bytes |
/// |---|---|---|
/// | all-reduce | [`best_all_reduce`] | |
/// | broadcast | binomial: lg p (α + n β) | scatter, ring: (lg p + p - 1) α + 2 n (p - 1)/p β |
/// | reduce | binomial: lg p (α + n (β + γ)) | halving, gather: 2 lg p α + n (p - 1)/p (2 β + γ) |
/// | scatter, gather | binomial: lg p α + n (p - 1)/p β | the same |
/// | all-gather, reduce-scatter | p = 2^k: lg p α + n (p - 1)/p (β + γ) | ring: p - 1 messages |
/// | all-to-all | Bruck: lg p (α + n/2 β) | pairwise: (p - 1) α + n (p - 1)/p β |
pub fn time(collective: Collective, p: u32, n: f64, over: impl Into<Channel>) -> f64 {
    let over: Channel = over.into();
    if p <= 1 {
        return 0.0;
    }
    let Channel { alpha, beta, gamma } = over;
    let (lg, rest, share) = (lg(p), f64::from(p - 1), others(p));
    let halving = if p.is_power_of_two() { lg } else { rest };
    match collective {
        Collective::AllReduce => best_all_reduce(p, n, over).1,
        Collective::Broadcast => {
            let few = lg * (alpha + n * beta);
            few.min((lg + rest) * alpha + 2.0 * n * share * beta)
        }
        Collective::Reduce => {
            let few = lg * (alpha + n * (beta + gamma));
            let (messages, sent, reduced) = steps(Algorithm::Rabenseifner, p);
            few.min(messages * alpha + n * (sent * beta + reduced * gamma))
        }
        Collective::Scatter | Collective::Gather => lg * alpha + n * share * beta,
        Collective::AllGather => halving * alpha + n * share * beta,
        Collective::ReduceScatter => halving * alpha + n * share * (beta + gamma),
        Collective::AllToAll => {
            let few = lg * (alpha + n / 2.0 * beta);
            few.min(rest * alpha + n * share * beta)
        }
    }
}

/// Bus bandwidth as nccl-tests defines it: bytes a second that a link must carry at least, so that
/// figures of different p can be compared with the hardware's. `n` as above.
pub fn bus_bandwidth(collective: Collective, p: u32, n: f64, secs: f64) -> f64 {
    let factor = match collective {
        Collective::AllReduce => 2.0 * others(p),
        Collective::ReduceScatter
        | Collective::AllGather
        | Collective::AllToAll
        | Collective::Scatter
        | Collective::Gather => others(p),
        Collective::Broadcast | Collective::Reduce => 1.0,
    };
    n / secs * factor
}

#[cfg(test)]
mod price_tests;
#[cfg(test)]
mod tests;
