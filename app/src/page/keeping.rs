//! States that the browser keeps (IndexedDB): the newest of each visit, with the plan and the files that a link
//! does not carry. Without storage, as in some private windows, everything is as at the first visit.

use super::kinds::Kind;
use super::packing::pack;
use super::state::Page;
use super::{address, files};
use crate::base::format;
use crate::base::later::Missing;
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::inputs::Inputs;
use crate::planner::link;
use crate::planner::times::Times;
use crate::screens::recompute::state::Source;
use idb::{Database, DatabaseEvent, Factory, KeyPath, ObjectStoreParams, TransactionMode};
use js_sys::{Array, Date, JSON, Object, Reflect};
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use std::cell::Cell;
use std::pin::Pin;
use std::time::Duration;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::Storage;

const NAME: &str = "pipewright";
const STATES: &str = "states";

/// Visits that are kept; the oldest go first.
const MOST: usize = 20;

/// Letters of a link at most: longer ones are cut by mailers and chats.
const LINK_MAX: usize = 8192;

/// How long the state has to be left alone before it is kept.
const CALM: Duration = Duration::from_millis(1500);

/// Milliseconds within which a page that was left is there again when it is loaded again.
const JUST: f64 = 30_000.0;

/// The setting of the tab that says which visit it is.
const VISIT: &str = "pipewright-visit";

/// The setting of the tab that holds the state it was left with: a database may come too late then.
const LEFT: &str = "pipewright-left";

/// What is done with states, once its code is there.
type Doing<T> = Pin<Box<dyn Future<Output = T>>>;

/// What is done with the state of this tab.
#[derive(Clone, Copy)]
enum What {
    /// What was shown before is shown again.
    Back,
    /// It is kept when it was left alone.
    Calm,
    /// It is kept.
    Now,
}

/// A state of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub visit: String,
    pub title: String,
    pub note: String,
    /// Milliseconds since 1970.
    pub when: f64,
}

thread_local! {
    static NEWEST: Cell<u64> = const { Cell::new(0) };

    /// The connection, as long as it holds.
    static OPEN: Cell<Option<&'static Database>> = const { Cell::new(None) };
}

/// Shows what this tab had before it was loaded again, then keeps each state that is left alone.
pub fn start(page: Page) {
    let state = page.state;
    // The first state is what the address says.
    let changed = Memo::new(move |_| (state.inputs.get(), state.screen.get(), page.shown_files()));
    Effect::new(move |before: Option<()>| {
        // Reading it: a memo that is only tracked would never look at what it follows from.
        changed.with(|_| ());
        NEWEST.set(NEWEST.get() + 1);
        if before.is_none() {
            if was_here() {
                keep(page, What::Back);
            }
            return;
        }
        keep(page, What::Calm);
    });
    // Who leaves the page before the state was left alone long enough loses nothing either.
    window_event_listener_untyped("visibilitychange", move |_| {
        if NEWEST.get() > 1 {
            keep(page, What::Now);
        }
    });
}

fn keep(page: Page, what: What) {
    spawn_local(async move {
        if let Ok(keep) = keeping(page, what).await {
            keep.await;
        }
    });
}

#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
fn keeping(page: Page, what: What) -> Result<Doing<()>, Missing> {
    // A browser that keeps nothing is no reason for a complaint at every edit.
    Ok(match what {
        What::Now => Box::pin(async move { drop(leave(page).await) }),
        What::Calm => Box::pin(calm(page)),
        What::Back => Box::pin(back(page)),
    })
}

async fn calm(page: Page) {
    let mine = NEWEST.get();
    let later = move || {
        if NEWEST.get() == mine && !page.state.history.with_untracked(|h| h.dragging()) {
            spawn_local(async move {
                if let Some(record) = record(page) {
                    let _ = put(&record).await;
                }
            });
        }
    };
    set_timeout(later, CALM);
    // Who leaves before that gives no time to connect.
    let _ = database().await;
}

