//! A beside B: a table of what differs, and a sentence that says where the difference comes from.

use super::choices::{ClusterChoice, cluster_title};
use super::engine::{Figures, Solved};
use super::inputs::Inputs;
use crate::base::format::{self, Clock, Delta};
use crate::base::texts::{n, t, tr};
use pipewright_core::graph::Graph;
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{Reason, Timeline, reason};
use pipewright_core::units::{Bytes, Nanos};

/// A value with its unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    pub text: String,
    pub unit: &'static str,
}

/// How B differs from A: an arrow, an amount and a word for it, so that no colour is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub arrow: &'static str,
    pub amount: String,
    pub word: &'static str,
    /// Better, worse, or neither.
    pub good: Option<bool>,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// For scripts.
    pub id: &'static str,
    pub name: &'static str,
    pub a: Value,
    pub b: Value,
    /// None where both are the same.
    pub change: Option<Change>,
    /// Something that a person chose, as opposed to what follows.
    pub chosen: bool,
}

/// All rows: what follows from the choices, then the choices.
pub fn rows(a: &Solved, b: &Solved) -> Vec<Row> {
    let mut rows = figures(&a.figures, &b.figures);
    rows.extend(choices(&a.inputs, &b.inputs));
    rows
}

fn figures(a: &Figures, b: &Figures) -> Vec<Row> {
    let time = |f: &Figures| Value { text: format::hero(f.step).0, unit: format::hero(f.step).1 };
    let bytes = |b: Bytes| Value { text: format::bytes(b).0, unit: format::bytes(b).1 };
    let share = |f: &Figures| Value { text: format::percent(f.bubble, 1), unit: "%" };
    let rate = |f: &Figures| Value { text: format::count(f.samples_per_sec), unit: t("smp/s") };
    let row = |id, name, (a, b): (Value, Value), delta, words, less_is_better| {
        let change = change(delta, words, less_is_better);
        Row { id, name, a, b, change, chosen: false }
    };
    let of = |new: u64, old: u64| format::relative(new as f64, old as f64);
    let amount = [n("less"), n("more")];
    vec![
        row(
            "step",
            n("Step time"),
            (time(a), time(b)),
            of(b.step.0, a.step.0),
            [n("faster"), n("slower")],
            true,
        ),
        row(
            "bubble",
            n("Bubble"),
            (share(a), share(b)),
            format::points(b.bubble, a.bubble),
            amount,
            true,
        ),
        row(
            "peak",
            n("Peak memory"),
            (bytes(a.peak), bytes(b.peak)),
            of(b.peak.0, a.peak.0),
            amount,
            true,
        ),
        row(
            "throughput",
            n("Throughput"),
            (rate(a), rate(b)),
            format::relative(b.samples_per_sec, a.samples_per_sec),
            amount,
            false,
        ),
        row(
            "traffic",
            n("Traffic"),
            (bytes(a.traffic), bytes(b.traffic)),
            of(b.traffic.0, a.traffic.0),
            amount,
            true,
        ),
    ]
}

