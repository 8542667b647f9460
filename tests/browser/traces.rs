//! Traces that are dropped: the example, those of torch.profiler, those of other plans; and what the Run screen
//! makes of its room.

use pipewright::axe::{axe, violations};
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};
use serde_json::Value;
use std::collections::BTreeMap;

/// An interleaved plan of four stages on two lanes, as torch's own example ran it.
const INTERLEAVED: &str =
    "#v=1&model=digits-cnn&cluster=laptop&d=2&batch=64&mb=4&s=interleaved:2&view=run";

fn data(name: &str) -> String {
    tools::root().join("tests/data").join(name).display().to_string()
}

/// The Run screen of the plan that torch's example ran, without a run.
fn interleaved(name: &str) -> Outcome<Option<Browser>> {
    let Some(browser) = explorer(name, INTERLEAVED)? else { return Ok(None) };
    browser.until("the empty screen", |b| Ok(b.count("#run-example")? == 1))?;
    Ok(Some(browser))
}

/// What its ranks' profilers wrote.
fn ranks() -> [String; 2] {
    [0, 1].map(|rank| data(&format!("kineto/interleaved-rank{rank}.json")))
}

fn measured(browser: &Browser) -> Outcome<f64> {
    let script = "return Number(document.querySelector('#run-measured')?.dataset.value ?? 0)";
    Ok(browser.js(script)?.as_f64().unwrap_or(0.0))
}

/// Height of the lanes of the picture on screen.
fn lane(browser: &Browser) -> Outcome<f64> {
    let script = "return Number(document.querySelector('main:not([hidden]) .film').dataset.lane)";
    Ok(browser.js(script)?.as_f64().unwrap_or(0.0))
}

