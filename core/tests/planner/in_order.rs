//! A second, slow simulator: lanes in order, compute only, values arrive a hop after their pass.

use pipewright_core::ids::StageId;
use pipewright_core::schedule::{Action, ActionKind, Schedule};
use std::collections::BTreeMap;

/// When the last lane ends, with `time` of an action and `hop` behind a stage; nothing if lanes
/// wait for each other.
pub fn makespan(
    schedule: &Schedule,
    time: impl Fn(&Action) -> u64,
    hop: impl Fn(u32) -> u64,
) -> Option<u64> {
    use ActionKind::{Backward, BackwardInput, BackwardWeight, Forward};
    let last = schedule.stages() - 1;
    let mut ends: BTreeMap<Action, u64> = BTreeMap::new();
    let mut next = vec![0; schedule.lanes.len()];
    let mut free = vec![0; schedule.lanes.len()];
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (lane, actions) in schedule.lanes.iter().enumerate() {
            while let Some(action) = actions.get(next[lane]) {
                let Action { stage: StageId(stage), kind, micro_batch } = *action;
                let of = |stage, kind| Action::new(stage, kind, micro_batch.0);
                let needs: Vec<Action> = match kind {
                    Forward if stage == 0 => vec![],
                    Forward => vec![of(stage - 1, Forward)],
                    Backward | BackwardInput if stage == last => vec![of(stage, Forward)],
                    Backward | BackwardInput => {
                        vec![of(stage + 1, Backward), of(stage + 1, BackwardInput)]
                    }
                    BackwardWeight => vec![of(stage, BackwardInput)],
                };
                let arrival = needs.iter().find_map(|need| {
                    let far = schedule.lane_of(need.stage, micro_batch)
                        != schedule.lane_of(action.stage, micro_batch);
                    let end = *ends.get(need)?;
                    Some(end + if far { hop(need.stage.0.min(stage)) } else { 0 })
                });
                let Some(arrival) = arrival.or(needs.is_empty().then_some(0)) else { break };
                free[lane] = arrival.max(free[lane]) + time(action);
                ends.insert(*action, free[lane]);
                next[lane] += 1;
                moved = true;
            }
        }
    }
    let all = (0..next.len()).all(|lane| next[lane] == schedule.lanes[lane].len());
    all.then(|| free.into_iter().max().unwrap_or(0))
}

/// By lane: the most of `held` (of a stage, until its I and from its I to its W).
pub fn peaks(schedule: &Schedule, held: impl Fn(u32) -> (u64, u64)) -> Vec<u64> {
    let lane = |actions: &Vec<Action>| {
        let (mut now, mut most) = (0, 0);
        for action in actions {
            let (stash, kept) = held(action.stage.0);
            match action.kind {
                ActionKind::Forward => now += stash,
                ActionKind::Backward => now -= stash,
                ActionKind::BackwardInput => now -= stash - kept,
                ActionKind::BackwardWeight => now -= kept,
            }
            most = most.max(now);
        }
        most
    };
    schedule.lanes.iter().map(lane).collect()
}
