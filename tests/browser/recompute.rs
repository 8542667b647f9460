//! The Recompute view as a person uses it: less memory for a stage, into the plan and out as a file;
//! a graph that is dropped, its sequence saved; files that are no graphs.

use base64::Engine;
use flate2::Compression;
use flate2::write::GzEncoder;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};
use pipewright_core::plan::Plan;
use pipewright_core::recompute::cost;
use pipewright_core::recompute::file::read;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A browser showing the view.
fn view(name: &str, fragment: &str) -> Outcome<Option<Browser>> {
    let Some(browser) = explorer(name, fragment)? else { return Ok(None) };
    browser.until("a graph is open", |b| Ok(number(b, "#recompute-peak")? > 0.0))?;
    Ok(Some(browser))
}

/// The unrounded number of an element.
fn number(browser: &Browser, css: &str) -> Outcome<f64> {
    let script = format!("return document.querySelector('{css}')?.dataset.value ?? '0'");
    Ok(browser.js(&script)?.as_str().unwrap_or("0").parse()?)
}

/// An attribute of the line of the budget.
fn line(browser: &Browser, name: &str) -> Outcome<f64> {
    let script = format!("return document.querySelector('#budget-line').getAttribute('{name}')");
    Ok(browser.js(&script)?.as_str().unwrap_or("0").parse()?)
}

fn downloaded(browser: &Browser, name: &str) -> Outcome<String> {
    Ok(std::fs::read_to_string(browser.saved(name)?)?)
}

/// Drops a file on the page.
fn drop_file(browser: &Browser, name: &str, bytes: &[u8]) -> Outcome<()> {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    browser.js(&format!(
        "const bytes = Uint8Array.from(atob('{text}'), c => c.charCodeAt(0));
         const dataTransfer = new DataTransfer();
         dataTransfer.items.add(new File([bytes], '{name}'));
         window.dispatchEvent(new DragEvent('drop', {{ dataTransfer, cancelable: true }}));"
    ))?;
    Ok(())
}

fn graph() -> PathBuf {
    tools::root().join("tests/data/recompute/transformer3.json.gz")
}

fn path(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| "a path that is not text".into())
}

