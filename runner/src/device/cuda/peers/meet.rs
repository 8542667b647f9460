//! Rendezvous of ranks that share a GPU: what each tells of its memory, and where the others find it.

use crate::device::DevicePtr;
use crate::device::cuda::kernels::MOST_PEERS;
use crate::device::cuda::nccl::Member;
use crate::transport::{REDUCE_MAX, ReduceOp, Transport, TransportError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a card on its way.
const CARD: usize = 1024;

/// Memory as another process may open it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// In this process.
    pub address: u64,
    /// The driver's word for what was allocated there; none where it has none.
    pub word: Vec<u8>,
    /// Bytes from where that begins.
    pub offset: u64,
}

/// What a rank tells the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Where it computes.
    pub member: Member,
    /// Its process: ranks of one know each other's addresses.
    pub process: u32,
    pub arena: Handle,
    pub page: Handle,
}

/// Where a rank's memory is, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub arena: DevicePtr,
    pub page: DevicePtr,
}

/// Why ranks cannot read each other's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Two ranks are on different GPUs.
    Devices(u32, u32),
    /// There are too many.
    Many(u32),
    /// A rank cannot share its memory, or open another's: it says why itself.
    Failed(u32),
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Devices(a, b) => write!(f, "ranks {a} and {b} have GPUs of their own"),
            Self::Many(ranks) => {
                write!(f, "{ranks} ranks share a GPU, and at most {MOST_PEERS} can")
            }
            Self::Failed(rank) => write!(f, "rank {rank} cannot share memory with the others"),
        }
    }
}

impl Apart {
    /// What stands against these ranks.
    fn of(cards: &[Card]) -> Option<Self> {
        let first = &cards[0].member;
        let is_apart = |card: &Card| !card.member.shares(first);
        match cards.iter().position(is_apart) {
            Some(other) => Some(Self::Devices(0, other as u32)),
            None if cards.len() > MOST_PEERS => Some(Self::Many(cards.len() as u32)),
            None => None,
        }
    }
}

/// Tells all ranks where this one's memory is, and opens theirs; on all, or on none. All ranks call it. `own` is none
/// where this rank cannot share, `open` gives another process's memory.
///
/// # Errors
/// When the transport fails. The inner one is the same on all ranks.
pub fn meet<T: Transport + ?Sized>(
    transport: &mut T,
    member: &Member,
    own: Option<[Handle; 2]>,
    mut open: impl FnMut(&Handle) -> Option<DevicePtr>,
) -> Result<Result<Vec<Reach>, Apart>, TransportError> {
    let process = std::process::id();
    let shares = own.is_some();
    let [arena, page] = own.unwrap_or_default();
    let cards = all(transport, &Card { member: member.clone(), process, arena, page })?;
    if let Some(apart) = Apart::of(&cards) {
        return Ok(Err(apart));
    }
    let mut reach = |handle: &Handle, card: &Card| match card.process == process {
        true => Some(DevicePtr(handle.address)),
        false => open(handle).map(|at| at.after(handle.offset)),
    };
    let each = |card: &Card| {
        Some(Reach { arena: reach(&card.arena, card)?, page: reach(&card.page, card)? })
    };
    let found: Option<Vec<Reach>> = if shares { cards.iter().map(each).collect() } else { None };
    let (rank, ranks) = (transport.rank(), transport.ranks());
    let mut failed = [f64::from(if found.is_some() { ranks } else { rank })];
    transport.all_reduce(&mut failed, ReduceOp::Min)?;
    Ok(found.filter(|_| failed[0] as u32 == ranks).ok_or(Apart::Failed(failed[0] as u32)))
}

/// The cards of all ranks, in order.
fn all<T: Transport + ?Sized>(transport: &mut T, own: &Card) -> Result<Vec<Card>, TransportError> {
    let (rank, ranks) = (transport.rank() as usize, transport.ranks() as usize);
    let text = serde_json::to_vec(own).expect("plain data");
    assert!(text.len() <= CARD, "a card of {} bytes", text.len());
    // At each place only one rank has something to add.
    let mut bytes = vec![0.0; CARD * ranks];
    for (to, byte) in bytes[CARD * rank..].iter_mut().zip(&text) {
        *to = f64::from(*byte);
    }
    bytes.chunks_mut(REDUCE_MAX).try_for_each(|part| transport.all_reduce(part, ReduceOp::Sum))?;
    let read = |card: &[f64]| {
        let text: Vec<u8> = card.iter().map(|byte| *byte as u8).take_while(|b| *b != 0).collect();
        serde_json::from_slice(&text).expect("written by the same program")
    };
    Ok(bytes.chunks(CARD).map(read).collect())
}
