//! Files in and out: plans and traces. What reads them is in [`crate::page::opening`].
//!
//! A file that cannot be used leaves everything as it was and says in one line what was read,
//! what is wrong and what to do.

use super::exports::Format;
use super::state::Page;
use super::{keeping, opening, saved};
use crate::base::download::{download, follow};
use crate::base::language::place;
use crate::base::later::Missing;
use crate::base::texts::tr;
use crate::planner::inputs::Inputs;
use crate::planner::link::Files;
use crate::state::State;
use crate::state::request::Side;
use crate::widgets::clipboard::copy;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use pipewright_core::units::Bytes;
use std::pin::Pin;
use wasm_bindgen::{JsCast, JsValue};

/// The plan file's text with its number of ranks, or what contradicts it.
#[wasm_split(tray, wasm_split_path = ::leptos::wasm_split, fallible)]
fn write(inputs: Inputs) -> Result<Result<(String, u32), String>, Missing> {
    let made = inputs.plan();
    Ok(made.map(|(plan, _)| (plan.to_json(), plan.ranks())))
}

/// The size of the plan file; none where nothing can be saved.
pub async fn size(inputs: Inputs) -> Option<Bytes> {
    let (text, _) = write(inputs).await.ok()?.ok()?;
    Some(Bytes(text.len() as u64))
}

/// What reads files; nothing else on the page reads JSON, so it comes with the first of them.
type Reading = Pin<Box<dyn Future<Output = ()>>>;

#[wasm_split(files, wasm_split_path = ::leptos::wasm_split, fallible)]
fn opening(page: Page, files: Vec<web_sys::File>, side: Side) -> Result<Reading, Missing> {
    Ok(Box::pin(opening::open(page, files, side)))
}

#[wasm_split(files, wasm_split_path = ::leptos::wasm_split, fallible)]
fn fetching(page: Page, files: Files) -> Result<Reading, Missing> {
    Ok(Box::pin(opening::fetch(page, files)))
}

/// Reads the files of an input or a drop, one after the other: a plan before its trace.
pub fn read_all(page: Page, files: Vec<web_sys::File>, side: Side) {
    let Some(name) = files.first().map(web_sys::File::name) else { return };
    spawn_local(open(page, name, files, side));
}

/// Shows a text as if a file of it had been dropped.
pub async fn open_text(page: Page, name: &str, text: &str) {
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    if let Ok(file) = web_sys::File::new_with_str_sequence(&parts, name) {
        open(page, name.to_owned(), vec![file], Side::B).await;
    }
}

async fn open(page: Page, name: String, files: Vec<web_sys::File>, side: Side) {
    match opening(page, files, side).await {
        Ok(reading) => reading.await,
        Err(why) => page.state.complain(tr!("{name} was not read: {why}.", name, why)),
    }
}

/// Shows a text as if a file of it had been dropped on A.
pub async fn open_as_a(page: Page, name: &str, text: &str) {
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    if let Ok(file) = web_sys::File::new_with_str_sequence(&parts, name) {
        open(page, name.to_owned(), vec![file], Side::A).await;
    }
}

/// Shows files as if they had been dropped.
pub async fn open_all(page: Page, files: Vec<web_sys::File>) {
    let Some(name) = files.first().map(web_sys::File::name) else { return };
    open(page, name, files, Side::B).await;
}

/// Shows the files that the link names or holds.
pub fn fetch_all(page: Page, files: Files) {
    if files == Files::default() {
        return;
    }
    spawn_local(async move {
        match fetching(page, files).await {
            Ok(reading) => reading.await,
            Err(why) => page.state.complain(tr!("The link was not read: {why}.", why)),
        }
    });
}

/// Shows the run that is shipped with the page: its plan, trace and metrics.
pub fn example(page: Page) {
    let part = |name: String| place(&format!("pipewright-example-{name}"));
    let [plan, trace] = ["plan", "trace"].map(|name| part(name.into()));
    let metrics = (0..).map_while(|rank| part(format!("rank-{rank}"))).collect();
    fetch_all(page, Files { plan, trace, metrics, ..Files::default() });
}