async fn back(page: Page) {
    let Some(visit) = visit() else { return };
    let kept = get(&visit).await.ok().flatten();
    let Some(found) = newer(left(), kept) else { return };
    let says = |key| {
        let words = text(&found, key);
        words.is_some_and(|s| link::read(&s, None).inputs == page.state.inputs.get_untracked())
    };
    if !says("link") {
        // The address follows a little later than the page: who left between had more than it says. Another address in
        // the same tab asks for something else.
        let just_left = Date::now() - number(&found, "when") < JUST;
        let Some(link) = text(&found, "link").filter(|_| just_left) else { return };
        if !says("address") && !says("before") {
            return;
        }
        address::instead(page, &link);
    }
    if has_more(&found) {
        show(page, &found, false).await;
    }
}

/// The kept states, the newest first.
#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
pub fn list() -> Result<Doing<Vec<Kept>>, Missing> {
    Ok(Box::pin(async move {
        let all = all().await.unwrap_or_default();
        all.iter().filter_map(kept).collect()
    }))
}

/// Shows a kept state.
#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
pub fn open(page: Page, visit: String) -> Result<Doing<()>, Missing> {
    Ok(Box::pin(async move {
        if let Ok(Some(found)) = get(&visit).await {
            show(page, &found, true).await;
        }
    }))
}

/// Forgets a state, or all of them.
#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
pub fn forget(visit: Option<String>) -> Result<Doing<()>, Missing> {
    Ok(Box::pin(async move {
        // What waits to be kept was there before.
        NEWEST.set(NEWEST.get() + 1);
        let found = match visit {
            Some(visit) => vec![visit],
            None => {
                all().await.unwrap_or_default().iter().filter_map(|o| text(o, "visit")).collect()
            }
        };
        for visit in found {
            let _ = delete(&visit).await;
        }
    }))
}

/// Puts the link on the clipboard: the inputs, or the whole plan where they do not say all of it.
#[wasm_split(keeping, wasm_split_path = ::leptos::wasm_split, fallible)]
pub fn copy(page: Page) -> Result<Doing<()>, Missing> {
    Ok(Box::pin(copied(page)))
}

async fn copied(page: Page) {
    let state = page.state;
    let whole = state.inputs.with_untracked(link::carries);
    let long = if whole { None } else { long(page).await };
    let mut missing = vec![];
    if page.recompute.source.with_untracked(|s| matches!(s, Source::File(_))) {
        missing.push(t("The graph of Recompute is not in it."));
    }
    if state.look.measured.with_untracked(|m| m.is_some()) {
        missing.push(t("The trace is not in it."));
    }
    let said = match (whole, &long) {
        (false, None) => {
            t("Link copied. It has your settings, not your files: the whole plan is too long for \
            a link. Export it to share it.")
        }
        _ if missing.is_empty() => t("Link copied: it shows exactly this state."),
        _ => t("Link copied."),
    };
    let said = [&[said][..], &missing].concat().join(" ");
    let address = long.unwrap_or_else(|| address::of(page));
    match JsFuture::from(window().navigator().clipboard().write_text(&address)).await {
        Ok(_) => state.say(said),
        Err(_) => state.say(tr!("Copy this link: {address}", address)),
    }
}

/// A link that holds the whole plan; none where it would be too long.
async fn long(page: Page) -> Option<String> {
    let inputs = page.state.inputs.get_untracked();
    let mut words = format!("v=1&p={}", pack(&inputs.alone().question().ok()?).await?);
    if let Some(a) = &inputs.a {
        words = format!("{words}&pa={}", pack(&a.question().ok()?).await?);
    }
    let address = address::of(page);
    let (base, fragment) = address.split_once('#')?;
    let long = format!("{base}#{words}{}", link::place(fragment));
    (long.len() <= LINK_MAX).then_some(long)
}

async fn database() -> Result<&'static Database, idb::Error> {
    if let Some(open) = OPEN.get() {
        return Ok(open);
    }
    let mut request = Factory::new()?.open(NAME, Some(1))?;
    request.on_upgrade_needed(|event| {
        let mut params = ObjectStoreParams::new();
        params.key_path(Some(KeyPath::new_single("visit")));
        if let Ok(database) = event.database() {
            // It fails where the store is there already.
            let _ = database.create_object_store(STATES, params);
        }
    });
    let mut database = request.await?;
    database.on_close(|_| OPEN.set(None));
    let database = Box::leak(Box::new(database));
    OPEN.set(Some(database));
    Ok(database)
}

