//! Every screen at seven widths, in both themes and both languages: nothing is wider than its window or
//! squeezed to a sliver, tables stay in their columns and the current tab in sight, and in Japanese no sentence is left in English. With `PIPEWRIGHT_SCREENS=docs/screens` the
//! pictures are kept.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};
use std::path::PathBuf;

/// Names, links, and what is there when they are ready.
const SCREENS: [(&str, &str, &str); 9] = [
    ("plan", "#v=1", "#step-time"),
    ("model", "#v=1&model=resnet50&cluster=dgx-h100&d=8&mb=64&batch=2048&view=model", ".ch-row"),
    ("compare", "#v=1&view=compare", "#differences tbody tr"),
    ("run", "#v=1&view=run", ".mono, code"),
    ("measured", "#v=1&view=run", "#run-example"),
    ("recompute", "#v=1&view=recompute&keep=50.0", "#cells svg"),
    (
        "communication",
        "#v=1&model=alexnet&cluster=reedbush-l&d=1&batch=128&mb=1&replicas=4&view=communication",
        "#codecs tbody tr",
    ),
    ("playground", "#v=1&view=playground&play=data=moons;stages=2;mb=4;s=zb-h1", "#pg-bits li"),
    (
        "elastic",
        "#v=1&view=elastic&job=ev=spot;work=8h;b=ex:patient",
        "#el-totals [data-row=goodput]",
    ),
];

/// Window sizes, and by how much their pictures shrink; of those without a number none is kept.
const SIZES: [(u32, u32, Option<f64>); 7] = [
    (1920, 1080, None),
    (1440, 900, Some(0.5)),
    (1366, 768, None),
    (900, 1100, Some(0.5)),
    (768, 1024, None),
    (390, 844, None),
    (360, 800, Some(0.75)),
];

/// Parts that scroll and show less than two lines of what they hold.
const SLIVERS: &str = "
    return [...document.querySelectorAll('body *')].filter(e => e.clientHeight > 0 && e.clientHeight < 40
        && e.scrollHeight > e.clientHeight + 20 && /auto|scroll/.test(getComputedStyle(e).overflowY))
        .map(e => e.className + ' ' + e.clientHeight + ' of ' + e.scrollHeight);";

/// Tables that end beside what holds them, and the current tab where it cannot be seen.
const ASTRAY: &str = "
    const right = e => e.getBoundingClientRect().right, scrolls = e => /auto|scroll/.test(getComputedStyle(e).overflowX);
    const tables = [...document.querySelectorAll('main:not([hidden]) table')].filter(e => e.clientWidth > 0
        && !scrolls(e.parentElement) && right(e) > right(e.parentElement) + 8);
    const tab = document.querySelector('.tabs [aria-current]'), box = tab.getBoundingClientRect();
    return tables.map(e => e.id || e.className).concat(box.left < -1 || box.right > innerWidth + 1 ? ['tab'] : []);";

/// Sentences without a Japanese letter. What core says of a plan stays in English, and so do names.
const ENGLISH: &str = "
    const out = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const node = walk.currentNode, around = node.parentElement;
        if (around.closest('option, code, kbd, script, style, noscript, [hidden], [translate=no], .nm, .h1')) continue;
        if (/[a-z]{2,} [a-z]{2,} [a-z]{2,}/i.test(node.data) && !/[\\u3040-\\u30ff\\u4e00-\\u9fff]/.test(node.data))
            out.push(node.data);
    }
    return out;";

fn look(browser: &Browser, place: &str, folder: Option<&PathBuf>) -> Outcome<()> {
    for (width, height, scale) in SIZES {
        browser.resize(width, height)?;
        let frames =
            "requestAnimationFrame(() => requestAnimationFrame(() => window.drawn = true));";
        browser.js(&format!("window.drawn = false; {frames}"))?;
        browser.until("two frames", |b| Ok(b.js("return window.drawn")? == true))?;
        let wide = browser.js("return document.documentElement.scrollWidth")?.as_u64();
        assert!(wide <= Some(width.into()), "{place} is {wide:?} wide in a window of {width}");
        let slivers = browser.js(SLIVERS)?;
        assert_eq!(slivers, serde_json::json!([]), "{place} in a window of {width}");
        let astray = browser.js(ASTRAY)?;
        assert_eq!(astray, serde_json::json!([]), "{place} in a window of {width}");
        if let (Some(folder), Some(scale)) = (folder, scale) {
            let file = folder.join(format!("{place}-{width}.webp"));
            browser.small_picture(&file, (width, height), scale)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn every_screen_fits_every_window_in_both_themes_and_languages() -> Outcome<()> {
    let Some(browser) = explorer("screens", "")? else { return Ok(()) };
    let page = browser.js("return location.origin + location.pathname")?;
    let page = page.as_str().unwrap_or_default();
    let folder = std::env::var_os("PIPEWRIGHT_SCREENS").map(|dir| tools::root().join(dir));
    if let Some(folder) = &folder {
        std::fs::create_dir_all(folder)?;
    }
    for language in ["en", "ja"] {
        browser.js(&format!("localStorage.setItem('pipewright-language', '{language}')"))?;
        for theme in ["dark", "light"] {
            browser.emulate("prefers-color-scheme", theme)?;
            for (name, link, ready) in SCREENS {
                browser.open("about:blank")?;
                browser.open(&format!("{page}{link}"))?;
                browser.until(name, |b| Ok(b.count(ready)? > 0))?;
                if name == "measured" {
                    browser.js("document.querySelector('#run-example').click()")?;
                    browser.until("the run", |b| Ok(b.count("#run-measured, .four svg")? == 5))?;
                }
                assert_eq!(browser.js("return document.documentElement.lang")?, language);
                look(&browser, &format!("{name}-{theme}-{language}"), folder.as_ref())?;
                let english = browser.js(ENGLISH)?;
                assert!(language == "en" || english == serde_json::json!([]), "{name}: {english}");
            }
        }
    }
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
