//! The command palette: all that the page can do, found by typing.

use super::exports::Format;
use crate::base::keys::{Command, KEYS, Scope};
use crate::base::texts::{n, t, tr};
use crate::planner::choices::{cluster_title, preset_title};
use crate::planner::presets::EXAMPLES;
use pipewright_core::cost::CLUSTERS;
use pipewright_core::graph::presets::{PRESETS, Preset};
use pipewright_core::schedule::{Action, ScheduleKind};

/// What an entry does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// The command of a key.
    Command(Command),
    Theme,
    CopyLink,
    Stories,
    /// What is shown becomes what is compared with.
    Pin,
    Swap,
    OpenFile,
    /// Runs on the machine that serves the page.
    RunHere,
    Save(Format),
    SavePicture,
    CopyCommand,
    /// An example, by index.
    Example(usize),
    Model(Preset),
    Cluster(&'static str),
    Schedule(ScheduleKind),
    /// The other language.
    Language,
    /// The best of the better plans that are known.
    Better,
    /// A number of the plan.
    Set(Dial, u64),
    /// An action of the timeline.
    Select(Action),
}

/// Numbers of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    Lanes,
    MicroBatches,
    MiniBatch,
    Replicas,
    Tensor,
    Steps,
}

impl Dial {
    /// As the left column names them.
    pub const ALL: [(Dial, &'static str); 6] = [
        (Dial::Lanes, n("Lanes")),
        (Dial::MicroBatches, n("Micro-batches")),
        (Dial::MiniBatch, n("Mini-batch")),
        (Dial::Replicas, n("Replicas")),
        (Dial::Tensor, n("Tensor group")),
        (Dial::Steps, n("Steps")),
    ];
}

/// A line of the palette.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub title: String,
    /// The keys that do the same; empty where none do.
    pub keys: &'static str,
    pub act: Act,
}

impl Entry {
    fn new(title: impl Into<String>, act: Act) -> Self {
        Self { title: title.into(), keys: "", act }
    }
}

/// All entries: what keys do first, then choices. Runs are among them where they are `offered`.
pub fn entries(offered: bool) -> Vec<Entry> {
    let mut found: Vec<Entry> = vec![];
    let page = KEYS.iter().filter(|b| b.scope == Scope::Page);
    for binding in page.filter(|b| !matches!(b.command, Command::Palette | Command::Clear)) {
        let act = Act::Command(binding.command);
        if found.iter().all(|entry| entry.act != act) {
            let what = match binding.command {
                Command::Screen(screen) => tr!("go to {screen}", screen = t(screen.title())),
                _ => t(binding.what).to_owned(),
            };
            found.push(Entry { title: what, keys: binding.shown, act });
        }
    }
    found.push(Entry {
        title: t("keys and help").into(),
        keys: "?",
        act: Act::Command(Command::Help),
    });
    found.push(Entry::new(t("copy a link to this state"), Act::CopyLink));
    found.push(Entry::new(t("stories: ten states that each tell something"), Act::Stories));
    found.push(Entry::new(t("pin this plan as A"), Act::Pin));
    found.push(Entry::new(t("swap A and B"), Act::Swap));
    found.push(Entry::new(t("open a plan, trace or graph"), Act::OpenFile));
    found.push(Entry::new(t("switch theme"), Act::Theme));
    found.push(Entry::new(t("switch language"), Act::Language));
    found.push(Entry::new(t("apply the suggestion"), Act::Better));
    if offered {
        found.push(Entry::new(t("run this plan on this machine"), Act::RunHere));
    }
    let save = |f: Format| {
        Entry::new(tr!("save {file}: {what}", file = f.file(), what = t(f.title())), Act::Save(f))
    };
    found.extend(Format::ALL.map(save));
    found.push(Entry::new(t("save timeline.png: the timeline as shown"), Act::SavePicture));
    found.push(Entry::new(t("copy the command that runs the plan"), Act::CopyCommand));
    let example = |(at, e): (usize, &crate::planner::presets::Example)| {
        Entry::new(tr!("example {name}: {what}", name = e.title, what = t(e.why)), Act::Example(at))
    };
    found.extend(EXAMPLES.iter().enumerate().map(example));
    let schedule = |kind: ScheduleKind| {
        Entry::new(tr!("schedule: {name}", name = kind.title()), Act::Schedule(kind))
    };
    found.extend(ScheduleKind::ALL.map(schedule));
    let model =
        |preset| Entry::new(tr!("model: {name}", name = preset_title(preset)), Act::Model(preset));
    found.extend(PRESETS.map(model));
    let cluster =
        |name| Entry::new(tr!("cluster: {name}", name = cluster_title(name)), Act::Cluster(name));
    found.extend(CLUSTERS.map(cluster));
    found
}

