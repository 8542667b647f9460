//! How long the page computed and drew for the last change, for whoever measures the budget:
//! `window.__pipewright_frame_ms`. Waiting for the browser's next frame is not counted. When the first
//! picture was there, since the page was asked for: `window.__pipewright_first_ms`.

use leptos::prelude::window;
use pipewright_core::schedule::{ScheduleKind, check};
use pipewright_core::simulate::{Footprint, Sends, StageCost, estimate};
use pipewright_core::units::{Bytes, Nanos};
use std::cell::Cell;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

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

/// All memos are up to date and a frame was asked for.
pub fn computed() {
    if STARTED.get() > 0.0 {
        COMPUTED.set(now() - STARTED.take());
    }
}

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

/// Milliseconds to generate, to check and to estimate 1F1B of that size, best of nine: what the
/// planner's inner loop costs in this browser. Exported by the page's module.
#[wasm_bindgen]
pub fn measure_schedule(lanes: u32, micro_batches: u32) -> Vec<f64> {
    let costs = vec![
        StageCost {
            forward: Nanos(1000),
            backward_input: Nanos(1100),
            backward_weight: Nanos(900),
            update: Nanos(500),
        };
        lanes as usize
    ];
    let footprints = vec![Footprint { stash: Bytes(10), ..Footprint::default() }; costs.len()];
    let mut best = vec![f64::INFINITY; 3];
    for _ in 0..9 {
        let begin = now();
        let Ok(schedule) = ScheduleKind::OneFOneB.generate(lanes, micro_batches) else { break };
        let generated = now();
        let sound = check(&schedule).is_ok();
        let checked = now();
        let run = estimate(&schedule, &costs, &footprints, Sends::Outbox, |_| Nanos(50));
        let estimated = now();
        if !sound || run.is_err() {
            break;
        }
        let times = [generated - begin, checked - generated, estimated - checked];
        for (least, time) in best.iter_mut().zip(times) {
            *least = time.min(*least);
        }
    }
    best
}
