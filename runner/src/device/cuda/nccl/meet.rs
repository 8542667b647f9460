//! Rendezvous for NCCL: the check that all ranks can take part, and the exchange of unique ids.

use super::abort::Limits;
use super::library::Api;
use super::routes::Routes;
use super::wires::{Broken, Id, Wires};
use super::{Communicators, GivenUp, error};
use crate::transport::{ReduceOp, Transport, TransportError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a rank has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Number of its host.
    pub host: u32,
    /// Where on the host its GPU is: parts of one have it alike.
    pub pci: String,
    /// The GPU, whatever its host is called.
    pub uuid: [u8; 16],
    /// The version of its NCCL, 0 without one.
    pub version: u32,
}

impl Member {
    /// Whether both are on one GPU.
    pub fn shares(&self, other: &Self) -> bool {
        (self.uuid == other.uuid && self.uuid != [0; 16])
            || (self.host == other.host && self.pci == other.pci)
    }
}

/// Why the devices do not talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Two ranks have one GPU, which NCCL refuses.
    Shared(u32, u32),
    /// A rank has no NCCL, or an old one.
    Missing(u32),
    /// Two ranks have different ones.
    Versions(u32, u32),
    /// A rank could not connect, and says why itself.
    Failed(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(a, b) => write!(f, "ranks {a} and {b} share a GPU"),
            Self::Missing(rank) => write!(f, "rank {rank} has no NCCL 2.14 or newer"),
            Self::Versions(a, b) => write!(f, "ranks {a} and {b} have different versions of NCCL"),
            Self::Failed(rank) => write!(f, "NCCL does not connect rank {rank}"),
        }
    }
}

impl Refusal {
    /// As numbers, for [`Transport::all_reduce`].
    fn numbers(refusal: Option<Self>) -> [f64; 3] {
        let (kind, a, b) = match refusal {
            None => (0, 0, 0),
            Some(Self::Shared(a, b)) => (1, a, b),
            Some(Self::Missing(rank)) => (2, rank, 0),
            Some(Self::Versions(a, b)) => (3, a, b),
            Some(Self::Failed(rank)) => (4, rank, 0),
        };
        [f64::from(kind), f64::from(a), f64::from(b)]
    }

    fn from_numbers(numbers: [f64; 3]) -> Option<Self> {
        let [kind, a, b] = numbers.map(|number| number as u32);
        match kind {
            1 => Some(Self::Shared(a, b)),
            2 => Some(Self::Missing(a)),
            3 => Some(Self::Versions(a, b)),
            4 => Some(Self::Failed(a)),
            _ => None,
        }
    }

    /// What stands against these members.
    fn of(members: &[Member]) -> Option<Self> {
        let ranks = || (0..).zip(members);
        let with = |alike: &dyn Fn(&Member, &Member) -> bool| {
            ranks().find_map(|(rank, member)| {
                let other = ranks().take(rank as usize).find(|(_, other)| alike(other, member))?;
                Some((other.0, rank))
            })
        };
        let old = |(_, member): &(u32, &Member)| member.version < Api::OLDEST;
        with(&Member::shares)
            .map(|(a, b)| Self::Shared(a, b))
            .or_else(|| ranks().find(old).map(|(rank, _)| Self::Missing(rank)))
            .or_else(|| with(&|a, b| a.version != b.version).map(|(a, b)| Self::Versions(a, b)))
    }
}

