//! Files in and out: plans and traces.
//!
//! A file that cannot be used leaves everything as it was and says in one line what was read,
//! what is wrong and what to do.

use crate::content::{self, Content, recognise};
use crate::exports::Format;
use crate::inputs::Inputs;
use crate::later::Missing;
use crate::screen::Screen;
use crate::state::{Source, State};
use crate::texts::{t, tr};
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use pipewright_core::units::Bytes;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// Larger files are refused before they fill the page's memory.
const BYTES_MAX: f64 = 300e6;

/// [`recognise`], fetched when the first file comes: nothing else on the page reads JSON.
#[wasm_split(files, wasm_split_path = ::leptos::wasm_split, fallible)]
fn read(name: String, text: String) -> Result<Result<Content, String>, Missing> {
    Ok(recognise(&name, &text))
}

/// The plan file's text with its number of ranks, or what contradicts it.
#[wasm_split(files, wasm_split_path = ::leptos::wasm_split, fallible)]
fn write(inputs: Inputs) -> Result<Result<(String, u32), String>, Missing> {
    let made = inputs.plan();
    Ok(made.map(|(plan, _)| (plan.to_json(), plan.ranks())))
}

/// The size of the plan file; none where nothing can be saved.
pub async fn size(inputs: Inputs) -> Option<Bytes> {
    let (text, _) = write(inputs).await.ok()?.ok()?;
    Some(Bytes(text.len() as u64))
}

/// What a plan's file becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is compared with.
    A,
    /// What is edited.
    B,
}

/// Shows a file's content.
async fn take(state: State, name: &str, text: String, side: Side) {
    let content = read(name.to_owned(), text).await;
    match content
        .unwrap_or_else(|missing| Err(tr!("{name} was not read: {why}.", name, why = missing)))
    {
        Ok(Content::Plan(inputs)) if side == Side::A => {
            state.pin(Some(*inputs));
            state.say(tr!("{name} is A now. Ctrl Z takes it back.", name));
        }
        Ok(Content::Plan(inputs)) => {
            let lanes = inputs.lanes();
            state.load(*inputs);
            state.say(tr!("{name}: a plan for {lanes} lanes, shown.", name, lanes));
        }
        Ok(Content::Trace(measured)) => {
            let lanes = measured.timeline.lanes.len();
            let steps = measured.steps;
            state.measured.set(Some(measured));
            state.show_measured.set(true);
            let planned = state.shown.with_untracked(|s| s.solved.timeline.lanes.len());
            if lanes == planned {
                state.say(tr!("{name}: {steps} steps on {lanes} lanes; the median step is drawn over the prediction.", name, steps, lanes));
            } else {
                state.complain(tr!("{name} has {lanes} lanes, the plan {planned}: open the plan it was measured with to see both.", name, lanes, planned));
            }
        }
        Err(why) => state.complain(why),
    }
}

/// Reads the files of an input or a drop, one after the other: a plan before its trace.
pub fn read_all(state: State, files: web_sys::FileList, side: Side) {
    spawn_local(async move {
        let mut texts = vec![];
        for i in 0..files.length() {
            let Some(file) = files.get(i) else { continue };
            let name = file.name();
            // Graphs can be large and packed: the worker reads them.
            if is_graph(&file).await {
                state.source.set(Source::File(file));
                state.go(Screen::Recompute);
                continue;
            }
            if file.size() > BYTES_MAX {
                state.complain(tr!(
                    "{name} has {size} MB, more than a page can hold.",
                    name,
                    size = format_args!("{:.0}", file.size() / 1e6)
                ));
                continue;
            }
            match JsFuture::from(file.text()).await {
                Ok(text) => texts.push((name, text.as_string().unwrap_or_default())),
                Err(_) => state.complain(tr!("{name} could not be read; is it a folder?", name)),
            }
        }
        texts.sort_by_key(|(_, text)| text.contains("\"traceEvents\""));
        for (name, text) in texts {
            take(state, &name, text, side).await;
        }
    });
}

