//! The link between two ranks of this machine: ping-pong over the in-process transport.

use crate::transport::local::local;
use crate::transport::{Transport, TransportError};
use pipewright_core::cost::Link;
use pipewright_core::units::Nanos;

/// Bytes of the small and the large message.
const SIZES: [usize; 2] = [64, 4 << 20];
const ROUNDS: usize = 40;

/// Latency from the small message, bandwidth from the large one.
pub(super) fn measure() -> Link {
    let mut transports = local(2, 1).into_iter();
    let pair = transports.next().zip(transports.next());
    let times = pair.and_then(|(mut a, mut b)| {
        std::thread::scope(|scope| {
            let other = scope.spawn(move || SIZES.map(|size| ping_pong(&mut b, size)));
            let times = SIZES.map(|size| ping_pong(&mut a, size));
            other.join().ok().map(|_| times)
        })
    });
    let Some([Ok(small), Ok(large)]) = times else {
        // Two threads of one process that cannot talk: keep a plausible link.
        return Link { latency_ns: Nanos(5_000), bytes_per_sec: 4e9 };
    };
    let seconds = (large.saturating_sub(small)).max(1) as f64 / 1e9;
    Link { latency_ns: Nanos(small), bytes_per_sec: (SIZES[1] - SIZES[0]) as f64 / seconds }
}

/// Median one-way time in nanoseconds.
fn ping_pong(transport: &mut impl Transport, size: usize) -> Result<u64, TransportError> {
    let peer = 1 - transport.rank();
    let send = vec![0u8; size];
    let mut into = vec![0u8; size];
    let mut times = vec![];
    for round in 0..2 * ROUNDS {
        let start = transport.now_ns();
        let mine = round % 2 == transport.rank() as usize;
        if mine {
            // SAFETY: `send` is not touched and outlives the wait.
            unsafe { transport.start_send(peer, 0, &send, 0)? };
            transport.wait_send(0)?;
            transport.recv(peer, 1, &mut into)?;
            times.push((transport.now_ns() - start) / 2);
        } else {
            transport.recv(peer, 0, &mut into)?;
            // SAFETY: as above.
            unsafe { transport.start_send(peer, 1, &send, 0)? };
            transport.wait_send(0)?;
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
