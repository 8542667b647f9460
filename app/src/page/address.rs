//! The link in the browser's address bar. While dragging it is replaced, on release a step of the
//! browser's own history is made.

use super::state::Page;
use crate::base::screen::Screen;
use crate::base::texts::tr;
use crate::planner::link;
use crate::screens::recompute::state::Source;
use js_sys::Date;
use leptos::prelude::*;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use wasm_bindgen::JsValue;

thread_local! {
    static WAITING: Cell<bool> = const { Cell::new(false) };
    static PUSHING: Cell<bool> = const { Cell::new(false) };

    /// The fragment before the last change of ours, and when that was: a page that is loaded again in that moment has it.
    static BEFORE: RefCell<Option<(String, f64)>> = const { RefCell::new(None) };
}

/// Milliseconds after which a page that is loaded again has the new fragment.
const SETTLED: f64 = 2_000.0;

/// The fragment that the address had before it followed the page, if it followed just now.
pub fn before() -> Option<String> {
    let before = BEFORE.with_borrow(Option::clone);
    before.filter(|(_, when)| Date::now() - when < SETTLED).map(|(fragment, _)| fragment)
}

fn remember() {
    BEFORE.set(window().location().hash().ok().map(|fragment| (fragment, Date::now())));
}

/// Browsers allow about 100 changes in 30 s.
const PAUSE: Duration = Duration::from_millis(350);

/// Longer than until the next frame.
const FRAME: Duration = Duration::from_millis(40);

/// The address of the page with this state.
pub fn of(page: Page) -> String {
    let location = window().location();
    let part = |found: Result<String, JsValue>| found.unwrap_or_default();
    let fragment = page.link();
    let base = format!("{}{}", part(location.origin()), part(location.pathname()));
    // Pages opened from a folder have the origin "null".
    let base = if base.starts_with("null") {
        part(location.href()).split('#').next().unwrap_or_default().to_owned()
    } else {
        base
    };
    format!("{base}#{fragment}")
}

/// Replaces the address, a little later and once for many changes.
pub fn replace_soon(page: Page) {
    if WAITING.replace(true) {
        return;
    }
    let replace = move || {
        WAITING.set(false);
        remember();
        if let Ok(history) = window().history() {
            let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&of(page)));
        }
    };
    set_timeout(replace, PAUSE);
}

/// Makes a step of the browser's history once the picture is there: it would take 3 ms of its frame.
pub fn push(page: Page) {
    if PUSHING.replace(true) {
        return;
    }
    let push = move || {
        PUSHING.set(false);
        let address = of(page);
        if window().location().href().is_ok_and(|now| now == address) {
            return;
        }
        remember();
        if let Ok(history) = window().history() {
            let _ = history.push_state_with_url(&JsValue::NULL, "", Some(&address));
        }
    };
    set_timeout(push, FRAME);
}

/// To another state, as a step of the browser's history.
pub fn go(page: Page, link: &str) {
    if let Ok(history) = window().history() {
        let _ = history.push_state_with_url(&JsValue::NULL, "", Some(&format!("#{link}")));
    }
    take(page);
}

/// To another state, in the place of this one.
pub fn instead(page: Page, link: &str) {
    if let Ok(history) = window().history() {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("#{link}")));
    }
    take(page);
}

/// Takes the state of the address bar; returns the files it names or holds.
pub fn take(page: Page) -> link::Files {
    let state = page.state;
    let fragment = window().location().hash().unwrap_or_default();
    let current = state.inputs.get_untracked();
    let link = link::read(&fragment, Some(&current));
    let stages = link.inputs.stages();
    if link.inputs != current {
        state.history.update(|h| h.push(current));
        state.inputs.set(link.inputs);
    }
    if link.screen == Screen::Recompute {
        page.recompute.source.set(Source::Stage(link.asked.stage.min(stages - 1)));
        page.recompute.keep.set(link.asked.keep);
    }
    if link.screen == Screen::Playground {
        page.playground.play.set(link.play);
    }
    if link.screen == Screen::Elastic {
        page.elastic.job.set(link.job);
    }
    state.screen.set(link.screen);
    state.look.story.set(link.story);
    if let Some(root) = document().document_element() {
        let _ = root.toggle_attribute_with_force("data-embed", link.embed);
    }
    complain(page, &link.problems);
    link.files
}

fn complain(page: Page, problems: &[String]) {
    if !problems.is_empty() {
        let list = problems.join("; ");
        page.state.complain(tr!("Not everything in the link could be used: {list}.", list));
    }
}

/// Says again what of the first address could not be used: its language was not known before.
pub fn retell(page: Page, fragment: &str) {
    let problems = link::read(fragment, None).problems;
    complain(page, &problems);
}
