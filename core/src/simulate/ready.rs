//! Lanes that may go on, in an order that is kind to caches.

use crate::ids::LaneId;

/// Lanes of a group. Each lane has several places in memory where it reads and writes; those of a
/// group fit the caches, those of a thousand lanes do not (address translation above all).
const GROUP: usize = 64;

/// A set of lanes. A group of neighbours is taken until none of it is left, then the next group up
/// to the last one, and back: between two visits a group's neighbours have made much progress, so
/// that each visit runs many actions a lane. The order changes no result.
pub(super) struct Ready {
    groups: Vec<Vec<LaneId>>,
    current: usize,
    upwards: bool,
    len: usize,
}

impl Ready {
    /// All lanes, each once.
    pub fn all(lanes: usize) -> Self {
        let mut groups = vec![vec![]; lanes.div_ceil(GROUP).max(1)];
        for lane in (0..lanes as u32).rev() {
            groups[lane as usize / GROUP].push(LaneId(lane));
        }
        Self { groups, current: 0, upwards: true, len: lanes }
    }

    /// Adds a lane that is not in the set.
    pub fn push(&mut self, lane: LaneId) {
        self.groups[lane.index() / GROUP].push(lane);
        self.len += 1;
    }

    /// Takes the next lane.
    pub fn pop(&mut self) -> Option<LaneId> {
        if self.len == 0 {
            return None;
        }
        loop {
            if let Some(lane) = self.groups[self.current].pop() {
                self.len -= 1;
                return Some(lane);
            }
            match (self.upwards, self.current) {
                (true, at) if at + 1 < self.groups.len() => self.current = at + 1,
                (false, at) if at > 0 => self.current = at - 1,
                _ => self.upwards = !self.upwards,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_comes_out_once_and_groups_are_finished_first() {
        let mut ready = Ready::all(100);
        assert_eq!(ready.pop(), Some(LaneId(0)));
        ready.push(LaneId(0));
        ready.push(LaneId(5));
        let mut seen = vec![];
        while let Some(lane) = ready.pop() {
            seen.push(lane.0);
        }
        assert_eq!(seen[..2], [5, 0]);
        assert_eq!(seen.len(), 101);
        ready.push(LaneId(2));
        assert_eq!((ready.pop(), ready.pop()), (Some(LaneId(2)), None));
    }
}
