//! Event handlers of the Elastic view's controls and keys.

use super::lab::{Lab, Told};
use super::{pointer, show};
use crate::base::download::download;
use crate::base::keys::{self, Command, Scope};
use crate::base::texts::{t, tr};
use crate::screens::elastic::model::scenario::{
    Chosen, Event as Happening, SLOTS_MOST, Scenario, is_name,
};
use crate::screens::elastic::model::{csv, presets, time};
use leptos::ev::{Event, KeyboardEvent, MouseEvent};
use pipewright_core::elastic::life::What;
use wasm_bindgen::JsCast;
use web_sys::Element;

/// The element that an event came upon.
fn target(event: &Event) -> Option<Element> {
    event.target()?.dyn_into().ok()
}

/// Its value, if it is a control.
fn value(control: &Element) -> String {
    let value = js_sys::Reflect::get(control, &"value".into());
    value.ok().and_then(|value| value.as_string()).unwrap_or_default()
}

/// A button by the word for what it does, or a place in a picture.
pub fn clicked(lab: Lab, event: &MouseEvent) {
    let button = target(event).and_then(|t| t.closest("[data-do]").ok().flatten());
    let Some(word) = button.and_then(|button| button.get_attribute("data-do")) else {
        pointer::clicked(lab, event);
        return;
    };
    let (what, which) = word.split_once('=').unwrap_or((&word, ""));
    let at = which.parse::<usize>().unwrap_or(0);
    match what {
        "preset" => {
            if let Some(preset) = presets::ALL.get(at) {
                lab.with(|lab| (lab.view, lab.selected, lab.spare) = (None, None, vec![]));
                lab.edit(false, |scenario| *scenario = preset.scenario());
            }
        }
        "show" => {
            lab.with(|lab| {
                lab.recorded = which == "rec" && lab.record.is_some();
                (lab.view, lab.selected) = (None, None);
            });
            lab.show();
        }
        "list" => {
            lab.with(|lab| (lab.listed, lab.selected) = (usize::from(which == "b"), None));
            lab.show();
        }
        "kind" => kind(lab, which),
        "moment" => lab.select(Some(at)),
        "all" => lab.look(|_, _| None),
        "node" => node(lab),
        "remove" => remove(lab, at),
        "adopt" => adopt(lab),
        "csv" => save(lab),
        _ => {}
    }
}

/// Written as a text or as a script: what the text says, where it can be said so.
fn kind(lab: Lab, which: &str) {
    let (key, kind) = which.split_once(':').unwrap_or((which, ""));
    let at = usize::from(key == "b");
    lab.edit(false, |scenario| {
        scenario.policies[at] = match (&scenario.policies[at], kind) {
            (Chosen::Text(_), "script") => {
                let (_, script) = presets::SCRIPTS[1];
                Chosen::Script(script.to_owned())
            }
            (Chosen::Script(_), "text") => Chosen::Text("any".into()),
            (same, _) => same.clone(),
        };
    });
}

/// A lane more.
fn node(lab: Lab) {
    let name = lab.with(|lab| {
        let mut taken = lab.scenario.clone();
        let spare = lab.spare.iter().map(|node| Happening {
            at: 0,
            node: node.clone(),
            slots: 0,
            what: What::Joins,
        });
        taken.events.extend(spare);
        let name = taken.new_node();
        lab.spare.push(name.clone());
        name
    });
    if let Some(name) = name {
        lab.show();
        lab.page.say(tr!(
            "{node} has a lane now: click it where the node joins, or add an event with Enter.",
            node = name
        ));
        show::focus("el-frame-0");
    }
}

/// Adds an event and gives its mark the focus.
pub fn add(lab: Lab, node: &str, at: u64, gently: bool) {
    let mut added = None;
    lab.edit(false, |scenario| added = Some(scenario.add(node, at, gently)));
    match added {
        Some(Ok(number)) => show::focus(&format!("el-mark-{number}")),
        Some(Err(why)) => lab.page.complain(tr!("Nothing was added: {why}.", why)),
        None => {}
    }
}

fn remove(lab: Lab, at: usize) {
    lab.edit(false, |scenario| {
        if at < scenario.events.len() {
            scenario.events.remove(at);
        }
    });
    show::focus("el-frame-0");
}

/// The record's members become the scenario's events.
fn adopt(lab: Lab) {
    let events =
        lab.with(|lab| lab.record.as_ref().map(|(_, told)| Scenario::events_of(&told.life)));
    let Some(Some(events)) = events else { return };
    lab.with(|lab| (lab.recorded, lab.view, lab.selected) = (false, None, None));
    let count = events.len();
    lab.edit(false, |scenario| scenario.events = events);
    lab.show();
    lab.page.say(tr!("The simulation now has the {count} recorded events.", count));
}

