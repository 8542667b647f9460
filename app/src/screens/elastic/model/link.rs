//! Scenarios as a word of the page's link: `ev=n1@0,n2:4@20m,!n1@1h,-n2@2h;work=3h;a=min-max:2:8`. What
//! is as at first is left out.
//!
//! | event | meaning |
//! |---|---|
//! | `n1@0`, `n2:4@20m` | the node joins; with 4 slots |
//! | `-n2@2h` | it leaves |
//! | `!n1@1h` | it is lost |
//!
//! `ev=spot` names a preset's events, `a=rhai:...` is a script, `a=ex:burst` an example's.

use super::scenario::{
    Chosen, EPOCHS_MOST, EVENTS_MOST, Event, NODES_MOST, SCRIPT_MOST, SLOTS_MOST, Scenario, is_name,
};
use super::{presets, time};
use crate::base::texts::{t, tr};
use crate::base::words::{self, unescape};
use pipewright_core::elastic::life::What;

impl Scenario {
    /// Every word with its value.
    fn words(&self) -> [(&'static str, String); 9] {
        let known = presets::ALL.iter().find(|preset| preset.scenario().events == self.events);
        let events =
            known.map_or_else(|| events_text(&self.events), |preset| preset.word.to_owned());
        [
            ("ev", events),
            ("work", time::text(self.work)),
            ("epochs", self.epochs.to_string()),
            ("settle", time::text(self.settle)),
            ("detect", time::text(self.detect)),
            ("restart", time::text(self.restart)),
            ("rule", self.rule.to_string()),
            ("a", chosen_text(&self.policies[0])),
            ("b", chosen_text(&self.policies[1])),
        ]
    }

    /// The words that differ from the first scenario; empty for it.
    pub fn to_link(&self) -> String {
        words::differing(&self.words(), &Self::default().words())
    }

    /// Reads such a word: everything valid is used, the rest is listed, a sentence each.
    pub fn of_link(text: &str) -> (Self, Vec<String>) {
        let mut scenario = Self::default();
        let problems = words::read(text, |key, value| scenario.take(key, &unescape(value)));
        (scenario, problems)
    }

    /// Takes the value of a word.
    ///
    /// # Errors
    /// What may stand there.
    pub fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let length = || {
            time::parse(value).ok_or_else(|| t("a time is such as 90s, 30m or 1h30m").to_owned())
        };
        match key {
            "ev" => self.events = events(value)?,
            "work" => {
                let work = length()?;
                self.work =
                    if work > 0 { work } else { return Err(t("must be more than 0").into()) };
            }
            "epochs" => {
                let count = value.parse().ok().filter(|n| (1..=EPOCHS_MOST).contains(n));
                let refuse = || {
                    tr!(
                        "must be a whole number from {least} to {most}",
                        least = 1,
                        most = EPOCHS_MOST
                    )
                };
                self.epochs = count.ok_or_else(refuse)?;
            }
            "settle" => self.settle = length()?,
            "detect" => self.detect = length()?,
            "restart" => self.restart = length()?,
            "rule" => self.rule = value.parse()?,
            "a" => self.policies[0] = chosen(value)?,
            "b" => self.policies[1] = chosen(value)?,
            _ => return Err(t("unknown").into()),
        }
        Ok(())
    }
}

fn events_text(events: &[Event]) -> String {
    let one = |event: &Event| {
        let mark = match event.what {
            What::Joins => "",
            What::Leaves => "-",
            What::IsLost => "!",
        };
        let slots = match event.slots {
            0 => String::new(),
            slots => format!(":{slots}"),
        };
        format!("{mark}{}{slots}@{}", event.node, time::text(event.at))
    };
    events.iter().map(one).collect::<Vec<_>>().join(",")
}

fn events(text: &str) -> Result<Vec<Event>, String> {
    if let Some(preset) = presets::ALL.iter().find(|preset| preset.word == text) {
        return Ok(preset.scenario().events);
    }
    let one = |text: &str| {
        let (what, rest) = match text.strip_prefix('!') {
            Some(rest) => (What::IsLost, rest),
            None => text.strip_prefix('-').map_or((What::Joins, text), |rest| (What::Leaves, rest)),
        };
        let refuse =
            || tr!("{event} is not an event; write n1@0, n2:4@20m, !n1@1h or -n2@2h", event = text);
        let (who, at) = rest.split_once('@').ok_or_else(refuse)?;
        let (node, slots) = who.split_once(':').unwrap_or((who, "0"));
        let slots = slots.parse().ok().filter(|slots| *slots <= SLOTS_MOST).ok_or_else(refuse)?;
        let at = time::parse(at).ok_or_else(refuse)?;
        if !is_name(node) {
            return Err(refuse());
        }
        Ok(Event { at, node: node.to_owned(), slots, what })
    };
    let all = text.split(',').filter(|event| !event.is_empty());
    let all: Vec<Event> = all.map(one).collect::<Result<_, String>>()?;
    if all.len() > EVENTS_MOST {
        return Err(tr!("at most {most} events", most = EVENTS_MOST));
    }
    let nodes = Scenario { events: all.clone(), ..Scenario::default() }.nodes().len();
    if nodes > NODES_MOST {
        return Err(tr!("at most {most} nodes", most = NODES_MOST));
    }
    Ok(all)
}