async fn get(visit: &str) -> Result<Option<Object>, idb::Error> {
    let transaction = database().await?.transaction(&[STATES], TransactionMode::ReadOnly)?;
    let found = transaction.object_store(STATES)?.get(JsValue::from_str(visit))?.await?;
    Ok(found.map(JsCast::unchecked_into))
}

async fn all() -> Result<Vec<Object>, idb::Error> {
    let transaction = database().await?.transaction(&[STATES], TransactionMode::ReadOnly)?;
    let found = transaction.object_store(STATES)?.get_all(None, None)?.await?;
    let mut found: Vec<Object> = found.into_iter().map(JsCast::unchecked_into).collect();
    found.sort_by(|a, b| number(b, "when").total_cmp(&number(a, "when")));
    Ok(found)
}

async fn delete(visit: &str) -> Result<(), idb::Error> {
    let transaction = database().await?.transaction(&[STATES], TransactionMode::ReadWrite)?;
    transaction.object_store(STATES)?.delete(JsValue::from_str(visit))?.await?;
    transaction.commit()?.await?;
    Ok(())
}

/// Keeps a record as the newest of this visit.
async fn put(record: &Object) -> Result<(), idb::Error> {
    let transaction = database().await?.transaction(&[STATES], TransactionMode::ReadWrite)?;
    // Committed before it is waited for: a page that is left comes no further.
    drop(transaction.object_store(STATES)?.put(record, None)?);
    transaction.commit()?.await?;
    for old in all().await?.iter().skip(MOST).filter_map(|old| text(old, "visit")) {
        delete(&old).await?;
    }
    Ok(())
}

/// Keeps what is shown, first where it is at once: all but the files.
async fn leave(page: Page) -> Result<(), idb::Error> {
    let Some(record) = record(page) else { return Ok(()) };
    let text = JSON::stringify(&record).ok().and_then(|text| text.as_string());
    if let (Some(text), Some(session)) = (text, session()) {
        // Too large for it: what was kept last comes back.
        let _ = session.set_item(LEFT, &text);
    }
    put(&record).await
}

fn left() -> Option<Object> {
    let text = session()?.get_item(LEFT).ok()??;
    JSON::parse(&text).ok().map(JsCast::unchecked_into)
}

/// The newer of both, with the files of what was kept where there were some.
fn newer(left: Option<Object>, kept: Option<Object>) -> Option<Object> {
    let when = |one: &Option<Object>| one.as_ref().map_or(0.0, |one| number(one, "when"));
    if when(&left) <= when(&kept) {
        return kept;
    }
    let left = left?;
    if value(&left, "files").is_some() {
        let files = kept.and_then(|kept| value(&kept, "files")).unwrap_or_default();
        Reflect::set(&left, &"files".into(), &files).ok()?;
    }
    Some(left)
}

fn record(page: Page) -> Option<Object> {
    let state = page.state;
    let inputs = state.inputs.get_untracked();
    let title = tr!("{name} on {lanes} lanes", name = inputs.model.title(), lanes = inputs.lanes());
    let note = state.shown.with_untracked(|s| {
        let (value, unit) = format::hero(s.solved.figures.step);
        format!(
            "{} · {value} {unit} · {}",
            inputs.order_title(),
            format::bytes_text(s.solved.figures.peak)
        )
    });
    let record = Object::new();
    let set = |key: &str, value: JsValue| Reflect::set(&record, &key.into(), &value).ok().map(drop);
    set("visit", visit()?.into())?;
    set("when", Date::now().into())?;
    set("link", page.link().into())?;
    set("address", window().location().hash().ok()?.into())?;
    if let Some(before) = address::before() {
        set("before", before.into())?;
    }
    set("title", title.into())?;
    set("note", note.into())?;
    let text = |inputs: &Inputs| match link::carries(inputs) {
        true => None,
        false => inputs.question().ok(),
    };
    // Typed times are kept beside the plan: in it they would be measured ones.
    if let Some(times) = inputs.typed() {
        set("times", serde_json::to_string(&times.layers).ok()?.into())?;
    }
    if let Some(plan) = text(&Inputs { times: None, ..inputs.alone() }) {
        set("plan", plan.into())?;
    }
    if let Some(a) = inputs.a.as_deref().and_then(text) {
        set("a", a.into())?;
    }
    let files = untrack(|| files_of(page));
    if !files.is_empty() {
        set("files", files.into_iter().collect::<Array>().into())?;
    }
    Some(record)
}

