//! Links of the documents: each leads to a file of the repository and to a heading in it, and the book lists
//! every page.

use crate::source::Source;

/// A link and the line it stands in, counted from 1; code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut fenced) = (vec![], false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // In spans of code, which are the odd parts, nothing is a link.
        for part in line.split('`').step_by(2).filter(|_| !fenced) {
            let targets = part.split("](").skip(1);
            found.extend(targets.filter_map(|rest| Some((index + 1, rest.split_once(')')?.0))));
        }
    }
    found
}

/// A heading as GitHub and mdBook name it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_heading(text: &str, wanted: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).any(|name| name == wanted)
}

/// The path of a link from a file, both from the repository's root.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What is wrong with the links of all documents; `exists` says whether a path is there.
pub fn broken(sources: &[Source], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = vec![];
    let is_document =
        |source: &&Source| source.path.ends_with(".md") && !source.path.starts_with("tests/data/");
    for source in sources.iter().filter(is_document) {
        for (line, link) in links(&source.text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let path =
                if path.is_empty() { source.path.clone() } else { resolve(&source.path, path) };
            let to = sources.iter().find(|other| other.path == path);
            if to.is_none() && !exists(&path) {
                findings.push(source.at(line, &format!("`{link}` leads nowhere")));
            } else if !heading.is_empty() && !to.is_some_and(|to| has_heading(&to.text, heading)) {
                let advice = format!("`{link}`: {path} has no heading of that name");
                findings.push(source.at(line, &advice));
            }
        }
    }
    findings
}

/// Pages that the book's summary does not list.
pub fn unlisted(sources: &[Source]) -> Vec<String> {
    let summary = sources.iter().find(|source| source.path == "docs/SUMMARY.md");
    let listed: Vec<&str> =
        summary.iter().flat_map(|source| links(&source.text)).map(|(_, link)| link).collect();
    let pages = sources.iter().filter_map(|source| source.path.strip_prefix("docs/"));
    let pages = pages.filter(|page| page.ends_with(".md") && *page != "SUMMARY.md");
    pages.filter(|page| !listed.contains(page)).map(|page| format!("docs/{page}")).collect()
}

#[test]
fn bad_links_are_found() {
    let page =
        Source::new("docs/a.md", "# One\n[a](b.md#two), [c](../c.md), `[x](y)`\n[d](#one)\n");
    let other = Source::new("docs/b.md", "## Two: `x`\n");
    let sources = [page, other];
    let findings = broken(&sources, |_| false);
    assert_eq!(
        findings,
        [
            "docs/a.md:2: `b.md#two`: docs/b.md has no heading of that name",
            "docs/a.md:2: `../c.md` leads nowhere",
        ]
    );
    assert_eq!(anchor(" Two: `x`"), "two-x");
    assert!(broken(&sources, |path| path == "c.md").len() == 1);
    assert_eq!(unlisted(&sources), ["docs/a.md", "docs/b.md"]);
}