/// Saves generations of what is shown.
fn save(lab: Lab) {
    let text = lab.with(|lab| {
        let [a, b] = &lab.scenario.policies;
        let names = match (&lab.record, lab.recorded) {
            (Some((name, _)), true) => [name.clone(), String::new()],
            _ => [a.title(), b.title()],
        };
        let lives = lab.shown().into_iter().zip(names);
        let lives: Vec<(String, &pipewright_core::elastic::life::Life)> = lives
            .filter_map(|(told, name): (Option<&Told>, String)| Some((name, &told?.life)))
            .collect();
        csv::text(&lives)
    });
    let name = "elastic.csv";
    match download(name, &text.unwrap_or_default()) {
        Ok(()) => lab.page.say(tr!("{name} saved.", name)),
        Err(_) => lab.page.complain(tr!("The browser refused to save {name}.", name)),
    }
}

/// What is typed or chosen.
pub fn typed(lab: Lab, event: &Event, typing: bool) {
    let Some(control) = target(event) else { return };
    let word = |name: &str| control.get_attribute(name);
    let text = value(&control);
    if let Some(key) = word("data-policy") {
        let at = usize::from(key == "b");
        lab.edit(typing, |scenario| {
            scenario.policies[at] = match scenario.policies[at] {
                Chosen::Text(_) => Chosen::Text(text),
                Chosen::Script(_) => Chosen::Script(text),
            };
        });
        if !typing {
            lab.commit();
        }
        return;
    }
    // Half-typed numbers wait.
    if typing {
        return;
    }
    if let Some(key) = word("data-like") {
        if !text.is_empty() {
            take(lab, &key, &text);
        }
    } else if let Some(cell) = word("data-cell") {
        cell_typed(lab, &cell, text.trim());
    } else if let Some(key) = word("data-key") {
        take(lab, &key, text.trim());
    }
}

/// Takes the value of a word; what does not fit is said, and the control goes back to what holds.
fn take(lab: Lab, key: &str, text: &str) {
    let mut said = None;
    lab.edit(false, |scenario| said = scenario.take(key, text).err());
    if let Some(why) = said {
        lab.page.complain(tr!("`{text}`: {why}.", text, why));
        lab.show();
    }
}

/// A cell of the table of events.
fn cell_typed(lab: Lab, cell: &str, text: &str) {
    let Some((what, Ok(at))) = cell.split_once(':').map(|(what, at)| (what, at.parse::<usize>()))
    else {
        return;
    };
    let wrong = match what {
        "at" => {
            time::parse(text).is_none().then(|| t("a time is such as 90s, 30m or 1h30m").to_owned())
        }
        "node" => (!is_name(text))
            .then(|| t("a name has letters, digits, _ . and -, 24 at most").to_owned()),
        "slots" => {
            let fits = text.parse().is_ok_and(|slots: u32| (1..=SLOTS_MOST).contains(&slots));
            (!fits).then(|| {
                tr!("must be a whole number from {least} to {most}", least = 1, most = SLOTS_MOST)
            })
        }
        _ => None,
    };
    if let Some(why) = wrong {
        lab.page.complain(tr!("`{text}`: {why}.", text, why));
        lab.with(|lab| lab.written.retain(|(id, _)| id != "el-events"));
        return lab.show();
    }
    let text = text.to_owned();
    lab.edit(false, |scenario| {
        let Some(event) = scenario.events.get_mut(at) else { return };
        match what {
            "at" => event.at = time::parse(&text).unwrap_or(event.at),
            "node" => event.node = text,
            "slots" => event.slots = text.parse().unwrap_or(event.slots),
            _ => {
                event.what = match text.as_str() {
                    "leave" => What::Leaves,
                    "lose" => What::IsLost,
                    _ => What::Joins,
                }
            }
        }
    });
}

/// Keys of marks, then those of the pictures.
pub fn key(lab: Lab, event: &KeyboardEvent) {
    let Some(control) = target(event) else { return };
    let done = match control.get_attribute("data-ev").and_then(|at| at.parse().ok()) {
        Some(number) => mark_key(lab, number, event),
        None if control.has_attribute("data-frame") => frame_key(lab, event),
        None => false,
    };
    if done {
        event.prevent_default();
        event.stop_propagation();
    }
}

