//! Room for many lanes, stretches of time, pages to keep, and the first visit.

use pipewright::browser::Browser;
use pipewright::explorer::{dist, explorer};
use pipewright::{Outcome, tools};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// 64 lanes.
const MANY: &str = "#v=1&model=gpt2-xl&cluster=dgx-a100&d=48&batch=96&mb=1";

fn film(browser: &Browser, what: &str) -> Outcome<f64> {
    let script =
        format!("return document.querySelector('main:not([hidden]) .{what}').clientHeight");
    Ok(browser.js(&script)?.as_f64().unwrap_or(0.0))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn lanes_grow_and_scroll() -> Outcome<()> {
    let Some(browser) = explorer("room-lanes", MANY)? else { return Ok(()) };
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    assert_eq!(film(&browser, "film")?, film(&browser, "reel")?, "all lanes fit at first");
    browser.js("document.querySelector('#timeline').focus()")?;
    for _ in 0..5 {
        browser.press("e")?;
    }
    browser.until("there is more than fits", |b| Ok(film(b, "film")? > 2.0 * film(b, "reel")?))?;
    // A selected action scrolls into view, lane by lane.
    browser.press("/")?;
    browser.until("the search", |b| Ok(b.count(".find")? == 1))?;
    browser.keys(".find", "40F0\u{E007}")?;
    let scrolled = "return document.querySelector('main:not([hidden]) .reel').scrollTop";
    browser.until("lane 40 is seen", |b| Ok(b.js(scrolled)?.as_f64().unwrap_or(0.0) > 100.0))?;
    // The split editor shows 16 stages at a time; `[` goes to the last cut, in whichever block it is.
    assert_eq!(browser.count(".blocks button")?, 3);
    let handles = browser.count("#split .cut")?;
    assert!(handles <= 17, "{handles}");
    browser.js("document.querySelector('#timeline').focus()")?;
    browser.press("[")?;
    browser.until("the last cut has the focus", |b| {
        Ok(b.js("return document.activeElement?.dataset.cut ?? ''")? == "46")
    })?;
    assert_eq!(browser.count(".blocks button[aria-pressed=true]:last-child")?, 1);
    browser.js("document.querySelector('#timeline').focus()")?;
    for _ in 0..5 {
        browser.press("q")?;
    }
    browser.until("all fit again", |b| Ok(film(b, "film")? == film(b, "reel")?))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_stretch_of_time_is_summed_and_a_page_is_saved() -> Outcome<()> {
    let Some(browser) = explorer("room-range", "#v=1&model=vgg16&d=4")? else { return Ok(()) };
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    browser.until("the facts", |b| Ok(b.count(".selsec")? == 1))?;
    browser.js("const canvas = document.querySelector('#timeline'), box = canvas.getBoundingClientRect();
        canvas.setPointerCapture = () => {};
        const at = (type, x) => canvas.dispatchEvent(new PointerEvent(type,
            { bubbles: true, pointerId: 7, button: 0, clientX: box.left + x, clientY: box.top + 90 }));
        at('pointerdown', 300); at('pointermove', 420); at('pointermove', 500); at('pointerup', 500);")?;
    browser.until("a row per lane", |b| Ok(b.count("#range tbody tr")? == 4))?;
    let all = browser.text("#range tfoot")?;
    assert!(all.contains("all lanes") && all.contains('%'), "{all}");

    browser.click("#formats")?;
    browser.until("the menu", |b| Ok(b.count("#format-7")? == 1))?;
    browser.js("[...document.querySelectorAll('[role=menuitem]')]
        .find((item) => item.textContent.includes('plan.html')).click()")?;
    let page = std::fs::read_to_string(browser.saved("plan.html")?)?;
    assert!(page.contains("<svg") && page.contains("download=\"plan.json\""));
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_first_visit_has_three_steps_once() -> Outcome<()> {
    let Some(browser) = explorer("room-tour", "")? else { return Ok(()) };
    for step in ["1 of 3", "2 of 3", "3 of 3"] {
        browser.until(step, |b| {
            Ok(b.count("#tour p")? == 1 && b.text("#tour p")?.starts_with(step))
        })?;
        browser.click("#tour-next")?;
    }
    browser.until("it is over", |b| Ok(b.count("#tour")? == 0))?;
    browser.js("location.hash = ''; location.reload()")?;
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    assert_eq!(browser.count("#tour")?, 0);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// A server of the page that can be stopped.
fn server() -> Outcome<Option<(Child, BufReader<ChildStdout>, String)>> {
    let Some(dist) = dist() else { return Ok(None) };
    // target/debug/deps/program-hash
    let program = std::env::current_exe()?.ancestors().nth(2).map(|dir| dir.join("pipewright-web"));
    let Some(program) = program.filter(|file| file.is_file()) else {
        tools::skip("pipewright-web (`cargo build -p pipewright-web`)");
        return Ok(None);
    };
    let mut command = Command::new(program);
    let mut server =
        command.args(["serve", "--port", "0"]).arg(dist).stdout(Stdio::piped()).spawn()?;
    let (mut line, mut said) =
        (String::new(), BufReader::new(server.stdout.take().ok_or("no output")?));
    said.read_line(&mut line)?;
    let address = line.trim().strip_prefix("Serving on ").ok_or(line.clone())?.to_owned();
    // Closed, the next line would end it.
    Ok(Some((server, said, address)))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_page_opens_without_its_server() -> Outcome<()> {
    let Some((mut server, _said, address)) = server()? else { return Ok(()) };
    let Some(browser) = Browser::start("room-offline")? else { return Ok(server.kill()?) };
    browser.resize(1440, 900)?;
    browser.open(&format!("{address}#v=1&model=vgg16&d=4"))?;
    let predicted =
        |b: &Browser| Ok(b.count("#step-time")? == 1 && !b.text("#step-time")?.is_empty());
    browser.until("a prediction", predicted)?;
    // By itself it waits until the page has been looked at.
    browser.js(
        "return navigator.serviceWorker.register('sw.js').then(() => navigator.serviceWorker.ready).then(() => true)",
    )?;
    server.kill()?;
    server.wait()?;
    browser.js("location.reload()")?;
    browser.until("a prediction again", predicted)?;
    // What comes in chunks as well, and the worker.
    browser.press("3")?;
    browser.until("another screen", |b| Ok(b.count("#search")? == 1))?;
    browser.click("#search")?;
    browser.until("plans are found", |b| Ok(b.count("#plans tbody tr")? > 0))
}

fn tip(browser: &Browser) -> Outcome<String> {
    let script = "return document.querySelector('main:not([hidden]) .tip')?.textContent ?? ''";
    Ok(browser.js(script)?.as_str().unwrap_or_default().to_owned())
}

/// What is under the pointer is said, and not of a picture that is no longer there.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn bars_and_curves_say_what_they_are() -> Outcome<()> {
    let Some(browser) = explorer("room-tips", "#v=1&model=vgg16&d=4")? else { return Ok(()) };
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    // The first bar of the first lane: the forward pass of micro-batch 0.
    let frame = "const box = document.querySelector('#timeline').getBoundingClientRect();";
    let corner = |side: &str| -> Outcome<i64> {
        let script = format!("{frame} return Math.round(-box.{side} / 2)");
        Ok(browser.js(&script)?.as_i64().unwrap_or_default())
    };
    let (left, top) = (corner("width")?, corner("height")?);
    browser.hover("#timeline", left + 132, top + 85)?;
    browser.until("the bar's words", |b| Ok(tip(b)?.contains(" · holds ")))?;
    let said = tip(&browser)?;
    assert!(said.starts_with("F 0 · stage 0 · lane 0 · ") && said.contains(" until "), "{said}");
    browser.js("document.querySelector('#timeline').focus()")?;
    browser.press("w")?;
    browser.until("zoomed, they are gone", |b| Ok(tip(b)?.is_empty()))?;
    browser.click("#tab-speedup")?;
    browser.until("the curves", |b| Ok(b.count(".speed circle.best")? > 0))?;
    browser.hover(".speed circle.best", 3, 2)?;
    browser.until("the point's figures", |b| Ok(tip(b)?.contains("speed-up")))?;
    let title = "return document.querySelector('.speed circle.best title').textContent";
    let (said, title) = (tip(&browser)?, browser.js(title)?);
    let title = title.as_str().unwrap_or_default();
    let (d, m) = (said.split(", ").next(), title.split("m = ").nth(1));
    assert!(d.is_some_and(|d| title.starts_with(d)), "{said} {title}");
    let m = m.and_then(|m| m.split(',').next()).unwrap_or_default();
    assert!(said.contains(&format!("m = {m}:")), "{said} {title}");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// Advice on the first screen is taken by its button, and one undo brings the plan back.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn advice_is_taken_with_its_button() -> Outcome<()> {
    let Some(browser) = explorer("room-advice", "#v=1")? else { return Ok(()) };
    let step = |browser: &Browser| -> Outcome<u64> {
        let value =
            browser.js("return Number(document.getElementById('step-time').dataset.value)")?;
        Ok(value.as_f64().unwrap_or(0.0) as u64)
    };
    browser.until("advice", |b| Ok(b.count("#apply")? == 1))?;
    let before = step(&browser)?;
    assert!(before > 0);
    browser.click("#apply")?;
    browser.until("a shorter step", |b| Ok((1..before).contains(&step(b)?)))?;
    browser.click("#undo")?;
    browser.until("the plan is back", |b| Ok(step(b)? == before))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
