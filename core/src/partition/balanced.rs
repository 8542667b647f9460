//! The split of a chain whose slowest stage is fastest.
//!
//! The classic linear partition: `best(k, j)`, the least maximum over splits of the first j layers
//! into k stages, is `min_i max(best(k - 1, i), time(i..j))`. The first grows with i and the second
//! shrinks, so the least is found where they meet: O(stages x layers x log layers) time,
//! O(stages x layers) memory. Exact for the sum of compute times; communication and memory are not
//! part of the objective.

use super::PartitionError;
use crate::cost::Costs;
use crate::graph::Graph;
use crate::graph::autodiff::{BackwardStyle, training_graph};
use crate::ids::StageId;
use crate::units::Nanos;
use std::ops::Range;

/// Cuts with the least maximum stage time (forward and backward). Of several, the one whose cuts
/// come earliest from the last stage on. Returns the first node of each stage but the first.
///
/// # Errors
/// More stages than layers, or none.
pub fn balanced(graph: &Graph, costs: &Costs, stages: u32) -> Result<Vec<u32>, PartitionError> {
    super::check(graph, stages)?;
    let layers = graph.layers();
    let times = layer_times(graph, costs);
    let starts = split(&times, stages as usize);
    Ok(starts.into_iter().map(|layer| layers[layer].first_node.0).collect())
}

/// Time of each layer for one micro-batch, forward and backward: of what training really computes,
/// so without the gradient of the samples, and with sums of gradients only where a value has
/// several readers.
pub fn layer_times(graph: &Graph, costs: &Costs) -> Vec<Nanos> {
    let whole = graph.division(&[]);
    let training = training_graph(graph, &whole, StageId(0), BackwardStyle::Fused);
    let mut nodes = vec![Nanos::ZERO; graph.nodes().len()];
    for computation in &training.computations {
        nodes[computation.node.index()] += costs.node(computation.node).of(computation.kind);
    }
    let layers = 0..graph.layers().len();
    layers.map(|l| graph.layer_nodes(l).map(|node| nodes[node as usize]).sum()).collect()
}

/// The split of a chain of `times` into `groups` (at most as many as items) whose slowest group is
/// fastest: first items of the groups after the first. O(groups x items x log items).
pub fn split(times: &[Nanos], groups: usize) -> Vec<usize> {
    let mut until = vec![Nanos::ZERO];
    for time in times {
        until.push(until[until.len() - 1] + *time);
    }
    let n = times.len();
    // best[j]: least maximum for the first j items; from[k][j]: where the last group begins.
    let mut best = until.clone();
    let mut from = vec![vec![0; n + 1]; groups];
    for (k, from) in from.iter_mut().enumerate().skip(1) {
        let previous = best.clone();
        for j in (k + 1)..=n {
            let first = first_of_best(&previous, &until, k..j);
            best[j] = previous[first].max(until[j] - until[first]);
            from[j] = first;
        }
    }
    let mut starts = vec![];
    let mut end = n;
    for k in (1..groups).rev() {
        end = from[k][end];
        starts.push(end);
    }
    starts.reverse();
    starts
}

/// The first `i` of a range for which the larger of `previous[i]`, which grows, and the time from item
/// `i` to the range's end, which shrinks, is least.
fn first_of_best(previous: &[Nanos], until: &[Nanos], range: Range<usize>) -> usize {
    let (start, end) = (range.start, range.end);
    let first = |holds: &dyn Fn(usize) -> bool| {
        let (mut low, mut high) = (start, end);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let rest = |i: usize| until[end] - until[i];
    let meet = first(&|i| previous[i] >= rest(i));
    let at_meet = (meet < end).then(|| previous[meet]);
    let before = (meet > start).then(|| rest(meet - 1));
    let least = at_meet.into_iter().chain(before).min().expect("the range is not empty");
    first(&|i| rest(i) <= least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn worst(times: &[u64], starts: &[usize]) -> u64 {
        let mut bounds = vec![0];
        bounds.extend_from_slice(starts);
        bounds.push(times.len());
        bounds.windows(2).map(|w| times[w[0]..w[1]].iter().sum()).max().unwrap()
    }

    /// All ways to cut, tried one by one.
    fn exhaustive(times: &[u64], groups: usize) -> u64 {
        fn cut(times: &[u64], groups: usize, starts: &mut Vec<usize>, best: &mut u64) {
            if starts.len() + 1 == groups {
                *best = (*best).min(worst(times, starts));
                return;
            }
            let first = starts.last().map_or(1, |s| s + 1);
            for start in first..=(times.len() + 1 + starts.len() - groups + 1).min(times.len() - 1)
            {
                starts.push(start);
                cut(times, groups, starts, best);
                starts.pop();
            }
        }
        let mut best = u64::MAX;
        cut(times, groups, &mut vec![], &mut best);
        best
    }

    proptest! {
        #[test]
        fn of_several_best_places_the_first(
            grows in prop::collection::vec(0u64..4, 1..12),
            times in prop::collection::vec(0u64..4, 12),
            start in 0usize..4,
        ) {
            let add = |sum: &mut Nanos, t: u64| { *sum += Nanos(t); Some(*sum) };
            let previous: Vec<Nanos> =
                grows.iter().copied().scan(Nanos::ZERO, |s, t| add(s, t)).collect();
            let until: Vec<Nanos> = std::iter::once(Nanos::ZERO)
                .chain(times.iter().copied().scan(Nanos::ZERO, |s, t| add(s, t)))
                .collect();
            let end = previous.len();
            let start = start.min(end - 1);
            let tried = (start..end).min_by_key(|i| previous[*i].max(until[end] - until[*i]));
            prop_assert_eq!(Some(first_of_best(&previous, &until, start..end)), tried);
        }

        #[test]
        fn as_good_as_trying_every_cut(
            times in prop::collection::vec(0u64..50, 1..10),
            groups in 1usize..6,
        ) {
            let groups = groups.min(times.len());
            let nanos: Vec<Nanos> = times.iter().map(|t| Nanos(*t)).collect();
            let starts = split(&nanos, groups);
            prop_assert_eq!(starts.len(), groups - 1);
            prop_assert!(starts.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(starts.first().is_none_or(|s| *s > 0));
            prop_assert_eq!(worst(&times, &starts), exhaustive(&times, groups));
        }
    }
}
