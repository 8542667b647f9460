//! The page's side of `runner explore`: questions by POST, and the lines of a run.
//!
//! The token of the opened address becomes a session, which the tab keeps, so that a page that is
//! reloaded is still the one that may ask.

use super::live::{self, Live};
use super::{Heard, Here, Lines, quoted};
use crate::base::later::Missing;
use crate::base::texts::{t, tr};
use crate::page::files;
use crate::page::state::Page;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_split::wasm_split;
use std::sync::LazyLock;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Headers, ReadableStreamDefaultReader, RequestInit, Response};

/// The session's name in the tab's storage.
const KEPT: &str = "pipewright-here";

/// All that is known of the server; only the chunk reaches it.
pub static HERE: LazyLock<ArcRwSignal<Here>> = LazyLock::new(ArcRwSignal::default);

/// Changes what is known, and with it what is seen of it.
pub fn tell(page: Page, change: impl FnOnce(&mut Here)) {
    HERE.update(change);
    let (offered, progress) = HERE.with_untracked(|h| (h.offer.is_some(), h.progress()));
    if offered != page.here.offered.get_untracked() {
        page.here.offered.set(offered);
    }
    if page.here.progress.with_untracked(|now| *now != progress) {
        page.here.progress.set(progress);
    }
}

/// What is done in the chunk.
#[derive(Clone, Debug)]
pub enum Act {
    /// A token for a session.
    Exchange(String),
    /// A session from before the page was loaded.
    Resume(String),
    Start,
    Stop,
    /// Listen again.
    Listen,
}

/// Looks whether the page was served by `runner explore` and takes the token out of the address. On
/// other servers it asks for nothing.
pub fn begin(page: Page) {
    if !matches!(document().query_selector("meta[name=pipewright-here]"), Ok(Some(_))) {
        return;
    }
    let fragment = window().location().hash().unwrap_or_default();
    let act = match super::key(&fragment) {
        Some((token, rest)) => {
            // Out of the history as well: the token is spent in a moment.
            if let Ok(history) = window().history() {
                let _ =
                    history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("#{rest}")));
            }
            Act::Exchange(token)
        }
        None => match storage().and_then(|kept| kept.get_item(KEPT).ok().flatten()) {
            Some(session) => Act::Resume(session),
            None => return,
        },
    };
    perform(page, act);
}

/// An address with another token may be typed over the one that is open.
pub fn begin_again(page: Page) {
    if super::key(&window().location().hash().unwrap_or_default()).is_some() {
        begin(page);
    }
}

fn storage() -> Option<web_sys::Storage> {
    window().session_storage().ok().flatten()
}

/// Does it, once the code for it is there.
pub fn perform(page: Page, act: Act) {
    spawn_local(async move {
        if let Err(missing) = act_on(page, act).await {
            page.state.complain(tr!("Sorry, {why}.", why = missing));
        }
    });
}

#[wasm_split(run, wasm_split_path = ::leptos::wasm_split, fallible)]
fn act_on(page: Page, act: Act) -> Result<(), Missing> {
    spawn_local(async move {
        let done = match act {
            Act::Exchange(token) => exchange(page, token).await,
            Act::Resume(session) => resume(page, session, false).await,
            Act::Start => start(page).await,
            Act::Stop => stop(page).await,
            Act::Listen => listen(page).await,
        };
        if let Err(why) = done {
            match page.here.open.get_untracked() {
                true => tell(page, |here| here.refused = Some(why)),
                false => page.state.complain(why),
            }
        }
    });
    Ok(())
}

