//! Ranks that compute for longer than they should: they hold all others up, and no error says so.
//!
//! A rank says how long it computes in a step ([`Heartbeat::busy_ns`](super::heartbeat::Heartbeat)). It is compared with
//! the ranks that do the same work, the replicas of its stages; where it is the only one, with all
//! others, each by what the plan predicts of it.

use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;
use std::time::{Duration, Instant};

/// So many times as long as the others is slow, and so many is well again.
const SLOW: f64 = 1.5;
const WELL: f64 = 1.25;

/// Looks in a row that must say the same: some may fall on a moment when the machine is busy.
const LOOKS: u32 = 3;

/// Steps between two looks: by then half of what a rank's time is made of is new.
const STEPS: u64 = 4;

/// Time between two warnings: on cores that are shared others are slow every moment.
const SPOKEN: Duration = Duration::from_secs(30);

/// How often slow ranks are spoken of.
#[derive(Debug, Default)]
pub struct Warnings {
    last: Option<Instant>,
    unsaid: u32,
}

impl Warnings {
    /// Whether one is due; how many were not said since the last one.
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < SPOKEN) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// A slow rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Straggler {
    /// Who.
    pub rank: u32,
    /// Its stages.
    pub stages: Vec<u32>,
    /// How many times as long as others it takes.
    pub factor: f64,
}

/// What a plan says of a rank.
#[derive(Clone, Debug)]
struct Expected {
    lane: u32,
    stages: Vec<u32>,
    busy_ns: u64,
}

/// Watches how long ranks compute.
#[derive(Debug)]
pub struct Stragglers {
    ranks: Vec<Expected>,
    /// By rank: looks in a row at which it was slow, and whether that has been told.
    slow: Vec<(u32, bool)>,
    step: u64,
}

impl Stragglers {
    /// For ranks that run a plan; nobody is slow where it cannot be predicted.
    pub fn new(plan: &Plan) -> Self {
        let Ok(prediction) = predict(plan) else {
            return Self { ranks: vec![], slow: vec![], step: 0 };
        };
        let expected = |rank| {
            let lane = plan.mesh().lane(rank);
            let program = &prediction.programs[lane.index()];
            let stages = program.stages.iter().map(|stage| stage.stage.0).collect();
            // Where ranks share devices, each has a lane of its own in the timeline.
            let lanes = &prediction.timeline.lanes;
            let at = if lanes.len() == plan.ranks() as usize { rank } else { lane.0 };
            let busy_ns = lanes[at as usize].busy().0;
            Expected { lane: lane.0, stages, busy_ns }
        };
        let ranks: Vec<Expected> = (0..plan.ranks()).map(expected).collect();
        Self { slow: vec![(0, false); ranks.len()], ranks, step: 0 }
    }

    /// Looks at the times of all ranks when `step` steps are trained; those that have become slow.
    pub fn look(&mut self, step: u64, busy_ns: &[u64]) -> Vec<Straggler> {
        let unknown = busy_ns.len() != self.ranks.len() || busy_ns.contains(&0);
        if unknown || step < self.step + STEPS {
            return vec![];
        }
        self.step = step;
        let mut found = vec![];
        for rank in 0..self.ranks.len() {
            let factor = self.factor(rank, busy_ns);
            let (looks, told) = &mut self.slow[rank];
            *looks = if factor >= SLOW { *looks + 1 } else { 0 };
            *told &= factor >= WELL;
            if *looks >= LOOKS && !std::mem::replace(told, true) {
                let stages = self.ranks[rank].stages.clone();
                found.push(Straggler { rank: rank as u32, stages, factor });
            }
        }
        found
    }

    /// How many times as long as others a rank takes.
    fn factor(&self, rank: usize, busy_ns: &[u64]) -> f64 {
        let Expected { lane, busy_ns: expected, .. } = &self.ranks[rank];
        let others = || (0..self.ranks.len()).filter(|other| *other != rank);
        let peers = others().filter(|other| self.ranks[*other].lane == *lane);
        let peers: Vec<f64> = peers.map(|peer| busy_ns[peer] as f64).collect();
        let ratio = |of: usize| busy_ns[of] as f64 / self.ranks[of].busy_ns.max(1) as f64;
        let usual = match peers.is_empty() {
            false => median(peers),
            true => median(others().map(ratio).collect()) * *expected as f64,
        };
        // A rank alone has nobody to be compared with.
        if usual > 0.0 { busy_ns[rank] as f64 / usual } else { 1.0 }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lanes of `replicas`, the second with twice the work.
    fn lanes(replicas: u32) -> Stragglers {
        let rank = |rank: u32| Expected {
            lane: rank / replicas,
            stages: vec![rank / replicas],
            busy_ns: 100 * u64::from(rank / replicas + 1),
        };
        let ranks: Vec<Expected> = (0..2 * replicas).map(rank).collect();
        Stragglers { slow: vec![(0, false); ranks.len()], ranks, step: 0 }
    }

    #[test]
    fn warnings_are_few() {
        let (mut warnings, begin) = (Warnings::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let due: Vec<Option<u32>> =
            [0, 1, 2, 29, 31, 32].map(|seconds| warnings.due(at(seconds))).into();
        assert_eq!(due, [Some(0), None, None, None, Some(3), None]);
    }

    #[test]
    fn slow_ranks_are_found_once() {
        let mut watch = lanes(2);
        let slow = [10, 11, 19, 41];
        assert_eq!(watch.look(4, &slow), [], "one look is none");
        assert_eq!(watch.look(6, &slow), [], "too early for another");
        assert_eq!(watch.look(8, &slow), [], "two are not enough");
        let found = watch.look(12, &slow);
        assert_eq!(
            found.iter().map(|s| (s.rank, &s.stages[..])).collect::<Vec<_>>(),
            [(3, &[1][..])]
        );
        assert!((found[0].factor - 41.0 / 19.0).abs() < 1e-9);
        assert_eq!(watch.look(16, &slow), [], "it has been told");
        assert_eq!(watch.look(20, &[10, 11, 19, 20]), [], "well again");
        let again = [24, 28, 32].map(|step| watch.look(step, &slow).len());
        assert_eq!(again, [0, 0, 1]);
    }

    #[test]
    fn a_rank_without_peers_is_compared_with_the_prediction() {
        let mut watch = lanes(1);
        // Twice the work takes twice the time, everywhere three times what was predicted.
        for step in 1..10 {
            assert_eq!(watch.look(4 * step, &[300, 600]), []);
        }
        let found = [40, 44, 48].map(|step| watch.look(step, &[300, 1800]).len());
        assert_eq!(found, [0, 0, 1]);
        assert_eq!(watch.look(52, &[0, 1800]), [], "not all have said anything");
    }
}
