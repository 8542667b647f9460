//! What the planner's inner loop costs in a real browser. Prints figures and asserts none of them:
//! `cargo test --test browser_speed -- --ignored --nocapture` after `make web`.

use pipewright::browser::Browser;
use pipewright::{Outcome, Server, tools};

/// Calls the function that the page's own module exports.
const MEASURE: &str = "
    const module = document.querySelector('link[rel=modulepreload]').href;
    return import(module).then((page) => Array.from(page.measure_schedule(64, 512)));
";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn schedules_of_64_lanes_and_512_micro_batches() -> Outcome<()> {
    let dist = tools::root().join("dist");
    if !dist.join("index.html").is_file() {
        tools::skip("dist/ (`make web` builds it)");
        return Ok(());
    }
    let Some(browser) = Browser::start("speed")? else { return Ok(()) };
    browser.open(&Server::bind(&dist, 0)?.spawn()?)?;
    browser.until("the application starts", |b| Ok(b.count("#about")? == 0))?;
    let times = browser.js(MEASURE)?;
    let times: Vec<f64> = serde_json::from_value(times)?;
    let [generate, check, estimate] = times[..] else { return Err("three times".into()) };
    assert!(times.iter().all(|ms| ms.is_finite()), "{times:?}");
    let total = generate + check + estimate;
    println!(
        "64 lanes x 512 micro-batches in Chromium: generate {generate:.1} ms, check {check:.1} ms, \
         estimate {estimate:.1} ms, together {total:.1} ms"
    );
    Ok(())
}
