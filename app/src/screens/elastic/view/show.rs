//! Puts what changes into the page, by the names of its places.

use super::lab::{Inner, Lab, Told};
use crate::base::format::escape;
use crate::base::texts::{said, t, tr};
use crate::screens::elastic::chart::page;
use crate::screens::elastic::chart::rates::rates;
use crate::screens::elastic::chart::scale::{Rows, TOP};
use crate::screens::elastic::chart::timeline::{Picture, Unit, draw};
use crate::screens::elastic::model::moments::Kind;
use crate::screens::elastic::model::presets::SCRIPTS;
use crate::screens::elastic::model::scenario::Chosen;
use crate::screens::elastic::model::time;
use crate::screens::elastic::model::totals::{Totals, rows};
use crate::widgets::size::observe;
use leptos::prelude::document;
use pipewright_core::elastic::life::{End, Life};
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlElement};

pub fn element(id: &str) -> Option<Element> {
    document().get_element_by_id(id)
}

/// Writes markup into a place, unless it is there; what had the focus in it has it again.
fn write(lab: &mut Inner, id: &str, markup: String) {
    let kept = lab.written.iter_mut().find(|(known, _)| known == id);
    if kept.as_ref().is_some_and(|(_, old)| *old == markup) {
        return;
    }
    let Some(place) = element(id) else { return };
    let focused = document().active_element().filter(|focused| place.contains(Some(focused)));
    place.set_inner_html(&markup);
    if let Some(id) = focused.filter(|f| !f.is_same_node(Some(&place))).map(|focused| focused.id())
    {
        focus(&id);
    }
    match kept {
        Some((_, old)) => *old = markup,
        None => lab.written.push((id.to_owned(), markup)),
    }
}

/// Gives an element the focus, without scrolling to it.
pub fn focus(id: &str) {
    if let Some(found) = element(id).and_then(|e| e.dyn_into::<HtmlElement>().ok()) {
        let _ = found.focus();
    }
}

/// The value of a control.
fn value(id: &str) -> String {
    let value = element(id).and_then(|e| js_sys::Reflect::get(&e, &"value".into()).ok());
    value.and_then(|value| value.as_string()).unwrap_or_default()
}

/// Gives a control its value, unless somebody is typing in it.
fn fill(id: &str, value: &str) {
    let Some(element) = element(id) else { return };
    let typing = document().active_element().is_some_and(|focused| focused == element);
    if self::value(id) != value && !(typing && element.tag_name() == "TEXTAREA") {
        let _ = js_sys::Reflect::set(&element, &"value".into(), &value.into());
    }
}

fn switch(id: &str, property: &str, on: bool) {
    if let Some(element) = element(id) {
        let _ = js_sys::Reflect::set(&element, &property.into(), &on.into());
    }
}

/// The inputs are a sheet on narrow screens.
pub fn sheet(open: bool) {
    if let Some(inputs) = element("el-inputs") {
        let _ = inputs.class_list().toggle_with_force("open", open);
    }
}

/// The width of a picture's place.
pub fn width(at: usize) -> f64 {
    let found = element(&format!("el-frame-{at}")).map(|frame| f64::from(frame.client_width()));
    found.filter(|width| *width > 0.0).unwrap_or(800.0)
}

/// Writes everything.
pub fn all(lab: &mut Inner) {
    controls(lab);
    policies(lab);
    pictures(lab);
    figures(lab);
    moments(lab);
    pressed(lab);
}

fn controls(lab: &mut Inner) {
    let scenario = lab.scenario.clone();
    let [work, settle, detect, restart] =
        [scenario.work, scenario.settle, scenario.detect, scenario.restart].map(time::text);
    for (id, value) in [
        ("el-work", work),
        ("el-epochs", scenario.epochs.to_string()),
        ("el-settle", settle),
        ("el-detect", detect),
        ("el-restart", restart),
        ("el-rule", scenario.rule.to_string()),
    ] {
        fill(id, &value);
    }
    let replica = lab.replica();
    let plan = lab.ground.as_ref().map(|ground| {
        tr!(
            "The page's plan: {ranks} ranks. A node offers {replica} unless it says otherwise: \
             one pipeline.",
            ranks = ground.plan.ranks(),
            replica
        )
    });
    write(lab, "el-plan", plan.unwrap_or_default());
    write(lab, "el-busy", crate::base::format::escape(&lab.busy.clone()));
    switch("el-busy", "hidden", lab.busy.is_empty());
    let recorded = lab.recorded;
    switch("el-inputs", "inert", recorded);
    switch("el-src", "hidden", lab.record.is_none());
    for id in ["el-looks", "el-add", "el-table", "el-other", "el-sizes-s", "el-which"] {
        switch(id, "hidden", recorded);
    }
    let look = match (&lab.record, recorded) {
        (Some((name, _)), true) => {
            let name = crate::base::format::escape(name);
            tr!(
                "{name}, as recorded by the supervisor. The inputs on the left belong to the \
                 simulation.",
                name
            )
        }
        _ => page::look(&scenario).to_owned(),
    };
    write(lab, "el-look", look);
    let hint = match recorded {
        true => t("W S zoom, A D earlier and later, 0 everything, ← → step through events"),
        false => {
            t("Click a lane to add a join or a failure (Shift: leave). Drag a mark to move it, \
             Delete removes it. W S A D 0 zoom and pan, ← → step through events")
        }
    };
    write(lab, "el-hint", hint.to_owned());
    if !recorded {
        write(lab, "el-events", page::events(&scenario, replica));
        let count = scenario.events.len();
        write(lab, "el-count", tr!("{count} events", count));
    }
}

