//! Updates of parameters: when they happen, and how many versions of them that costs.

use super::{ActionKind, Schedule};
use crate::ids::LaneId;

/// When parameters change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Updates {
    /// Once, after the last micro-batch of the step: exact gradients, one version.
    #[default]
    Synchronous,
    /// After every micro-batch; its backward pass uses the weights of its forward pass, which are
    /// kept until then (PipeDream: Narayanan et al., SOSP 2019). Micro-batches follow each other
    /// without end; a schedule shows a window.
    Stashed,
    /// Once a step, while the next step's micro-batches are already under way on the version
    /// before (PipeDream-2BW: Narayanan et al., ICML 2021).
    DoubleBuffered,
}

impl Schedule {
    /// Copies of its parameters that `lane` keeps: 1; with stashing one for every micro-batch in
    /// flight, p - r on lane r of a straight pipeline; with double buffering 2.
    /// O(actions of the lane).
    pub fn versions(&self, lane: LaneId) -> u32 {
        match self.updates {
            Updates::Synchronous => 1,
            Updates::Stashed => self.in_flight(lane).max(1),
            Updates::DoubleBuffered => 2,
        }
    }

    /// Most micro-batches that `lane` keeps at a time, each stage's counted apart: from the
    /// forward pass to the end of the last backward part. O(actions of the lane).
    pub fn in_flight(&self, lane: LaneId) -> u32 {
        let (mut now, mut most) = (0u32, 0);
        for action in &self.lanes[lane.index()] {
            match action.kind {
                ActionKind::Forward => now += 1,
                ActionKind::Backward | ActionKind::BackwardWeight => now = now.saturating_sub(1),
                ActionKind::BackwardInput => {}
            }
            most = most.max(now);
        }
        most
    }
}