/// The median of the steps that torch's files hold: from the first begin to the last end of `ProfilerStep#n`.
fn recorded(files: &[String]) -> Outcome<f64> {
    let mut steps: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for file in files {
        let read: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let events = read["traceEvents"].as_array().ok_or("no events")?;
        for event in events {
            let name = event["name"].as_str().unwrap_or_default();
            if name.starts_with("ProfilerStep#") {
                let moment = |micros: f64| (micros * 1000.0).round();
                let start = event["ts"].as_f64().unwrap_or_default();
                let length = event["dur"].as_f64().unwrap_or_default();
                let (begin, end) = (moment(start), moment(start) + moment(length));
                let step = steps.entry(name.to_owned()).or_insert((begin, end));
                *step = (step.0.min(begin), step.1.max(end));
            }
        }
    }
    let mut lengths: Vec<f64> = steps.values().map(|(begin, end)| end - begin).collect();
    lengths.sort_by(f64::total_cmp);
    Ok(lengths[lengths.len() / 2])
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_example_run_is_one_click_away_and_fits_a_small_screen() -> Outcome<()> {
    let Some(browser) = explorer("traces-example", "#view=run")? else { return Ok(()) };
    browser.resize(1366, 768)?;
    browser.until("the empty screen", |b| Ok(b.count("#run-example")? == 1))?;
    browser.click("#run-example")?;
    browser.until("the measured step", |b| Ok(measured(b)? > 0.0))?;
    browser.until("its loss", |b| Ok(b.count(".four svg")? == 4))?;
    // Lanes can be read: two rows in each, the tables below, nothing beyond the screen.
    assert!(lane(&browser)? >= 24.0, "{}", lane(&browser)?);
    let before = lane(&browser)?;
    // The note that it was opened may lie over the button for a while.
    let fold = "document.querySelector('#drift-fold').click()";
    browser.js(fold)?;
    browser.until("the tables are folded", |b| Ok(lane(b)? > before))?;
    assert_eq!(
        browser.js("return getComputedStyle(document.querySelector('.metrics')).display")?,
        "none"
    );
    browser.js(fold)?;
    browser.until("and unfolded", |b| Ok(lane(b)? == before))?;
    assert!(browser.text(".names")?.contains("4 ranks"), "{}", browser.text(".names")?);
    if let Some(axe) = axe()? {
        for (width, theme) in [(1366, "light"), (1366, "dark"), (390, "light")] {
            browser.resize(width, 768)?;
            browser.emulate("prefers-color-scheme", theme)?;
            assert_eq!(violations(&browser, &axe)?, Vec::<String>::new(), "{width} {theme}");
        }
    }
    let wide = "return document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.js(wide)?, true);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// A plan that has become another one than the run was of says so on Plan, until it is that plan again.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_plan_that_is_no_longer_the_run_s_says_so() -> Outcome<()> {
    let Some(browser) = explorer("traces-another", "#view=run")? else { return Ok(()) };
    browser.until("the empty screen", |b| Ok(b.count("#run-example")? == 1))?;
    browser.click("#run-example")?;
    // The last of its files; each shows the Run screen.
    browser.until("its loss", |b| Ok(b.count(".four svg")? == 4))?;
    browser.press("1")?;
    browser.until("what was measured", |b| Ok(!b.text("#measured-step")?.is_empty()))?;
    assert_eq!(browser.count("#foreign")?, 0);
    let schedule = |name: &str| {
        browser.js(&format!(
            "const list = document.getElementById('schedule'); list.value = '{name}';
             list.dispatchEvent(new Event('change', {{ bubbles: true }}));"
        ))
    };
    let before = browser.js("return document.getElementById('schedule').value")?;
    schedule("zb-h1")?;
    let says =
        |b: &Browser| Ok(b.text("#foreign")?.starts_with("The trace is of another plan: it "));
    browser.until("the sentence", says)?;
    schedule(before.as_str().unwrap_or_default())?;
    browser.until("it is gone", |b| Ok(b.count("#foreign")? == 0))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn traces_of_torch_profiler_open_and_foreign_ones_are_refused() -> Outcome<()> {
    let Some(browser) = interleaved("traces-torch")? else { return Ok(()) };
    let ranks = ranks();
    browser.keys("#import-run", &ranks[0])?;
    browser.until("what is missing", |b| Ok(b.text("#note")?.contains("no trace of lane 1")))?;
    assert_eq!(measured(&browser)?, 0.0);
    browser.keys("#import-run", &ranks.join("\n"))?;
    browser.until("the measured step", |b| Ok(measured(b)? > 0.0))?;
    // The median step that torch recorded, on the clock of both ranks.
    assert_eq!(measured(&browser)?, recorded(&ranks)?);
    browser.until("the shares", |b| Ok(b.count("#drift tr[data-part]")? > 8))?;
    assert_eq!(browser.count("#run-doubt")?, 0);
    browser.click("#run-remove")?;

    browser.js("location.hash = '#v=1&model=vgg16&d=4&view=run'")?;
    browser.until("another plan", |b| Ok(b.text("#run-command")?.contains("-n 4")))?;
    browser.keys("#import-run", &ranks.join("\n"))?;
    browser.until("torch's is refused", |b| Ok(b.text("#note")?.contains("Nothing changed.")))?;
    assert_eq!(browser.count("#run-measured")?, 0);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// The same run as a report of Nsight Systems would have it: its ranges, a process a rank, on one clock.
fn report(files: &[String]) -> Outcome<String> {
    let mut lines = vec!["{\"data\":[\"[Unknown]\"],\"files\":[]}".to_owned()];
    for (rank, file) in files.iter().enumerate() {
        let read: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        for event in read["traceEvents"].as_array().ok_or("no events")? {
            let nanos = |field: &str| (event[field].as_f64().unwrap_or_default() * 1000.0).round();
            let (start, end) = (nanos("ts"), nanos("ts") + nanos("dur"));
            if event["cat"] == "user_annotation" {
                let range = serde_json::json!({
                    "Type": 59, "Timestamp": start.to_string(), "EndTimestamp": end.to_string(), "Text": event["name"],
                    "GlobalTid": ((7 + rank as u64) << 24).to_string(), "DomainId": "0", "NsTime": true,
                });
                lines.push(serde_json::json!({ "Type": 59, "NvtxEvent": range }).to_string());
            }
        }
    }
    let path = std::env::temp_dir().join(format!("pipewright-report-{}.json", std::process::id()));
    std::fs::write(&path, lines.join("\n"))?;
    Ok(path.display().to_string())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn reports_of_nsight_systems_open() -> Outcome<()> {
    let Some(browser) = interleaved("traces-nsight")? else { return Ok(()) };
    let ranks = ranks();
    let whole = report(&ranks)?;
    browser.keys("#import-run", &whole)?;
    browser.until("the measured step", |b| Ok(measured(b)? > 0.0))?;
    assert_eq!(measured(&browser)?, recorded(&ranks)?);
    std::fs::remove_file(whole)?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