fn policies(lab: &mut Inner) {
    for (at, key) in ["a", "b"].into_iter().enumerate() {
        let chosen = lab.scenario.policies[at].clone();
        fill(&format!("el-{key}"), chosen.text());
        // The list says what it is, where it has it; else that there is something to choose.
        let like = match &chosen {
            Chosen::Text(text) => text.clone(),
            Chosen::Script(text) => {
                let known = SCRIPTS.iter().find(|(_, example)| example == text);
                known.map_or(String::new(), |(name, _)| format!("ex:{name}"))
            }
        };
        let list = format!("el-like-{key}");
        fill(&list, &like);
        if value(&list) != like {
            fill(&list, "");
        }
        let script = matches!(chosen, Chosen::Script(_));
        if let Some(area) = element(&format!("el-{key}")) {
            let _ = area.class_list().toggle_with_force("script", script);
        }
        let wrong = match &lab.policies[at] {
            Some((of, Err(why))) if *of == chosen => {
                format!("✕ {}", crate::base::format::escape(why))
            }
            _ => String::new(),
        };
        write(lab, &format!("el-wrong-{key}"), wrong);
    }
}

/// What a picture shows, in words.
fn label(name: &str, told: &Told) -> String {
    let totals = Totals::of(&told.life);
    tr!(
        "Job timeline, {name}: {outcome}, {generations} generations, {losses} failures. The \
         list beside it says what happened",
        name,
        outcome = totals.outcome(),
        generations = totals.generations,
        losses = totals.losses
    )
}

/// The names of what is shown.
fn names(lab: &Inner) -> [String; 2] {
    match (&lab.record, lab.recorded) {
        (Some((name, _)), true) => [name.clone(), String::new()],
        _ => {
            let [a, b] = &lab.scenario.policies;
            [format!("A · {}", a.title()), format!("B · {}", b.title())]
        }
    }
}

fn pictures(lab: &mut Inner) {
    let names = names(lab);
    let nodes = lab.nodes();
    let mut drawn: [(String, String); 2] = Default::default();
    let all_rates = lab.shown().into_iter().flatten().flat_map(|told| {
        let scale = lab.scale(width(0));
        rates(&told.life, 3.0 * scale.pixel())
    });
    let most = all_rates.map(|rate| rate.rate).fold(0.0, f64::max).max(1.0);
    // Events are drawn before there is a life of them.
    let nothing = Told::new(Life::default());
    for (at, told) in lab.shown().into_iter().enumerate() {
        let Some(told) = told.or((at == 0).then_some(&nothing)) else { continue };
        let scale = lab.scale(width(at));
        let counts = !lab.recorded || told.life.samples_epoch > 0;
        let lanes = if at == 0 { &nodes[..] } else { &[] };
        let picture = Picture {
            life: &told.life,
            nodes: lanes,
            scale,
            unit: if counts { Unit::Epochs } else { Unit::Steps },
            most,
            label: label(&names[at], told),
        };
        let marks = match at == 0 && !lab.recorded {
            true => page::marks(&lab.scenario, &nodes, &scale),
            false => String::new(),
        };
        drawn[at] = (draw(&picture), marks);
    }
    for (at, (picture, marks)) in drawn.into_iter().enumerate() {
        write(lab, &format!("el-pic-{at}"), picture);
        write(lab, &format!("el-marks-{at}"), marks);
        write(lab, &format!("el-name-{at}"), crate::base::format::escape(&names[at]));
    }
    cursor(lab);
}

/// The line through the moment that is looked at.
fn cursor(lab: &Inner) {
    let listed = if lab.recorded { 0 } else { lab.listed };
    for at in 0..2 {
        let Some(line) = element(&format!("el-cursor-{at}")) else { continue };
        let when = lab.selected.and_then(|at| lab.moments().get(at)).map(|m| m.at.0 as f64);
        let scale = lab.scale(width(at));
        let when = when.filter(|when| at == listed && scale.sees(*when, *when));
        switch(&format!("el-cursor-{at}"), "hidden", when.is_none());
        if let Some(when) = when {
            let _ = line.set_attribute("style", &format!("left:{:.1}px", scale.x(when)));
        }
    }
}

