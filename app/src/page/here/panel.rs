//! Run here: the button, and the panel that starts a run and shows how it goes.

use super::wire::{Act, HERE, perform, tell};
use super::{Form, Run, Status, markup};
use crate::base::focus::focus;
use crate::base::later::{self, Missing};
use crate::base::texts::t;
use crate::page::state::Page;
use crate::planner::inputs::Inputs;
use crate::widgets::icons::{Icon, icon};
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use wasm_bindgen::JsCast;

/// Opens the panel; it is there where runs are offered, and says how far one is.
#[component]
pub fn RunHere(page: Page, id: &'static str) -> impl IntoView {
    let seen = page.here;
    view! {
        <button class="btn run-here" id=id title=t("Run this plan on this machine") aria-label=t("Run here") aria-controls="here"
            hidden=move || !seen.offered.get() aria-expanded=move || seen.open.get().to_string()
            on:click=move |_| open(page, !seen.open.get_untracked())>
            {icon(Icon::Run)} <span>{t("Run here")}</span> <small>{move || seen.progress.get()}</small>
        </button>
    }
}

/// Opens or closes the panel.
pub fn open(page: Page, open: bool) {
    page.here.open.set(open);
    if !open {
        // Of the two buttons one is seen.
        focus("run-here");
        focus("run-here-m");
    }
}

#[component]
pub fn HerePanel(page: Page) -> impl IntoView {
    move || page.here.open.get().then(|| later::view(panel(page)))
}

/// The panel, open.
#[wasm_split(run, wasm_split_path = ::leptos::wasm_split, fallible)]
fn panel(page: Page) -> Result<AnyView, Missing> {
    let close: NodeRef<leptos::html::Button> = NodeRef::new();
    Effect::new(move |_| {
        if let Some(button) = close.get() {
            let _ = button.focus();
        }
    });
    let key = move |event: KeyboardEvent| {
        if event.key() == "Escape" {
            event.stop_propagation();
            open(page, false);
        }
    };
    let said = move || {
        let here = HERE.get();
        let failed = here.run.as_ref().and_then(|run| run.ended.as_ref());
        let failed = failed.is_some_and(|ended| ended.status == Status::Failed);
        let text = here.run.as_ref().map(Run::sentence).unwrap_or_default();
        (text, if failed { "rfail" } else { "" })
    };
    let said = Memo::new(move |_| said());
    let refused = Memo::new(move |_| HERE.with(|h| h.refused.clone()).unwrap_or_default());
    let progress = Memo::new(move |_| {
        HERE.with(|here| here.run.as_ref().map(markup::progress).unwrap_or_default())
    });
    let how = Memo::new(move |_| {
        let ranks = page.state.inputs.with(Inputs::ranks);
        let here = HERE.get();
        let offer = here.offer.as_ref().filter(|_| !here.goes_on());
        offer.map(|offer| markup::how(offer, ranks)).unwrap_or_default()
    });
    let asked = asked(page);
    // The button that was pressed is replaced by the one that follows from it.
    Effect::new(move |before: Option<()>| {
        asked.track();
        if before.is_some() && document().active_element().is_none_or(|e| e.tag_name() == "BODY") {
            for id in ["here-start", "here-stop", "here-listen"] {
                focus(id);
            }
        }
    });
    let shown = view! {
        <section class="here" id="here" aria-label=t("Run here") on:keydown=key>
            <div class="sec">
                <h2>{t("Run here")}</h2>
                <button class="ib" node_ref=close aria-label=t("Close") on:click=move |_| open(page, false)>{icon(Icon::Close)}</button>
            </div>
            <p id="here-status" role="status" class=move || said.get().1>{move || said.get().0}</p>
            <div inner_html=move || progress.get()></div>
            <p id="here-refused" class="rfail" role="alert" hidden=move || refused.get().is_empty()>{move || refused.get()}</p>
            <p class="note" id="here-how">{move || how.get()}</p>
            <div class="here-ask" inner_html=move || asked.get() on:click=move |event| pressed(page, &event)></div>
        </section>
    };
    Ok(shown.into_any())
}

/// The form, or the button of a run that goes on. It stays what the browser has while nothing changes
/// that it depends on.
fn asked(page: Page) -> Memo<String> {
    Memo::new(move |_| {
        let here = HERE.get();
        match &here.run {
            Some(run) if run.ended.is_none() => markup::going(run, here.listening),
            _ => markup::form(&here.form, page.state.inputs.with(|inputs| inputs.rest.steps)),
        }
    })
}

/// A click somewhere in it.
fn pressed(page: Page, event: &web_sys::MouseEvent) {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    match target.map(|element| element.id()).as_deref() {
        Some("here-stop") => perform(page, Act::Stop),
        Some("here-listen") => perform(page, Act::Listen),
        Some("here-start") => match filled() {
            Ok(form) => {
                tell(page, |here| here.form = form);
                perform(page, Act::Start);
            }
            Err(why) => tell(page, |here| here.refused = Some(why)),
        },
        _ => {}
    }
}

/// The form as it is filled in.
fn filled() -> Result<Form, String> {
    let input = |id: &str| {
        let found = document().get_element_by_id(id);
        found.and_then(|e| e.dyn_into::<web_sys::HtmlInputElement>().ok())
    };
    let value = |id: &str| input(id).map(|input| input.value()).unwrap_or_default();
    let device = document().query_selector("#here-device option[value=model]:checked");
    Ok(Form {
        steps: markup::typed(&value("here-steps"), markup::STEPS_MAX)?,
        threads: markup::typed(&value("here-threads"), markup::THREADS_MAX)?,
        model: matches!(device, Ok(Some(_))),
        save: input("here-save").is_some_and(|input| input.checked()),
    })
}
