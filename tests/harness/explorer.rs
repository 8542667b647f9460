//! The explorer in a browser of its own.

use super::{Outcome, Server, browser::Browser, tools};
use serde_json::Value;
use std::path::PathBuf;

/// The built page; `None`, said to be skipped, where it is not built.
pub fn dist() -> Option<PathBuf> {
    let dist = tools::root().join("dist");
    if !dist.join("index.html").is_file() {
        tools::skip("dist/ (`make web` builds it)");
        return None;
    }
    Some(dist)
}

/// The page at `fragment` once it has started, in a browser called `name`; `None`, said to be skipped,
/// where page or browser are not there.
pub fn explorer(name: &str, fragment: &str) -> Outcome<Option<Browser>> {
    let Some(dist) = dist() else { return Ok(None) };
    let Some(browser) = Browser::start(name)? else { return Ok(None) };
    browser.resize(1440, 900)?;
    browser.open(&format!("{}{fragment}", Server::bind(&dist, 0)?.spawn()?))?;
    browser.until("the application starts", |b| Ok(b.count("#about")? == 0))?;
    Ok(Some(browser))
}

impl Browser {
    /// What an expression is that may call the functions which the worker's module exports, as `worker`,
    /// and `performance`.
    pub fn in_worker(&self, body: &str) -> Outcome<Value> {
        self.js(&format!(
            "const script = document.querySelector('meta[name=pipewright-worker]').content;
             const glue = new URL('pipewright_worker.js', new URL(script, location));
             return import(glue).then(async (worker) => {{ await worker.default(); {body} }});"
        ))
    }
}
