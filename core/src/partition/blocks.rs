//! Atomic blocks: a graph as few groups of items between which little travels.
//!
//! Tanaka et al. 2021 (RaNNC) group operations into blocks before they search stages. Here blocks
//! are ranges in topological order, so stages of whole blocks never need each other in a circle.
//! The cut with the most traffic is given up first: inside a residual block two values cross,
//! between blocks one, so residual blocks stay whole. But no block grows beyond an even share of
//! the time, so a cut inside a block remains where the balance of stages may need it.

use super::units::Units;
use crate::order::{descending, sort_by_numbers};
use std::collections::BTreeSet;

/// Block of every unit: at most `count` blocks (at least one), chosen so that little travels between
/// them. While others can, no block takes more than 1 / `count` of the time. O(units log units) time.
pub(super) fn ranges(units: &Units, count: usize) -> Vec<u32> {
    let n = units.units.len();
    let traffic = traffic(units);
    let mut until = vec![0u64];
    for unit in &units.units {
        until.push(until[until.len() - 1].saturating_add(unit.time.0));
    }
    let share = until[n] / count as u64;
    let mut cuts: BTreeSet<usize> = (0..=n).collect();
    let mut order: Vec<usize> = (1..n).collect();
    // Of equal traffic, earlier cuts go first.
    sort_by_numbers(&mut order, |cut| [descending(traffic[*cut]), *cut as u64]);
    for limit in [share, share.saturating_mul(2), u64::MAX] {
        order.retain(|cut| {
            if cuts.len() <= count + 1 {
                return true;
            }
            let before = cuts.range(..cut).next_back().expect("0 is never given up");
            let after = cuts.range(cut + 1..).next().expect("the end is never given up");
            if until[*after] - until[*before] > limit {
                return true;
            }
            cuts.remove(cut);
            false
        });
    }
    let mut block = 0;
    let cut_before = |unit: usize| {
        block += u32::from(unit > 0 && cuts.contains(&unit));
        block
    };
    (0..n).map(cut_before).collect()
}

/// Bytes that cross the cut before each unit, a value once however many read it.
fn traffic(units: &Units) -> Vec<u64> {
    // What begins to cross minus what ceases to, in 128 bits so that the sum cannot overflow.
    let mut change = vec![0i128; units.units.len() + 1];
    for value in &units.values {
        let (first, last) = (value.units[0], value.units[value.units.len() - 1]);
        change[first as usize + 1] += i128::from(value.bytes.0);
        change[last as usize + 1] -= i128::from(value.bytes.0);
    }
    let mut crossing = 0i128;
    let at = |change: &i128| {
        crossing += change;
        u64::try_from(crossing).unwrap_or(u64::MAX)
    };
    change.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Edge, Item, Workload};
    use crate::partition::units::Absorb;
    use crate::units::{Bytes, Nanos};

    /// Block of every item.
    fn blocks(work: &Workload, count: usize) -> Vec<u32> {
        let units = Units::of(work, Absorb::Nothing);
        let mut block = vec![0; work.items.len()];
        for (unit, number) in units.units.iter().zip(ranges(&units, count)) {
            unit.items.iter().for_each(|item| block[*item as usize] = number);
        }
        block
    }

    fn workload(times: &[u64], edges: &[(u32, u32, u64)]) -> Workload {
        let item = |(at, time): (usize, &u64)| Item {
            name: format!("item {at}"),
            forward: Nanos(*time),
            state: Bytes(100),
            ..Item::default()
        };
        let edge = |(from, to, bytes): &(u32, u32, u64)| Edge {
            to: *to,
            from: *from,
            bytes: Bytes(*bytes),
        };
        let mut edges: Vec<Edge> = edges.iter().map(edge).collect();
        edges.sort_unstable();
        let items = times.iter().enumerate().map(item).collect();
        Workload { name: "graph".into(), samples: 1, items, edges, ..Workload::default() }
    }

    /// Blocks of three layers in a row with a connection around them, as in residual networks.
    fn residual(count: u32) -> Workload {
        let mut edges = vec![];
        for block in 0..count {
            let at = block * 3;
            edges.extend([(at, at + 1, 10), (at + 1, at + 2, 10), (at, at + 2, 10)]);
            if block + 1 < count {
                edges.push((at + 2, at + 3, 10));
            }
        }
        workload(&vec![7; 3 * count as usize], &edges)
    }

    #[test]
    fn residual_blocks_stay_whole() {
        let found = blocks(&residual(8), 8);
        assert_eq!(found, (0..24).map(|item| item / 3).collect::<Vec<u32>>());
        // Two to a block, still none in two blocks.
        let found = blocks(&residual(8), 4);
        assert_eq!(found, (0..24).map(|item| item / 6).collect::<Vec<u32>>());
        assert_eq!(blocks(&residual(2), 1), [0; 6]);
        assert_eq!(blocks(&residual(1), 9), [0, 1, 2]);
    }

    #[test]
    fn an_uneven_block_is_cut() {
        // The first block has most of the work: one of its cuts with more traffic must remain.
        let mut work = residual(4);
        for item in &mut work.items[..3] {
            item.forward = Nanos(100);
        }
        let found = blocks(&work, 4);
        assert!(found[..3].windows(2).any(|pair| pair[0] != pair[1]), "{found:?}");
    }
}
