//! Memory of a lane from the order of its actions: no programs needed.

use crate::ids::{LaneId, StageId};
use crate::schedule::{Action, ActionKind, Schedule};
use crate::timeline::{Lane, Span, Work};
use crate::units::{Bytes, Nanos};

/// What a stage keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// One version of the parameters.
    pub weights: Bytes,
    /// Their gradients.
    pub gradients: Bytes,
    /// What the optimizer keeps.
    pub optimizer: Bytes,
    /// Buffers of messages, for the whole step.
    pub buffers: Bytes,
    /// What a micro-batch keeps from the start of F to the end of B or W.
    pub stash: Bytes,
    /// The part of it that a split backward frees at the end of I already.
    pub stash_until_input: Bytes,
    /// In use while F runs.
    pub forward: Bytes,
    /// In use while B, I or W runs.
    pub backward: Bytes,
}

impl Footprint {
    /// What is there all the time, with so many versions of the weights.
    pub fn persistent(&self, versions: u32) -> Bytes {
        self.weights * u64::from(versions) + self.gradients + self.optimizer + self.buffers
    }

    /// Bytes in use during `action` and after it, when `held` were before.
    fn step(&self, held: Bytes, action: Action) -> (Bytes, Bytes) {
        match action.kind {
            ActionKind::Forward => (held + self.stash + self.forward, held + self.stash),
            ActionKind::Backward => (held + self.backward, held.saturating_sub(self.stash)),
            ActionKind::BackwardInput => {
                (held + self.backward, held.saturating_sub(self.stash_until_input))
            }
            ActionKind::BackwardWeight => {
                let rest = self.stash.saturating_sub(self.stash_until_input);
                (held + self.backward, held.saturating_sub(rest))
            }
        }
    }
}

/// What each lane keeps all the time. O(routes x stages + actions).
pub(super) fn persistent(schedule: &Schedule, footprints: &[Footprint]) -> Vec<Bytes> {
    let mut total = vec![Bytes::ZERO; schedule.lanes.len()];
    let versions: Vec<u32> =
        (0..total.len() as u32).map(|lane| schedule.versions(LaneId(lane))).collect();
    let mut last: Vec<Option<StageId>> = vec![None; total.len()];
    for (stage, footprint) in (0..).map(StageId).zip(footprints) {
        for route in &schedule.routes {
            let lane = route[stage.index()].index();
            // Several routes may share the lane.
            if last[lane].replace(stage) != Some(stage) {
                total[lane] += footprint.persistent(versions[lane]);
            }
        }
    }
    total
}

/// Most bytes that a lane uses at one moment. It depends on the order of its actions alone.
pub(super) fn peak(actions: &[Action], footprints: &[Footprint], persistent: Bytes) -> Bytes {
    let (mut held, mut most) = (persistent, persistent);
    for action in actions {
        let (during, after) = footprints[action.stage.index()].step(held, *action);
        most = most.max(during);
        held = after;
    }
    most
}

/// A lane's spans with the memory in use over time.
pub(super) fn over_time(spans: Vec<Span>, footprints: &[Footprint], persistent: Bytes) -> Lane {
    let mut memory: Vec<(Nanos, Bytes)> = Vec::with_capacity(2 * spans.len() + 1);
    // Of several entries of one moment the last one counts.
    let mut set = |moment, bytes| match memory.last_mut() {
        Some(last) if last.0 == moment => last.1 = bytes,
        _ => memory.push((moment, bytes)),
    };
    let (mut held, mut most) = (persistent, persistent);
    set(Nanos::ZERO, held);
    for span in &spans {
        let Work::Run(action) = span.work else { continue };
        let (during, after) = footprints[action.stage.index()].step(held, action);
        set(span.start, during);
        set(span.end, after);
        most = most.max(during);
        held = after;
    }
    Lane { spans, memory, arena: most, asides: vec![] }
}
