//! All of the plan is said on Plan: replicas, what they sum and send, data and training; and in windows of any width
//! nothing covers anything.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use serde_json::json;

fn figure(browser: &Browser, id: &str) -> Outcome<f64> {
    let value =
        browser.js(&format!("return document.getElementById('{id}')?.dataset.value ?? '0'"))?;
    Ok(value.as_str().unwrap_or("0").parse()?)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn replicas_are_said_summed_and_counted() -> Outcome<()> {
    let link = "#v=1&model=vgg16&cluster=dgx-a100&d=1&replicas=4&mb=8&batch=3584";
    let Some(browser) = explorer("whole-replicas", link)? else { return Ok(()) };
    browser.until("the rest of the plan", |b| Ok(b.count("#plan-replicas")? == 1))?;
    assert_eq!(browser.js("return document.getElementById('plan-replicas').value")?, "4");
    assert_eq!(browser.text("#plan-replicas-note")?, "Data parallel: 4 devices sum gradients.");
    assert!(figure(&browser, "traffic")? > 4e8, "138 M parameters are summed");
    let legend = "return document.querySelector('main:not([hidden]) .key .red') !== null";
    assert_eq!(browser.js(legend)?, true, "the timeline draws the sums");
    let why = browser.text("#why")?;
    assert!(!why.contains("nothing waits") && !why.contains("no pipeline, so"), "{why}");
    // What the file decides is there: optimizer, learning rate, data, steps.
    for id in ["plan-optimizer", "plan-rate", "plan-data", "plan-steps", "plan-gradients"] {
        let value = browser.js(&format!("return document.getElementById('{id}')?.value ?? ''"))?;
        assert_ne!(value, "", "{id}");
    }
    // Compare counts the same traffic.
    browser.press("3")?;
    browser.until("the table", |b| Ok(b.count("#differences tbody tr")? > 0))?;
    let row = "return [...document.querySelectorAll('#differences tbody tr')]
        .find((row) => row.textContent.includes('Traffic'))?.textContent ?? ''";
    let row = browser.js(row)?;
    let row = row.as_str().unwrap_or_default();
    assert!(row.contains("GiB") && !row.contains("100 %"), "{row}");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn nothing_covers_anything_in_a_full_column() -> Outcome<()> {
    // Two copies of each stage that do not fit: everything that the right column can say is said.
    let link = "#v=1&model=vgg16&cluster=dgx-a100&d=4&mb=8&batch=7168&s=dualpipe";
    let Some(browser) = explorer("whole-column", link)? else { return Ok(()) };
    browser.until("the way to less memory", |b| Ok(b.count("#recompute-lane")? == 1))?;
    for (width, height) in [(1366, 768), (1440, 900)] {
        browser.resize(width, height)?;
        let apart = browser.js(
            "const box = (css) => document.querySelector(css).getBoundingClientRect();
             const button = box('#recompute-lane'), card = box('.card.sug'), next = box('.selsec');
             return [button.bottom <= card.bottom + 1, card.bottom <= next.top + 1];",
        )?;
        assert_eq!(apart, json!([true, true]), "{width}");
    }
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_header_stays_in_windows_between_the_usual_ones() -> Outcome<()> {
    let Some(browser) = explorer("whole-header", "#v=1")? else { return Ok(()) };
    for language in ["en", "ja"] {
        browser.js(&format!(
            "localStorage.setItem('pipewright-language', '{language}'); location.reload()"
        ))?;
        browser.until("the page", |b| Ok(b.count("#step-time")? == 1))?;
        // As where the page's server offers runs.
        browser
            .js("document.querySelectorAll('.run-here').forEach((e) => { e.hidden = false; })")?;
        for width in [320, 500, 600, 720, 800, 860, 1000, 1100, 1200, 1280, 1350, 1440, 1600, 2560]
        {
            browser.resize(width, 900)?;
            let outside = browser.js(
                "return [...document.querySelectorAll('header *, .bar *')].filter((e) => {
                    const box = e.getBoundingClientRect(), tabs = e.closest('.tabs');
                    return box.width > 0 && !tabs && (box.right > innerWidth + 1 || box.left < -1);
                }).map((e) => e.id || e.tagName)",
            )?;
            assert_eq!(outside, json!([]), "{language} {width}");
            let wide = browser.js("return document.documentElement.scrollWidth <= innerWidth")?;
            assert_eq!(wide, true, "{language} {width}");
        }
    }
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
