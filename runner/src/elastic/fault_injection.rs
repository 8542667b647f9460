//! Faults on purpose, for tests: `RANK:PLACE:STEP[:ACTION[:NUMBER]][@GENERATION]`, several with commas.
//!
//! `2:optimizer:5` kills rank 2 before the optimizer of step 5, or of the first step after it that
//! comes there. Without a generation, the first: a rank that came back does not die again.

use crate::execute::{InjectedFault, StepPhase};
use std::str::FromStr;

/// What happens to the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultAction {
    /// SIGKILL.
    #[default]
    Kill,
    /// SIGSTOP: every thread stands still.
    Stop,
    /// The rank's thread waits for ever, the heart beats.
    Hang,
    /// Its gradient is not finite, in so many steps.
    NotFinite(u64),
    /// It lives on, not as before.
    InjectedFault(InjectedFault),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// Whom it hits.
    pub rank: u32,
    /// Where.
    pub place: StepPhase,
    /// From this step on.
    pub step: u64,
    /// How.
    pub action: FaultAction,
    /// In this generation.
    pub generation: u64,
}

/// A list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSchedule(pub Vec<ScheduledFault>);

/// The places by name.
const PLACES: [(&str, StepPhase); 12] = [
    ("start", StepPhase::Start),
    ("begun", StepPhase::Begun),
    ("forward", StepPhase::Forward),
    ("backward", StepPhase::Backward),
    ("send", StepPhase::Send),
    ("recv", StepPhase::Recv),
    ("all-reduce", StepPhase::AllReduce),
    ("optimizer", StepPhase::Optimizer),
    ("checkpoint", StepPhase::Checkpoint),
    ("rename", StepPhase::Rename),
    ("committed", StepPhase::Committed),
    ("exit", StepPhase::Exit),
];

impl FromStr for FaultSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(fault).collect::<Result<_, _>>().map(FaultSchedule)
    }
}

fn fault(text: &str) -> Result<ScheduledFault, String> {
    let wrong = |why: &str| {
        format!("fault `{text}`: {why}; RANK:PLACE:STEP[:ACTION[:NUMBER]][@GENERATION]")
    };
    let (what, generation) = match text.split_once('@') {
        Some((what, number)) => (what, number.parse().map_err(|_| wrong("no generation"))?),
        None => (text, 1),
    };
    let mut parts = what.split(':');
    let mut next = || parts.next().unwrap_or_default();
    let rank = next().parse().map_err(|_| wrong("no rank"))?;
    let name = next();
    let place = PLACES.iter().find(|(known, _)| *known == name).map(|(_, place)| *place);
    let place = place.ok_or_else(|| wrong(&format!("no place `{name}`")))?;
    let step = next().parse().map_err(|_| wrong("no step"))?;
    let name = next();
    let number = parts.next().map(str::parse).transpose().map_err(|_| wrong("no number"))?;
    let action = match (name, number) {
        ("" | "kill", None) => FaultAction::Kill,
        ("stop", None) => FaultAction::Stop,
        ("hang", None) => FaultAction::Hang,
        ("nan", steps) => FaultAction::NotFinite(u64::from(steps.unwrap_or(1))),
        ("flip", None) => FaultAction::InjectedFault(InjectedFault::Flip),
        ("slow", Some(factor)) => FaultAction::InjectedFault(InjectedFault::Slow(factor)),
        _ => return Err(wrong("kill, stop, hang, nan[:STEPS], flip or slow:FACTOR")),
    };
    match parts.next() {
        None => Ok(ScheduledFault { rank, place, step, action, generation }),
        Some(_) => Err(wrong("too much")),
    }
}

impl FaultSchedule {
    /// What is to happen now, if anything.
    pub fn due(
        &self,
        rank: u32,
        generation: u64,
        place: StepPhase,
        step: u64,
    ) -> Option<FaultAction> {
        let hit = |fault: &&ScheduledFault| {
            (fault.rank, fault.generation, fault.place) == (rank, generation, place)
                && match fault.action {
                    FaultAction::NotFinite(steps) => {
                        (fault.step..fault.step + steps).contains(&step)
                    }
                    _ => step >= fault.step,
                }
        };
        self.0.iter().find(hit).map(|fault| fault.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let faults: FaultSchedule = "2:optimizer:5,0:all-reduce:1:stop@3".parse().unwrap();
        assert_eq!(faults.due(2, 1, StepPhase::Optimizer, 4), None);
        assert_eq!(faults.due(2, 1, StepPhase::Optimizer, 6), Some(FaultAction::Kill));
        assert_eq!(faults.due(2, 2, StepPhase::Optimizer, 6), None, "it came back");
        assert_eq!(faults.due(0, 3, StepPhase::AllReduce, 1), Some(FaultAction::Stop));
        assert_eq!(faults.due(0, 3, StepPhase::Recv, 1), None);
        let faults: FaultSchedule = "1:forward:5:nan:2,2:committed:3:slow:10".parse().unwrap();
        let nan = |step| faults.due(1, 1, StepPhase::Forward, step).is_some();
        assert_eq!([4, 5, 6, 7].map(nan), [false, true, true, false]);
        let slow = Some(FaultAction::InjectedFault(InjectedFault::Slow(10)));
        assert_eq!(faults.due(2, 1, StepPhase::Committed, 4), slow);
        for (text, why) in [
            ("", "no rank"),
            ("1:nowhere:2", "no place `nowhere`"),
            ("1:send", "no step"),
            ("1:send:2:explode", "kill, stop, hang"),
            ("1:send:2:slow", "slow:FACTOR"),
            ("1:send:2:kill:now", "no number"),
            ("1:send:2:slow:2:3", "too much"),
            ("1:send:2@x", "no generation"),
        ] {
            let error = text.parse::<FaultSchedule>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