fn figures(lab: &mut Inner) {
    let heads = if lab.recorded { names(lab) } else { ["A".to_owned(), "B".to_owned()] };
    let both = lab.shown().into_iter().zip(heads);
    let there = both.filter_map(|(told, head)| Some((Totals::of(&told?.life), head)));
    let (lives, heads): (Vec<Totals>, Vec<String>) = there.unzip();
    let table = page::totals(&rows(&lives), &heads);
    write(lab, "el-totals", table);
    let mut ends = String::new();
    for (totals, head) in lives.iter().zip(&heads) {
        if let Some(End::Failed(why)) = &totals.end {
            let (head, why) = (escape(head), escape(&said(why)));
            ends += &format!("<span class='bad'>{head}: {why}</span><br>")[..];
        }
    }
    write(lab, "el-end", ends);
    let sizes = lab.ground.as_ref().map(|ground| page::sizes(&ground.sizes, ground.plan.ranks()));
    write(lab, "el-sizes", sizes.unwrap_or_default());
}

fn moments(lab: &mut Inner) {
    let list = page::log(lab.moments(), lab.selected);
    write(lab, "el-log", list);
    let said = lab.selected.and_then(|at| lab.moments().get(at)).map(page::said);
    write(lab, "el-say", crate::base::format::escape(&said.unwrap_or_default()));
    // What is looked at is seen, in the list alone: the page does not move.
    let current = element("el-log").and_then(|log| {
        let item = log.query_selector("[aria-current]").ok()??.dyn_into::<HtmlElement>().ok()?;
        Some((log.dyn_into::<HtmlElement>().ok()?, item))
    });
    if let Some((log, item)) = current {
        let (top, height) = (item.offset_top() - log.offset_top(), log.client_height());
        if top < log.scroll_top() || top + item.offset_height() > log.scroll_top() + height {
            log.set_scroll_top(top - height / 3);
        }
    }
}

/// Which buttons of groups are pressed.
fn pressed(lab: &Inner) {
    let presets = &crate::screens::elastic::model::presets::ALL;
    let preset = presets.iter().position(|preset| preset.scenario() == lab.scenario);
    let kind = |at: usize| match lab.scenario.policies[at] {
        Chosen::Text(_) => "text",
        Chosen::Script(_) => "script",
    };
    let on = [
        format!("preset={}", preset.unwrap_or(presets.len())),
        format!("show={}", if lab.recorded { "rec" } else { "sim" }),
        format!("list={}", ["a", "b"][lab.listed]),
        format!("kind=a:{}", kind(0)),
        format!("kind=b:{}", kind(1)),
    ];
    let Ok(buttons) = document().query_selector_all(".ela button[aria-pressed]") else { return };
    for at in 0..buttons.length() {
        let Some(button) = buttons.get(at).and_then(|node| node.dyn_into::<Element>().ok()) else {
            continue;
        };
        let does = button.get_attribute("data-do").unwrap_or_default();
        let _ = button.set_attribute("aria-pressed", &on.contains(&does).to_string());
    }
}

/// What lies under the pointer: the moment that is near, else the state at that time.
pub fn tip(lab: &Inner, frame: usize, place: Option<(f64, f64)>) {
    let id = format!("el-tip-{frame}");
    let told = lab.shown()[frame.min(1)];
    let text = place.zip(told).and_then(|((x, y), told)| {
        let scale = lab.scale(width(frame));
        let at = scale.at(x);
        let bottom = Rows::of(if frame == 0 { lab.nodes().len() } else { 0 }).bottom();
        if !(scale.from..=scale.to).contains(&at) || at < 0.0 || !(TOP - 8.0..=bottom).contains(&y)
        {
            return None;
        }
        let reach = 6.0 * scale.pixel();
        let distance =
            |m: &&crate::screens::elastic::model::moments::Moment| (m.at.0 as f64 - at).abs();
        let near = told.moments.iter().filter(|m| distance(m) <= reach && m.kind != Kind::Trains);
        let mut lines: Vec<String> =
            near.take(5).map(|m| format!("{} {}", m.kind.sign(), page::said(m))).collect();
        if lines.is_empty() {
            let state = crate::screens::elastic::chart::timeline::state_at(&told.life, at);
            lines.push(format!("{}: {state}", time::spoken(at as u64)));
        }
        Some(
            lines
                .iter()
                .map(|line| crate::base::format::escape(line))
                .collect::<Vec<_>>()
                .join("<br>"),
        )
    });
    switch(&id, "hidden", text.is_none());
    if let (Some(tip), Some((x, y)), Some(text)) = (element(&id), place, text) {
        tip.set_inner_html(&text);
        let right = x > width(frame) / 2.0;
        let side = if right {
            format!("right:{:.0}px", width(frame) - x + 14.0)
        } else {
            format!("left:{:.0}px", x + 14.0)
        };
        let _ = tip.set_attribute("style", &format!("{side};top:{:.0}px", y + 14.0));
    }
}

/// Writes anew what depends on the size of its place.
pub fn follow_size(lab: Lab) {
    if let Some(frame) = element("el-frame-0") {
        observe(&frame, move || lab.show());
    }
}