/// Entries that what is typed makes: `lanes 6` sets a number, `2F5` is an action.
fn typed(query: &str) -> Vec<Entry> {
    if let Ok(action) = query.trim().to_ascii_uppercase().parse::<Action>() {
        return vec![Entry::new(
            tr!("select {action} on the timeline", action),
            Act::Select(action),
        )];
    }
    let (name, number) = query.trim().rsplit_once(' ').unwrap_or(("", query.trim()));
    let Ok(number) = number.parse::<u64>() else { return vec![] };
    let words: Vec<String> = name.split_whitespace().map(str::to_lowercase).collect();
    let meant = |(_, name): &&(Dial, &'static str)| {
        let name = [name.to_lowercase(), t(name).to_lowercase()];
        words.iter().all(|word| name.iter().any(|name| name.contains(word)))
    };
    let entry = |(dial, name): &(Dial, &'static str)| {
        Entry::new(tr!("{name}: {number}", name = t(name), number), Act::Set(*dial, number))
    };
    Dial::ALL.iter().filter(meant).map(entry).collect()
}

/// What a query finds: what it makes, then the entries that have its words.
pub fn matching(entries: &[Entry], query: &str) -> Vec<Entry> {
    let found = find(entries, query).into_iter().map(|at| entries[at].clone());
    typed(query).into_iter().chain(found).collect()
}

/// Indices of the entries that have all words of `query` in them: those with a word's beginning first.
fn find(entries: &[Entry], query: &str) -> Vec<usize> {
    let words: Vec<String> = query.split_whitespace().map(str::to_ascii_lowercase).collect();
    let rank = |entry: &Entry| {
        let title = entry.title.to_ascii_lowercase();
        let begins = |word: &String| {
            title.split(|c: char| !c.is_alphanumeric()).any(|part| part.starts_with(word.as_str()))
        };
        words.iter().all(|w| title.contains(w.as_str())).then(|| !words.iter().all(begins))
    };
    let mut found: Vec<(bool, usize)> =
        entries.iter().enumerate().filter_map(|(at, e)| Some((rank(e)?, at))).collect();
    found.sort();
    found.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_so_comes_before_what_contains_it() {
        let all = entries(true);
        let titles = |query: &str| -> Vec<&str> {
            find(&all, query).into_iter().map(|at| all[at].title.as_str()).collect()
        };
        assert_eq!(find(&all, "").len(), all.len());
        assert_eq!(titles("RES 50")[0], "example ResNet-50: 8 lanes of H100, 64 micro-batches");
        assert_eq!(titles("go")[0], "go to Plan");
        assert_eq!(titles("lex"), ["model: AlexNet · 224 px"], "within a word");
        assert_eq!(titles("do"), ["undo", "redo"]);
        assert!(titles("no such thing").is_empty());
    }

    #[test]
    fn numbers_and_actions_are_typed() {
        let acts = |query: &str| -> Vec<Act> { typed(query).iter().map(|e| e.act).collect() };
        assert_eq!(acts("lanes 6"), [Act::Set(Dial::Lanes, 6)]);
        assert_eq!(acts("tensor 2"), [Act::Set(Dial::Tensor, 2)]);
        assert_eq!(acts(" Micro 32 "), [Act::Set(Dial::MicroBatches, 32)]);
        assert_eq!(
            acts("batch 64"),
            [Act::Set(Dial::MicroBatches, 64), Act::Set(Dial::MiniBatch, 64)]
        );
        assert_eq!(acts("7").len(), Dial::ALL.len(), "any number");
        assert_eq!(acts("2f5"), [Act::Select("2F5".parse().unwrap())]);
        assert!(acts("vgg16").is_empty() && acts("").is_empty() && acts("lanes -3").is_empty());
        assert_eq!(typed("lanes 6")[0].title, "Lanes: 6");
    }

    #[test]
    fn every_command_is_there_once() {
        let all = entries(true);
        for (at, entry) in all.iter().enumerate() {
            assert!(!entry.title.is_empty());
            assert!(all[at + 1..].iter().all(|other| other.act != entry.act), "{}", entry.title);
        }
    }
}