fn change(delta: Delta, [less, more]: [&'static str; 2], less_is_better: bool) -> Option<Change> {
    let Delta::By { down, text } = delta else { return None };
    let (arrow, word) = if down { ("▼", less) } else { ("▲", more) };
    Some(Change { arrow, amount: text, word, good: Some(down == less_is_better) })
}

/// What was chosen: the rows that plans differ by most often always, the others where they differ.
fn choices(a: &Inputs, b: &Inputs) -> Vec<Row> {
    let row = |id, name, of: &dyn Fn(&Inputs) -> String| {
        let text = |inputs| Value { text: of(inputs), unit: "" };
        let (a, b) = (text(a), text(b));
        let differs =
            Change { arrow: "≠", amount: String::new(), word: n("differs"), good: None };
        let change = (a != b).then_some(differs);
        Row { id, name, a, b, change, chosen: true }
    };
    let count = |id, name, of: &dyn Fn(&Inputs) -> u64| {
        let mut row = row(id, name, &|inputs| of(inputs).to_string());
        let (old, new) = (of(a), of(b));
        if let Some(change) = &mut row.change {
            let (arrow, word) = if new < old { ("▼", n("fewer")) } else { ("▲", n("more")) };
            *change = Change { arrow, amount: old.abs_diff(new).to_string(), word, good: None };
        }
        row
    };
    let always = [
        count("stages", n("Stages"), &|i| i.stages().into()),
        count("micro-batches", n("Micro-batches"), &|i| i.micro_batches.into()),
        row("schedule", n("Schedule"), &Inputs::order_title),
        row("cuts", n("Cuts"), &cuts),
    ];
    let differing = [
        row("model", n("Model"), &|i| i.model.title()),
        row("cluster", n("Cluster"), &cluster),
        count("mini-batch", n("Mini-batch"), &|i| i.mini_batch),
        count("replicas-row", n("Replicas"), &|i| i.rest.data_parallel.replicas.into()),
        count("experts-row", n("Expert group"), &|i| i.rest.data_parallel.expert_parallel.into()),
        count("tensor-row", n("Tensor group"), &|i| i.rest.tensor.into()),
        row("recompute", n("Recompute"), &recompute),
        row("gradients", n("Gradients as"), &|i| i.rest.communication.gradients.to_string()),
        row("precision-row", n("Precision"), &|i| i.rest.training.precision.word().to_owned()),
        row("edges-row", n("Between nodes"), &|i| i.rest.communication.edges.across.to_string()),
    ];
    always.into_iter().chain(differing.into_iter().filter(|row| row.change.is_some())).collect()
}

fn cuts(inputs: &Inputs) -> String {
    layers_before(&inputs.cuts, &inputs.model.graph())
}

/// Layers before the cuts, as the split editor counts them; as many as can be read.
pub fn layers_before(cuts: &[u32], graph: &Graph) -> String {
    const SHOWN: usize = 7;
    let before = |cut: &u32| graph.layers().iter().filter(|l| l.first_node.0 < *cut).count();
    let mut text: Vec<String> =
        cuts.iter().take(SHOWN).map(|cut| before(cut).to_string()).collect();
    if cuts.len() > SHOWN {
        text.push("…".into());
    }
    if text.is_empty() { t("none").into() } else { text.join(" ") }
}

fn cluster(inputs: &Inputs) -> String {
    match &inputs.cluster {
        ClusterChoice::Preset(name) => cluster_title(name),
        ClusterChoice::File(cluster) => cluster.name.clone(),
    }
}

fn recompute(inputs: &Inputs) -> String {
    let again = inputs.sequences().iter().filter(|sequence| !sequence.0.is_empty()).count();
    match again {
        0 => t("nothing").into(),
        1 => t("1 stage").into(),
        n => tr!("{n} stages", n),
    }
}

/// What A is, in a line.
pub fn title(inputs: &Inputs) -> String {
    match &inputs.a {
        None => t("split by layer count").into(),
        Some(a) => describe(a),
    }
}

/// `VGG16 · 224 px, 4 stages, m 8, 1F1B`
pub fn describe(inputs: &Inputs) -> String {
    format!("{}, {}", inputs.model.title(), in_short(inputs))
}

/// The same without the model.
pub fn in_short(inputs: &Inputs) -> String {
    let stages = match inputs.stages() {
        1 => t("1 stage").to_owned(),
        n => tr!("{n} stages", n),
    };
    let copies = match inputs.rest.data_parallel.replicas {
        1 => String::new(),
        n => format!(" × {n}"),
    };
    let tensor = match inputs.rest.tensor {
        1 => String::new(),
        t => format!(", t {t}"),
    };
    let m = inputs.micro_batches;
    format!("{stages}{copies}{tensor}, m {m}, {}", inputs.order_title())
}

/// What a step is made of: five terms that add up to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// What the busiest lane works.
    pub pace: Nanos,
    /// The busiest lane.
    pub lane: usize,
    /// What it waits for messages.
    pub messages: Nanos,
    /// What it waits for sums of gradients.
    pub sums: Nanos,
    /// What it waits for the pipeline to fill and to drain.
    pub ramps: Nanos,
    /// The rest: it waits for other lanes in between.
    pub stalls: Nanos,
}

impl Terms {
    /// Linear in spans and messages.
    pub fn of(timeline: &Timeline, arrivals: &Arrivals) -> Self {
        let Some(Reason { most, busiest, idle, .. }) = reason(timeline, arrivals) else {
            let (pace, zero) = (timeline.step, Nanos::ZERO);
            return Self { pace, lane: 0, messages: zero, sums: zero, ramps: zero, stalls: zero };
        };
        let (messages, sums, ramps) = (idle.messages, idle.sums, idle.ramps());
        let stalls = idle.total().saturating_sub(messages + sums + ramps);
        Self { pace: most, lane: busiest.index(), messages, sums, ramps, stalls }
    }
}

