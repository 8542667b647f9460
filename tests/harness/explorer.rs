//! The explorer in a browser of its own, and what core takes in one.

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

/// Where `pipewright-web meter` writes, below cargo's target folder.
const METER: &str = "wasm32-unknown-unknown/web/pipewright_meter.bindgen";

/// The functions of the crate in `tests/meter`, in a browser.
pub struct Meter(Browser);

impl Meter {
    /// In a browser called `name`; `None`, said to be skipped, where it is not built or there is no
    /// browser.
    pub fn start(name: &str) -> Outcome<Option<Self>> {
        let program = std::env::current_exe()?;
        // target/debug/deps/program-hash
        let built = program.ancestors().nth(3).map(|target| target.join(METER));
        let Some(built) = built.filter(|dir| dir.join("index.html").is_file()) else {
            tools::skip("meter (`cargo run -p pipewright-web -- meter` builds it)");
            return Ok(None);
        };
        let Some(browser) = Browser::start(name)? else { return Ok(None) };
        browser.open(&Server::bind(&built, 0)?.spawn()?)?;
        Ok(Some(Self(browser)))
    }

    /// What JavaScript returns that may call the functions as `meter`'s, and `performance`.
    pub fn js(&self, body: &str) -> Outcome<Value> {
        self.0.js(&format!(
            "const glue = new URL('pipewright_meter.js', location);
             return import(glue).then(async (meter) => {{ await meter.default(); {body} }});"
        ))
    }
}
