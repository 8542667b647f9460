//! Ranks that hold the same stages complete their gradients in the same order.
//!
//! They sum them by calls that all of them make in one order, a stage's when its last backward pass
//! ends. Ranks of one lane do so in an order of their own here: guests come at other moments, and weight
//! gradients when there is time. So on every lane a stage's last weight gradient is put off until those of
//! all later stages have run. Nobody waits for a weight gradient: no other rank is held up.

use crate::ids::StageId;
use crate::schedule::{Action, ActionKind};

/// Puts the ends of the stages of a lane into descending order of stages. O(stages · actions).
pub(super) fn put_in_order(actions: &mut Vec<Action>) {
    let mut stages: Vec<StageId> = actions.iter().map(|action| action.stage).collect();
    stages.sort_unstable();
    stages.dedup();
    let mut latest = None;
    for stage in stages.into_iter().rev() {
        let Some(mut end) = last_end(actions, stage) else { continue };
        if let Some(latest) = latest.filter(|latest| *latest > end) {
            let rest = Action { kind: ActionKind::BackwardWeight, ..actions[end] };
            actions.insert(latest + 1, rest);
            if actions[end].kind == ActionKind::Backward {
                actions[end].kind = ActionKind::BackwardInput;
                end = latest + 1;
            } else {
                actions.remove(end);
                end = latest;
            }
        }
        latest = Some(end);
    }
}

/// Where the last backward pass of a stage ends.
fn last_end(actions: &[Action], stage: StageId) -> Option<usize> {
    let ends = |kind| matches!(kind, ActionKind::Backward | ActionKind::BackwardWeight);
    actions.iter().rposition(|action| action.stage == stage && ends(action.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    fn ordered(line: &str) -> String {
        let mut actions = Schedule::parse(&[line]).unwrap().lanes.remove(0);
        put_in_order(&mut actions);
        actions.iter().map(Action::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn later_stages_end_first() {
        assert_eq!(ordered("0F0 1F0 1B0 0B0"), "0F0 1F0 1B0 0B0");
        // A weight gradient waits for the others.
        assert_eq!(ordered("0F0 1F0 1I0 0I0 0W0 1W0"), "0F0 1F0 1I0 0I0 1W0 0W0");
        // Of a whole pass the part waits that nobody needs.
        assert_eq!(ordered("0F0 1F1 0B0 1B1"), "0F0 1F1 0I0 1B1 0W0");
        assert_eq!(ordered("0F0 1F0 2F0 0B0 1B0 2B0"), "0F0 1F0 2F0 0I0 1I0 2B0 1W0 0W0");
    }
}
