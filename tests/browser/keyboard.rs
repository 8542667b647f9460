//! Recompute and Communication by keyboard alone: Tab to reach things, keys to use them.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;

const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";
const SPACE: &str = " ";
const LEFT: &str = "\u{E012}";
const DOWN: &str = "\u{E015}";
const END: &str = "\u{E010}";
const CTRL: &str = "\u{E009}";

/// Presses Tab until what has the focus is what the selector says.
fn tab_to(browser: &Browser, css: &str) -> Outcome<()> {
    let there = format!("return document.activeElement?.matches(\"{css}\") ?? false");
    for _ in 0..250 {
        browser.press(TAB)?;
        if browser.js(&there)? == true {
            return Ok(());
        }
    }
    Err(format!("Tab does not lead to {css}").into())
}

fn shown(browser: &Browser, view: &str) -> Outcome<()> {
    let there = format!("return location.hash.includes('view={view}')");
    browser.until(&format!("the screen {view}"), |b| Ok(b.js(&there)? == true))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn less_memory_is_asked_for_and_taken() -> Outcome<()> {
    let link = "#v=1&model=vgg16&cluster=dgx-a100&d=4&batch=128&mb=8";
    let Some(browser) = explorer("keys-recompute", link)? else { return Ok(()) };
    let peak = |b: &Browser| -> Outcome<f64> {
        let bytes = b.js("return +document.querySelector('#peak-memory').dataset.value")?;
        Ok(bytes.as_f64().unwrap_or(0.0))
    };
    browser.until("the plan", |b| Ok(peak(b)? > 0.0))?;
    let before = peak(&browser)?;
    browser.press("5")?;
    shown(&browser, "recompute")?;
    browser.until("the search has begun", |b| Ok(b.count("#budget-line")? == 1))?;
    tab_to(&browser, "#budget-line")?;
    let asked = "return +document.querySelector('#budget-line').ariaValueNow";
    let all = browser.js(asked)?.as_f64().unwrap_or(0.0);
    (0..12).try_for_each(|_| browser.press(DOWN))?;
    browser.until("less is asked for", |b| {
        Ok(b.js(asked)?.as_f64().is_some_and(|bytes| bytes < all))
    })?;
    let cells = "return document.querySelectorAll('#cells path.ra[d*=M]').length";
    browser.until("something is computed again", |b| Ok(b.js(cells)? == 1))?;
    tab_to(&browser, "#take")?;
    browser.press(ENTER)?;
    browser.until("the plan is shown with less memory", |b| Ok(peak(b)? < before))?;
    browser.press(&format!("{CTRL}z"))?;
    browser.until("undone", |b| Ok(peak(b)? == before))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_codec_is_taken_and_forms_are_played() -> Outcome<()> {
    let link = "#v=1&model=alexnet&cluster=reedbush-l&d=1&batch=128&mb=1&replicas=4";
    let Some(browser) = explorer("keys-communication", link)? else { return Ok(()) };
    browser.until("the plan", |b| Ok(b.count("#step-time")? == 1))?;
    browser.press("6")?;
    shown(&browser, "communication")?;
    browser.until("the codecs", |b| Ok(b.count("#codecs tbody tr")? == 9))?;
    tab_to(&browser, "#bandwidth")?;
    browser.press(LEFT)?;
    browser.until("another bandwidth", |b| Ok(b.count("#own-link")? == 1))?;
    tab_to(&browser, "#feedback")?;
    browser.press(SPACE)?;
    let codec = "#codecs tr[data-codec='fp8-e5m2+feedback']";
    browser.until("with feedback", |b| Ok(b.count(codec)? == 1))?;
    tab_to(&browser, &format!("{codec} .pick"))?;
    browser.press(ENTER)?;
    let taken = "return location.hash.includes('codec=fp8-e5m2+feedback')";
    browser.until("taken", |b| Ok(b.js(taken)? == true))?;
    tab_to(&browser, "#form-at")?;
    browser.press(END)?;
    let said = "return [...document.querySelectorAll('.form .say')].map((p) => p.textContent)";
    browser.until("the end", |b| {
        Ok(b.js(said)?.as_array().is_some_and(|all| all.iter().any(|text| text == "step done")))
    })?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
