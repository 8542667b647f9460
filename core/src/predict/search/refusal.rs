//! Reasons why a search has nothing to try.

use super::Space;
use super::enumerate::{Replicas, whole};
use crate::schedule::ScheduleKind;

/// Why no combination of what is fixed exists: what the one that comes farthest lacks.
pub(super) fn why_none(space: &Space<'_>) -> String {
    let fixed = &space.fixed;
    let kinds = fixed.schedule.map_or(ScheduleKind::ALL.to_vec(), |kind| vec![kind]);
    let most = [Some(space.devices), fixed.ranks, fixed.stages, fixed.lanes];
    let most = most.into_iter().flatten().max().unwrap_or(1);
    // Whoever says schedule and ranks means a pipeline of all of them.
    if let (Some(kind), Some(ranks), None) = (fixed.schedule, fixed.ranks, fixed.replicas)
        && let Some(refusal) = refusal(space, kind, ranks)
    {
        return refusal.why;
    }
    let mut farthest: Option<Refusal> = None;
    for kind in kinds {
        for lanes in 1..=most.min(LANES_MAX) {
            let Some(refusal) = refusal(space, kind, lanes) else { continue };
            if farthest.as_ref().is_none_or(|before| before.passed < refusal.passed) {
                farthest = Some(refusal);
            }
        }
    }
    farthest.map_or_else(|| "no schedule is left".into(), |refusal| refusal.why)
}

/// Lanes that are looked at: nothing is learned from more.
const LANES_MAX: u32 = 4096;

struct Refusal {
    /// Conditions that hold.
    passed: u32,
    why: String,
}

/// The first condition that a pipeline of so many lanes does not meet.
fn refusal(space: &Space<'_>, kind: ScheduleKind, lanes: u32) -> Option<Refusal> {
    let fixed = &space.fixed;
    let refuse = |passed, why| Some(Refusal { passed, why });
    let stages = kind.placement().stages(lanes);
    if let Some(asked) = fixed.stages.filter(|asked| *asked != stages) {
        return match kind.lanes(asked) {
            Err(error) => refuse(1, error.to_string()),
            Ok(_) => refuse(0, format!("{kind} on {lanes} lanes has {stages} stages")),
        };
    }
    if let Err(error) = kind.lanes(stages) {
        return refuse(1, error.to_string());
    }
    if let Some(asked) = fixed.lanes.filter(|asked| *asked != lanes) {
        return refuse(0, format!("{kind} with {stages} stages has {lanes} lanes, not {asked}"));
    }
    let blocks = space.blocks.len() as u32;
    if stages > blocks {
        return refuse(
            2,
            format!("{kind} on {lanes} lanes has {stages} stages, the network has {blocks} layers"),
        );
    }
    let parts = fixed.micro_batches.unwrap_or(1);
    let replicas = match whole(space, lanes) {
        Replicas::Open => 1,
        Replicas::Fixed(replicas) => replicas,
        Replicas::None => {
            let (ranks, replicas) = (fixed.ranks?, fixed.replicas?);
            return refuse(
                3,
                format!("lanes x replicas = {lanes} x {replicas} is not {ranks} ranks"),
            );
        }
    };
    let (needed, room) = (u64::from(lanes) * u64::from(replicas), space.devices);
    if needed > u64::from(room) {
        let what = format!("lanes x replicas = {lanes} x {replicas} = {needed} ranks");
        return refuse(4, format!("{what}, there is room for {room}"));
    }
    let samples = space.mini_batch;
    if !samples.is_multiple_of(u64::from(replicas) * u64::from(parts)) {
        let what = format!("replicas x micro-batches = {replicas} x {parts}");
        return refuse(5, format!("{what} does not divide the mini-batch of {samples}"));
    }
    let why = kind.generate(stages, fixed.micro_batches?).err()?.to_string();
    refuse(6, why)
}