const STAGE: &str = "#v=1&model=vgg16&cluster=dgx-a100&d=4&batch=128&mb=8&view=recompute&keep=60";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn less_memory_for_a_stage_goes_into_the_plan() -> Outcome<()> {
    let Some(browser) = view("recompute-stage", STAGE)? else { return Ok(()) };
    let all = line(&browser, "aria-valuemax")?;
    let asked = line(&browser, "aria-valuenow")?;
    assert!((asked / all - 0.6).abs() < 1e-3, "the link asks for 60 %: {asked} of {all}");
    browser.until("the budget is met", |b| Ok(number(b, "#recompute-peak")? <= asked))?;
    let cells = "return document.querySelectorAll('#cells path.ra[d*=M]').length";
    browser.until("something is marked as recomputed", |b| Ok(b.js(cells)? == 1))?;

    // The line moves by hand and by key, and the answer follows.
    let before = number(&browser, "#recompute-time")?;
    browser.drag("#budget-line span", 0, 60)?;
    browser.until("less memory takes longer", |b| Ok(number(b, "#recompute-time")? > before))?;
    let dragged = line(&browser, "aria-valuenow")?;
    assert!(dragged < asked, "{dragged} {asked}");
    browser.keys("#budget-line", "\u{e013}")?;
    assert!(line(&browser, "aria-valuenow")? > dragged, "arrow up allows more");
    let share =
        "return location.hash.includes('view=recompute') && !location.hash.includes('keep=60.0')";
    browser.until("the link follows", |b| Ok(b.js(share)? == true))?;

    browser.click("#search")?;
    let resting = "return document.querySelector('.live').textContent === 'stopped'";
    browser.until("the search rests", |b| Ok(b.js(resting)? == true))?;

    browser.click("#take")?;
    browser.until("the plan is shown", |b| {
        Ok(b.js("return !document.querySelector('#timeline').closest('main').hidden")? == true)
    })?;
    let peak = number(&browser, "#peak-memory")?;
    browser.click("#export")?;
    let plan = Plan::from_json(&downloaded(&browser, "plan.json")?)?;
    assert!(!plan.recompute[0].0.is_empty() && plan.recompute[1].0.is_empty());
    let predicted = pipewright_core::predict::predict(&plan)?;
    let most = predicted.programs.iter().map(|p| p.arena.0).max();
    assert_eq!(most, Some(peak as u64), "page and core agree on the memory");
    let without = Plan { recompute: vec![], ..plan };
    let without = pipewright_core::predict::predict(&without)?;
    assert!(predicted.programs[0].arena < without.programs[0].arena);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());

    // The file comes back with its sequences, and undo takes them away.
    browser.click("#undo")?;
    browser.until("undone", |b| Ok(number(b, "#peak-memory")? > peak))?;
    browser.keys("#import", path(&browser.downloads.join("plan.json"))?)?;
    browser.until("the plan's memory", |b| Ok(number(b, "#peak-memory")? == peak))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_graph_is_dropped_searched_and_its_sequence_saved() -> Outcome<()> {
    let Some(browser) = view("recompute-file", "#v=1&view=recompute&keep=45")? else {
        return Ok(());
    };
    browser.keys("#import", path(&graph())?)?;
    browser.until("its name", |b| Ok(b.text(".doc")?.contains("transformer3")))?;
    let mut text = vec![];
    flate2::read::GzDecoder::new(std::fs::File::open(graph())?).read_to_end(&mut text)?;
    let problem = read(&text)?.problem;
    let facts = format!("{} nodes", problem.len());
    browser.until("its facts", |b| Ok(b.text("#graph-facts")?.starts_with(&facts)))?;
    let asked = line(&browser, "aria-valuenow")?;
    browser.until("the budget is met", |b| Ok(number(b, "#recompute-peak")? <= asked))?;

    // The graph is walked by keys, and says what a value is.
    browser.keys("#cells", "\u{e015}")?;
    browser.until("a value is described", |b| Ok(b.text("#node")?.contains("run ")))?;
    let first = browser.text("#node")?;
    browser.keys("#cells", "\u{e014}")?;
    browser.until("and the next one", |b| Ok(b.text("#node")? != first))?;

    browser.click("#search")?;
    browser.click("#take")?;
    let saved: Value = serde_json::from_str(&downloaded(&browser, "sequence.json")?)?;
    let sequence: Vec<u32> = serde_json::from_value(saved["sequence"].clone())?;
    problem.check(&sequence)?;
    let reached = cost(&problem, &sequence);
    assert!(reached.peak as f64 <= asked, "{reached:?}");
    assert_eq!(saved["peak_bytes"].as_u64(), Some(reached.peak));
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn files_that_are_no_graphs_are_refused_in_words() -> Outcome<()> {
    let Some(browser) = view("recompute-bad", "#v=1&view=recompute")? else { return Ok(()) };
    let packed = |text: &[u8]| -> Outcome<Vec<u8>> {
        let mut gzip = GzEncoder::new(vec![], Compression::best());
        gzip.write_all(text)?;
        Ok(gzip.finish()?)
    };
    let bomb = packed(&vec![b' '; 640 << 20])?;
    let cases = [
        ("text.json.gz", packed(b"hello")?, "not a graph"),
        ("cut.json.gz", packed(&[b'['; 5000])?[..30].to_vec(), "not whole"),
        ("bomb.json.gz", bomb, "512 MiB"),
    ];
    for (name, bytes, words) in cases {
        drop_file(&browser, name, &bytes)?;
        let said = |b: &Browser| {
            let why = b.js("return document.querySelector('.rfail')?.textContent ?? ''")?;
            let why = why.as_str().unwrap_or_default();
            Ok(why.contains(name) && why.contains(words))
        };
        browser.until(words, said)?;
    }
    // The page lives: a stage opens again.
    browser.js("const s = document.querySelector('#graph'); s.value = '1';
                s.dispatchEvent(new Event('change', { bubbles: true }));")?;
    browser.until("no complaint is left", |b| Ok(b.count(".rfail")? == 0))?;
    Ok(())
}
