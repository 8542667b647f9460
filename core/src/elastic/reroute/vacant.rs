//! Choice of the places that stay empty: those whose lanes have the least to do.

use super::{Place, RerouteError, Rerouted};
use crate::ids::LaneId;
use crate::plan::Plan;
use crate::predict::predict;
use crate::schedule::{Action, Schedule};
use crate::simulate::StageCost;
use crate::units::Nanos;

/// How `plan` goes on with so many ranks, fewer than it has. Places stay empty one after the other, each
/// on the lane whose ranks have the least to do afterwards. O(missing ranks · lanes) besides [`Rerouted::of`].
///
/// # Errors
/// As [`Rerouted::of`], where that leaves a lane without ranks too.
pub fn reroute_to(plan: &Plan, ranks: u32) -> Result<Rerouted, RerouteError> {
    let (_, base) = plan.check()?;
    let missing = plan.ranks().saturating_sub(ranks);
    let prediction = predict(plan)?;
    Rerouted::of(plan, &prediction, &vacant(plan, &base, &prediction.stages, missing))
}

fn vacant(plan: &Plan, base: &Schedule, costs: &[StageCost], missing: u32) -> Vec<Place> {
    let replicas = plan.data_parallel.replicas;
    let of = |action: &Action| costs[action.stage.index()].of(action.kind);
    let work = base.lanes.iter().map(|actions| actions.iter().map(of).sum::<Nanos>());
    // By lane: what all its replicas have to do together, and how many of them are left.
    let mut lanes: Vec<(Nanos, u32)> =
        work.map(|one| (one * u64::from(replicas), replicas)).collect();
    let mut places = vec![];
    for _ in 0..missing {
        let after = |(work, left): &(Nanos, u32)| match left.checked_sub(1) {
            // Nobody has the parameters: only where there is no other way, to be refused.
            None | Some(0) => Nanos(u64::MAX),
            Some(left) => Nanos(work.0 / u64::from(left)),
        };
        let least =
            (0..lanes.len()).filter(|at| lanes[*at].1 > 0).min_by_key(|at| after(&lanes[*at]));
        let Some(at) = least else { break };
        lanes[at].1 -= 1;
        places.push(Place { lane: LaneId(at as u32), replica: lanes[at].1 });
    }
    places
}
