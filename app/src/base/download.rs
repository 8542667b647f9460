//! Files that the page hands out.

use leptos::prelude::{document, set_timeout};
use wasm_bindgen::{JsCast, JsValue};

/// Downloads what an address holds.
pub fn follow(url: &str, name: &str) -> Result<(), JsValue> {
    let anchor: web_sys::HtmlAnchorElement = document().create_element("a")?.unchecked_into();
    anchor.set_href(url);
    anchor.set_download(name);
    anchor.click();
    Ok(())
}

/// Downloads a text as a file of that name.
pub fn download(name: &str, text: &str) -> Result<(), JsValue> {
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    let options = web_sys::BlobPropertyBag::new();
    options.set_type(match name.rsplit('.').next() {
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("html") => "text/html",
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
