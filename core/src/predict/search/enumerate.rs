//! All choices, with lower bounds.

use super::choice::Figures;
use super::evaluate::bound;
use super::refusal::why_none;
use super::{Chain, Choice, SearchError, Space};
use crate::order::sort_by_numbers;
use crate::partition::split;
use crate::schedule::{Placement, ScheduleKind, Updates};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A choice that was not tried yet.
pub(super) struct Candidate {
    pub choice: Choice,
    pub bound: Figures,
}

/// Networks by samples of a micro-batch and tensor-parallel degree.
pub(super) type Chains = BTreeMap<(u64, u32), Arc<Chain>>;

/// Micro-batches of a step beyond this are not tried: overheads have long won.
const MICRO_BATCHES_MAX: u64 = 4096;

/// Chunks of a lane that are tried.
const CHUNKS: [u32; 5] = [2, 3, 4, 6, 8];

/// Every choice that is not certain to fail, ascending by the bound of its step.
pub(super) fn candidates(space: &Space<'_>) -> Result<(Chains, Vec<Candidate>), SearchError> {
    let mut chains = Chains::new();
    let mut found = vec![];
    // Cuts depend on the size of micro-batches, the degree and the number of stages only.
    let mut cuts = BTreeMap::<(u64, u32, u32), Vec<u32>>::new();
    for (tensor, lanes, replicas) in meshes(space) {
        let each = space.mini_batch / u64::from(replicas);
        for samples in sizes(space, each) {
            let Some(chain) = chain(space, &mut chains, samples, tensor) else { continue };
            let micro_batches = (each / samples) as u32;
            for (schedule, stages) in schedules(space, lanes, chain.len() as u32) {
                let starts = cuts.entry((samples, tensor, stages)).or_insert_with(|| {
                    split(&chain.times(), stages as usize).into_iter().map(|s| s as u32).collect()
                });
                let routes = schedule.placement().routes(lanes).len() as u32;
                if !micro_batches.is_multiple_of(routes) {
                    continue;
                }
                let copies = replicas * routes;
                for (recompute, encoding) in extras(space, copies) {
                    let choice = Choice {
                        tensor,
                        replicas,
                        lanes,
                        micro_batches,
                        schedule,
                        starts: starts.clone(),
                        recompute: vec![recompute; stages as usize],
                        encoding,
                    };
                    let bound = bound(space, &chain, &choice);
                    found.push(Candidate { choice, bound });
                }
            }
        }
    }
    if found.is_empty() {
        return Err(SearchError::Empty { why: why_none(space) });
    }
    // Stable, so of equal bounds the simpler choice comes first.
    sort_by_numbers(&mut found, |candidate| [candidate.bound.step.0, 0]);
    Ok((chains, found))
}

/// Tensor-parallel degree, lanes and replicas: for each of the first two as many replicas as there
/// are devices for, and fewer, which have less to tell each other.
fn meshes(space: &Space<'_>) -> Vec<(u32, u32, u32)> {
    let work = (space.model)(1);
    let mut degrees: Vec<u32> =
        work.items.iter().flat_map(|item| &item.shards).map(|shard| shard.degree).collect();
    degrees.push(1);
    degrees.sort_unstable();
    degrees.dedup();
    let mut found = vec![];
    for tensor in degrees {
        if space.fixed.tensor.is_some_and(|fixed| fixed != tensor) || tensor > space.devices {
            continue;
        }
        let most = (space.devices / tensor).min(space.blocks.len() as u32);
        for lanes in 1..=most {
            if space.fixed.lanes.is_some_and(|fixed| fixed != lanes) {
                continue;
            }
            let room = space.devices / (tensor * lanes);
            let parts = u64::from(space.fixed.micro_batches.unwrap_or(1).max(1));
            let divides = |r: &u32| space.mini_batch.is_multiple_of(u64::from(*r) * parts);
            let replicas = match whole(space, tensor * lanes) {
                Replicas::Open => halving(room, divides),
                Replicas::Fixed(count) if count <= room && divides(&count) => vec![count],
                Replicas::Fixed(_) | Replicas::None => vec![],
            };
            found.extend(replicas.into_iter().map(|replicas| (tensor, lanes, replicas)));
        }
    }
    found
}

