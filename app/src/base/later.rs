//! Code that is fetched when it is first needed, so that the first load does not wait for it.
//!
//! A function marked `#[wasm_split(name, wasm_split_path = ::leptos::wasm_split, fallible)]` is
//! compiled into a chunk of that name, together with all that only it uses. It becomes `async`, and
//! its callers get [`Missing`] where the chunk does not come. [`view`] shows a view made by one.

use super::texts::{t, tr};
use leptos::prelude::*;
use leptos::wasm_split::SplitLoaderError;
use std::fmt;
use std::pin::Pin;
use wasm_bindgen_futures::JsFuture;

/// A chunk that could not be loaded; the next call tries again.
#[derive(Clone, Copy, Debug)]
pub struct Missing;

impl From<SplitLoaderError> for Missing {
    fn from(_: SplitLoaderError) -> Self {
        Self
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(t("this part of the page could not be loaded; try again, or reload the page"))
    }
}

/// Shows a view once its code is there, and nothing until then.
pub fn view(made: impl Future<Output = Result<AnyView, Missing>> + Send + 'static) -> AnyView {
    // One kind of future for all: what awaits and shows it is compiled once, not for each chunk.
    shown(Box::pin(made))
}

/// A view that is on its way.
type Coming = Pin<Box<dyn Future<Output = Result<AnyView, Missing>> + Send>>;

fn shown(made: Coming) -> AnyView {
    Suspend::new(async move {
        made.await.unwrap_or_else(|missing| {
            view! { <p class="mut" role="alert">{tr!("Sorry, {why}.", why = missing)}</p> }
                .into_any()
        })
    })
    .into_any()
}

/// Lets the browser do what waits, and show it.
pub async fn breathe() {
    let promise = js_sys::Promise::new(&mut |resolve, _| {
        let _ = window()
            .set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, FRAME_MILLISECONDS);
    });
    let _ = JsFuture::from(promise).await;
}

/// As long as a frame takes.
const FRAME_MILLISECONDS: i32 = 17;
