//! Choice of the way each stage runs: the least price within the room of every lane.
//!
//! A lane holds, of each of its stages, a slot for every micro-batch in flight and outbox entries;
//! transient memory it has once, as much as the stage that needs most. So for every cap on
//! transient memory this is a knapsack with one way of each stage, solved by partial sums of which
//! none is beaten by another. Exact where lanes that share stages hold the same ones, while no more
//! than [`MOST_PARTIAL`] sums and [`MOST_CAPS`] caps are worth a look; close to it beyond.
//!
//! With n ways of each of k stages of a lane, O(caps x k x n x sums x log).

use std::collections::BTreeSet;

/// Partial sums that are kept, the others thinned out.
const MOST_PARTIAL: usize = 256;

/// Caps on transient memory that are tried.
const MOST_CAPS: usize = 32;

/// One way to run a stage. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Way {
    /// What a micro-batch in flight keeps.
    pub slot: u64,
    /// One outbox entry.
    pub outbox: u64,
    /// What is needed while an action runs.
    pub transient: u64,
    /// What running it so costs, at least 0.
    pub price: f64,
}

/// A stage on a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Which.
    pub stage: usize,
    /// Micro-batches in flight.
    pub slots: u64,
    /// Outbox entries.
    pub outboxes: u64,
}

/// A lane.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Bytes for all that depends on the ways.
    pub bytes: u64,
    /// Its stages.
    pub stages: Vec<Held>,
}

impl Room {
    /// Bytes that one way of a stage takes here, but for transient memory; none where it is not.
    fn of(&self, stage: usize, way: &Way) -> u64 {
        let held = self.stages.iter().find(|held| held.stage == stage);
        held.map_or(0, |held| way.slot * held.slots + way.outbox * held.outboxes)
    }

    /// Bytes that the lane takes with ways for all its stages.
    pub fn taken(&self, way: impl Fn(usize) -> Way) -> u64 {
        let stages = || self.stages.iter().map(|held| held.stage);
        let transient = stages().map(|stage| way(stage).transient).max().unwrap_or(0);
        stages().map(|stage| self.of(stage, &way(stage))).sum::<u64>() + transient
    }
}

/// The way of each stage, by stage: the least sum of prices with which every lane has room. None
/// where there is no such choice.
pub(super) fn choose(ways: &[Vec<Way>], lanes: &[Room]) -> Option<Vec<usize>> {
    let mut chosen = vec![0; ways.len()];
    for group in groups(lanes) {
        for (stage, way) in of_group(ways, &group)? {
            chosen[stage] = way;
        }
    }
    Some(chosen)
}

/// The ways with which lanes take least, as near as may be where they share stages: by stage.
pub(super) fn least(ways: &[Vec<Way>], lanes: &[Room]) -> Vec<usize> {
    let mut chosen = vec![0; ways.len()];
    for group in groups(lanes) {
        let stages = stages_of(&group);
        let bytes =
            |stage: usize, way: &Way| -> u64 { group.iter().map(|lane| lane.of(stage, way)).sum() };
        let within = |cap: u64| -> Option<Vec<usize>> {
            let least = |stage: &usize| {
                let few = ways[*stage].iter().enumerate().filter(|(_, way)| way.transient <= cap);
                few.min_by_key(|(_, way)| bytes(*stage, way)).map(|(index, _)| index)
            };
            stages.iter().map(least).collect()
        };
        let most = |choice: &Vec<usize>| {
            let way = |stage: usize| {
                let at = stages.binary_search(&stage).expect("a stage of the group");
                ways[stage][choice[at]]
            };
            group.iter().map(|lane| lane.taken(way)).max()
        };
        let choices = caps(ways, &stages).into_iter().filter_map(within);
        let best = choices.min_by_key(most).unwrap_or_default();
        stages.iter().zip(best).for_each(|(stage, way)| chosen[*stage] = way);
    }
    chosen
}

/// The stages of a group of lanes, ascending.
fn stages_of(lanes: &[&Room]) -> Vec<usize> {
    let stages = lanes.iter().flat_map(|lane| lane.stages.iter().map(|held| held.stage));
    BTreeSet::from_iter(stages).into_iter().collect()
}

/// What transient memory may be limited to, ascending.
fn caps(ways: &[Vec<Way>], stages: &[usize]) -> Vec<u64> {
    let all = stages.iter().flat_map(|stage| &ways[*stage]).map(|way| way.transient);
    BTreeSet::from_iter(all).into_iter().collect()
}

/// Lanes that share stages, directly or by others.
pub(super) fn groups(lanes: &[Room]) -> Vec<Vec<&Room>> {
    let mut groups: Vec<(BTreeSet<usize>, Vec<&Room>)> = vec![];
    for lane in lanes {
        let own: BTreeSet<usize> = lane.stages.iter().map(|held| held.stage).collect();
        let (shared, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(stages, _)| !stages.is_disjoint(&own));
        let mut joined = (own, vec![lane]);
        for (stages, lanes) in shared {
            joined.0.extend(stages);
            joined.1.extend(lanes);
        }
        groups = apart;
        groups.push(joined);
    }
    groups.into_iter().map(|(_, lanes)| lanes).collect()
}

