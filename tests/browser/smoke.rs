//! The built page in a real browser: it starts, it reads the colour scheme, it fits a phone.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, Server, tools};
use std::path::PathBuf;

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_page_starts_without_an_error() -> Outcome<()> {
    let Some(browser) = explorer("start", "")? else { return Ok(()) };
    // The title names what is shown first, so that tabs can be told apart.
    let title =
        "return document.title.startsWith('VGG16') && document.title.endsWith('Pipewright')";
    browser.until("the title", |b| Ok(b.js(title)? == true))?;
    assert_eq!(browser.text("h1")?, "Pipewright");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// The worker's script finds its glue and wasm, and its loop carries requests in and replies out.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_worker_starts_and_answers() -> Outcome<()> {
    let Some(browser) = explorer("worker", "")? else { return Ok(()) };
    // The request goes out before the worker has its wasm: it must not be lost.
    browser.js("const name = document.querySelector('meta[name=pipewright-worker]').content;
         const worker = window.worker = new Worker(name, { type: 'module' });
         worker.onmessage = ({ data }) => window.reply = data;
         worker.onerror = (event) => window.reply = event.message;
         worker.postMessage('{\"no\":\"request\"}');")?;
    browser.until("a reply", |b| Ok(b.js("return window.reply ?? null")?.is_string()))?;
    let reply = browser.js("return window.reply")?;
    let refusal = r#"{"failed":{"why":"The page is not understood: unknown variant `no`"#;
    assert!(reply.as_str().unwrap_or_default().starts_with(refusal), "{reply}");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// A lost connection must not leave the page waiting for a worker that never comes.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_worker_without_its_wasm_says_so() -> Outcome<()> {
    let Some(browser) = explorer("no-wasm", "")? else { return Ok(()) };
    let dir = dist_without("worker_bg.wasm")?;
    browser.open(&Server::bind(&dir, 0)?.spawn()?)?;
    browser.js("const name = document.querySelector('meta[name=pipewright-worker]').content;
         const worker = window.worker = new Worker(name, { type: 'module' });
         worker.onmessage = ({ data }) => window.reply = data;")?;
    browser.until("a reply", |b| Ok(b.js("return window.reply ?? null")?.is_string()))?;
    let reply = browser.js("return window.reply")?;
    assert!(reply.as_str().unwrap_or_default().starts_with(r#"{"failed":{"why":"#), "{reply}");
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Chunks the page has fetched so far, by the names of their `wasm_split` modules.
const FETCHED: &str = "return performance.getEntriesByType('resource')
    .map(({ name }) => /split_(\\w+)\\.wasm$/.exec(name)?.[1]).filter(Boolean)";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn chunks_come_when_they_are_needed() -> Outcome<()> {
    let Some(browser) = explorer("chunks", "")? else { return Ok(()) };
    let fetched = |wanted: &[&str]| -> Outcome<()> {
        browser.until(&format!("{wanted:?}"), |b| Ok(b.js(FETCHED)? == serde_json::json!(wanted)))
    };
    // Plans are written once the hand rests, to say how large the file is.
    fetched(&["tray"])?;
    for _ in 0..2 {
        browser.click("#help")?;
        browser.until("the keys are shown", |b| Ok(b.count(".help kbd")? > 10))?;
        browser.until("the focus is in the dialog", |b| Ok(b.count(".help :focus")? == 1))?;
        browser.click(".help [aria-label=Close]")?;
        browser.until("the dialog is gone", |b| Ok(b.count(".help")? == 0))?;
    }
    browser.click("#export")?;
    let file = browser.saved("plan.json")?;
    browser.keys("input[type=file]", &file.display().to_string())?;
    browser.until("the plan is read", |b| Ok(b.text("#note")?.contains("Opened plan.json: ")))?;
    fetched(&["tray", "menus", "files"])?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// The server may be gone by then, or have another version of the page.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_missing_chunk_leaves_the_page_alive() -> Outcome<()> {
    let Some(browser) = explorer("no-chunk", "")? else { return Ok(()) };
    let dir = dist_without("split_")?;
    browser.open(&Server::bind(&dir, 0)?.spawn()?)?;
    browser.until("the tray says what is missing", |b| Ok(b.count(".tray [role=alert]")? == 1))?;
    browser.click("#export")?;
    let missing = "this part of the page could not be loaded";
    browser.until("the reason is shown", |b| Ok(b.text("#note")?.contains(missing)))?;
    let before = browser.count("[role=alert]")?;
    browser.click("#help")?;
    browser.until("and in the view", |b| Ok(b.count("[role=alert]")? == before + 1))?;
    assert_eq!(browser.count(".crash")?, 0);
    Ok(std::fs::remove_dir_all(dir)?)
}

/// A copy of `dist/` without the files whose names contain `missing`.
fn dist_without(missing: &str) -> Outcome<PathBuf> {
    let copy = tools::scratch(&format!("dist-without-{missing}"))?;
    tools::copy(&tools::root().join("dist"), &copy, &|name| !name.contains(missing))?;
    Ok(copy)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn nothing_is_wider_than_a_phone() -> Outcome<()> {
    let Some(browser) = explorer("phone", "")? else { return Ok(()) };
    browser.resize(375, 667)?;
    // The page lays its pictures out again when it hears of the new width, a frame or two later.
    let fits = "return innerWidth === 375 && document.documentElement.scrollWidth <= innerWidth";
    browser.until("everything fits a phone's width", |b| Ok(b.js(fits)? == true))
}

/// The harness itself: what the end-to-end tests rely on, tried on a page of ten lines.
#[test]
#[ignore = "needs a browser: make test"]
fn the_harness_sees_what_it_does() -> Outcome<()> {
    let Some(browser) = Browser::start("harness")? else { return Ok(()) };
    let dir = tools::scratch("harness-page")?;
    std::fs::write(dir.join("index.html"), PAGE)?;
    browser.open(&Server::bind(&dir, 0)?.spawn()?)?;

    browser.keys("#field", "abc")?;
    assert_eq!(browser.js("return document.querySelector('#field').value")?, "abc");
    browser.click("#save")?;
    let file = browser.saved("plan.json")?;
    assert_eq!(std::fs::read_to_string(&file)?, "{}");

    browser.drag("#box", 61, -20)?;
    browser.until("the drag is seen", |b| Ok(b.text("#seen")? == "61,-20"))?;

    let dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
    assert_eq!(browser.js(dark)?, false);
    browser.emulate("prefers-color-scheme", "dark")?;
    browser.until("the page is dark", |b| Ok(b.js(dark)? == true))?;

    let picture = dir.join("page.png");
    browser.screenshot(&picture)?;
    assert!(std::fs::read(&picture)?.starts_with(b"\x89PNG"));

    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    browser.js("setTimeout(() => { throw new Error('on purpose') })")?;
    browser.until("the error is seen", |b| {
        Ok(b.console_errors()?.iter().any(|error| error.contains("on purpose")))
    })?;
    assert!(browser.click("#nothing").is_err(), "a click on an element that is not there");
    Ok(std::fs::remove_dir_all(dir)?)
}

const PAGE: &str = r#"<!DOCTYPE html><title>x</title><link rel="icon" href="data:,">
<input id="field"> <a id="save" download="plan.json" href="data:application/json,{}">save</a>
<p id="box">box</p> <output id="seen"></output>
<script>
let from = null;
addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; });
addEventListener("pointerup", (e) => {
  document.getElementById("seen").textContent = [e.clientX - from[0], e.clientY - from[1]];
});
</script>"#;
