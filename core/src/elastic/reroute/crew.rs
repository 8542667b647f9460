//! The ranks that are left, and who of them takes what the lost ones had.

use super::{Guest, Place, RerouteError};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::plan::Plan;
use crate::schedule::Schedule;
use std::collections::BTreeMap;

/// Who is left.
pub(super) struct Crew {
    pub lanes: u32,
    pub replicas: u32,
    /// Ascending, as ranks are numbered.
    pub ranks: Vec<Place>,
    lost: Vec<Place>,
}

impl Crew {
    pub fn new(plan: &Plan, lost: &[Place]) -> Result<Self, RerouteError> {
        let (lanes, replicas) = (plan.lanes(), plan.data_parallel.replicas);
        let mut lost = lost.to_vec();
        lost.sort_unstable();
        lost.dedup();
        let unknown = |place: &&Place| place.lane.0 >= lanes || place.replica >= replicas;
        if let Some(place) = lost.iter().find(unknown) {
            return Err(RerouteError::NoSuchRank(*place));
        }
        let all = (0..lanes).flat_map(|lane| {
            (0..replicas).map(move |replica| Place { lane: LaneId(lane), replica })
        });
        let ranks = all.filter(|place| lost.binary_search(place).is_err()).collect();
        let crew = Self { lanes, replicas, ranks, lost };
        for lane in (0..lanes).map(LaneId) {
            if crew.peers(lane).is_empty() {
                return Err(RerouteError::NoPeer { lane, replicas });
            }
        }
        Ok(crew)
    }

    /// Replicas that have a rank for `lane`.
    pub fn peers(&self, lane: LaneId) -> Vec<u32> {
        self.ranks.iter().filter(|place| place.lane == lane).map(|place| place.replica).collect()
    }

    /// Who is lost, by their ranks in the whole plan: ` 3` or `s 3 4`.
    pub fn missing(&self, whole: &Plan) -> String {
        let rank = |place: &Place| whole.mesh().rank(place.lane, place.replica).to_string();
        let ranks: Vec<String> = self.lost.iter().map(rank).collect();
        match ranks.as_slice() {
            [one] => format!(" {one}"),
            several => format!("s {}", several.join(" ")),
        }
    }

    /// Deals the micro-batches of lost ranks out to their peers, one after the other, so that nobody
    /// has two more than another.
    pub fn guests(&self, micro_batches: u32) -> Vec<Guest> {
        let mut guests = vec![];
        for lane in (0..self.lanes).map(LaneId) {
            let peers = self.peers(lane);
            let lost = self.lost.iter().filter(|place| place.lane == lane);
            let homeless = lost.flat_map(|from| (0..micro_batches).map(|j| (*from, MicroBatch(j))));
            let dealt = homeless.zip(peers.iter().cycle());
            guests.extend(dealt.map(|((from, micro_batch), to)| Guest {
                from,
                to: *to,
                micro_batch,
            }));
        }
        guests
    }

    /// Index of a rank among those that are left.
    fn index(&self, place: Place) -> LaneId {
        LaneId(self.ranks.binary_search(&place).expect("it is left") as u32)
    }

    /// The ways of all micro-batches of all replicas, and which each takes.
    pub fn routes(&self, base: &Schedule, guests: &[Guest]) -> (Vec<Vec<LaneId>>, Vec<u32>) {
        let away: BTreeMap<(Place, MicroBatch), u32> =
            guests.iter().map(|guest| ((guest.from, guest.micro_batch), guest.to)).collect();
        let mut numbers: BTreeMap<Vec<LaneId>, u32> = BTreeMap::new();
        let (mut routes, mut route_of) = (vec![], vec![]);
        for replica in 0..self.replicas {
            for micro_batch in (0..base.micro_batches).map(MicroBatch) {
                let place = |stage: u32| {
                    let home = Place { lane: base.lane_of(StageId(stage), micro_batch), replica };
                    let replica = away.get(&(home, micro_batch)).copied().unwrap_or(replica);
                    self.index(Place { replica, ..home })
                };
                let route: Vec<LaneId> = (0..base.stages()).map(place).collect();
                let next = routes.len() as u32;
                let number = *numbers.entry(route.clone()).or_insert(next);
                if number == next {
                    routes.push(route);
                }
                route_of.push(number);
            }
        }
        (routes, route_of)
    }
}
