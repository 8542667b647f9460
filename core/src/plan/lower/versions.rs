//! Weight versions: those that a stage uses in schedules that update parameters while micro-batches
//! are under way.
//!
//! With stashing (PipeDream) a backward pass uses the version of its forward pass. A version is
//! kept as long as a micro-batch in flight needs it; an update of a version that nobody needs any
//! more happens in place. The last update of the step ends in version 0, where the next one begins.

use crate::ids::StageId;
use crate::schedule::{Action, ActionKind, Updates};

/// What an action of a stage does with versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// The version that it computes with.
    pub version: u32,
    /// The update after it: from which version to which, and its number in the step.
    pub update: Option<(u32, u32, u32)>,
}

/// The uses of all actions of a stage, in their order.
pub(super) enum Uses {
    /// So many alike.
    Alike(Use, usize),
    Each(Vec<Use>),
}

impl Uses {
    /// How many actions there are.
    pub fn len(&self) -> usize {
        match self {
            Uses::Alike(_, count) => *count,
            Uses::Each(uses) => uses.len(),
        }
    }

    /// That of the action of this number.
    pub fn of(&self, number: usize) -> Use {
        match self {
            Uses::Alike(all, _) => *all,
            Uses::Each(uses) => uses[number],
        }
    }
}

/// The use of every action of `stage` in `actions`, others skipped, and how many versions there
/// are.
pub(super) fn uses(actions: &[Action], stage: StageId, updates: Updates) -> (Uses, u32) {
    let mine = actions.iter().filter(|action| action.stage == stage);
    match updates {
        Updates::Synchronous => (Uses::Alike(Use::default(), mine.count()), 1),
        Updates::DoubleBuffered => (Uses::Alike(Use { version: 1, update: None }, mine.count()), 2),
        Updates::Stashed => {
            let (uses, count) = stashed(mine.copied().collect());
            (Uses::Each(uses), count)
        }
    }
}

fn stashed(actions: Vec<Action>) -> (Vec<Use>, u32) {
    let ends =
        |action: &Action| matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight);
    let last = actions.iter().rposition(ends);
    // Micro-batches in flight on each version.
    let mut busy = vec![0u32];
    let mut held = std::collections::BTreeMap::new();
    let (mut current, mut number) = (0u32, 0);
    let mut uses = Vec::with_capacity(actions.len());
    for (at, action) in actions.iter().enumerate() {
        if action.kind == ActionKind::Forward {
            busy[current as usize] += 1;
            held.insert(action.micro_batch, current);
        }
        let version = held[&action.micro_batch];
        let update = ends(action).then(|| {
            busy[version as usize] -= 1;
            let free = |v: u32| v == current || busy[v as usize] == 0;
            let to = match (Some(at) == last, busy[current as usize]) {
                (true, _) => 0,
                (false, 0) => current,
                (false, _) => {
                    let unused = (0..busy.len() as u32).find(|v| *v != current && free(*v));
                    unused.unwrap_or(busy.len() as u32)
                }
            };
            if to as usize == busy.len() {
                busy.push(0);
            }
            let from = std::mem::replace(&mut current, to);
            number += 1;
            (from, to, number - 1)
        });
        uses.push(Use { version, update });
    }
    (uses, busy.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LaneId;
    use crate::schedule::ScheduleKind;

    fn each(actions: &[Action], stage: StageId, updates: Updates) -> (Vec<Use>, u32) {
        let (uses, count) = uses(actions, stage, updates);
        ((0..uses.len()).map(|at| uses.of(at)).collect(), count)
    }

    #[test]
    fn pipedream_keeps_as_many_versions_as_micro_batches_in_flight() {
        let schedule = ScheduleKind::PipeDream.generate(4, 12).unwrap();
        for lane in 0..4 {
            let actions = &schedule.lanes[lane as usize];
            let (uses, count) = each(actions, StageId(lane), schedule.updates);
            assert_eq!(count, schedule.versions(LaneId(lane)), "lane {lane}");
            let updates: Vec<_> = uses.iter().filter_map(|u| u.update).collect();
            assert_eq!(updates.len(), 12);
            assert_eq!(updates.last().unwrap().1, 0, "the next step begins with version 0");
            // Each update starts from where the one before ended.
            assert!(updates.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }

    #[test]
    fn a_version_in_use_is_never_overwritten() {
        let schedule = ScheduleKind::PipeDream.generate(3, 9).unwrap();
        for (lane, actions) in (0..).zip(&schedule.lanes) {
            let (uses, _) = each(actions, StageId(lane), schedule.updates);
            let mut in_flight = std::collections::BTreeMap::new();
            for (action, used) in actions.iter().zip(uses) {
                match action.kind {
                    ActionKind::Forward => drop(in_flight.insert(action.micro_batch, used.version)),
                    _ => assert_eq!(in_flight.remove(&action.micro_batch), Some(used.version)),
                }
                if let Some((_, to, _)) = used.update {
                    assert!(in_flight.values().all(|version| *version != to));
                }
            }
        }
    }
}