/// Ways of some stages together.
#[derive(Clone)]
struct Partial {
    /// By lane of the group.
    bytes: Vec<u64>,
    price: f64,
    /// By stage of the group.
    ways: Vec<usize>,
}

/// The stages of a group with their ways.
fn of_group(ways: &[Vec<Way>], lanes: &[&Room]) -> Option<Vec<(usize, usize)>> {
    let stages = stages_of(lanes);
    let mut best: Option<Partial> = None;
    for cap in thinned(&caps(ways, &stages), MOST_CAPS) {
        let found = within(ways, lanes, &stages, cap);
        if let Some(found) = found
            && best.as_ref().is_none_or(|best| found.price < best.price)
        {
            best = Some(found);
        }
    }
    Some(stages.into_iter().zip(best?.ways).collect())
}

/// The least price when transient memory is at most `cap`.
fn within(ways: &[Vec<Way>], lanes: &[&Room], stages: &[usize], cap: u64) -> Option<Partial> {
    let room: Option<Vec<u64>> = lanes.iter().map(|lane| lane.bytes.checked_sub(cap)).collect();
    let room = room?;
    let mut partial = vec![Partial { bytes: vec![0; lanes.len()], price: 0.0, ways: vec![] }];
    for &stage in stages {
        let mut next = vec![];
        for (index, way) in ways[stage].iter().enumerate().filter(|(_, w)| w.transient <= cap) {
            let taken: Vec<u64> = lanes.iter().map(|lane| lane.of(stage, way)).collect();
            for before in &partial {
                let bytes = before.bytes.iter().zip(&taken).map(|(a, b)| a + b);
                let bytes: Vec<u64> = bytes.collect();
                if bytes.iter().zip(&room).all(|(bytes, room)| bytes <= room) {
                    let ways = before.ways.iter().copied().chain([index]).collect();
                    next.push(Partial { bytes, price: before.price + way.price, ways });
                }
            }
        }
        partial = thinned(&unbeaten(next), MOST_PARTIAL);
    }
    partial.into_iter().min_by(|a, b| a.price.total_cmp(&b.price))
}

/// Those that need more bytes on some lane, or a higher price, than any other; ascending in price.
fn unbeaten(mut all: Vec<Partial>) -> Vec<Partial> {
    all.sort_by(|a, b| a.price.total_cmp(&b.price).then_with(|| a.bytes.cmp(&b.bytes)));
    let mut kept: Vec<Partial> = vec![];
    for one in all {
        let beats = |other: &Partial| other.bytes.iter().zip(&one.bytes).all(|(a, b)| a <= b);
        // On one lane the last one kept has least bytes.
        let beaten = match one.bytes.len() {
            1 => kept.last().is_some_and(beats),
            _ => kept.iter().any(beats),
        };
        if !beaten {
            kept.push(one);
        }
    }
    kept
}

/// At most `most` of them, the first and the last included.
pub(super) fn thinned<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if all.len() <= most {
        return all.to_vec();
    }
    (0..most).map(|i| all[i * (all.len() - 1) / (most - 1)].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least price of all choices that fit.
    fn twin(ways: &[Vec<Way>], lanes: &[Room]) -> Option<f64> {
        let counts: Vec<usize> = ways.iter().map(Vec::len).collect();
        let all = (0..counts.iter().product::<usize>()).filter_map(|mut code| {
            let digit = |count: &usize| {
                let digit = code % count;
                code /= count;
                digit
            };
            let choice: Vec<usize> = counts.iter().map(digit).collect();
            let way = |stage: usize| ways[stage][choice[stage]];
            let fits = lanes.iter().all(|lane| lane.taken(way) <= lane.bytes);
            let price = (0..ways.len()).map(|stage| way(stage).price).sum::<f64>();
            fits.then_some(price)
        });
        all.min_by(f64::total_cmp)
    }

    fn way() -> impl Strategy<Value = Way> {
        (0..9u64, 0..3u64, 0..9u64, 0..30u32).prop_map(|(slot, outbox, transient, price)| Way {
            slot,
            outbox,
            transient,
            price: f64::from(price),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Two lanes with two stages each, or, as in a bidirectional pipeline, with the same four.
        #[test]
        fn no_choice_costs_less(
            ways in prop::collection::vec(prop::collection::vec(way(), 1..6), 4),
            bytes in prop::collection::vec(10..60u64, 2),
            counts in prop::collection::vec((1..4u64, 0..3u64), 8),
            shared in any::<bool>(),
        ) {
            let held = |lane: usize| {
                let stages = if shared { 0..4 } else { 2 * lane..2 * lane + 2 };
                let held = stages.map(|stage| {
                    let (slots, outboxes) = counts[4 * lane + stage];
                    Held { stage, slots, outboxes }
                });
                held.collect::<Vec<_>>()
            };
            let room = |lane: usize| Room { bytes: bytes[lane], stages: held(lane) };
            let lanes = [room(0), room(1)];
            let found = choose(&ways, &lanes);
            let price = found.as_ref().map(|found| {
                let way = |stage: usize| ways[stage][found[stage]];
                assert!(lanes.iter().all(|lane| lane.taken(way) <= lane.bytes));
                (0..4).map(|stage| way(stage).price).sum::<f64>()
            });
            prop_assert_eq!(price, twin(&ways, &lanes));
        }
    }
}
