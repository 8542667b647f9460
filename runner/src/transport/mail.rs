//! Bytes of any length from one rank to another.

use super::{Transport, TransportError};

/// Tags beyond those of programs.
const LENGTH: u32 = 1 << 27;
const CONTENTS: u32 = LENGTH + 1;

/// Sends and waits until they may change. The receiver must be about to receive; `handle` is a slot for sends
/// that nothing else uses meanwhile.
pub(crate) fn send<T: Transport>(
    transport: &mut T,
    handle: usize,
    to: u32,
    bytes: &[u8],
) -> Result<(), TransportError> {
    let length = (bytes.len() as u64).to_le_bytes();
    for (tag, bytes) in [(LENGTH, &length[..]), (CONTENTS, bytes)] {
        // SAFETY: both live to the end of this function, which waits for them. After an error the
        // transport ends the process or is dropped, and these bytes are nobody's secret.
        unsafe { transport.start_send(to, tag, bytes, handle)? };
        transport.wait_send(handle)?;
    }
    Ok(())
}

/// Waits for what a rank sends.
pub(crate) fn recv<T: Transport>(transport: &mut T, from: u32) -> Result<Vec<u8>, TransportError> {
    let mut length = [0; 8];
    transport.recv(from, LENGTH, &mut length)?;
    let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
    transport.recv(from, CONTENTS, &mut bytes)?;
    Ok(bytes)
}

/// Everybody gets what rank 0 has. Collective.
pub(crate) fn from_first<T: Transport>(
    transport: &mut T,
    handle: usize,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, TransportError> {
    if transport.rank() > 0 {
        return recv(transport, 0);
    }
    (1..transport.ranks()).try_for_each(|to| send(transport, handle, to, &bytes))?;
    Ok(bytes)
}
