//! Classes of the page's style: the sheets are one file in the end, so a bare `.name` is one screen's.

use crate::source::Source;
use std::collections::BTreeMap;

const SCREENS: &str = "app/src/screens/";

/// Classes that the sheets of two screens style without saying where.
pub fn shared_classes(sources: &[Source]) -> Vec<String> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    let mut findings = vec![];
    for source in sources {
        let Some(place) = source.path.strip_prefix(SCREENS) else { continue };
        let Some((screen, "style.css")) = place.split_once('/') else { continue };
        for (line, class) in bare(&source.text) {
            let other = *first.entry(class.clone()).or_insert(screen);
            if other != screen {
                let why = format!("`.{class}` is styled by {other} as well: rename one of them");
                findings.push(source.at(line, &why));
            }
        }
    }
    findings
}

/// Selectors that are one class alone, with their lines.
fn bare(css: &str) -> Vec<(usize, String)> {
    let mut found = vec![];
    for (line, text) in (1..).zip(css.lines()) {
        // A rule may stand in one line with others.
        for part in text.split('}') {
            let Some((selectors, _)) = part.rsplit_once('{') else { continue };
            let selectors = selectors.rsplit('{').next().unwrap_or(selectors);
            let alone = |selector: &str| {
                let class = selector.trim().strip_prefix('.')?;
                let is_name = class.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
                is_name.then(|| class.to_owned())
            };
            found.extend(selectors.split(',').filter_map(alone).map(|class| (line, class)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_two_screens_is_found_and_one_that_says_where_is_not() {
        let sheet =
            |screen: &str, css: &str| Source::new(&format!("{SCREENS}{screen}/style.css"), css);
        let run = sheet("run", ".a { color: red; }\n.runs .b { top: 0; } .c, .d { left: 0; }\n");
        let plan =
            sheet("plan", ".b { top: 0; }\n@media (max-width: 9px) {\n  .x, .d { left: 0; }\n}\n");
        let found = shared_classes(&[run, plan]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("app/src/screens/plan/style.css:3: `.d`"), "{found:?}");
        let twice = sheet("run", ".a { top: 0; }\n.a { left: 0; }\n");
        assert_eq!(shared_classes(&[twice]), Vec::<String>::new());
    }
}
