//! A worker of the browser's, with JSON in both directions.

use crate::base::texts::{t, tr};
use leptos::prelude::document;
use pipewright_worker::protocol::{Reply, Request};
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{ErrorEvent, File, MessageEvent, Worker, WorkerOptions, WorkerType};

/// Ends the worker when it goes.
pub struct Wire {
    worker: Worker,
    _heard: Closure<dyn FnMut(MessageEvent)>,
    _failed: Closure<dyn FnMut(ErrorEvent)>,
}

impl Wire {
    /// Starts a worker; `hear` gets what it says.
    ///
    /// # Errors
    /// A sentence, where the browser refuses.
    pub fn start(hear: impl Fn(Reply) + Copy + 'static) -> Result<Self, String> {
        let refused =
            |_: JsValue| t("The browser refuses to start the worker; reload the page.").to_owned();
        let meta = document().query_selector("meta[name=pipewright-worker]").map_err(refused)?;
        let script = meta.and_then(|m| m.get_attribute("content"));
        let script = script
            .ok_or_else(|| t("The page was built without its worker; `make web` builds both."))?;
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        let worker = Worker::new_with_options(&script, &options).map_err(refused)?;
        let heard = Closure::new(move |event: MessageEvent| {
            let text = event.data().as_string().unwrap_or_default();
            match serde_json::from_str(&text) {
                Ok(reply) => hear(reply),
                Err(why) => hear(Reply::Failed {
                    why: tr!("The worker's answer is not understood: {why}", why),
                }),
            }
        });
        let failed = Closure::new(move |event: ErrorEvent| {
            hear(Reply::Failed {
                why: tr!("The worker could not start: {why}", why = event.message()),
            });
        });
        worker.set_onmessage(Some(heard.as_ref().unchecked_ref()));
        worker.set_onerror(Some(failed.as_ref().unchecked_ref()));
        Ok(Self { worker, _heard: heard, _failed: failed })
    }

    pub fn ask(&self, request: &Request) {
        let text = serde_json::to_string(request).expect("requests are plain data");
        self.send(&JsValue::from_str(&text));
    }

    /// A file of a graph: the worker reads and unpacks it.
    pub fn open(&self, file: &File) {
        self.send(file.as_ref());
    }

    fn send(&self, message: &JsValue) {
        // It fails for things that cannot be cloned; texts and files can.
        let _ = self.worker.post_message(message);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.worker.set_onmessage(None);
        self.worker.set_onerror(None);
        self.worker.terminate();
    }
}
