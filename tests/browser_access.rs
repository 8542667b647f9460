//! Accessibility and safety of the page: axe-core finds no violation on any screen in either theme, and
//! the page's policy lets nothing out.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};
use serde_json::Value;

/// Screens by their links, and what is there when they are ready.
const SCREENS: [(&str, &str); 7] = [
    ("#v=1", "#step-time"),
    ("#v=1&model=unet&view=model", ".ch-rows .ch-row"),
    ("#v=1&mb=16&a=&view=compare", "#differences tbody tr"),
    ("#v=1&model=vgg16&cluster=dgx-a100&d=4&batch=128&mb=8&view=recompute", "#budget-line"),
    (
        "#v=1&model=alexnet&cluster=reedbush-l&d=1&batch=128&mb=1&replicas=4&view=communication",
        "#codecs tbody tr",
    ),
    // As many schedules' pictures, problems and numbers as one link can ask for.
    ("#v=1&view=playground&play=ranks=2;layers=3;stages=4;mb=8;s=zb-h1", "#pg-bits li"),
    ("#v=1&view=playground&play=ranks=16;mb=8", "#pg-fix"),
];

/// Rules of WCAG 2.2, A and AA.
const RUN: &str = "
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
    return axe.run(document, { runOnly: { type: 'tag', values: tags } }).then((found) => ({
        passes: found.passes.length,
        violations: found.violations.map((v) =>
            `${v.id}: ${v.help}: ` + v.nodes.map((n) => n.html.slice(0, 160)).join(' | ')),
    }));";

/// Deque's script, fetched by `make setup`.
fn axe() -> Outcome<Option<String>> {
    let file = tools::root().join(".cache/axe/node_modules/axe-core/axe.min.js");
    if !file.is_file() {
        tools::refused("axe-core is not in .cache/axe; `make setup` downloads it");
        return Ok(None);
    }
    Ok(Some(std::fs::read_to_string(file)?))
}

/// What axe says of the page as it stands.
fn violations(browser: &Browser, axe: &str) -> Outcome<Vec<String>> {
    browser.js(&format!("{axe}; window.axe ??= axe;"))?;
    let found = browser.js(RUN)?;
    assert!(found["passes"].as_u64() > Some(10), "axe has looked: {found}");
    let list = found["violations"].as_array().cloned().unwrap_or_default();
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[test]
#[ignore = "needs dist/, a browser and axe-core: make test"]
fn no_screen_violates_wcag_in_either_theme() -> Outcome<()> {
    let Some(axe) = axe()? else { return Ok(()) };
    let mut wrong = vec![];
    for (link, ready) in SCREENS {
        let Some(browser) = explorer("access", link)? else { return Ok(()) };
        browser.until("the screen is there", |b| Ok(b.count(ready)? > 0))?;
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