/// Whether the devices of all ranks can talk to each other; the same answer on all. All ranks call it.
///
/// # Errors
/// When the transport fails.
pub fn may<T: Transport + ?Sized>(
    transport: &mut T,
    member: &Member,
) -> Result<Option<Refusal>, TransportError> {
    let bytes = serde_json::to_vec(member).expect("plain data");
    let all = transport.gather(&bytes)?;
    let read = |bytes: &Vec<u8>| -> Member {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let refusal = all.and_then(|all| Refusal::of(&all.iter().map(read).collect::<Vec<_>>()));
    // Only rank 0 has something to add.
    let mut numbers = Refusal::numbers(refusal);
    transport.all_reduce(&mut numbers, ReduceOp::Sum)?;
    Ok(Refusal::from_numbers(numbers))
}

/// Connects the devices of all ranks; on all, or on none. All ranks call it, with equal routes, before their
/// arenas hold anything.
///
/// # Errors
/// When the transport fails. The inner one: which rank could not connect, and why on that rank.
#[allow(clippy::type_complexity, reason = "an error of this rank, or of NCCL")]
pub fn connect<W: Wires, T: Transport + ?Sized>(
    mut wires: W,
    transport: &mut T,
    routes: &Routes,
    (given_up, limits): (GivenUp, Limits),
) -> Result<Result<Communicators<W>, (Refusal, Option<TransportError>)>, TransportError> {
    let rank = transport.rank();
    let ids = ids(&mut wires, transport, routes)?;
    let connected = ids.and_then(|ids| {
        let mut nccl = Communicators::new(wires, rank, routes.micro_batches, given_up, limits)?;
        let all = routes.lines.iter().zip(&ids).enumerate();
        for (number, (line, id)) in all.filter(|(_, (l, _))| l.ranks().contains(&rank)) {
            nccl.add(number, line, id)?;
        }
        Ok(nccl)
    });
    // The lowest rank that could not for reasons of its own, before those that waited for it.
    let ranks = transport.ranks();
    let mine = match &connected {
        Err(TransportError::Devices { lost: true, .. }) => ranks + rank,
        Err(_) => rank,
        Ok(_) => 2 * ranks,
    };
    let mut failed = [f64::from(mine)];
    transport.all_reduce(&mut failed, ReduceOp::Min)?;
    let failed = failed[0] as u32;
    if failed == 2 * ranks {
        return Ok(connected.map_err(|error| (Refusal::Failed(rank), Some(error))));
    }
    Ok(Err((Refusal::Failed(failed % ranks), connected.err())))
}

/// The id of every line, made by its first rank. All ranks get all.
fn ids<W: Wires, T: Transport + ?Sized>(
    wires: &mut W,
    transport: &mut T,
    routes: &Routes,
) -> Result<Result<Vec<Id>, TransportError>, TransportError> {
    let rank = transport.rank();
    let (mut ids, mut failed) = (vec![], None);
    for line in &routes.lines {
        let mut id: Id = [0; 128];
        if line.ranks().first() == Some(&rank) {
            match wires.id() {
                Ok(made) => id = made,
                Err(broken) => failed = Some(broken),
            }
        }
        // Only one rank has something to add.
        let mut bytes = id.map(f64::from);
        transport.all_reduce(&mut bytes, ReduceOp::Sum)?;
        ids.push(bytes.map(|byte| byte as u8));
    }
    let of_rank = |broken: Broken| error(format!("rank {rank}"), broken);
    let mut all = [f64::from(u8::from(failed.is_some()))];
    transport.all_reduce(&mut all, ReduceOp::Max)?;
    let other = || Broken { why: "another rank could not make an id".into(), lost: true };
    Ok(match (failed, all[0] > 0.0) {
        (Some(broken), _) => Err(of_rank(broken)),
        (None, true) => Err(of_rank(other())),
        (None, false) => Ok(ids),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(host: u32, pci: &str, uuid: u8, version: u32) -> Member {
        Member { host, pci: pci.into(), uuid: [uuid; 16], version }
    }

    #[test]
    fn a_gpu_of_its_own_and_one_nccl() {
        let all = [member(0, "a", 1, 22_403), member(0, "b", 2, 22_403), member(1, "a", 3, 22_403)];
        assert_eq!(Refusal::of(&all), None);
        let of = |last: Member| {
            let all = [all[0].clone(), all[1].clone(), last];
            Refusal::of(&all).map(|refusal| refusal.to_string())
        };
        let said = |text: &str| Some(text.to_string());
        assert_eq!(of(member(0, "b", 9, 22_403)), said("ranks 1 and 2 share a GPU"));
        assert_eq!(of(member(7, "x", 1, 22_403)), said("ranks 0 and 2 share a GPU"));
        assert_eq!(of(member(0, "c", 9, 0)), said("rank 2 has no NCCL 2.14 or newer"));
        assert_eq!(of(member(0, "c", 9, 21_212)), said("rank 2 has no NCCL 2.14 or newer"));
        let versions = "ranks 0 and 2 have different versions of NCCL";
        assert_eq!(of(member(0, "c", 9, 22_000)), said(versions));
        // Drivers that do not say which GPU it is.
        assert_eq!(Refusal::of(&[member(0, "a", 0, 22_403), member(1, "a", 0, 22_403)]), None);
    }

    #[test]
    fn numbers_are_read_back() {
        let all = [Refusal::Shared(1, 2), Refusal::Missing(3), Refusal::Versions(0, 4)];
        for refusal in all.into_iter().chain([Refusal::Failed(5)]).map(Some).chain([None]) {
            assert_eq!(Refusal::from_numbers(Refusal::numbers(refusal)), refusal);
        }
    }
}
