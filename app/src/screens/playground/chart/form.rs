//! The Playground's controls as markup, written once: every control is a word of the link, whose value is
//! put into it later and whose text is read by the link's own reader.

use crate::base::format::escape;
use crate::base::texts::{n, t};
use crate::draw::buttons::buttons;
use crate::screens::playground::model::choice::{
    BATCHES, Control, LAYERS_MAX, MICRO_BATCHES, MOMENTA, NOISE_MAX, Problem, RANKS, RATES,
    SLOWNESS, WIDTHS,
};
use crate::screens::playground::model::data::Set;
use pipewright_core::schedule::ScheduleKind;
use std::fmt::Write;

/// A number with a slider.
pub struct Number {
    /// Its word in links.
    pub key: &'static str,
    label: &'static str,
    unit: &'static str,
    /// What it may be.
    pub values: fn() -> Vec<u64>,
}

/// All of them.
pub const NUMBERS: [Number; 8] = [
    Number { key: "noise", label: n("Noise"), unit: "%", values: || (0..=NOISE_MAX).collect() },
    Number {
        key: "layers",
        label: n("Hidden layers"),
        unit: "",
        values: || (1..=LAYERS_MAX).collect(),
    },
    Number { key: "width", label: n("Units each"), unit: "", values: || WIDTHS.to_vec() },
    Number { key: "ranks", label: n("Ranks"), unit: "", values: || RANKS.to_vec() },
    Number { key: "batch", label: n("Mini-batch"), unit: "", values: || BATCHES.to_vec() },
    Number {
        key: "stages",
        label: n("Stages"),
        unit: "",
        values: || (1..=LAYERS_MAX + 1).collect(),
    },
    Number { key: "mb", label: n("Micro-batches"), unit: "", values: || MICRO_BATCHES.to_vec() },
    Number { key: "slow", label: n("fp32 sum"), unit: "×", values: || SLOWNESS.to_vec() },
];

/// The number of a word.
pub fn number_of(key: &str) -> Option<&'static Number> {
    NUMBERS.iter().find(|number| number.key == key)
}

const CHEVRON: &str =
    "<svg class='ico' viewBox='0 0 16 16' aria-hidden='true'><path d='m6 4 4 4-4 4'/></svg>";

/// The left column.
pub fn controls() -> String {
    let [noise, layers, width, ranks, batch, stages, micro, slow] = NUMBERS.each_ref().map(slider);
    let rates = RATES.map(|rate| (rate.to_string(), rate.to_string()));
    let momenta = MOMENTA.map(|momentum| (momentum.to_string(), momentum.to_string()));
    let activations = [("tanh".into(), "tanh".into()), ("relu".into(), "ReLU".into())];
    let schedules = ScheduleKind::ALL.map(|kind| (kind.to_string(), kind.title().to_owned()));
    let names = [t("Concentric rings"), t("Moons"), t("Xor"), t("Spiral")];
    let sets = Set::ALL.map(Set::word).into_iter().zip(names);
    let sets = sets.map(|(word, name)| (format!("data={word}"), name));
    let mut out = group(
        t("Data"),
        &format!(
            "{}{noise}<div class='row'><label for='pg-seed'>{}</label><span class='pair'>\
             <input id='pg-seed' data-key='seed' type='number' min='0' max='9999'>\
             <button class='btn' data-do='seed'>{}</button></span></div>",
            buttons(t("Data set"), "seg wide", sets),
            t("Seed"),
            t("Next")
        ),
    );
    out += &group(
        t("Network"),
        &format!(
            "{layers}{width}{}{}{}",
            select("act", t("Activation"), &activations),
            select("rate", t("Learning rate"), &rates),
            select("momentum", t("Momentum"), &momenta)
        ),
    );
    out += &group(
        t("Virtual ranks"),
        &format!("{ranks}<p class='note wide' id='pg-alone'></p>{batch}{}", place(Control::Batch)),
    );
    out += &group(
        t("Pipeline of a rank"),
        &format!(
            "{stages}{}{micro}{}{}",
            place(Control::Stages),
            select("s", t("Schedule"), &schedules),
            place(Control::Schedule)
        ),
    );
    let note =
        t("Time of the sum in single precision, relative to a step's compute. The Time axis \
         counts both.");
    out + group(t("Link"), &format!("{slow}<p class='note wide'>{note}</p>")).as_str()
}

fn group(title: &str, body: &str) -> String {
    format!(
        "<details class='grp' open><summary>{CHEVRON} <h2>{title}</h2></summary>{body}</details>"
    )
}

fn slider(number: &Number) -> String {
    let Number { key, label, unit, values } = number;
    let (label, values) = (t(label), values());
    let last = values.last().copied().unwrap_or(1);
    let whole = crate::base::stops::contiguous(&values);
    let (least, most) = if whole { (values[0], last) } else { (0, values.len() as u64 - 1) };
    format!(
        "<div class='row'><label for='pg-{key}'>{label}</label><div class='sl'>\
         <input id='pg-{key}' data-key='{key}' type='range' min='{least}' max='{most}' step='1'>\
         <input id='pg-{key}-n' data-key='{key}' type='number' inputmode='numeric' min='{}' \
         max='{last}' aria-label='{}'><i>{unit}</i></div></div>",
        values[0],
        escape(label)
    )
}

fn select(key: &str, label: &str, options: &[(String, String)]) -> String {
    let mut out = format!(
        "<div class='row'><label for='pg-{key}'>{label}</label><span class='sel'>\
         <select id='pg-{key}' data-key='{key}'>"
    );
    for (value, name) in options {
        let _ = write!(out, "<option value='{value}'>{name}</option>");
    }
    out + "</select></span></div>"
}

/// Where a control's problem is said.
fn place(control: Control) -> String {
    format!("<div class='wrong' id='{}' role='status'></div>", place_of(control))
}

/// The element that says what is wrong at a control.
pub fn place_of(control: Control) -> &'static str {
    match control {
        Control::Stages => "pg-wrong-stages",
        Control::Schedule => "pg-wrong-schedule",
        Control::Batch => "pg-wrong-batch",
    }
}

/// What is wrong, and the way out.
pub fn wrong(problem: &Problem) -> String {
    let fix = problem.fix.as_ref().map(|(name, _)| {
        format!(" <button class='fix' id='pg-fix' data-do='fix'>{}</button>", escape(name))
    });
    let text = escape(&problem.text);
    format!("<p class='note wide bad'>✕ {text}{}</p>", fix.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::playground::model::choice::Choice;

    #[test]
    fn every_control_is_a_word_of_the_link_with_a_label() {
        let markup = controls();
        let words: Vec<&str> = Choice::default().words().into_iter().map(|(key, _)| key).collect();
        for key in &words {
            let is_there = markup.contains(&format!("data-key='{key}'"))
                || markup.contains(&format!("data-do='{key}="));
            assert!(is_there || *key == "runs", "{key}");
        }
        for number in &NUMBERS {
            assert!(words.contains(&number.key));
            for value in (number.values)() {
                let mut choice = Choice::default();
                choice.take(number.key, &value.to_string()).unwrap();
            }
        }
        let ids = markup.matches(" id='").count();
        let labels = markup.matches("<label for='").count() + markup.matches("aria-label=").count();
        // Notes and places of problems have ids and need no label; the group of sets has only a label.
        assert_eq!(ids - 4, labels - 1);
    }
}
