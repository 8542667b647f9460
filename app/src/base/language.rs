//! The page's language: as chosen before, else as the browser asks.

use super::{settings, texts};
use leptos::prelude::*;
use std::sync::LazyLock;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

const KEY: &str = "pipewright-language";

/// What the page can speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    English,
    Japanese,
}

impl Language {
    /// Its tag, in the page and in the browser's wishes.
    pub const fn tag(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
        }
    }

    /// The other one, with its own name.
    pub const fn other(self) -> (Self, &'static str) {
        match self {
            Language::English => (Language::Japanese, "日本語"),
            Language::Japanese => (Language::English, "English"),
        }
    }
}

/// None while the texts change: then nothing of the old page is there to be confused by them.
static SPOKEN: LazyLock<ArcRwSignal<Option<Language>>> = LazyLock::new(ArcRwSignal::default);

/// The page's language; none at the moment where it changes.
pub fn spoken() -> Option<Language> {
    SPOKEN.get()
}

/// The language that was chosen before, or that the browser asks for; English where its texts do not come.
pub async fn start() {
    let wished = wished();
    if speak(wished).await.is_err() {
        leptos::logging::warn!("the page's texts in {} did not come", wished.tag());
        let _ = speak(Language::English).await;
    }
}

fn wished() -> Language {
    let tag = settings::kept(KEY).or_else(|| window().navigator().language());
    match tag.as_deref() {
        Some(tag) if tag.starts_with(Language::Japanese.tag()) => Language::Japanese,
        _ => Language::English,
    }
}

/// Speaks a language once its texts are there.
///
/// # Errors
/// When they could not be fetched; the language stays as it was.
pub async fn speak(language: Language) -> Result<(), ()> {
    let pairs = match language {
        Language::English => vec![],
        Language::Japanese => fetch().await.map_err(|_| ())?,
    };
    SPOKEN.set(None);
    leptos::task::tick().await;
    texts::speak(pairs);
    if let Some(root) = document().document_element() {
        let _ = root.set_attribute("lang", language.tag());
    }
    SPOKEN.set(Some(language));
    Ok(())
}

/// Speaks this language also at the next visit.
pub fn keep(language: Language) {
    settings::keep(KEY, Some(language.tag()));
}

/// Where a file is that was bundled under this name.
pub fn place(name: &str) -> Option<String> {
    let meta = document().query_selector(&format!("meta[name='{name}']")).ok()??;
    meta.get_attribute("content")
}

/// The translations; the page says where they are.
async fn fetch() -> Result<Vec<(&'static str, &'static str)>, JsValue> {
    let place = place("pipewright-ja").unwrap_or_default();
    let answer = JsFuture::from(window().fetch_with_str(&place)).await?;
    let answer: web_sys::Response = answer.dyn_into()?;
    if !answer.ok() {
        return Err(JsValue::NULL);
    }
    let table = JsFuture::from(answer.json()?).await?.dyn_into::<js_sys::Object>()?;
    // Texts last as long as the page.
    let text = |value: JsValue| -> &'static str {
        Box::leak(value.as_string().unwrap_or_default().into_boxed_str())
    };
    let entries = js_sys::Object::entries(&table);
    let pairs = entries.iter().map(|pair| {
        let pair: js_sys::Array = pair.unchecked_into();
        (text(pair.get(0)), text(pair.get(1)))
    });
    Ok(pairs.collect())
}