async fn exchange(page: Page, token: String) -> Result<(), String> {
    let question = format!(r#"{{"token":{}}}"#, quoted(&token));
    let answer = text(post("", "session", &question).await?).await?;
    let session = super::session(&answer).ok_or_else(strange)?;
    if let Some(storage) = storage() {
        let _ = storage.set_item(KEPT, &session);
    }
    resume(page, session, true).await
}

/// Learns what the server can do. The plan that it was started with is shown once: after a reload the
/// link has what became of it.
async fn resume(page: Page, session: String, fresh: bool) -> Result<(), String> {
    let answer = match post(&session, "facts", "{}").await {
        Ok(answer) => text(answer).await?,
        Err(why) => {
            // Of an earlier server: that one is gone, and so is what it would have offered.
            if let Some(storage) = storage() {
                let _ = storage.remove_item(KEPT);
            }
            return Err(why);
        }
    };
    let (offer, plan) = super::facts(&answer, session).ok_or_else(strange)?;
    tell(page, |here| here.offer = Some(offer));
    if let Some((name, text)) = plan.filter(|_| fresh) {
        files::open_text(page, &name, &text).await;
    }
    listen(page).await
}

async fn start(page: Page) -> Result<(), String> {
    let (plan, _) = files::plan(page.state.inputs.get_untracked()).await?;
    let question = HERE.with_untracked(|here| here.form.question(&plan));
    tell(page, |here| here.refused = None);
    post(&session(), "run", &question).await?;
    listen(page).await
}

async fn stop(page: Page) -> Result<(), String> {
    post(&session(), "stop", "{}").await?;
    tell(page, |here| here.run.iter_mut().for_each(|run| run.stopping = true));
    Ok(())
}

fn session() -> String {
    let session = |here: &Here| here.offer.as_ref().map(|offer| offer.session.clone());
    HERE.with_untracked(session).unwrap_or_default()
}

/// Hears the newest run until it ends.
async fn listen(page: Page) -> Result<(), String> {
    if HERE.with_untracked(|here| here.listening) {
        return Ok(());
    }
    tell(page, |here| (here.listening, here.refused) = (true, None));
    let heard = follow(page).await;
    tell(page, |here| here.listening = false);
    // The stream may break off in the middle of a run.
    match HERE.with_untracked(Here::goes_on) {
        true => Err(heard.err().unwrap_or_else(|| gone().into())),
        false => heard,
    }
}

async fn follow(page: Page) -> Result<(), String> {
    let answer = post(&session(), "watch", "{}").await?;
    let Some(body) = answer.body() else { return Err(strange()) };
    let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    let (mut lines, mut shown, mut live) = (Lines::default(), false, Live::default());
    loop {
        let part = JsFuture::from(reader.read()).await.map_err(|_| gone())?;
        let bytes = js_sys::Reflect::get(&part, &"value".into()).unwrap_or_default();
        if bytes.is_undefined() {
            return Ok(());
        }
        let lines = lines.take(&js_sys::Uint8Array::new(&bytes).to_vec());
        let mut heard = Heard::default();
        tell(page, |here| heard = here.hear(&lines));
        let folder = HERE.with_untracked(|here| here.run.as_ref().map(|run| run.folder.clone()));
        if let Some(run) = live.hear(&heard, &folder.unwrap_or_default()) {
            page.run.runs.update(|runs| live::show(runs, run));
        }
        if heard.trace || heard.end {
            trace(page, heard.end, shown).await;
            shown = true;
        }
    }
}

/// Shows the newest trace as if it had been dropped. Only the last one is talked about, and whoever
/// looked away from those before is not shown another.
async fn trace(page: Page, last: bool, again: bool) {
    if !HERE.with_untracked(|here| here.run.as_ref().is_some_and(|run| run.traced)) {
        return;
    }
    let (note, seen) =
        (page.state.note.get_untracked(), page.state.look.show_measured.get_untracked());
    let answer = match post(&session(), "trace", "{}").await {
        Ok(answer) => text(answer).await,
        Err(why) => Err(why),
    };
    match answer {
        Ok(text) => files::open_text(page, "trace.json", &text).await,
        Err(why) => return page.state.complain(why),
    }
    if again {
        page.state.look.show_measured.set(seen);
    }
    if !last {
        // An earlier message that all is well has been read; one that something is wrong stays.
        page.state.note.set(if note.bad { note } else { Default::default() });
    }
}

/// Asks; the error is the sentence of a refusal.
async fn post(session: &str, name: &str, question: &str) -> Result<Response, String> {
    let asked = || -> Result<js_sys::Promise, JsValue> {
        let headers = Headers::new()?;
        headers.set("content-type", "application/json")?;
        headers.set("x-pipewright-session", session)?;
        let init = RequestInit::new();
        init.set_method("POST");
        init.set_body(&JsValue::from_str(question));
        init.set_headers(&headers);
        Ok(window().fetch_with_str_and_init(&format!("api/{name}"), &init))
    };
    let answer = JsFuture::from(asked().map_err(|_| gone())?).await.map_err(|_| gone())?;
    let answer: Response = answer.unchecked_into();
    if answer.ok() {
        return Ok(answer);
    }
    let why = text(answer).await?;
    Err(tr!("The runner refused: {why}.", why = why.trim_end_matches(['\n', '.'])))
}

async fn text(answer: Response) -> Result<String, String> {
    let text = JsFuture::from(answer.text().map_err(|_| gone())?).await.map_err(|_| gone())?;
    Ok(text.as_string().unwrap_or_default())
}

fn gone() -> &'static str {
    t("runner explore no longer answers. Is it still running in its terminal?")
}

fn strange() -> String {
    t("The answer of `runner explore` is not understood. Are page and runner the same version?")
        .into()
}
