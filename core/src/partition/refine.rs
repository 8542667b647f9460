//! Better cuts by trying: boundaries are moved while that makes a step faster.
//!
//! The bottleneck of a partition is not the time of a step: start-up, transfers and uneven stages
//! count differently in every schedule. Here the objective is whatever the caller evaluates, the
//! simulated step of the chosen schedule above all, and stages may be chunks of which a lane has
//! several (interleaved, V). A local search: it never returns anything worse than it was given.

use crate::cost::Workload;
use crate::units::Nanos;

/// Cuts, what they evaluate to, and how often something was evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refined {
    /// First item of every stage but the first.
    pub cuts: Vec<u32>,
    /// Their value.
    pub time: Nanos,
    /// Calls of the evaluation.
    pub evaluations: u32,
    /// No move improves `cuts` any more; false when the budget ended first.
    pub settled: bool,
}

/// Moves `cuts` among `allowed` positions (ascending; those of `cuts` count as allowed) while
/// `evaluate` gets smaller, with at most `budget` evaluations. A move takes one cut or
/// several neighbours some positions on or back: first far, at last one position. Neighbours that
/// move together hand work from a stage to a distant one. No stage gets empty.
///
/// Deterministic if `evaluate` is. The first improvement found is taken, from the first cut on.
pub fn refine(
    cuts: &[u32],
    allowed: &[u32],
    budget: u32,
    mut evaluate: impl FnMut(&[u32]) -> Nanos,
) -> Refined {
    let mut places: Vec<u32> = [cuts, allowed].concat();
    places.sort_unstable();
    places.dedup();
    let place = |cut: &u32| places.partition_point(|place| place < cut);
    let mut at: Vec<usize> = cuts.iter().map(place).collect();
    let named = |at: &[usize]| at.iter().map(|at| places[*at]).collect::<Vec<u32>>();
    let (mut time, mut evaluations) = (evaluate(cuts), 1);
    let mut step = (places.len() / (2 * cuts.len().max(1))).max(1).next_power_of_two();
    loop {
        let mut improved = false;
        for moved in moves(at.len()) {
            for forward in [true, false] {
                if evaluations >= budget {
                    return Refined { cuts: named(&at), time, evaluations, settled: false };
                }
                let Some(tried) = shifted(&at, moved.clone(), step, forward, places.len()) else {
                    continue;
                };
                evaluations += 1;
                let value = evaluate(&named(&tried));
                if value < time {
                    (at, time, improved) = (tried, value, true);
                }
            }
        }
        if !improved && step == 1 {
            return Refined { cuts: named(&at), time, evaluations, settled: true };
        }
        if !improved {
            step /= 2;
        }
    }
}

/// Which cuts move together: every run of neighbours, short ones first.
fn moves(cuts: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (1..=cuts).flat_map(move |length| (0..=cuts - length).map(move |cut| cut..cut + length))
}

/// `at` with the cuts of `moved` `step` places on or back, if they stay apart and in range.
fn shifted(
    at: &[usize],
    moved: std::ops::Range<usize>,
    step: usize,
    forward: bool,
    places: usize,
) -> Option<Vec<usize>> {
    let mut tried = at.to_vec();
    for at in &mut tried[moved] {
        *at = if forward { *at + step } else { at.checked_sub(step)? };
    }
    let apart = tried.windows(2).all(|pair| pair[0] < pair[1]);
    (apart && tried.last().is_none_or(|last| *last < places)).then_some(tried)
}

/// Cuts of `work` into chunks whose lanes, `lane_of_chunk`, are as evenly loaded as a local search
/// gets them; a start for [`refine`] with the schedule's own time. `None` with fewer items than
/// chunks, or none of either.
pub fn chunks(work: &Workload, lane_of_chunk: &[u32]) -> Option<Vec<u32>> {
    let (n, count) = (work.items.len(), lane_of_chunk.len());
    if count == 0 || n < count {
        return None;
    }
    let mut until = vec![0u64];
    for item in &work.items {
        until.push(until[until.len() - 1].saturating_add(item.time().0));
    }
    let mut cuts = vec![];
    for chunk in 1..count {
        let share = (u128::from(until[n]) * chunk as u128 / count as u128) as u64;
        let first = cuts.last().map_or(1, |last| last + 1);
        let even = until.partition_point(|time| *time < share);
        cuts.push(even.clamp(first, n - (count - chunk)));
    }
    let cuts: Vec<u32> = cuts.into_iter().map(|cut| cut as u32).collect();
    let lanes = lane_of_chunk.iter().max().map_or(0, |lane| *lane as usize + 1);
    // The sum of squares and not the maximum: it gets smaller with every evening out.
    let scale = 2 * (u64::BITS - until[n].leading_zeros());
    let uneven = |cuts: &[u32]| {
        let mut loads = vec![0u128; lanes];
        let mut from = 0;
        let ends = cuts.iter().map(|cut| *cut as usize).chain([n]);
        for (end, lane) in ends.zip(lane_of_chunk) {
            loads[*lane as usize] += u128::from(until[end] - until[from]);
            from = end;
        }
        let squares: u128 = loads.iter().map(|load| load * load).sum();
        Nanos((squares >> scale.saturating_sub(64)) as u64)
    };
    let allowed: Vec<u32> = (1..n as u32).collect();
    Some(refine(&cuts, &allowed, 20_000, uneven).cuts)
}
