//! The Pareto set: choices of which none is worse than another in everything.

use super::Scored;
use super::choice::Figures;

/// Ascending by step time, then by the choice's place in the search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Front {
    entries: Vec<Scored>,
}

/// A choice whose step is certainly longer than this many times the best one's is not tried, even
/// if it needed less memory or sent less.
const TOO_SLOW: u64 = 2;

impl Front {
    /// Adds a choice, unless another one is at least as good; drops those that it makes
    /// superfluous. O(entries).
    pub(super) fn insert(&mut self, new: Scored) {
        let figures = new.figures();
        if self.entries.iter().any(|old| old.figures().covers(&figures)) {
            return;
        }
        self.entries.retain(|old| !figures.covers(&old.figures()));
        let at = self.entries.partition_point(|old| old.step <= new.step);
        self.entries.insert(at, new);
    }

    /// Whether no choice with figures as good as these could enter.
    pub(super) fn beats(&self, bound: &Figures) -> bool {
        let slow = |best: &Scored| bound.step.0 > best.step.0.saturating_mul(TOO_SLOW);
        self.entries.first().is_some_and(slow)
            || self.entries.iter().any(|old| old.figures().covers(bound))
    }

    /// The choices, the fastest first.
    pub fn entries(&self) -> &[Scored] {
        &self.entries
    }

    /// Whether nothing fits so far.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The shortest step.
    pub fn fastest(&self) -> Option<&Scored> {
        self.entries.first()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Choice;
    use super::*;
    use crate::schedule::ScheduleKind;
    use crate::units::{Bytes, Nanos};
    use proptest::prelude::*;

    fn scored(step: u64, peak: u64, traffic: u64) -> Scored {
        let choice = Choice {
            tensor: 1,
            replicas: 1,
            lanes: 1,
            micro_batches: 1,
            schedule: ScheduleKind::OneFOneB,
            starts: vec![],
            recompute: vec![false],
            encoding: None,
        };
        Scored {
            choice,
            step: Nanos(step),
            peak: Bytes(peak),
            traffic: Bytes(traffic),
            bubble: 0.0,
            gradients: Nanos(0),
        }
    }

    proptest! {
        #[test]
        fn holds_exactly_what_nothing_dominates(
            points in prop::collection::vec((1u64..6, 1u64..6, 1u64..6), 1..40),
        ) {
            let mut front = Front::default();
            for (a, b, c) in &points {
                front.insert(scored(*a, *b, *c));
            }
            let better = |p: &(u64, u64, u64), q: &(u64, u64, u64)| {
                p != q && p.0 <= q.0 && p.1 <= q.1 && p.2 <= q.2
            };
            let mut expected: Vec<_> = points
                .iter()
                .copied()
                .filter(|q| !points.iter().any(|p| better(p, q)))
                .collect();
            expected.sort_unstable();
            expected.dedup();
            let mut found: Vec<_> =
                front.entries().iter().map(|s| (s.step.0, s.peak.0, s.traffic.0)).collect();
            prop_assert!(found.windows(2).all(|w| w[0].0 <= w[1].0));
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
