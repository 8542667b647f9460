//! Puts what changes into the page, by the names of its places.

use super::lab::{Inner, Lab};
use crate::base::stops::{contiguous, position};
use crate::base::texts::{t, tr};
use crate::draw::canvas::Canvas;
use crate::screens::playground::chart::curves::{Across, Line, Up, draw};
use crate::screens::playground::chart::form::{NUMBERS, place_of, wrong};
use crate::screens::playground::chart::{page, step, tile};
use crate::screens::playground::model::choice::Control;
use crate::widgets::size::observe;
use leptos::prelude::document;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Element, HtmlCanvasElement};

/// Shares a row of a network's picture.
const SIDE: usize = 36;

fn element(id: &str) -> Option<Element> {
    document().get_element_by_id(id)
}

/// Writes markup into a place, unless it is there.
fn write(lab: &mut Inner, id: &str, markup: String) {
    let kept = lab.written.iter_mut().find(|(known, _)| known == id);
    if kept.as_ref().is_some_and(|(_, old)| *old == markup) {
        return;
    }
    let Some(place) = element(id) else { return };
    place.set_inner_html(&markup);
    match kept {
        Some((_, old)) => *old = markup,
        None => lab.written.push((id.to_owned(), markup)),
    }
}

/// Gives a control its value; a choice that was not offered is offered from then on.
fn fill(id: &str, value: &str) {
    let Some(element) = element(id) else { return };
    let set = || js_sys::Reflect::set(&element, &"value".into(), &value.into());
    let _ = set();
    let now = js_sys::Reflect::get(&element, &"value".into()).unwrap_or(JsValue::NULL);
    if element.tag_name() == "SELECT" && now.as_string().as_deref() != Some(value) {
        if let Ok(option) = document().create_element("option") {
            option.set_text_content(Some(value));
            let _ = element.append_child(&option);
        }
        let _ = set();
    }
}

fn switch(id: &str, property: &str, on: bool) {
    if let Some(element) = element(id) {
        let _ = js_sys::Reflect::set(&element, &property.into(), &on.into());
    }
}

/// The inputs are a sheet on narrow screens.
pub fn sheet(open: bool) {
    if let Some(inputs) = element("pg-inputs") {
        let _ = inputs.class_list().toggle_with_force("open", open);
    }
}

/// Values of all controls, what is wrong with them, what is pressed.
pub fn choice(lab: &mut Inner) {
    let words = lab.choice.words();
    for (key, value) in &words {
        let id = format!("pg-{key}");
        let Some(number) = NUMBERS.iter().find(|number| number.key == *key) else {
            fill(&id, value);
            continue;
        };
        let values = (number.values)();
        let at = value.parse().map_or(0, |value| position(&values, value));
        fill(&id, &at.to_string());
        fill(&format!("{id}-n"), value);
        let least = if contiguous(&values) { values[0] } else { 0 };
        let share = (at - least.min(at)) as f64 / (values.len() as f64 - 1.0) * 100.0;
        if let Some(slider) = element(&id) {
            let _ = slider.set_attribute("style", &format!("--p:{share:.1}%"));
            let _ = slider.set_attribute("aria-valuetext", value);
        }
    }
    ways(lab);
    let problem = lab.problem.clone();
    for control in [Control::Stages, Control::Schedule, Control::Batch] {
        let mine = problem.as_ref().filter(|problem| problem.control == control);
        write(lab, place_of(control), mine.map(wrong).unwrap_or_default());
    }
    let alone = lab.choice.ranks == 1;
    let alone = if alone { t("One rank alone sends nothing: codecs change nothing.") } else { "" };
    write(lab, "pg-alone", alone.into());
    write(lab, "pg-look", page::look(&lab.choice).into());
    write(lab, "pg-play", if lab.playing { t("Pause") } else { t("Train") }.into());
    for id in ["pg-play", "pg-step", "pg-reset"] {
        switch(id, "disabled", problem.is_some());
    }
    switch("pg-stale", "hidden", problem.is_none());
    pressed(lab);
}