/// What makes the difference, in a sentence of two parts: the finding and its reason.
pub fn sentence(a: &Solved, b: &Solved) -> (String, String) {
    let (old, new) = (a.figures.step, b.figures.step);
    if a.inputs.mini_batch != b.inputs.mini_batch {
        let rate = format::signed_percent(b.figures.samples_per_sec, a.figures.samples_per_sec);
        let finding =
            tr!("Steps of A and B train different numbers of samples: throughput {rate}.", rate);
        return (finding, String::new());
    }
    let clock = Clock::of(old.max(new));
    let Delta::By { down, text } = format::relative(new.secs(), old.secs()) else {
        return (t("B takes as long as A.").into(), memory(a, b));
    };
    let by = clock.short(Nanos(old.0.abs_diff(new.0)));
    let finding = match down {
        true => tr!("B is {by} ({share}) faster than A:", by, share = text),
        false => tr!("B is {by} ({share}) slower than A:", by, share = text),
    };
    (finding, because(&terms(a), &terms(b), down, &clock))
}

fn terms(solved: &Solved) -> Terms {
    Terms::of(&solved.timeline, &solved.arrivals())
}

/// The largest term that changed as the step did, and what went against it.
fn because(a: &Terms, b: &Terms, down: bool, clock: &Clock) -> String {
    let change = |old: Nanos, new: Nanos| new.0 as i64 - old.0 as i64;
    let mut terms = [
        (change(a.pace, b.pace), Term::Pace),
        (change(a.ramps, b.ramps), Term::Ramps),
        (change(a.stalls, b.stalls), Term::Stalls),
        (change(a.messages, b.messages), Term::Messages),
        (change(a.sums, b.sums), Term::Sums),
    ];
    let along = |by: i64| if down { -by } else { by };
    terms.sort_by_key(|(by, _)| -along(*by));
    let say = |(by, term): &(i64, Term)| {
        let time = clock.short(Nanos(by.unsigned_abs()));
        term.words(*by < 0, &time, (a.lane, b.lane))
    };
    let (most, against) = (&terms[0], &terms[terms.len() - 1]);
    // What takes back less than a fifth is not worth a second look.
    let notable = -along(against.0) * 5 > along(most.0);
    match notable {
        true => tr!(" {most}, though {against}.", most = say(most), against = say(against)),
        false => tr!(" {most}.", most = say(most)),
    }
}

/// A part of a step that changed.
#[derive(Clone, Copy)]
enum Term {
    Pace,
    Ramps,
    Stalls,
    Messages,
    Sums,
}

impl Term {
    /// That it became less or more, by how much; `lanes` are the busiest before and after.
    fn words(self, less: bool, by: &str, (old, new): (usize, usize)) -> String {
        match (self, less) {
            (Term::Pace, true) if old == new => {
                tr!("its busiest lane, {new}, computes {by} less", new, by)
            }
            (Term::Pace, false) if old == new => {
                tr!("its busiest lane, {new}, computes {by} more", new, by)
            }
            (Term::Pace, true) => {
                tr!("its busiest lane (now {new}, was {old}) computes {by} less", new, old, by)
            }
            (Term::Pace, false) => {
                tr!("its busiest lane (now {new}, was {old}) computes {by} more", new, old, by)
            }
            (Term::Stalls, true) => tr!("its busiest lane waits {by} less for other lanes", by),
            (Term::Stalls, false) => tr!("its busiest lane waits {by} more for other lanes", by),
            (Term::Ramps, true) => tr!(
                "its busiest lane waits {by} less for warm-up and \
                                       cool-down",
                by
            ),
            (Term::Ramps, false) => tr!(
                "its busiest lane waits {by} more for warm-up and \
                                        cool-down",
                by
            ),
            (Term::Messages, true) => tr!("its busiest lane waits {by} less for messages", by),
            (Term::Messages, false) => tr!("its busiest lane waits {by} more for messages", by),
            (Term::Sums, true) => tr!("its busiest lane waits {by} less for gradient sums", by),
            (Term::Sums, false) => tr!("its busiest lane waits {by} more for gradient sums", by),
        }
    }
}

/// Where time does not differ, memory may.
fn memory(a: &Solved, b: &Solved) -> String {
    let (old, new) = (a.figures.peak, b.figures.peak);
    match format::relative(new.0 as f64, old.0 as f64) {
        Delta::Same => t(" Its peak is the same, too.").into(),
        Delta::By { down, .. } => {
            let by = format::bytes_text(Bytes(old.0.abs_diff(new.0)));
            match down {
                true => tr!(" Its peak is {by} lower.", by),
                false => tr!(" Its peak is {by} higher.", by),
            }
        }
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
