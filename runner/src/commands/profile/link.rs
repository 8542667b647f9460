//! Links between two ranks: ping-pong over sizes.

use crate::hash::fnv1a;
use crate::transport::{REDUCE_MAX, ReduceOp, Transport, TransportError};
use pipewright_core::cost::Link;
use pipewright_core::cost::calibrate::{MessageSample, link};
use pipewright_core::units::{Bytes, Nanos};

/// Bytes of a message: from what is latency alone to what is bandwidth alone.
const SIZES: [usize; 6] = [64, 4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20];
/// Round trips of a size: so many, or as many as fit into [`NANOS_MAX`] where the link is slow.
const ROUNDS_MAX: u64 = 80;
/// Each rank begins two of them at least.
const ROUNDS_MIN: u64 = 4;
const NANOS_MAX: u64 = 1_000_000_000;
/// Messages take turns in so much memory: in training they come out of the receiver's caches no
/// more than these do.
const POOL: usize = 64 << 20;

/// Where the ranks are, as seen from rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Neighbours {
    /// Ranks on its host, itself included; ascending.
    pub here: Vec<u32>,
    /// Another one of them.
    pub near: Option<u32>,
    /// A rank on another host.
    pub far: Option<u32>,
}

/// Finds out who runs where. All ranks call it and get the same. Looks at the first
/// [`REDUCE_MAX`] ranks.
pub(super) fn neighbours<T: Transport>(transport: &mut T) -> Result<Neighbours, TransportError> {
    let me = transport.rank();
    // 52 bits are exact in a number of all_reduce.
    let host = (fnv1a(transport.host().as_bytes()) >> 12) as f64;
    let mut first = [if me == 0 { host } else { -1.0 }];
    transport.all_reduce(&mut first, ReduceOp::Max)?;
    let mut same = vec![0.0; transport.ranks().min(REDUCE_MAX as u32) as usize];
    if let Some(mine) = same.get_mut(me as usize) {
        *mine = f64::from(u8::from(first[0] == host));
    }
    transport.all_reduce(&mut same, ReduceOp::Max)?;
    let ranks = |wanted: bool| {
        let of = (0..).zip(&same).filter(move |(_, same)| (**same > 0.0) == wanted);
        of.map(|(rank, _)| rank).collect::<Vec<u32>>()
    };
    let here = ranks(true);
    Ok(Neighbours { near: here.get(1).copied(), far: ranks(false).first().copied(), here })
}

/// The link between rank 0 and `peer`, on rank 0; all ranks call it.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    peer: Option<u32>,
) -> Result<Option<Link>, TransportError> {
    let Some(peer) = peer else { return Ok(None) };
    let mut samples = vec![];
    if [0, peer].contains(&transport.rank()) {
        let other = if transport.rank() == 0 { peer } else { 0 };
        let (send, mut into) = (vec![1u8; POOL], vec![1u8; POOL]);
        let mut rounds = ROUNDS_MAX;
        for (i, size) in SIZES.into_iter().enumerate() {
            let time = ping_pong(transport, other, (&send, &mut into), size, rounds)?;
            samples.push(MessageSample { bytes: Bytes(size as u64), time: Nanos(time) });
            if let Some(next) = SIZES.get(i + 1) {
                rounds = agree(transport, other, rounds_of(time, size, *next))?;
            }
        }
    }
    // The others come here at once and wait, instead of measuring something else beside.
    transport.barrier()?;
    Ok((transport.rank() == 0).then(|| fitted(&samples)).flatten())
}

/// The samples from which on bandwidth alone counts where a link is slow.
const LARGE: Bytes = Bytes(512 << 10);

/// Latency and bandwidth. Slow links let short messages pass faster than long ones (a burst of a
/// shaper, a buffer): there the long ones say the bandwidth, the shortest the latency.
fn fitted(samples: &[MessageSample]) -> Option<Link> {
    let all = link(samples).ok()?.0;
    let large: Vec<MessageSample> =
        samples.iter().filter(|sample| sample.bytes >= LARGE).copied().collect();
    let (slope, shortest) = (link(&large).ok()?.0.bytes_per_sec, samples.first()?.time);
    Some(match slope < SLOW {
        true => Link { latency_ns: shortest, bytes_per_sec: slope },
        false => all,
    })
}

/// Bytes a second of 10 Gbit/s Ethernet; memory and faster networks have more.
const SLOW: f64 = 1.25e9;

/// How many round trips to make with messages of `next` bytes when one of `size` bytes took
/// `time` nanoseconds one way; even, so that each rank begins as many.
fn rounds_of(time: u64, size: usize, next: usize) -> u64 {
    let expected = 2 * time.max(1) * (next / size) as u64;
    (NANOS_MAX / expected).clamp(ROUNDS_MIN, ROUNDS_MAX) & !1
}

/// The lower rank's number, on both: each has measured times of its own.
fn agree<T: Transport>(transport: &mut T, peer: u32, number: u64) -> Result<u64, TransportError> {
    let mut bytes = number.to_le_bytes();
    if transport.rank() < peer {
        // SAFETY: `bytes` is not written before the send has ended; after an error the caller's
        // transport only aborts or is dropped, which takes the send back before.
        unsafe { transport.start_send(peer, 2, &bytes, 0)? };
        transport.wait_send(0)?;
    } else {
        transport.recv(peer, 2, &mut bytes)?;
    }
    Ok(u64::from_le_bytes(bytes))
}

/// Median one-way time in nanoseconds of `rounds` round trips; the two ranks take turns in beginning.
fn ping_pong<T: Transport>(
    transport: &mut T,
    peer: u32,
    (send, into): (&[u8], &mut [u8]),
    size: usize,
    rounds: u64,
) -> Result<u64, TransportError> {
    let mut times = vec![];
    for round in 0..rounds as usize {
        // Far apart, so that small messages are not neighbours either.
        let at = round * (POOL / ROUNDS_MAX as usize).max(size) % (POOL - size);
        let (send, into) = (&send[at..at + size], &mut into[at..at + size]);
        let start = transport.now_ns();
        let mine = (round % 2 == 0) == (transport.rank() < peer);
        if !mine {
            transport.recv(peer, 0, into)?;
        }
        // SAFETY: `send` is never written and outlives the wait; after an error the caller's
        // transport only aborts or is dropped, which takes the send back before.
        unsafe { transport.start_send(peer, u32::from(!mine), send, 0)? };
        transport.wait_send(0)?;
        if mine {
            transport.recv(peer, 1, into)?;
            times.push((transport.now_ns() - start) / 2);
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
