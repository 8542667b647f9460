//! Words: module docs that begin with a noun, and type names that mean one thing in a crate.

use crate::source::{Source, tokens};
use std::collections::BTreeMap;

/// First words of a relative clause; a noun says sooner what a module is.
const LOOSE: &[&str] = &[
    "What", "Whatever", "Who", "Whom", "Whose", "Whether", "How", "Where", "Which", "When", "Why",
];

/// Definitions of one type name that a crate may have.
const MAX_HOMONYMS: usize = 4;

/// Module docs that begin with a relative clause.
pub fn loose_headers(sources: &[Source]) -> Vec<String> {
    let loose = |source: &&Source| {
        let first = source.text.lines().next().unwrap_or("").trim_start_matches("//!");
        let word = first.split_whitespace().next().unwrap_or("");
        LOOSE.contains(&word.trim_end_matches(|c: char| !c.is_alphanumeric()))
    };
    let files = sources.iter().filter(|source| source.is_rust()).filter(loose);
    files.map(|source| source.at(1, "begin with a noun that says what the module is")).collect()
}

/// Type names that a crate defines more often than is allowed, with every place.
pub fn homonyms(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (line, name) in types(source) {
            places.entry((crate_of(&source.path), name)).or_default().push(source.at(line, ""));
        }
    }
    let many = places.into_iter().filter(|(_, at)| at.len() > MAX_HOMONYMS);
    let say = |((package, name), at): ((&str, String), Vec<String>)| {
        format!(
            "{}`{name}` is the name of {} types of {package}, {MAX_HOMONYMS} at most: say which each is",
            at.join(" "),
            at.len()
        )
    };
    many.map(say).collect()
}

/// Names of the structs, enums, unions and traits of a file, and of its type aliases outside of blocks.
fn types(source: &Source) -> Vec<(usize, String)> {
    let code = source.code();
    let tokens = tokens(&code);
    let mut found = Vec::new();
    let mut depth = 0;
    for pair in tokens.windows(2) {
        match pair[0].text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "struct" | "enum" | "union" | "trait" if is_type(pair[1].text) => {
                found.push((pair[1].line, pair[1].text.to_string()));
            }
            // Inside of an `impl` it is an associated type, whose name the trait chose.
            "type" if depth == 0 && is_type(pair[1].text) => {
                found.push((pair[1].line, pair[1].text.to_string()));
            }
            _ => {}
        }
    }
    found
}

fn is_type(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// What is compiled together: a folder `src`, or one program below `tests`, `benches` or `examples`.
fn crate_of(path: &str) -> &str {
    let folders = ["src/", "tests/", "benches/", "examples/", "fuzz_targets/"];
    let begins = |folder: &&str| path.starts_with(*folder) || path.contains(&format!("/{folder}"));
    let Some(folder) = folders.into_iter().find(begins) else { return path };
    let behind = match path.find(&format!("/{folder}")) {
        Some(at) => at + 1 + folder.len(),
        None => folder.len(),
    };
    if folder == "src/" {
        return &path[..behind - 1];
    }
    path[behind..].find('/').map_or(path, |slash| &path[..behind + slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(path, text)).collect()
    }

    #[test]
    fn relative_clauses_are_found() {
        let bad = |path, text| {
            let findings = loose_headers(&files(&[(path, text)]));
            assert!(findings.iter().any(|f| f.starts_with(path)), "{path}: {text}: {findings:?}");
        };
        bad("core/src/x.rs", "//! What it is.\n");
        bad("serve/src/x.rs", "//! Why, as it were.\n");
        let good = |text| {
            assert_eq!(loose_headers(&files(&[("serve/src/x.rs", text)])), Vec::<String>::new());
        };
        good("//! Whole files.\n");
        good("//! Files: what they hold.\n");
        good("//! However long.\n");
    }

    #[test]
    fn homonyms_are_found() {
        let define = |path: &'static str, count: usize| -> Vec<(String, String)> {
            let kinds = ["struct", "pub enum", "pub(super) trait", "type"];
            let text = |i: usize| format!("//! A.\n{} Thing{{}}", kinds[i % kinds.len()]);
            (0..count).map(|i| (format!("{path}/{i}.rs"), text(i))).collect()
        };
        let check = |all: &[(String, String)]| {
            let all: Vec<_> =
                all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            homonyms(&files(&all))
        };
        assert_eq!(check(&define("core/src", 5)).len(), 1, "five in a crate");
        assert_eq!(check(&define("core/src", 4)), Vec::<String>::new());
        let two = [define("core/src", 4), define("runner/src", 4), define("tests/browser", 4)];
        assert_eq!(check(&two.concat()), Vec::<String>::new(), "each crate by itself");
        let silent = "//! A.\n// struct Thing\nimpl X { type Thing = u8; fn f() { thing(\"struct Thing\") } }";
        let more: Vec<_> =
            (9..19).map(|i| (format!("core/src/{i}.rs"), silent.to_string())).collect();
        assert_eq!(check(&[define("core/src", 4), more].concat()), Vec::<String>::new());
    }

    #[test]
    fn crates_are_told_apart() {
        assert_eq!(crate_of("app/worker/src/a/b.rs"), "app/worker/src");
        assert_eq!(crate_of("runner/tests/cuda/sums/a.rs"), "runner/tests/cuda");
        assert_eq!(crate_of("tests/browser/a.rs"), "tests/browser");
        assert_eq!(crate_of("core/benches/adapt.rs"), "core/benches/adapt.rs");
    }
}
