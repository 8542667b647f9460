//! A step that no split of the nodes beats, in their order, with the schedule and micro-batches given.
//!
//! W is the time of a micro-batch on one device, m the micro-batches, p the lanes.
//! - Devices compute m W together (with replicas each of them so much), so one of them at least its
//!   share; the lane of a node, which no cut divides, takes its time for each of its micro-batches.
//! - With one stage a lane, stage s begins when what it needs has passed the nodes before it, and after
//!   its last backward pass the gradient goes back through them. With P(x) the time of the nodes before x
//!   and E(x) that of the longest way to x and back, a step of C holds stages that end at
//!   `P(b) <= P(a) + (C - E(a)) / m` at most; the least C with which p of them reach the end is the bound.
//!   On a chain without granularity this is `W / (1 - (1 - 1/m)^p)`.
//!
//! Of the values that are read behind x, a stage behind waits for one at least: E(x) is the way to the
//! one with the shortest. Messages and updates are not counted. O(log C x stages x nodes).

use super::sketch::Sketch;
use super::trial::Trials;
use crate::cost::Workload;
use crate::ids::LaneId;
use crate::units::Nanos;
use std::collections::BTreeMap;

pub(super) fn bound(sketch: &Sketch, trials: &Trials) -> Nanos {
    let schedule = &trials.schedule;
    let (lanes, stages) = (schedule.lanes.len() as u64, u64::from(schedule.stages()));
    let routes = schedule.routes.len() as u64;
    let m = u64::from(schedule.micro_batches);
    let times: Vec<u64> = sketch.chain.times().iter().map(|time| time.0).collect();
    let all: u64 = times.iter().sum();
    let largest = times.iter().max().copied().unwrap_or(0);
    let replicas = u64::from(trials.plan.data_parallel.replicas);
    let even = (all * m * replicas / devices(trials).max(1)).max(largest * m / routes.max(1));
    // A full pipeline has no beginning and no end.
    if routes != 1 || stages != lanes || trials.is_steady() {
        return Nanos(even);
    }
    let ways = ways(&sketch.work, schedule.splits_backward());
    Nanos(even.max(straight(&times, &ways, m, stages)))
}

/// Devices that can be busy at once: ranks of a node that has fewer take turns on them.
fn devices(trials: &Trials) -> u64 {
    let cluster = &trials.plan.cluster;
    let ranks = trials.schedule.lanes.len() as u32 * trials.plan.data_parallel.replicas;
    let mut ranks_on = BTreeMap::<u32, u32>::new();
    for rank in 0..ranks {
        *ranks_on.entry(cluster.node_of(LaneId(rank))).or_default() += 1;
    }
    ranks_on.values().map(|ranks| u64::from((*ranks).min(cluster.devices_per_node))).sum()
}

/// By place x from 0 to the number of nodes: E(x), which grows with x.
fn ways(work: &Workload, split: bool) -> Vec<u64> {
    let n = work.items.len();
    // The longest way that ends with each node, and the last reader of each.
    let (mut longest, mut last) = (vec![0u64; n], vec![0usize; n]);
    for edge in &work.edges {
        let (from, to) = (edge.from as usize, edge.to as usize);
        longest[to] = longest[to].max(longest[from] + own(work, from, split));
        last[from] = last[from].max(to);
    }
    let mut ways = vec![0u64; n + 1];
    // Nodes before x that somebody reads at x or behind it.
    let mut open: Vec<usize> = vec![];
    for x in 1..n {
        open.push(x - 1);
        open.retain(|node| last[*node] >= x);
        let way = |node: &usize| longest[*node] + own(work, *node, split);
        ways[x] = ways[x - 1].max(open.iter().map(way).min().unwrap_or(0));
    }
    ways[n] = ways[n - 1];
    ways
}

/// What a node takes on the way: forth, and back where weights' gradients are not put off.
fn own(work: &Workload, node: usize, split: bool) -> u64 {
    let item = &work.items[node];
    if split { item.forward.0 } else { item.time().0 }
}

/// The least step with which `stages` stages hold all nodes.
fn straight(times: &[u64], ways: &[u64], m: u64, stages: u64) -> u64 {
    let mut until = vec![0u64];
    until.extend(times.iter().scan(0u64, |sum, time| {
        *sum += time;
        Some(*sum)
    }));
    let n = times.len();
    let holds = |step: u64| {
        let mut reach = 0;
        for _ in 0..stages {
            let farthest = (0..=reach).filter(|a| ways[*a] <= step);
            let most = farthest.map(|a| until[a] + (step - ways[a]) / m).max().unwrap_or(0);
            reach = until.partition_point(|time| *time <= most) - 1;
            if reach >= n {
                return true;
            }
        }
        false
    };
    let (mut low, mut high) = (0, until[n].saturating_mul(m.max(1)));
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The step of 1F1B by its stages' times, forward and backward together, on free links: every
    /// order of a straight pipeline takes at least this.
    fn least(stages: &[u64], m: u64) -> u64 {
        let mut before = 0;
        let mut most = 0;
        for time in stages {
            most = most.max(before + m * time);
            before += time;
        }
        most
    }

    proptest! {
        #[test]
        fn no_split_of_a_chain_is_below(
            times in prop::collection::vec(1u64..40, 3..9),
            m in 1u64..9,
            stages in 1usize..4,
        ) {
            let n = times.len();
            let mut ways = vec![0u64];
            for time in &times {
                ways.push(ways[ways.len() - 1] + time);
            }
            let found = straight(&times, &ways, m, stages as u64);
            let mut best = u64::MAX;
            for code in 0..1usize << (n - 1) {
                if code.count_ones() as usize + 1 != stages {
                    continue;
                }
                let mut loads = vec![times[0]];
                for (at, time) in times[1..].iter().enumerate() {
                    if code >> at & 1 == 1 {
                        loads.push(0);
                    }
                    *loads.last_mut().unwrap() += time;
                }
                best = best.min(least(&loads, m));
            }
            prop_assert!(found <= best, "{} {}", found, best);
            // Greedy stages reach as far as any: on a chain the bound is met.
            prop_assert!(stages > 1 || found == best);
        }
    }
}
