//! Accessibility and safety of the page: axe-core finds no violation on any screen in either theme, and
//! the page's policy lets nothing out.

use pipewright::Outcome;
use pipewright::axe::{axe, violations};
use pipewright::browser::Browser;
use pipewright::explorer::explorer;

/// The Run screen; it is looked at with a trace and metrics.
const RUN_LINK: &str = "#v=1&view=run";

/// Opens what a run would leave: the predicted step of the plan that is shown, and two steps' metrics.
fn run_left(browser: &Browser) -> Outcome<()> {
    browser.click("#formats")?;
    browser.until("the formats", |b| Ok(b.count("#format-0")? == 1))?;
    browser.click("#format-0")?;
    let trace = browser.saved("predicted.json")?;
    let metrics = browser.downloads.join("rank-000.jsonl");
    let line = |step: u32| {
        format!(
            "{{\"step\":{step},\"loss\":2.5,\"accuracy\":0.5,\"step_ns\":9000000,\"busy_ns\":4000000}}\n"
        )
    };
    std::fs::write(&metrics, [line(0), line(1)].concat())?;
    browser.keys("#import", &format!("{}\n{}", trace.display(), metrics.display()))?;
    browser.until("drift and metrics", |b| {
        Ok(b.count("#drift tbody tr")? > 0 && b.count(".four svg")? == 4)
    })
}

/// Screens by their links, and what is there when they are ready.
const SCREENS: [(&str, &str); 10] = [
    ("#v=1", "#step-time"),
    ("#v=1&model=unet&view=model", ".ch-rows .ch-row"),
    ("#v=1&mb=16&a=&view=compare", "#differences tbody tr"),
    (RUN_LINK, "#run-command"),
    ("#v=1&model=vgg16&cluster=dgx-a100&d=4&batch=128&mb=8&view=recompute", "#budget-line"),
    (
        "#v=1&model=alexnet&cluster=reedbush-l&d=1&batch=128&mb=1&replicas=4&view=communication",
        "#codecs tbody tr",
    ),
    // As many schedules' pictures, problems and numbers as one link can ask for.
    ("#v=1&view=playground&play=ranks=2;layers=3;stages=4;mb=8;s=zb-h1", "#pg-bits li"),
    ("#v=1&view=playground&play=ranks=16;mb=8", "#pg-fix"),
    ("#v=1&view=elastic", "#el-totals [data-row=goodput]"),
    // What is wrong with policies, and who waits.
    ("#v=1&view=elastic&job=ev=kills;a=min-max:9:2;b=ex:exact_size", "#el-wrong-a:not(:empty)"),
];

#[test]
#[ignore = "needs dist/, a browser and axe-core: make test"]
fn no_screen_violates_wcag_in_either_theme_or_language() -> Outcome<()> {
    let Some(axe) = axe()? else { return Ok(()) };
    let mut wrong = vec![];
    for (link, mut ready) in SCREENS {
        let Some(browser) = explorer("access", link)? else { return Ok(()) };
        browser.until("the screen is there", |b| Ok(b.count(ready)? > 0))?;
        if link == RUN_LINK {
            wrong.extend(
                violations(&browser, &axe)?.into_iter().map(|v| format!("{link} empty: {v}")),
            );
            run_left(&browser)?;
            // A page loaded again opens the files of the run, and no longer says how to make some.
            ready = "#drift tbody tr";
        }
        for theme in ["light", "dark"] {
            browser.emulate("prefers-color-scheme", theme)?;
            for (width, height) in [(1440, 900), (360, 800)] {
                browser.resize(width, height)?;
                let found = violations(&browser, &axe)?;
                wrong.extend(found.into_iter().map(|v| format!("{link} {theme} {width}: {v}")));
            }
        }
        browser.resize(1440, 900)?;
        browser.click("#help")?;
        browser.until("the help is there", |b| Ok(b.count("[role=dialog]")? > 0))?;
        let found = violations(&browser, &axe)?;
        wrong.extend(found.into_iter().map(|v| format!("{link} help: {v}")));
        browser.js("localStorage.setItem('pipewright-language', 'ja'); location.reload()")?;
        browser.until(&format!("{link} is there in Japanese"), |b| {
            Ok(b.js("return document.documentElement.lang")? == "ja" && b.count(ready)? > 0)
        })?;
        let found = violations(&browser, &axe)?;
        wrong.extend(found.into_iter().map(|v| format!("{link} Japanese: {v}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Tries to get something out of the page, and code into it; the policy's refusals.
const TRY: &str = "
    window.refused = [];
    addEventListener('securitypolicyviolation', (e) => refused.push(e.effectiveDirective));
    const tried = fetch('http://127.0.0.1:9/', { method: 'POST', body: 'x' }).then(() => 'sent', () => 'not sent');
    const script = document.createElement('script');
    script.textContent = 'window.intruder = true';
    document.body.append(script);
    const image = new Image();
    image.src = 'http://127.0.0.1:9/x.png?data';
    const form = document.createElement('form');
    form.action = 'http://127.0.0.1:9/';
    document.body.append(form);
    form.submit();
    return tried.then((sent) => [sent, window.intruder ?? false]);";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn nothing_leaves_the_page_and_no_foreign_script_runs() -> Outcome<()> {
    let Some(browser) = explorer("policy", "")? else { return Ok(()) };
    let found = browser.js(TRY)?;
    assert_eq!(found[0], "not sent");
    assert_eq!(found[1], false);
    for directive in ["connect-src", "form-action", "img-src", "script-src-elem"] {
        // The browser tells of each in its own time.
        let told = format!("return refused.includes('{directive}')");
        browser.until(&format!("{directive} is refused"), |b| Ok(b.js(&told)? == true))?;
    }
    Ok(())
}
