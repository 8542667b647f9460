//! Bytes of any length from one rank to another.

use super::Hosts;
use crate::transport::{Transport, TransportError};

/// Tags beyond those of programs.
const LENGTH: u32 = 1 << 27;
const CONTENTS: u32 = LENGTH + 1;

/// Sends and waits until they may change. The receiver must be about to receive.
pub(super) fn send<T: Transport>(
    transport: &mut T,
    hosts: &Hosts,
    to: u32,
    bytes: &[u8],
) -> Result<(), TransportError> {
    let length = (bytes.len() as u64).to_le_bytes();
    for (tag, bytes) in [(LENGTH, &length[..]), (CONTENTS, bytes)] {
        // SAFETY: both live to the end of this function, which waits for them. After an error the
        // transport ends the process or is dropped, and these bytes are nobody's secret.
        unsafe { transport.start_send(to, tag, bytes, hosts.handle)? };
        transport.wait_send(hosts.handle)?;
    }
    Ok(())
}

/// Waits for what a rank sends.
pub(super) fn recv<T: Transport>(transport: &mut T, from: u32) -> Result<Vec<u8>, TransportError> {
    let mut length = [0; 8];
    transport.recv(from, LENGTH, &mut length)?;
    let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
    transport.recv(from, CONTENTS, &mut bytes)?;
    Ok(bytes)
}

/// Everybody gets what rank 0 has. Collective.
pub(super) fn from_first<T: Transport>(
    transport: &mut T,
    hosts: &Hosts,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, TransportError> {
    if hosts.rank > 0 {
        return recv(transport, 0);
    }
    (1..transport.ranks()).try_for_each(|to| send(transport, hosts, to, &bytes))?;
    Ok(bytes)
}
