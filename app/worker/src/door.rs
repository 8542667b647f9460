//! The session as `worker.js` sees it.

use crate::Session;
use crate::protocol::Reply;
use wasm_bindgen::prelude::wasm_bindgen;

/// What the worker is doing. `worker.js` calls its methods, one at a time.
#[wasm_bindgen]
#[derive(Default)]
pub struct Door {
    session: Session,
    refused: Option<Reply>,
}

#[wasm_bindgen]
impl Door {
    /// An idle session. A panic from now on is thrown as a JavaScript error with its message, so that
    /// `worker.js` can report it; the session must not be called again afterwards.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        std::panic::set_hook(Box::new(|info| wasm_bindgen::throw_str(&info.to_string())));
        Self::default()
    }

    /// Takes a request as JSON.
    pub fn receive(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(request) => self.session.receive(request),
            Err(error) => {
                let why = format!("The page is not understood: {error}");
                self.refused = Some(Reply::Failed { why });
            }
        }
    }

    /// Opens a file of a graph, unpacked.
    pub fn open(&mut self, name: &str, text: &[u8]) {
        self.session.open_file(name, text);
    }

    /// Searches for about so many moves; whether there is more to do.
    pub fn step(&mut self, moves: f64) -> bool {
        self.session.step(moves as u64)
    }

    /// Puts how far the search is into the replies.
    pub fn report(&mut self) {
        self.session.report();
    }

    /// The oldest reply that was not yet taken, as JSON.
    pub fn take(&mut self) -> Option<String> {
        let reply = self.refused.take().or_else(|| self.session.take())?;
        // Replies are plain data with string keys, which always has a form in JSON.
        Some(serde_json::to_string(&reply).expect("a reply is plain data"))
    }
}
