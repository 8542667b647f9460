//! A scenario as drawn and chosen: who comes and goes, how long things take, two policies.

use super::{moments, time};
use crate::base::texts::{t, tr};
use pipewright_core::elastic::life::{Incident, Life, Pauses, What};
use pipewright_core::elastic::{BatchRule, Member, Policy};
use pipewright_core::units::Nanos;

/// Most events of a scenario.
pub const EVENTS_MOST: usize = 400;
/// Most nodes of a scenario.
pub const NODES_MOST: usize = 64;
/// Most slots of a node.
pub const SLOTS_MOST: u32 = 1024;
/// Most epochs of a training.
pub const EPOCHS_MOST: u64 = 100_000;
/// The most letters of a script: what a link can still carry.
pub const SCRIPT_MOST: usize = 4000;

/// Something that happens to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds since the job began.
    pub at: u64,
    /// To whom: letters, digits, `_`, `.`, `-`.
    pub node: String,
    /// Ranks that it offers; 0: as many as a replica of the plan has. Matters where it joins.
    pub slots: u32,
    /// What.
    pub what: What,
}

/// A policy as it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Built in, as text: `min-max:2:8`. It need not be one yet: what is wrong is said beside it.
    Text(String),
    /// A script in Rhai.
    Script(String),
}

impl Chosen {
    /// The text as it is edited.
    pub fn text(&self) -> &str {
        match self {
            Chosen::Text(text) | Chosen::Script(text) => text,
        }
    }

    /// Its name in tables.
    pub fn title(&self) -> String {
        match self {
            Chosen::Text(text) => text.clone(),
            Chosen::Script(text) => {
                let known = super::presets::SCRIPTS.iter().find(|(_, example)| example == text);
                known.map_or_else(|| t("script").to_owned(), |(name, _)| format!("{name}.rhai"))
            }
        }
    }

    /// The built-in policy.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn built_in(text: &str) -> Result<Policy, String> {
        text.trim().parse::<Policy>().map_err(|why| why.to_string())
    }
}

/// Everything that simulated lives follow from, but for the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Who comes and goes, in the order in which it was drawn.
    pub events: Vec<Event>,
    /// What the whole training takes on the plan's ranks without interruption, in milliseconds.
    pub work: u64,
    /// Epochs of it.
    pub epochs: u64,
    /// Between the first change and the question to the policy, in milliseconds.
    pub settle: u64,
    /// Between a loss and its detection, in milliseconds.
    pub detect: u64,
    /// Between a verdict and the first step, in milliseconds.
    pub restart: u64,
    /// What another size does to the mini-batch.
    pub rule: BatchRule,
    /// The policy, and the one that it is compared with.
    pub policies: [Chosen; 2],
}

impl Default for Scenario {
    fn default() -> Self {
        super::presets::ALL[0].scenario()
    }
}

impl Scenario {
    /// All nodes, in the order in which they first come.
    pub fn nodes(&self) -> Vec<String> {
        let mut first: Vec<(u64, &str)> = vec![];
        for event in &self.events {
            match first.iter_mut().find(|(_, node)| *node == event.node) {
                Some((at, _)) => *at = event.at.min(*at),
                None => first.push((event.at, &event.node)),
            }
        }
        first.sort_by_key(|(at, _)| *at);
        first.into_iter().map(|(_, node)| node.to_owned()).collect()
    }

    /// What happens to whom, with nodes of `replica` slots where nothing else was said.
    pub fn incidents(&self, replica: u32) -> Vec<Incident> {
        let incident = |event: &Event| Incident {
            at: Nanos(event.at * 1_000_000),
            member: Member::new(
                event.node.clone(),
                if event.slots == 0 { replica } else { event.slots },
            ),
            what: event.what,
        };
        self.events.iter().map(incident).collect()
    }

    /// Ranks that all nodes together offer at most.
    pub fn most_slots(&self, replica: u32) -> u32 {
        let slots = |event: &Event| if event.slots == 0 { replica } else { event.slots };
        let of = |node: &String| {
            self.events.iter().filter(|e| e.node == *node).map(slots).max().unwrap_or(0)
        };
        self.nodes().iter().map(of).fold(0, u32::saturating_add)
    }

    /// Times in which nothing is trained.
    pub fn pauses(&self) -> Pauses {
        let nanos = |ms: u64| Nanos(ms * 1_000_000);
        Pauses {
            settle: nanos(self.settle),
            detect: nanos(self.detect),
            launch: nanos(self.restart),
            ..Pauses::default()
        }
    }

