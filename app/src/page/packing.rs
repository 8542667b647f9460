//! Plans packed into links: deflated by the browser, in base64 that addresses may hold.

use js_sys::Uint8Array;
use leptos::prelude::window;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, ReadableWritablePair, Response};

#[wasm_bindgen]
extern "C" {
    // Every browser has both; the bindings of web-sys are still called unstable.
    type CompressionStream;
    #[wasm_bindgen(constructor, catch)]
    fn new(format: &str) -> Result<CompressionStream, JsValue>;
    type DecompressionStream;
    #[wasm_bindgen(constructor, catch)]
    fn new(format: &str) -> Result<DecompressionStream, JsValue>;
}

const FORMAT: &str = "deflate-raw";

/// A text as letters, digits, `-` and `_`; none where the browser cannot.
pub async fn pack(text: &str) -> Option<String> {
    let blob = Blob::new_with_str_sequence(&js_sys::Array::of1(&text.into())).ok()?;
    let stream = CompressionStream::new(FORMAT).ok()?;
    let bytes = through(&blob, stream.unchecked_ref()).await.ok()?;
    // One character a byte is what the browser's encoder takes.
    let text: String = bytes.to_vec().into_iter().map(char::from).collect();
    let packed = window().btoa(&text).ok()?;
    Some(packed.trim_end_matches('=').replace('+', "-").replace('/', "_"))
}

/// The text that was packed; none where it is not whole.
pub async fn unpack(packed: &str) -> Option<String> {
    let text = window().atob(&packed.replace('-', "+").replace('_', "/")).ok()?;
    let bytes: Vec<u8> = text.chars().map(|letter| letter as u8).collect();
    let parts = js_sys::Array::of1(&Uint8Array::from(bytes.as_slice()));
    let blob = Blob::new_with_u8_array_sequence(&parts).ok()?;
    let stream = DecompressionStream::new(FORMAT).ok()?;
    let bytes = through(&blob, stream.unchecked_ref()).await.ok()?;
    String::from_utf8(bytes.to_vec()).ok()
}

async fn through(blob: &Blob, by: &ReadableWritablePair) -> Result<Uint8Array, JsValue> {
    let response = Response::new_with_opt_readable_stream(Some(&blob.stream().pipe_through(by)))?;
    Ok(Uint8Array::new(&JsFuture::from(response.array_buffer()?).await?))
}
