//! Links between two ranks: ping-pong over sizes.

use crate::init::fnv1a;
use crate::transport::{REDUCE_MAX, ReduceOp, Transport, TransportError};
use pipewright_core::cost::Link;
use pipewright_core::cost::calibrate::{MessageSample, link};
use pipewright_core::units::{Bytes, Nanos};

/// Bytes of a message: from what is latency alone to what is bandwidth alone.
const SIZES: [usize; 6] = [64, 4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20];
const ROUNDS: usize = 40;
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
        for size in SIZES {
            let time = Nanos(ping_pong(transport, other, (&send, &mut into), size)?);
            samples.push(MessageSample { bytes: Bytes(size as u64), time });
        }
    }
    // The others come here at once and wait, instead of measuring something else beside.
    transport.barrier()?;
    Ok((transport.rank() == 0).then(|| link(&samples).ok().map(|(link, _)| link)).flatten())
}

/// Median one-way time in nanoseconds; the two ranks take turns in beginning.
fn ping_pong<T: Transport>(
    transport: &mut T,
    peer: u32,
    (send, into): (&[u8], &mut [u8]),
    size: usize,
) -> Result<u64, TransportError> {
    let mut times = vec![];
    for round in 0..2 * ROUNDS {
        // Far apart, so that small messages are not neighbours either.
        let at = round * (POOL / (2 * ROUNDS)).max(size) % (POOL - size);
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