/// Whether a file is packed or says in its first lines that it is a graph to recompute.
async fn is_graph(file: &web_sys::File) -> bool {
    const LOOK: f64 = 4096.0;
    let Ok(head) = file.slice_with_f64_and_f64(0.0, LOOK) else { return false };
    let Ok(bytes) = JsFuture::from(head.array_buffer()).await else { return false };
    let head = js_sys::Uint8Array::new(&bytes).to_vec();
    content::is_graph(&head)
}

/// Fetches the files that the link names and shows them.
pub fn fetch_all(state: State, plan: Option<String>, trace: Option<String>) {
    spawn_local(async move {
        for path in [plan, trace].into_iter().flatten() {
            match fetch(&path).await {
                Ok(text) => take(state, &path, text, Side::B).await,
                Err(why) => state.complain(tr!("{path} could not be fetched: {why}.", path, why)),
            }
        }
    });
}

async fn fetch(path: &str) -> Result<String, String> {
    let failed = |_: JsValue| t("no answer").to_owned();
    let answer = JsFuture::from(window().fetch_with_str(path)).await.map_err(failed)?;
    let answer: web_sys::Response = answer.dyn_into().map_err(failed)?;
    if !answer.ok() {
        return Err(tr!(
            "the server says {status}",
            status = format_args!("{} {}", answer.status(), answer.status_text())
        ));
    }
    let text = JsFuture::from(answer.text().map_err(failed)?).await.map_err(failed)?;
    text.as_string().ok_or_else(|| t("not a text").into())
}

/// Saves the plan.
pub fn export(state: State) {
    spawn_local(async move {
        let made = write(state.inputs.get_untracked()).await;
        match made.unwrap_or_else(|missing| Err(missing.to_string())) {
            Ok((text, ranks)) => match download("plan.json", &text) {
                Ok(()) => state.say(tr!(
                    "plan.json saved. Run it: {command}",
                    command = crate::exports::command(ranks)
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
#[wasm_split(exports, wasm_split_path = ::leptos::wasm_split, fallible)]
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
    let command = crate::exports::command(ranks);
    spawn_local(async move {
        match JsFuture::from(window().navigator().clipboard().write_text(&command)).await {
            Ok(_) => state.say(tr!("Copied: {command}", command)),
            Err(_) => state.say(tr!("In a shell: {command}", command)),
        }
    });
}

/// Downloads what an address holds.
fn follow(url: &str, name: &str) -> Result<(), JsValue> {
    let anchor: web_sys::HtmlAnchorElement = document().create_element("a")?.unchecked_into();
    anchor.set_href(url);
    anchor.set_download(name);
    anchor.click();
    Ok(())
}

pub fn download(name: &str, text: &str) -> Result<(), JsValue> {
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    let options = web_sys::BlobPropertyBag::new();
    options.set_type(match name.rsplit('.').next() {
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain",
    });
    let blob = web_sys::Blob::new_with_str_sequence_and_options(&parts, &options)?;
    let url = web_sys::Url::create_object_url_with_blob(&blob)?;
    follow(&url, name)?;
    // Some browsers start reading after the click returned.
    set_timeout(
        move || {
            let _ = web_sys::Url::revoke_object_url(&url);
        },
        std::time::Duration::from_secs(10),
    );
    Ok(())
}

/// Puts the link on the clipboard.
pub fn copy_link(state: State) {
    let address = crate::address::of(state);
    let own_file = state.inputs.with_untracked(|i| {
        matches!(i.model, crate::inputs::ModelChoice::File(_))
            || matches!(i.cluster, crate::inputs::ClusterChoice::File(_))
    });
    let own_times = state.inputs.with_untracked(|i| i.typed().is_some());
    spawn_local(async move {
        let copied = JsFuture::from(window().navigator().clipboard().write_text(&address)).await;
        match copied {
            Ok(_) if own_file => state.say(t(
                "Link copied. It has your settings, not your files; save the plan to share both.",
            )),
            Ok(_) if own_times => {
                state.say(t("Link copied. It has your settings, not your times; save the plan."));
            }
            Ok(_) => state.say(t("Link copied: it shows exactly this state.")),
            Err(_) => state.say(tr!("Copy this link: {address}", address)),
        }
    });
}