/// The largest number up to `most` that will do, then each time the largest of at most half of it: so that for
/// every size of a host one is near.
fn halving(most: u32, will_do: impl Fn(&u32) -> bool) -> Vec<u32> {
    let below = |most: u32| (1..=most).rev().find(|count| will_do(count));
    std::iter::successors(below(most), |count| below(count / 2)).collect()
}

/// Replicas of a pipeline.
pub(super) enum Replicas {
    /// As many as are fastest.
    Open,
    Fixed(u32),
    /// What is fixed leaves none.
    None,
}

/// Replicas of a pipeline of so many ranks, by what is fixed.
pub(super) fn whole(space: &Space<'_>, pipeline: u32) -> Replicas {
    let replicas = match (space.fixed.ranks, space.fixed.replicas) {
        (None, None) => return Replicas::Open,
        (None, Some(replicas)) => replicas,
        (Some(ranks), _) if !ranks.is_multiple_of(pipeline) => 0,
        (Some(ranks), None) => ranks / pipeline,
        (Some(ranks), Some(replicas)) if ranks / pipeline == replicas => replicas,
        (Some(_), Some(_)) => 0,
    };
    if replicas == 0 { Replicas::None } else { Replicas::Fixed(replicas) }
}

/// Samples of a micro-batch, ascending: divisors of a replica's share.
fn sizes(space: &Space<'_>, each: u64) -> Vec<u64> {
    if let Some(m) = space.fixed.micro_batches {
        let m = u64::from(m);
        return if m > 0 && each.is_multiple_of(m) { vec![each / m] } else { vec![] };
    }
    let micro_batches = 1..=MICRO_BATCHES_MAX.min(each);
    micro_batches.rev().filter(|m| each.is_multiple_of(*m)).map(|m| each / m).collect()
}

fn chain(space: &Space<'_>, chains: &mut Chains, samples: u64, tensor: u32) -> Option<Arc<Chain>> {
    if let Some(known) = chains.get(&(samples, tensor)) {
        return Some(known.clone());
    }
    let new = Arc::new(Chain::new(&(space.model)(samples), &space.blocks, tensor)?);
    chains.insert((samples, tensor), new.clone());
    Some(new)
}

/// Schedules on `lanes` lanes with their stages, at most as many as blocks.
fn schedules(space: &Space<'_>, lanes: u32, blocks: u32) -> Vec<(ScheduleKind, u32)> {
    let mut kinds = vec![];
    if let Some(fixed) = space.fixed.schedule {
        kinds.push(fixed);
    } else if lanes == 1 {
        // Alone, a lane has nothing to wait for: the order that keeps least.
        kinds.push(ScheduleKind::OneFOneB);
    } else {
        kinds.extend(ScheduleKind::ALL);
        kinds.extend(ScheduleKind::ALL.into_iter().flat_map(|kind| {
            CHUNKS.into_iter().filter_map(move |number| kind.with_number(number))
        }));
        kinds.retain(|k| k.updates() == Updates::Synchronous && *k != ScheduleKind::Naive);
    }
    let mut found: Vec<(ScheduleKind, u32)> = vec![];
    for kind in kinds {
        let stages = kind.placement().stages(lanes);
        if space.fixed.stages.is_some_and(|fixed| fixed != stages) {
            continue;
        }
        if space.fixed.one_route && kind.placement() == Placement::TwoWay {
            continue;
        }
        if stages <= blocks && kind.lanes(stages) == Ok(lanes) && !found.contains(&(kind, stages)) {
            found.push((kind, stages));
        }
    }
    found
}

/// Recomputation everywhere or where needed, and ways of what ranks send.
fn extras(space: &Space<'_>, copies: u32) -> Vec<(bool, Option<usize>)> {
    let recompute = match space.fixed.recompute {
        Some(fixed) => vec![fixed],
        None => vec![false, true],
    };
    let mut ways = match space.fixed.encoding {
        Some(fixed) => vec![fixed],
        None => std::iter::once(None).chain((0..space.encodings.len()).map(Some)).collect(),
    };
    if copies == 1 && space.fixed.encoding.is_none() {
        // Nobody sums: ways that differ in sums are the same.
        ways.retain(|way| way.is_none_or(|way| space.encodings[way].gradients.is_plain()));
    }
    recompute.iter().flat_map(|again| ways.iter().map(|way| (*again, *way))).collect()
}
