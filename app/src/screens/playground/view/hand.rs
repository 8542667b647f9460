//! Event handlers of the Playground's controls.

use super::lab::Lab;
use crate::base::stops::{jump, value_at};
use crate::base::texts::tr;
use crate::screens::playground::chart::form::number_of;
use crate::screens::playground::model::choice::Choice;
use crate::screens::playground::model::presets;
use leptos::ev::{Event, KeyboardEvent, MouseEvent};
use leptos::prelude::event_target;
use pipewright_core::compress::Reduction;
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlInputElement};

/// The element that an event came upon.
fn target(event: &Event) -> Option<Element> {
    event.target()?.dyn_into().ok()
}

/// Its value, if it is a control.
fn value(event: &Event) -> String {
    let target: wasm_bindgen::JsValue = event_target(event);
    let value = js_sys::Reflect::get(&target, &"value".into());
    value.ok().and_then(|value| value.as_string()).unwrap_or_default()
}

/// A button, by the word for what it does.
pub fn clicked(lab: Lab, event: &MouseEvent) {
    let button = target(event).and_then(|t| t.closest("[data-do]").ok().flatten());
    let Some(word) = button.and_then(|button| button.get_attribute("data-do")) else { return };
    let (what, which) = word.split_once('=').unwrap_or((&word, ""));
    let at = which.parse::<usize>().unwrap_or(0);
    match what {
        "play" => {
            let playing = lab.with(|lab| lab.playing).unwrap_or(false);
            lab.play(!playing);
        }
        "step" => lab.step(),
        "reset" => lab.restart(),
        "add" => lab.edit(false, Choice::add_way),
        "remove" => lab.edit(false, |choice| {
            if choice.ways.len() > 1 && at < choice.ways.len() {
                choice.ways.remove(at);
            }
        }),
        "seed" => lab.edit(false, |choice| choice.seed = (choice.seed + 1) % 10_000),
        "fix" => {
            let to = lab.with(|lab| lab.problem.as_ref()?.fix.as_ref().map(|f| f.1.clone()));
            if let Some(to) = to.flatten() {
                lab.edit(false, |choice| *choice = *to);
            }
        }
        "preset" => {
            if let Some(preset) = presets::ALL.get(at) {
                lab.edit(false, |choice| *choice = preset.choice());
            }
        }
        "pace" | "up" | "across" => {
            lab.with(|lab| match what {
                "pace" => lab.pace = at,
                "up" => lab.up = at,
                _ => lab.across = at,
            });
            lab.show();
        }
        key => take(lab, key, which, false),
    }
}

/// The value of a control as it is typed, dragged or chosen.
pub fn typed(lab: Lab, event: &Event, dragging: bool) {
    let Some(control) = target(event) else { return };
    if let Some(at) = control.get_attribute("data-way").and_then(|at| at.parse().ok()) {
        if !dragging {
            way(lab, at, &control, &value(event));
        }
        return;
    }
    let Some(key) = control.get_attribute("data-key") else { return };
    let text = value(event);
    let slides = control.get_attribute("type").as_deref() == Some("range");
    match number_of(&key).filter(|_| slides) {
        Some(number) => {
            let at = text.parse().unwrap_or(0);
            take(lab, &key, &value_at(&(number.values)(), at).to_string(), dragging);
        }
        // Half-typed numbers wait.
        None if dragging => {}
        None => take(lab, &key, text.trim(), false),
    }
}

/// Another codec, or feedback, for a training.
fn way(lab: Lab, at: usize, control: &Element, text: &str) {
    let Some(Some(now)) = lab.with(|lab| lab.choice.ways.get(at).copied()) else { return };
    let box_ = control.dyn_ref::<HtmlInputElement>();
    let new = match box_ {
        Some(box_) => {
            let mut new = now;
            new.method.feedback = box_.checked();
            Some(new)
        }
        None => text.parse::<Reduction>().ok().map(|mut new| {
            new.method.feedback = now.method.feedback;
            new
        }),
    };
    if let Some(new) = new {
        lab.edit(false, |choice| choice.set_way(at, new));
    }
}

/// Takes the value of a word; what does not fit is said, and the control goes back to what holds.
fn take(lab: Lab, key: &str, text: &str, dragging: bool) {
    let mut said = None;
    lab.edit(dragging, |choice| said = choice.take(key, text).err());
    if let Some(why) = said {
        lab.page.complain(tr!("`{text}`: {why}.", text, why));
        lab.show();
    }
}

/// Double click: the first choice's value.
pub fn usual(lab: Lab, event: &MouseEvent) {
    let slider = target(event).filter(|t| t.get_attribute("type").as_deref() == Some("range"));
    let Some(key) = slider.and_then(|slider| slider.get_attribute("data-key")) else { return };
    let words = Choice::default().words();
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == key) {
        take(lab, &key, value, false);
    }
}

/// Keys of a slider that go further than the browser's own.
pub fn key(lab: Lab, event: &KeyboardEvent) {
    let slider = target(event).filter(|t| t.get_attribute("type").as_deref() == Some("range"));
    let Some(key) = slider.and_then(|slider| slider.get_attribute("data-key")) else { return };
    let Some(number) = number_of(&key) else { return };
    let now = lab.with(|lab| lab.choice.words()).into_iter().flatten();
    let now = now.filter(|(word, _)| *word == key).find_map(|(_, value)| value.parse().ok());
    let values = (number.values)();
    let to = now.and_then(|now| jump(&values, now, &event.key(), event.shift_key()));
    if let Some(to) = to {
        event.prevent_default();
        take(lab, &key, &to.to_string(), false);
    }
}
