//! Times that the page took to compute and draw the last change, for whoever measures the budget:
//! `window.__pipewright_frame_ms`. Waiting for the browser's next frame is not counted. When the first
//! picture was there, since the page was asked for: `window.__pipewright_first_ms`.

use leptos::prelude::window;
use std::cell::Cell;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::{JsFuture, spawn_local};

thread_local! {
    static STARTED: Cell<f64> = const { Cell::new(0.0) };
    static COMPUTED: Cell<f64> = const { Cell::new(0.0) };
    static SOLVED: Cell<f64> = const { Cell::new(0.0) };
    /// Whether there was a picture already.
    static FIRST: Cell<bool> = const { Cell::new(false) };
}

pub fn now() -> f64 {
    window().performance().map_or(0.0, |p| p.now())
}

/// Runs the planner and notes how long it took.
pub fn solving<T>(solve: impl FnOnce() -> T) -> T {
    let from = now();
    let result = solve();
    SOLVED.set(now() - from);
    publish("__pipewright_solve_ms", SOLVED.get());
    result
}

/// Milliseconds of the last [`solving`].
pub fn last_solve() -> f64 {
    SOLVED.get()
}

/// An input changes.
pub fn start() {
    STARTED.set(now());
}

/// All memos are up to date and a frame was asked for. What else follows the change is done in the turns
/// of the queue behind this one, and counted.
pub fn computed() {
    if STARTED.get() == 0.0 {
        return;
    }
    let started = STARTED.take();
    COMPUTED.set(now() - started);
    spawn_local(async move {
        for _ in 0..TURNS {
            let _ = JsFuture::from(js_sys::Promise::resolve(&JsValue::UNDEFINED)).await;
            COMPUTED.set(now() - started);
        }
    });
}

/// Each takes what was put into the queue by the one before.
const TURNS: usize = 4;

/// The picture is drawn; drawing began at `from`.
pub fn drawn(from: f64) {
    let drawing = now() - from;
    publish("__pipewright_draw_ms", drawing);
    if !FIRST.replace(true) {
        publish("__pipewright_first_ms", now());
    }
    if COMPUTED.get() > 0.0 {
        let computing = COMPUTED.take();
        publish("__pipewright_compute_ms", computing);
        publish("__pipewright_frame_ms", computing + drawing);
    }
}

/// The Playground has trained and drawn in a frame, since `from`.
pub fn trained(from: f64) {
    publish("__pipewright_play_ms", now() - from);
}

fn publish(name: &str, value: f64) {
    let _ = js_sys::Reflect::set(&window(), &JsValue::from_str(name), &JsValue::from_f64(value));
}