/// Codecs of the trainings; tiles are made when their number changes.
fn ways(lab: &mut Inner) {
    let ways = lab.choice.ways.clone();
    if lab.canvases.len() != ways.len() {
        write(lab, "pg-tiles", page::tiles(ways.len()));
        let plane = |at: usize| {
            let canvas = element(&format!("pg-plane-{at}"))?;
            Canvas::new(canvas.dyn_into::<HtmlCanvasElement>().ok()?)
        };
        lab.canvases = (0..ways.len()).filter_map(plane).collect();
        // Their places are new, and empty.
        lab.written.retain(|(id, _)| !id.starts_with("pg-now") && !id.starts_with("pg-hist"));
    }
    for (at, way) in ways.iter().enumerate() {
        let mut bare = *way;
        bare.method.feedback = false;
        fill(&format!("pg-codec-{at}"), &bare.to_string());
        switch(&format!("pg-feedback-{at}"), "checked", way.method.feedback);
        switch(&format!("pg-feedback-{at}"), "disabled", way.is_plain());
        if let Some(label) = element(&format!("pg-owed-{at}")) {
            let _ = label.class_list().toggle_with_force("off", way.is_plain());
        }
    }
    switch("pg-add", "disabled", ways.len() >= crate::screens::playground::model::choice::RUNS_MAX);
}

/// Which buttons of groups are pressed.
fn pressed(lab: &Inner) {
    let presets = &crate::screens::playground::model::presets::ALL;
    let preset = presets.iter().position(|preset| preset.choice() == lab.choice);
    let on = [
        format!("data={}", lab.choice.set.word()),
        format!("preset={}", preset.unwrap_or(presets.len())),
        format!("pace={}", lab.pace),
        format!("up={}", lab.up),
        format!("across={}", lab.across),
    ];
    let Ok(buttons) = document().query_selector_all(".play button[aria-pressed]") else { return };
    for at in 0..buttons.length() {
        let Some(button) = buttons.get(at).and_then(|node| node.dyn_into::<Element>().ok()) else {
            continue;
        };
        let does = button.get_attribute("data-do").unwrap_or_default();
        let _ = button.set_attribute("aria-pressed", &on.contains(&does).to_string());
    }
}

/// Everything that follows from the trainings but the pictures of networks.
pub fn numbers(lab: &mut Inner) {
    let size = |id: &str, usual: (f64, f64)| {
        let found =
            element(id).map(|e| (f64::from(e.client_width()), f64::from(e.client_height())));
        found.filter(|(width, height)| *width > 0.0 && *height > 0.0).unwrap_or(usual)
    };
    let Some(race) = &lab.race else { return };
    let lines: Vec<Line> = (race.runs.iter())
        .map(|run| Line { name: run.way.to_string(), points: &run.curve })
        .collect();
    let (across, up) = (Across::ALL[lab.across].0, Up::ALL[lab.up].0);
    let frame = size("pg-frame", (800.0, 300.0));
    let mut places = vec![
        ("pg-curves".to_owned(), draw(&lines, across, up, frame)),
        ("pg-rows".to_owned(), page::rows(race)),
        ("pg-facts".to_owned(), page::facts(race)),
        ("pg-bits".to_owned(), page::bits(race)),
        ("pg-why".to_owned(), page::why(race).to_owned()),
        ("pg-steps".to_owned(), tr!("step {step}", step = race.step)),
        (
            "pg-lanes".to_owned(),
            step::draw(&race.recipe.pipeline, size("pg-lanes", (288.0, 88.0)).0),
        ),
    ];
    for (at, run) in race.runs.iter().enumerate() {
        places.push((format!("pg-now-{at}"), page::newest(run)));
        places.push((format!("pg-hist-{at}"), page::gradient(run)));
    }
    for (id, markup) in places {
        write(lab, &id, markup);
    }
}

/// The picture of a network.
pub fn picture(lab: &mut Inner, at: usize) {
    let Inner { race: Some(race), canvases, room: Some(room), palette, .. } = lab else { return };
    let Some(canvas) = canvases.get_mut(at) else { return };
    let width = f64::from(canvas.element.client_width());
    let shares = race.picture(at, SIDE);
    if width > 0.0 && !shares.is_empty() {
        tile::draw(canvas, room, palette, (&shares, SIDE), &race.data, width);
    }
}

/// Writes anew what depends on the size of its place.
pub fn follow_size(lab: Lab) {
    for id in ["pg-frame", "pg-tiles"] {
        if let Some(frame) = element(id) {
            observe(&frame, move || lab.show());
        }
    }
}