    /// How long a life is looked at: until three times the work, and the work after the last event.
    pub fn horizon(&self) -> Nanos {
        let last = self.events.iter().map(|event| event.at).max().unwrap_or(0);
        Nanos((3 * self.work).max(last + self.work).saturating_mul(1_000_000))
    }

    /// Whether a node is there at a moment, by the events as they are drawn.
    pub fn is_there(&self, node: &str, at: u64) -> bool {
        let mut mine: Vec<&Event> =
            self.events.iter().filter(|e| e.node == node && e.at <= at).collect();
        mine.sort_by_key(|event| event.at);
        mine.last().is_some_and(|event| event.what == What::Joins)
    }

    /// Adds what would happen to a node next: it comes, or it is lost (`gently`: leaves). Returns
    /// the number of the event.
    ///
    /// # Errors
    /// Why there is no room for it.
    pub fn add(&mut self, node: &str, at: u64, gently: bool) -> Result<usize, String> {
        if self.events.len() >= EVENTS_MOST {
            return Err(tr!("at most {most} events", most = EVENTS_MOST));
        }
        let what = match (self.is_there(node, at), gently) {
            (false, _) => What::Joins,
            (true, true) => What::Leaves,
            (true, false) => What::IsLost,
        };
        let slots = self.events.iter().find(|e| e.node == node).map_or(0, |e| e.slots);
        self.events.push(Event { at: at.min(time::MOST), node: node.to_owned(), slots, what });
        Ok(self.events.len() - 1)
    }

    /// Who came and went in a life, as events.
    pub fn events_of(life: &Life) -> Vec<Event> {
        let mut events = vec![];
        let mut before: &[Member] = &[];
        for (at, now) in &life.members {
            let named = |list: &[Member], name: &str| list.iter().any(|member| member.name == name);
            let event = |member: &Member, what| Event {
                at: at.0 / 1_000_000,
                // Names of machines may hold what links cannot.
                node: member
                    .name
                    .chars()
                    .map(|c| if is_name(c.encode_utf8(&mut [0; 4])) { c } else { '_' })
                    .take(24)
                    .collect(),
                slots: member.slots.min(SLOTS_MOST),
                what,
            };
            events.extend(
                now.iter().filter(|m| !named(before, &m.name)).map(|m| event(m, What::Joins)),
            );
            let gone = match moments::why_gone(life, *at) {
                moments::Kind::Lost => What::IsLost,
                _ => What::Leaves,
            };
            events.extend(before.iter().filter(|m| !named(now, &m.name)).map(|m| event(m, gone)));
            before = now;
        }
        events.truncate(EVENTS_MOST);
        events
    }

    /// A name that no node has.
    pub fn new_node(&self) -> String {
        let nodes = self.nodes();
        let names = (1..).map(|number| format!("n{number}"));
        names.into_iter().find(|name| !nodes.contains(name)).expect("names do not end")
    }
}

/// Whether a text may be a node's name: what a link and a table can hold.
pub fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=24).contains(&text.len()) && text.chars().all(letter) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_on_a_lane_let_its_node_come_and_go() {
        let mut scenario = Scenario { events: vec![], ..Scenario::default() };
        for (at, gently) in [(0, false), (5000, false), (9000, false), (12_000, true)] {
            scenario.add("a", at, gently).unwrap();
        }
        let whats: Vec<What> = scenario.events.iter().map(|e| e.what).collect();
        assert_eq!(whats, [What::Joins, What::IsLost, What::Joins, What::Leaves]);
        assert_eq!((scenario.nodes(), scenario.new_node()), (vec!["a".to_owned()], "n1".into()));
        assert!(scenario.is_there("a", 9000) && !scenario.is_there("a", 5000));
        assert_eq!((scenario.most_slots(4), scenario.incidents(4)[0].member.slots), (4, 4));
        scenario.events = vec![scenario.events[0].clone(); EVENTS_MOST];
        assert!(scenario.add("b", 1, false).unwrap_err().contains("400"));
    }

    #[test]
    fn a_record_gives_events() {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        let life = super::super::read("losses.jsonl", text).unwrap().life;
        let events = Scenario::events_of(&life);
        let all: Vec<_> = events.iter().map(|e| (e.node.as_str(), e.slots, e.what)).collect();
        let expected =
            [("vm", 4, What::Joins), ("spare", 4, What::Joins), ("spare", 4, What::Leaves)];
        assert_eq!(all, expected);
    }

    #[test]
    fn names_fit_into_links() {
        assert!(["a", "n1", "gpu-03.rack_2"].into_iter().all(is_name));
        assert!(!["", "-a", "a b", "a@b", "a,b", "é", &"x".repeat(25)].into_iter().any(is_name));
    }
}