/// The plan file's text with its number of ranks.
///
/// # Errors
/// Why there is none, a sentence without its full stop.
pub async fn plan(inputs: Inputs) -> Result<(String, u32), String> {
    write(inputs).await.unwrap_or_else(|missing| Err(missing.to_string()))
}

/// Saves the plan.
pub fn export(state: State) {
    spawn_local(async move {
        match plan(state.inputs.get_untracked()).await {
            Ok((text, ranks)) => match download("plan.json", &text) {
                Ok(()) => state.say(tr!(
                    "plan.json saved. Run it: {command}",
                    command = crate::planner::command::command(ranks)
                )),
                Err(_) => {
                    state.complain(tr!("The browser refused to save {name}.", name = "plan.json"))
                }
            },
            Err(why) => state.complain(tr!("Nothing saved: {why}.", why)),
        }
    });
}

/// The text of a format; what makes them comes when it is first asked for.
#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn put(format: Format, state: State) -> Result<Result<String, String>, Missing> {
    let graph = state.graph.get_untracked();
    Ok(state.shown.with_untracked(|shown| format.text(&shown.solved, &graph)))
}

/// Saves what is shown in another format.
pub fn save(state: State, format: Format) {
    spawn_local(async move {
        let made = put(format, state).await.unwrap_or_else(|missing| Err(missing.to_string()));
        let name = format.file();
        match made.map(|text| download(name, &text)) {
            Ok(Ok(())) => state.say(tr!("{name} saved.", name)),
            Ok(Err(_)) => state.complain(tr!("The browser refused to save {name}.", name)),
            Err(why) => state.complain(tr!("{name} was not saved: {why}.", name, why)),
        }
    });
}

#[wasm_split(menus, wasm_split_path = ::leptos::wasm_split, fallible)]
fn put_page(state: State, plan: String) -> Result<Result<String, String>, Missing> {
    let measured = state.look.measured.get_untracked();
    Ok(state.shown.with_untracked(|shown| saved::page(&shown.solved, measured.as_ref(), &plan)))
}

/// Saves plan and trace as one HTML file.
pub fn save_page(state: State) {
    spawn_local(async move {
        let name = "plan.html";
        let made = match plan(state.inputs.get_untracked()).await {
            Ok((text, _)) => {
                put_page(state, text).await.unwrap_or_else(|missing| Err(missing.to_string()))
            }
            Err(why) => Err(why),
        };
        match made.map(|text| download(name, &text)) {
            Ok(Ok(())) => state.say(tr!("{name} saved.", name)),
            Ok(Err(_)) => state.complain(tr!("The browser refused to save {name}.", name)),
            Err(why) => state.complain(tr!("{name} was not saved: {why}.", name, why)),
        }
    });
}

/// Saves the timeline's picture as it is seen.
pub fn save_picture(state: State) {
    let canvas = document().get_element_by_id("timeline");
    let canvas = canvas.and_then(|e| e.dyn_into::<web_sys::HtmlCanvasElement>().ok());
    let saved = canvas.and_then(|c| c.to_data_url().ok()).map(|url| follow(&url, "timeline.png"));
    match saved {
        Some(Ok(())) => state.say(tr!("{name} saved.", name = "timeline.png")),
        _ => state.complain(tr!("The browser refused to save {name}.", name = "timeline.png")),
    }
}

/// Puts the command that runs the exported plan on the clipboard.
pub fn copy_command(state: State) {
    let ranks = state.inputs.with_untracked(Inputs::ranks);
    copy(state, crate::planner::command::command(ranks));
}

/// Puts the link on the clipboard.
pub fn copy_link(page: Page) {
    spawn_local(async move {
        match keeping::copy(page).await {
            Ok(copied) => copied.await,
            Err(why) => page.state.complain(tr!("No link was copied: {why}.", why)),
        }
    });
}
