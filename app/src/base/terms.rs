//! Terms of the field, each with its definition: a list in the help, and what controls say when they are pointed at.

use super::texts::{n, t};

/// Terms and what they mean, from the whole to its parts.
pub const TERMS: [(&str, &str); 16] = [
    (
        n("Step"),
        n(
            "One update of the weights: all micro-batches of a mini-batch forward and backward, then the optimizer.",
        ),
    ),
    (n("Mini-batch"), n("The samples of a step, over all replicas.")),
    (n("Micro-batch"), n("A part of the mini-batch that goes through the pipeline at once.")),
    (n("Stage"), n("A run of layers that is computed in one place, between two cuts.")),
    (
        n("Lane"),
        n(
            "A device of the pipeline (PyTorch: a pipeline rank). It computes one or several stages.",
        ),
    ),
    (n("Bubble"), n("The share of the lanes' time in the step in which they are idle.")),
    (
        n("Fill and drain"),
        n(
            "The ramps of a pipeline: until the last lane has work, and from when the first has none left.",
        ),
    ),
    (
        n("Schedule"),
        n(
            "The order in which lanes compute forward and backward passes: 1F1B, GPipe, zero bubble, ..",
        ),
    ),
    (
        n("Replicas"),
        n(
            "Copies of the whole pipeline (data parallelism). Each takes its share of the samples; they sum gradients.",
        ),
    ),
    (n("Gradient sum"), n("The all-reduce by which replicas keep the same weights.")),
    (
        n("Codec"),
        n("How gradients are written for their way over the network: fp32, bf16, fp8, one bit, .."),
    ),
    (
        n("Recompute"),
        n(
            "Computing values again in the backward pass instead of keeping them (activation checkpointing).",
        ),
    ),
    (
        n("Peak memory"),
        n(
            "The most that the fullest lane holds: weights, gradients, optimizer, activations, workspace.",
        ),
    ),
    (
        n("Traffic"),
        n(
            "Bytes that all devices send in a step: values between stages, and gradients that replicas sum.",
        ),
    ),
    (n("Critical path"), n("The chain of work and messages that decides how long the step takes.")),
    (n("Throughput"), n("Samples of a second.")),
];

/// The definition of what a control is called, which may go on after the term: `Lanes`, `Step time`.
pub fn meaning(name: &str) -> Option<&'static str> {
    let found = TERMS.iter().find(|(term, _)| name.starts_with(t(term)));
    found.map(|(_, meaning)| t(meaning))
}

/// From now on what is called by a term says what it means when it is pointed at or gets the focus.
#[cfg(feature = "page")]
pub fn explain() {
    use leptos::prelude::*;
    use leptos::{ev, web_sys};
    use wasm_bindgen::JsCast;
    let element = |event: &web_sys::Event| event.target()?.dyn_into::<web_sys::Element>().ok();
    let over = window_event_listener(ev::pointerover, move |event| {
        let name =
            element(&event).and_then(|e| e.closest("label, th, h2, dt, .lab").ok().flatten());
        let Some(name) = name.filter(|e| !e.has_attribute("title")) else { return };
        if let Some(text) = meaning(name.text_content().unwrap_or_default().trim()) {
            let _ = name.set_attribute("title", text);
        }
    });
    let focused = window_event_listener(ev::focusin, move |event| {
        let Some(control) = element(&event).filter(|e| !e.has_attribute("aria-description")) else {
            return;
        };
        let label =
            document().query_selector(&format!("label[for='{}']", control.id())).ok().flatten();
        let name = label.and_then(|label| label.text_content()).unwrap_or_default();
        if let Some(text) = meaning(name.trim()) {
            let _ = control.set_attribute("aria-description", text);
        }
    });
    on_cleanup(move || {
        over.remove();
        focused.remove();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_defined_once_and_found_by_their_labels() {
        for (at, (term, text)) in TERMS.iter().enumerate() {
            assert!(text.ends_with(['.']) && meaning(term) == Some(*text), "{term}");
            assert!(TERMS[at + 1..].iter().all(|(other, _)| !other.starts_with(term)), "{term}");
        }
        for label in ["Lanes", "Micro-batches", "Mini-batch", "Step time", "Replicas", "Schedule"] {
            assert!(meaning(label).is_some(), "{label}");
        }
        assert_eq!(meaning("Model"), None);
    }
}