/// Moves, turns and removes an event; whether the key was for that.
fn mark_key(lab: Lab, number: usize, event: &KeyboardEvent) -> bool {
    let pixels = if event.shift_key() { 40.0 } else { 4.0 };
    let sign = match event.key().as_str() {
        "ArrowLeft" => -1.0,
        "ArrowRight" => 1.0,
        "Delete" | "Backspace" => {
            remove(lab, number);
            return true;
        }
        "Enter" | " " => {
            lab.edit(false, |scenario| {
                if let Some(event) = scenario.events.get_mut(number) {
                    event.what = match event.what {
                        What::Joins => What::IsLost,
                        What::IsLost => What::Leaves,
                        What::Leaves => What::Joins,
                    };
                }
            });
            return true;
        }
        "ArrowUp" | "ArrowDown" => {
            next_mark(lab, number, event.key() == "ArrowDown");
            return true;
        }
        "Escape" => {
            show::focus("el-frame-0");
            return true;
        }
        _ => return false,
    };
    let pixel = lab.with(|lab| lab.scale(show::width(0)).pixel() / 1e6).unwrap_or(1.0);
    lab.edit(false, |scenario| {
        if let Some(event) = scenario.events.get_mut(number) {
            let to = (event.at as f64 + sign * pixels * pixel).clamp(0.0, time::MOST as f64);
            let round = pointer::rounded(to, pixel);
            // Rounding must not hold it where it is.
            let step = (pixels * pixel) as u64;
            event.at = match round == event.at && step > 0 {
                true if sign > 0.0 => event.at + step,
                true => event.at.saturating_sub(step),
                false => round,
            };
        }
    });
    true
}

/// The next mark in time, or the one before.
fn next_mark(lab: Lab, number: usize, later: bool) {
    let to = lab.with(|lab| {
        let events = &lab.scenario.events;
        let mut order: Vec<usize> = (0..events.len()).collect();
        order.sort_by_key(|at| (events[*at].at, *at));
        let at = order.iter().position(|at| *at == number)?;
        let to = if later { at + 1 } else { at.checked_sub(1)? };
        order.get(to).copied()
    });
    if let Some(Some(to)) = to {
        show::focus(&format!("el-mark-{to}"));
    }
}

/// Zooms, moves, goes from moment to moment; whether the key was for that.
fn frame_key(lab: Lab, event: &KeyboardEvent) -> bool {
    if event.alt_key() || event.ctrl_key() || event.meta_key() {
        return false;
    }
    // A plain way to the marks, which are no stops of Tab: there can be hundreds.
    if event.key() == "Enter" {
        return enter(lab);
    }
    let Some(command) = keys::find(Scope::Timeline, &event.key(), false, event.shift_key()) else {
        return false;
    };
    let selected = lab.with(|lab| lab.selected).flatten();
    match command {
        Command::ZoomIn | Command::ZoomOut => {
            let factor = if command == Command::ZoomIn { 0.8 } else { 1.25 };
            let around =
                lab.with(|lab| selected.and_then(|at| Some(lab.moments().get(at)?.at.0 as f64)));
            lab.look(|scale, full| {
                let around = around.flatten().filter(|at| scale.sees(*at, *at));
                Some(scale.zoomed(factor, around.unwrap_or((scale.from + scale.to) / 2.0), full))
            });
        }
        Command::PanLeft => lab.look(|scale, full| Some(scale.moved(-0.2, full))),
        Command::PanRight => lab.look(|scale, full| Some(scale.moved(0.2, full))),
        Command::Everything => lab.look(|_, _| None),
        Command::Next => lab.select(Some(selected.map_or(0, |at| at + 1))),
        Command::Previous => lab.select(selected.and_then(|at| at.checked_sub(1))),
        _ => return false,
    }
    true
}

/// To the first mark that is seen; on a node's lane without events, an event.
fn enter(lab: Lab) -> bool {
    let spare = lab.with(|lab| {
        let known = lab.scenario.nodes();
        let spare = lab.spare.iter().find(|node| !known.contains(node)).cloned();
        (!lab.recorded).then_some(spare).flatten()
    });
    if let Some(Some(node)) = spare {
        let at = lab.with(|lab| {
            let scale = lab.scale(show::width(0));
            let seen = (scale.from + scale.to) / 2.0;
            let selected = lab.selected.and_then(|at| Some(lab.moments().get(at)?.at.0 as f64));
            pointer::rounded(selected.unwrap_or(seen) / 1e6, scale.pixel() / 1e6)
        });
        add(lab, &node, at.unwrap_or(0), false);
        return true;
    }
    let first =
        show::element("el-marks-0").and_then(|marks| marks.query_selector("button").ok().flatten());
    if let Some(first) = first {
        show::focus(&first.id());
        return true;
    }
    false
}
