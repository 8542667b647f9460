//! The fastest choices of each shape: tensor-parallel degree, lanes, replicas, and whether stages run both ways.

use super::{Choice, Scored};
use crate::order::sort_by_numbers;
use crate::schedule::Placement;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Choices that are kept of a shape.
const KEPT: usize = 8;

/// An estimated peak of more than so many times the memory does not fit.
const ROOM: u64 = 2;

/// Of a shortlist, one in so many may not fit by its estimate.
const DOUBTFUL: usize = 3;

/// Tensor-parallel degree, lanes, replicas, routes through the lanes.
type Shape = [u32; 4];

/// The fastest of each shape, as estimated.
#[derive(Default)]
pub(super) struct Shapes {
    seen: BTreeSet<Shape>,
    /// Those that fit, and those that may.
    fit: Best,
    doubtful: Best,
}

fn shape(choice: &Choice) -> Shape {
    // Cuts that are even for one way are not the best for two routes that share lanes: a bound from them must not hide
    // what has better ones.
    let routes = if choice.schedule.placement() == Placement::TwoWay { 2 } else { 1 };
    [choice.tensor, choice.lanes, choice.replicas, routes]
}

impl Shapes {
    /// Whether no choice of this shape was seen.
    pub fn is_new(&self, choice: &Choice) -> bool {
        !self.seen.contains(&shape(choice))
    }

    pub fn see(&mut self, choice: &Choice) {
        self.seen.insert(shape(choice));
    }

    pub fn is_empty(&self) -> bool {
        self.fit.0.is_empty() && self.doubtful.0.is_empty()
    }

    pub fn insert(&mut self, scored: &Scored, memory: Bytes) {
        if scored.peak <= memory {
            self.fit.insert(scored);
        } else if scored.peak.0 <= memory.0.saturating_mul(ROOM) {
            self.doubtful.insert(scored);
        }
    }

    /// The fastest of all that fit and are such.
    pub fn fastest(&self, such: impl Fn(&Choice) -> bool) -> Option<&Scored> {
        let all = self.fit.0.values().flatten();
        all.filter(|scored| such(&scored.choice)).min_by_key(|scored| scored.step)
    }

    /// See [`Search::shortlist`](super::Search::shortlist).
    pub fn shortlist(&self, count: usize) -> Vec<Scored> {
        let mut list = self.fit.fastest(count - count / DOUBTFUL);
        list.extend(self.doubtful.fastest(count - list.len()));
        ascending(list).into_iter().cloned().collect()
    }
}

/// By shape, ascending by step.
#[derive(Default)]
struct Best(BTreeMap<Shape, Vec<Scored>>);

impl Best {
    fn insert(&mut self, scored: &Scored) {
        let best = self.0.entry(shape(&scored.choice)).or_default();
        let at = best.partition_point(|other| other.step <= scored.step);
        if at < KEPT {
            best.insert(at, scored.clone());
            best.truncate(KEPT);
        }
    }

    /// Data parallelism alone, then the best of each shape, half of all at most, then the fastest.
    fn fastest(&self, count: usize) -> Vec<&Scored> {
        let mut first = ascending(self.0.values().filter_map(|best| best.first()).collect());
        if let Some(at) = first.iter().position(|scored| scored.choice.lanes == 1) {
            first[..=at].rotate_right(1);
        }
        let rest = first.split_off(first.len().min(count.div_ceil(2)));
        let others = self.0.values().flat_map(|best| &best[1..]);
        let others = ascending(rest.into_iter().chain(others).collect());
        first.extend(others.into_iter().take(count.saturating_sub(first.len())));
        first
    }
}

fn ascending(mut list: Vec<&Scored>) -> Vec<&Scored> {
    sort_by_numbers(&mut list, |scored| [scored.step.0, 0]);
    list
}
