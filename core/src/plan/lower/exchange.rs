//! Memory of encoded sums: messages on their way, and what error feedback carries.

use super::Inputs;
use super::groups::Groups;
use super::lane::LaneStage;
use crate::compress::Reduction;
use crate::compress::share::Share;
use crate::ids::LaneId;
use crate::plan::{Region, StageProgram};
use crate::units::Bytes;
use std::ops::Range;

/// Replicas that are looked at: the others' shares differ from theirs by a few values.
const LOOKED_AT: u32 = 32;

/// What the rank of `lane` needs that needs most.
pub(super) fn exchange_bytes(
    inputs: &Inputs,
    groups: &Groups,
    lane: LaneId,
    stages: &[LaneStage],
) -> Bytes {
    let ways = inputs.communication.gradient_reductions();
    let undone = inputs.training.skips().is_some();
    let of_replica = |replica: u32| {
        let rank = inputs.mesh().rank(lane, replica);
        let mut bytes = 0;
        for program in stages.iter().map(|stage| &stage.program) {
            for (at, bucket) in program.buckets.iter().enumerate() {
                let way = |way| inputs.communication.reduction(way, program.stage, at);
                let reductions: Vec<Reduction> =
                    ways.iter().map(|w| way(*w)).filter(|r| !r.is_plain()).collect();
                if reductions.is_empty() {
                    continue;
                }
                let group: Vec<u32> = groups.ranks(inputs, bucket.group).collect();
                let tensors = tensors(program, bucket.region.offset, bucket.region.bytes);
                let share = match inputs.communication.hierarchical {
                    false => Share::flat(&group, &tensors, rank),
                    true => Share::hierarchical(&group, &tensors, rank, |rank| {
                        inputs.cluster.node_of(LaneId(rank))
                    }),
                };
                bytes += share.bytes(&reductions, undone);
            }
        }
        bytes
    };
    let replicas = inputs.data_parallel.replicas.min(LOOKED_AT);
    Bytes((0..replicas).map(of_replica).max().unwrap_or(0))
}

/// The places of the tensors of a bucket among its values.
fn tensors(program: &StageProgram, offset: Bytes, bytes: Bytes) -> Vec<Range<usize>> {
    let gradients = program.params.iter().filter_map(|place| place.gradient);
    let inside = gradients.filter(|g| offset <= g.offset && g.offset < offset + bytes);
    let place = |gradient: Region| {
        let start = (gradient.offset - offset).0 / 4;
        [start, start + gradient.bytes.0 / 4, 0]
    };
    let mut places: Vec<[u64; 3]> = inside.map(place).collect();
    places.sort_unstable();
    places.into_iter().map(|[start, end, _]| start as usize..end as usize).collect()
}
