//! axe-core, Deque's accessibility checks, run in a page.

use crate::browser::Browser;
use crate::{Outcome, tools};
use serde_json::Value;

/// Transitions that are under way.
const MOVING: &str =
    "return document.getAnimations().filter((a) => a instanceof CSSTransition).length";

/// Rules of WCAG 2.2, A and AA, and that columns have names.
const RUN: &str = "
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
    return axe.run(document, { runOnly: { type: 'tag', values: tags }, rules: { 'empty-table-header': { enabled: true } } }).then((found) => ({
        passes: found.passes.length,
        violations: found.violations.map((v) =>
            `${v.id}: ${v.help}: ` + v.nodes.map((n) => n.html.slice(0, 160)).join(' | ')),
    }));";

/// Deque's script, fetched by `make setup`.
pub fn axe() -> Outcome<Option<String>> {
    let file = tools::root().join(".cache/axe/node_modules/axe-core/axe.min.js");
    if !file.is_file() {
        tools::refused("axe-core is not in .cache/axe; `make setup` downloads it");
        return Ok(None);
    }
    Ok(Some(std::fs::read_to_string(file)?))
}

/// What axe says of the page as it stands.
pub fn violations(browser: &Browser, axe: &str) -> Outcome<Vec<String>> {
    browser.js(&format!("{axe}; window.axe ??= axe;"))?;
    // Half-way from one theme to the other letters have no contrast.
    browser.until("colours have come to rest", |b| Ok(b.js(MOVING)? == 0))?;
    let found = browser.js(RUN)?;
    assert!(found["passes"].as_u64() > Some(10), "axe has looked: {found}");
    let list = found["violations"].as_array().cloned().unwrap_or_default();
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
