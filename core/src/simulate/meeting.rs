//! All lanes of a step come together once, to clip their gradients.

use crate::cost::Cluster;
use crate::cost::collective::best_all_reduce;
use crate::ids::LaneId;
use crate::plan::Program;
use crate::units::Nanos;

/// The lanes that have come, and how long they then take together.
pub(super) struct Meeting {
    came: Vec<bool>,
    missing: usize,
    /// When the last one came.
    last: Nanos,
    time: Nanos,
}

impl Meeting {
    /// The sum over all lanes of one number of eight bytes per parameter, over the slowest link
    /// among them.
    pub fn new(programs: &[Program], cluster: &Cluster, ranks: usize) -> Self {
        let lanes = ranks as u32;
        let params = programs.iter().flat_map(|p| &p.stages).map(|s| s.params.len()).sum::<usize>();
        let link = cluster.collective_link(LaneId(0), LaneId(lanes.saturating_sub(1)));
        let seconds = match lanes {
            0 | 1 => 0.0,
            _ => best_all_reduce(lanes, 8.0 * params as f64, link).1,
        };
        Self {
            came: vec![false; ranks],
            missing: ranks,
            last: Nanos::ZERO,
            time: Nanos::from_secs(seconds),
        }
    }

    /// A lane is here at `now`: when it can go on, once that is known, and whether it is the lane
    /// for which the others wait.
    pub fn come(&mut self, lane: LaneId, now: Nanos) -> (Option<Nanos>, bool) {
        let first_time = !std::mem::replace(&mut self.came[lane.index()], true);
        if first_time {
            self.missing -= 1;
            self.last = self.last.max(now);
        }
        let end = (self.missing == 0).then(|| self.last + self.time);
        (end, first_time && self.missing == 0)
    }
}
