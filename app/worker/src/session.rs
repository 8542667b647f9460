//! The worker's side of a conversation with the page.

use crate::protocol::{Order, Reply};
use std::collections::VecDeque;
use wasm_bindgen::prelude::wasm_bindgen;

/// What the worker is doing. `worker.js` calls its methods, one at a time.
#[wasm_bindgen]
#[derive(Default)]
pub struct Session {
    outbox: VecDeque<Reply>,
}

#[wasm_bindgen]
impl Session {
    /// An idle session. A panic from now on is thrown as a JavaScript error with its message, so that
    /// `worker.js` can report it; the session must not be called again afterwards.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        std::panic::set_hook(Box::new(|info| wasm_bindgen::throw_str(&info.to_string())));
        Self::default()
    }

    /// Takes an [`Order`] as JSON; what follows from it is in the outbox, or the work of [`step`].
    ///
    /// [`step`]: Self::step
    pub fn receive(&mut self, message: &str) {
        let reply = match serde_json::from_str(message) {
            Ok(Order::Stop) => Reply::Stopped,
            Err(error) => Reply::Refused { why: format!("not an order: {error}") },
        };
        self.outbox.push_back(reply);
    }

    /// Works for one slice of time, some 10 ms; says whether there is more to do.
    pub fn step(&mut self) -> bool {
        false
    }

    /// The oldest [`Reply`] that was not yet taken, as JSON.
    pub fn take(&mut self) -> Option<String> {
        let reply = self.outbox.pop_front()?;
        // Replies are plain data with string keys, which always has a form in JSON.
        Some(serde_json::to_string(&reply).expect("a reply is plain data"))
    }
}
