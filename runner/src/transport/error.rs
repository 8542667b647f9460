//! Errors between ranks.

use pipewright_core::compress::CodecError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a call of a transport failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// A message of another length than the receiver has room for.
    #[error(
        "message from rank {from} with tag {tag}: expected {expected} bytes, found {}",
        found.map_or("more".into(), |n| n.to_string())
    )]
    Size {
        /// The sender.
        from: u32,
        /// The tag.
        tag: u32,
        /// Bytes that the receiver waited for.
        expected: u64,
        /// Bytes that came; `None` when they are more and MPI does not say how many.
        found: Option<u64>,
    },
    /// A rank called [`abort`](super::Transport::abort), or panicked.
    #[error("rank {rank} stopped the run: {why}")]
    Aborted {
        /// Who.
        rank: u32,
        /// Its reason.
        why: String,
    },
    /// A rank that this call needs has ended.
    #[error("rank {rank} has ended, and {call} still needs it")]
    Gone {
        /// Who.
        rank: u32,
        /// What was being tried.
        call: &'static str,
    },
    /// A process died that an MPI which survives that needs for this call.
    #[error("{call}: a rank was lost")]
    Lost {
        /// The MPI function.
        call: &'static str,
    },
    /// The MPI library refused.
    #[error("{call} failed with code {code}: {text}")]
    Mpi {
        /// The MPI function.
        call: &'static str,
        /// Its return code; numbers differ between MPI libraries.
        code: i32,
        /// The library's text for it.
        text: String,
    },
    /// Devices of ranks cannot talk to each other any more.
    #[error("{what}: {why}")]
    Devices {
        /// Between which ranks, and what of: an edge's messages, or sums.
        what: String,
        /// What the library says.
        why: String,
        /// Whether that is how the loss of a rank looks.
        lost: bool,
    },
    /// A message of gradients that no encoder wrote, or values that the codec does not take.
    #[error("sum of bucket {bucket}, values of rank {rank}: {source}")]
    Codec {
        /// Number of the bucket on the rank that says so.
        bucket: usize,
        /// Whose message; this rank where it encodes.
        rank: u32,
        /// What the codec says, with its name.
        source: CodecError,
    },
    /// The device that encodes gradients failed.
    #[error("{0}")]
    Device(DeviceFault),
}

/// What a device says when it fails: transports lie below devices and know no more of it than its text.
/// Two are equal when they say the same.
#[derive(Clone, Debug)]
pub struct DeviceFault(Arc<dyn Error + Send + Sync>);

impl DeviceFault {
    /// Of a device's error.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, for who knows its type.
    pub fn downcast<E: Error + Clone + 'static>(&self) -> Option<E> {
        self.0.downcast_ref::<E>().cloned()
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for DeviceFault {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for DeviceFault {}
