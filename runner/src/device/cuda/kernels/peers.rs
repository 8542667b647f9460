//! Sums and copies of values of ranks that share a device.

use super::{DevicePtr, Launch, MOST_PEERS, Peers, Source, Storage};

/// Where a rank's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where its arena begins; the values themselves where it has no `place`.
    pub base: DevicePtr,
    /// Where a number says how far in the arena they begin.
    pub place: DevicePtr,
}

/// `peers` at most [`MOST_PEERS`], `from` bytes behind what their places say, which may be before it.
fn of(peers: &[Peer], from: i64, out: DevicePtr, count: u64) -> Peers {
    let (mut bases, mut places) = ([DevicePtr::NULL; MOST_PEERS], [DevicePtr::NULL; MOST_PEERS]);
    for (at, peer) in peers.iter().enumerate() {
        (bases[at], places[at]) = (peer.base, peer.place);
    }
    Peers { bases, places, out, count, from: from as u64, number: peers.len() as u32 }
}

/// Adds `count` values of peers up in their order, rounded once; the first may lie where the sum goes.
pub fn sum(storage: Storage, peers: &[Peer], from: i64, out: DevicePtr, count: u64) -> Launch {
    let kernel = format!("sum_of_peers_{}", storage.suffix());
    Launch::over(Source::Peers, kernel, count, &of(peers, from, out, count))
}

/// Copies an even number of `bytes`.
pub fn copy(peer: Peer, from: i64, out: DevicePtr, bytes: u64) -> Launch {
    let args = of(&[peer], from, out, bytes);
    Launch::over(Source::Peers, "copy_of_peer".into(), bytes.div_ceil(16), &args)
}