fn chosen_text(chosen: &Chosen) -> String {
    match chosen {
        Chosen::Text(text) => escape(text),
        Chosen::Script(text) => {
            match presets::SCRIPTS.iter().find(|(_, example)| example == text) {
                Some((name, _)) => format!("ex:{name}"),
                None => format!("rhai:{}", escape(text)),
            }
        }
    }
}

fn chosen(text: &str) -> Result<Chosen, String> {
    if let Some(name) = text.strip_prefix("ex:") {
        let found = presets::SCRIPTS.iter().find(|(known, _)| *known == name);
        let names = || presets::SCRIPTS.map(|(name, _)| name).join(", ");
        return match found {
            Some((_, script)) => Ok(Chosen::Script((*script).to_owned())),
            None => Err(tr!("the examples are {names}", names = names())),
        };
    }
    let chosen = match text.strip_prefix("rhai:") {
        Some(script) => Chosen::Script(script.to_owned()),
        None => Chosen::Text(text.to_owned()),
    };
    match chosen.text().len() <= SCRIPT_MOST {
        true => Ok(chosen),
        false => Err(tr!("a link carries at most {most} characters", most = SCRIPT_MOST)),
    }
}

/// Everything but letters, digits and a few signs as `%XX`: no browser writes these otherwise.
fn escape(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b':'
            | b'+'
            | b'('
            | b')' => {
                out.push(char::from(byte));
            }
            _ => {
                // Writing into a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_inverses_and_leave_out_what_is_usual() {
        assert_eq!(Scenario::default().to_link(), "");
        for preset in &presets::ALL {
            let scenario = preset.scenario();
            let link = scenario.to_link();
            assert_eq!(Scenario::of_link(&link), (scenario, vec![]), "{link}");
            assert!(link.len() < 60, "{link}");
        }
        let script = "// 100 % é\nif ranks < 2 { wait(\"a; b = c & d\") } else { run() }";
        let odd = Scenario {
            events: events("a@0,b:3@90s,!a@1h0.25s,-b@2h").unwrap(),
            rule: "scale:sqrt".parse().unwrap(),
            policies: [Chosen::Script(script.into()), Chosen::Text("fixed-size:4".into())],
            settle: 0,
            ..Scenario::default()
        };
        let link = odd.to_link();
        assert!(!link.contains([' ', '"', '<', '&', '#', '\n']), "{link}");
        assert!(link.starts_with("ev=a@0s,b:3@1m30s,!a@1h0.25s,-b@2h;settle=0s;"), "{link}");
        assert_eq!(Scenario::of_link(&link), (odd, vec![]));
    }

    #[test]
    fn what_is_valid_is_used_and_the_rest_is_listed() {
        let text = "ev=a@0,b;work=0;epochs=0;settle=x;a=ex:nope;rule=half;colour;restart=4s";
        let (scenario, problems) = Scenario::of_link(text);
        assert_eq!((scenario.restart, problems.len()), (4000, 7), "{problems:?}");
        let long = format!("b=rhai:{}", "x".repeat(SCRIPT_MOST + 1));
        assert_eq!(Scenario::of_link(&long).1.len(), 1);
        // What is no policy yet is kept: the box where it was typed says what is wrong.
        assert_eq!(Scenario::of_link("a=min-max:9:2").1, Vec::<String>::new());
        let many: Vec<String> = (0..=NODES_MOST).map(|n| format!("n{n}@0")).collect();
        assert!(Scenario::of_link(&format!("ev={}", many.join(","))).1[0].contains("64 nodes"));
    }

    #[test]
    fn what_was_read_is_written_as_it_was_read() {
        for text in ["", "=", "@", "!@", "-:@", "a@", "!a:9@1h", "n@1h,n@1h", "%zz", "%", "🦀"] {
            for key in ["ev", "a", "b", "work", ""] {
                let (scenario, _) = Scenario::of_link(&format!("{key}={text}"));
                assert_eq!(Scenario::of_link(&scenario.to_link()), (scenario, vec![]), "{text}");
            }
        }
    }
}