/// The files that are still shown beside the plan.
fn files_of(page: Page) -> Vec<web_sys::File> {
    let [traces, runs, tunings, jobs, ..] = page.shown_files();
    let shown = |kind: Kind| match kind {
        Kind::Trace => traces,
        Kind::Metrics => runs,
        Kind::Tune => tunings,
        Kind::Elastic => jobs,
        _ => 0,
    };
    let mut files: Vec<web_sys::File> = page.beside.with_value(|beside| {
        let shown = beside.iter().filter(|(kind, _)| shown(*kind) > 0);
        shown.map(|(_, file)| file.clone()).collect()
    });
    if let Source::File(graph) = page.recompute.source.get_untracked() {
        files.push(graph);
    }
    files
}

/// Shows what was kept: the link, and the files that it does not carry.
async fn show(page: Page, found: &Object, said: bool) {
    let state = page.state;
    if let Some(link) = text(found, "link").filter(|_| said) {
        state.look.measured.set(None);
        page.run.runs.set(vec![]);
        page.run.tuned.set(None);
        page.elastic.record.set(None);
        page.recompute.source.set(Source::Stage(0));
        address::go(page, &link);
    }
    let screen = state.screen.get_untracked();
    if let Some(plan) = text(found, "plan") {
        files::open_text(page, "plan.json", &plan).await;
    }
    let times = text(found, "times").and_then(|text| serde_json::from_str(&text).ok());
    if let Some(layers) = times {
        state.edit(|i| i.times = Some(Shared::new(Times { model: i.model.clone(), layers })));
    }
    if let Some(a) = text(found, "a") {
        files::open_as_a(page, "plan.json", &a).await;
    }
    if let Some(kept) = value(found, "files") {
        let kept: Array = kept.unchecked_into();
        files::open_all(page, kept.iter().map(JsCast::unchecked_into).collect()).await;
        // Files go to the screens that show them.
        state.go(screen);
    }
    let title = text(found, "title").unwrap_or_default();
    state.say(tr!("Opened the last state: {title}.", title));
}

fn kept(found: &Object) -> Option<Kept> {
    let of = |key| text(found, key);
    let when = number(found, "when");
    Some(Kept { visit: of("visit")?, title: of("title")?, note: of("note")?, when })
}

/// Whether it has more than its link.
fn has_more(found: &Object) -> bool {
    ["plan", "times", "a", "files"].iter().any(|key| value(found, key).is_some())
}

fn value(found: &Object, key: &str) -> Option<JsValue> {
    Reflect::get(found, &key.into()).ok().filter(|value| !value.is_undefined())
}

fn text(found: &Object, key: &str) -> Option<String> {
    value(found, key)?.as_string()
}

fn number(found: &Object, key: &str) -> f64 {
    value(found, key).and_then(|value| value.as_f64()).unwrap_or(0.0)
}

fn session() -> Option<Storage> {
    window().session_storage().ok().flatten()
}

/// Whether this tab had the page before.
fn was_here() -> bool {
    session().and_then(|s| s.get_item(VISIT).ok().flatten()).is_some()
}

/// Which visit this is: the tab remembers it when it is loaded again.
fn visit() -> Option<String> {
    let storage = session()?;
    if let Ok(Some(known)) = storage.get_item(VISIT) {
        return Some(known);
    }
    let fresh = format!("{:.0}-{:.0}", Date::now(), js_sys::Math::random() * 1e9);
    storage.set_item(VISIT, &fresh).ok()?;
    Some(fresh)
}
