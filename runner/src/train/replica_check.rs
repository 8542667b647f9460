//! The check that replicas of a stage have the same weights.
//!
//! Replicas begin alike, add up the same gradients and change alike, so their tensors have the same
//! bits after every step; where they have not, a memory or a processor has failed without a word. Now
//! and then each rank sums its tensors up (CRC-32C, which sees every change of one bit) and rank 0
//! compares. More than two replicas tell whose is wrong: the one that the others do not agree with.
//!
//! What a wrong replica has done by then is in the gradients of all others. So the state to go on from
//! is that of the last comparison; it is kept in memory until the next one.

use super::{Context, TrainError};
use crate::checkpoint::forget_after;
use crate::execute::{Rank, RunError};
use crate::report::Difference;
use crate::transport::{ReduceOp, Transport};
use std::collections::BTreeMap;
use std::ops::Range;

/// The first tensor, by name, that ranks have differently: `sums` are those of each rank's tensors.
fn compare(sums: &[Vec<(String, u32)>]) -> Option<Difference> {
    let mut all: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    for (rank, tensors) in (0..).zip(sums) {
        tensors.iter().for_each(|(name, sum)| all.entry(name).or_default().push((rank, *sum)));
    }
    let differs = |sums: &[(u32, u32)]| sums.windows(2).any(|pair| pair[0].1 != pair[1].1);
    let (tensor, sums) = all.into_iter().find(|(_, sums)| differs(sums))?;
    let count = |value: u32| sums.iter().filter(|(_, sum)| *sum == value).count();
    let right = sums.iter().map(|(_, sum)| *sum).find(|sum| 2 * count(*sum) > sums.len());
    let wrong = sums.iter().filter(|(_, sum)| Some(*sum) != right).map(|(rank, _)| *rank);
    let (ranks, majority) = (wrong.collect(), right.is_some());
    Some(Difference { tensor: tensor.into(), ranks, majority, alike: 0 })
}

/// Compares the replicas after the last of `steps`; they were alike before the first. Collective. Where
/// they differ, states in memory that are newer than that are forgotten.
///
/// # Errors
/// [`TrainError::Replicas`] on all ranks where they differ.
pub(super) fn verify<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    steps: Range<u64>,
) -> Result<(), TrainError> {
    let Range { start: alike, end: step } = steps;
    let at = |source| RunError::Agreement { step, source };
    rank.fetch_persistent_state();
    let device = |source| RunError::Device { step, instruction: 0, source };
    rank.check_device().map_err(device)?;
    let mine = serde_json::to_vec(&rank.checksums()).expect("plain data");
    let all = rank.transport.gather(&mine).map_err(at)?;
    let parse = |bytes: &Vec<u8>| -> Vec<(String, u32)> {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let found = all.and_then(|all| compare(&all.iter().map(parse).collect::<Vec<_>>()));
    let mut differ = [f64::from(u8::from(found.is_some()))];
    rank.transport.all_reduce(&mut differ, ReduceOp::Max).map_err(at)?;
    if differ[0] == 0.0 {
        return Ok(());
    }
    if let Some(memory) = context.memory
        && memory.hosts.as_ref().map_or(rank.transport.rank() == 0, |hosts| hosts.leads())
        && let Err(e) = forget_after(&memory.folder, alike)
    {
        warn!("states of ranks that differ stay: {e}");
    }
    // The next generation may begin when a rank has ended: nothing may be left by then.
    rank.transport.barrier().map_err(at)?;
    let difference = Box::new(Difference { alike, ..found.unwrap_or_default() });
    Err(TrainError::Replicas { step, difference })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sums: &[&[(&str, u32)]]) -> Option<Difference> {
        let own = |rank: &&[(&str, u32)]| rank.iter().map(|(n, s)| ((*n).into(), *s)).collect();
        compare(&sums.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn who_is_wrong() {
        assert_eq!(of(&[&[("a", 1)], &[("b", 2)], &[("a", 1)]]), None);
        let named = |sums| of(sums).map(|d| (d.tensor, d.ranks, d.majority)).unwrap();
        let three: &[&[(&str, u32)]] = &[&[("a", 1), ("b", 3)], &[("a", 1), ("b", 4)], &[("b", 3)]];
        assert_eq!(named(three), ("b".into(), vec![1], true));
        assert_eq!(named(&[&[("a", 1)], &[("a", 2)]]), ("a".into(), vec![0, 1], false));
        let told = of(three).unwrap().to_string();
        assert!(told.starts_with("`b` of rank [1] is not what the other replicas have"), "{told}");
    }
}
