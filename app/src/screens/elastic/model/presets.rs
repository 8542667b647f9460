//! Four things to look at, and scripts to begin with.

use super::scenario::{Chosen, Event, Scenario};
use crate::base::texts::n;
use pipewright_core::elastic::BatchRule;
use pipewright_core::elastic::life::What;

/// A scenario with a name.
pub struct Preset {
    /// Its word in links.
    pub word: &'static str,
    /// For [`crate::base::texts::t`].
    pub title: &'static str,
    /// What to look at.
    pub look: &'static str,
    make: fn() -> Scenario,
}

impl Preset {
    /// The scenario.
    pub fn scenario(&self) -> Scenario {
        (self.make)()
    }
}

/// All of them; the first is what the view begins with.
pub const ALL: [Preset; 4] = [
    Preset {
        word: "grow",
        title: n("2 → 4 → 2"),
        look: n(
            "Two nodes become four and then two again, and no sample is skipped or used twice. \
             Each change costs one restart; A goes on with whatever is there, B ends the job if \
             it loses nodes before 80 % of the work is done.",
        ),
        make: || with(grow(), 3 * HOUR, [text("any"), text("progress:0.8")]),
    },
    Preset {
        word: "spot",
        title: n("Spot nodes"),
        look: n("Spot nodes are taken away and come back. A uses whatever there is and restarts \
             each time; B takes returning nodes in only when a loss forces a restart anyway."),
        make: || with(spot(), 8 * HOUR, [text("any"), script("patient")]),
    },
    Preset {
        word: "kills",
        title: n("A failure every 10 min"),
        look: n(
            "Every ten minutes a node dies and is back two minutes later: A restarts twice for \
             each, B once, with fewer nodes. Make the restart a few minutes long, and B \
             overtakes A. Goodput is the share of time spent on training that counts.",
        ),
        make: || with(kills(10 * MINUTE, 2 * MINUTE), 4 * HOUR, [text("any"), script("patient")]),
    },
    Preset {
        word: "morning",
        title: n("Morning"),
        look: n(
            "One node trains at night; the others join one by one in the morning and leave in \
             the evening. A restarts for each of them unless the settle window gathers them; B \
             never restarts for a node that joins, and stays small.",
        ),
        make: || with(morning(), 30 * HOUR, [text("any"), script("patient")]),
    },
];

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The scripts of the documentation, by name: what the situations of the eChainer article need, and
/// one of ours.
pub const SCRIPTS: [(&str, &str); 8] = [
    ("fail_stop", include_str!("../../../../../docs/policies/fail_stop.rhai")),
    ("min_max", include_str!("../../../../../docs/policies/min_max.rhai")),
    ("deadline", include_str!("../../../../../docs/policies/deadline.rhai")),
    ("batch_size", include_str!("../../../../../docs/policies/batch_size.rhai")),
    ("burst", include_str!("../../../../../docs/policies/burst.rhai")),
    ("exact_size", include_str!("../../../../../docs/policies/exact_size.rhai")),
    ("progress", include_str!("../../../../../docs/policies/progress.rhai")),
    ("patient", include_str!("../../../../../docs/policies/patient.rhai")),
];

/// Built-in policies to begin with, for a plan of so many ranks a replica.
pub fn built_in(replica: u32) -> [String; 8] {
    let replica = replica.max(1);
    let (two, four) = (replica.saturating_mul(2), replica.saturating_mul(4));
    [
        "any".into(),
        format!("min-max:{replica}:{four}"),
        format!("fixed-size:{two}"),
        format!("fail-stop:{replica}"),
        "deadline:4h".into(),
        "progress:0.8".into(),
        "batch-range:64:2048".into(),
        format!("min-max:{replica}:{four}+deadline:4h"),
    ]
}

fn text(text: &str) -> Chosen {
    Chosen::Text(text.into())
}

fn script(name: &str) -> Chosen {
    let found = SCRIPTS.iter().find(|(known, _)| *known == name);
    Chosen::Script(found.map_or("run()", |(_, script)| script).to_owned())
}

fn with(events: Vec<Event>, work: u64, policies: [Chosen; 2]) -> Scenario {
    Scenario {
        events,
        work,
        epochs: 90,
        settle: SECOND,
        detect: 1100,
        restart: 1500,
        rule: BatchRule::Keep,
        policies,
    }
}

fn event(at: u64, node: usize, what: What) -> Event {
    Event { at, node: format!("n{node}"), slots: 0, what }
}

fn grow() -> Vec<Event> {
    let first = (1..=2).map(|node| event(0, node, What::Joins));
    let more = (3..=4).map(|node| event(20 * MINUTE, node, What::Joins));
    let fewer = (3..=4).map(|node| event(50 * MINUTE, node, What::Leaves));
    first.chain(more).chain(fewer).collect()
}

/// Minutes at which nodes are lost and come back, as a market of spare machines might have it.
const SPOT: [(usize, u64, u64); 12] = [
    (6, 14, 31),
    (3, 42, 58),
    (4, 43, 75),
    (1, 90, 97),
    (5, 96, 140),
    (2, 118, 131),
    (6, 121, 160),
    (3, 170, 176),
    (4, 171, 230),
    (1, 172, 188),
    (2, 205, 214),
    (5, 226, 262),
];

fn spot() -> Vec<Event> {
    let first = (1..=6).map(|node| event(0, node, What::Joins));
    let trouble = SPOT.iter().flat_map(|(node, lost, back)| {
        [event(lost * MINUTE, *node, What::IsLost), event(back * MINUTE, *node, What::Joins)]
    });
    first.chain(trouble).collect()
}

/// Four nodes; every `period` the next of them is lost and is back after `pause`.
pub fn kills(period: u64, pause: u64) -> Vec<Event> {
    let first = (1..=4).map(|node| event(0, node, What::Joins));
    let lost = (1..=24).flat_map(|kill: u64| {
        let node = 1 + (kill as usize - 1) % 4;
        let at = kill * period;
        [event(at, node, What::IsLost), event(at + pause, node, What::Joins)]
    });
    first.chain(lost).collect()
}

fn morning() -> Vec<Event> {
    let night = [event(0, 1, What::Joins)];
    let come =
        (2..=6).map(|node| event(8 * HOUR + (node as u64 - 2) * 40 * SECOND, node, What::Joins));
    let go =
        (2..=6).map(|node| event(18 * HOUR + (node as u64 - 2) * 30 * SECOND, node, What::Leaves));
    night.into_iter().chain(come).chain(go).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_a_policy() {
        for replica in [0, 1, 4, u32::MAX] {
            for text in built_in(replica) {
                assert!(Chosen::built_in(&text).is_ok(), "{text}");
            }
        }
        for (name, script) in SCRIPTS {
            assert!(pipewright_core::elastic::Script::compile(name, script).is_ok(), "{name}");
        }
    }

    #[test]
    fn events_of_presets_differ() {
        for (at, preset) in ALL.iter().enumerate() {
            let same = |other: &Preset| other.scenario().events == preset.scenario().events;
            assert_eq!(ALL.iter().position(same), Some(at));
        }
    }
}
