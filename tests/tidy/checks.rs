//! One function a rule: a file in, its findings out.

use crate::packed::packed;
use crate::paths::{Named, named};
use crate::source::{Source, Token, tokens};
use crate::{
    FLOORS, FORBIDDEN, FORBIDDEN_IN_CORE, Floors, MACHINE_FOLDERS, MAX_FILE_LINES,
    MAX_FUNCTION_LINES, PACKED, STRANGERS,
};

pub fn file_length(source: &Source) -> Vec<String> {
    let counted = [".rs", ".css", ".sh", ".py"].iter().any(|end| source.path.ends_with(end));
    let lines = source.line_count();
    if !counted || lines <= MAX_FILE_LINES {
        return Vec::new();
    }
    let advice = format!("{lines} lines, {MAX_FILE_LINES} at most: split it by its nouns");
    vec![source.at(MAX_FILE_LINES + 1, &advice)]
}

/// The lower median; 0 of nothing.
pub fn median(mut lengths: Vec<usize>) -> usize {
    lengths.sort_unstable();
    lengths.get(lengths.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

pub fn function_length(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let code = source.code();
    let tokens = tokens(&code);
    let mut findings = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        if pair[0].text != "fn" || !pair[1].is_word() {
            continue; // `fn(` is a type
        }
        let lines = end_of_function(&tokens[i..]).line - pair[0].line + 1;
        if lines > MAX_FUNCTION_LINES {
            let name = pair[1].text;
            let advice =
                format!("`{name}` has {lines} lines, {MAX_FUNCTION_LINES} at most: name its parts");
            findings.push(source.at(pair[0].line, &advice));
        }
    }
    findings
}

/// The closing brace, or the semicolon of a function without body.
fn end_of_function<'a>(tokens: &[Token<'a>]) -> Token<'a> {
    let mut depth = 0;
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(token.text, "}" | ";") {
            return *token;
        }
    }
    tokens[tokens.len() - 1]
}

pub fn header(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.text.starts_with("//!") {
        return Vec::new();
    }
    vec![source.at(1, "begin with `//!` and say in one sentence what the module is for")]
}

/// The floors of the crate that a file belongs to, and its path below the crate's folder in words.
fn floors_of(source: &Source) -> Option<(Floors, Vec<&str>)> {
    let (below, floors) =
        FLOORS.iter().find_map(|(at, floors)| Some((source.path.strip_prefix(at)?, *floors)))?;
    let words = below.strip_suffix(".rs")?.split('/').collect();
    Some((floors, words))
}

/// The room that the words of a path lead into: one word, or two where a folder holds rooms.
fn room(floors: Floors, words: &[&str]) -> Option<&'static str> {
    floors.iter().copied().flatten().copied().find(|room| {
        let parts: Vec<&str> = room.split('/').collect();
        words.starts_with(&parts)
    })
}

/// What a file names outside of its own room: the line, and the room there.
fn imports(source: &Source, floors: Floors, own: &str) -> Vec<(usize, &'static str)> {
    let there = |named: &Named| {
        let words: Vec<&str> = named.path.strip_prefix("crate::")?.split("::").collect();
        room(floors, &words).filter(|there| *there != own).map(|there| (named.line, there))
    };
    named(source).iter().filter_map(there).collect()
}

pub fn floors(source: &Source) -> Vec<String> {
    let Some((floors, words)) = floors_of(source) else { return Vec::new() };
    let holds_rooms = |folder: &str| {
        floors.iter().copied().flatten().any(|r| r.starts_with(&format!("{folder}/")))
    };
    match words[..] {
        ["lib" | "main"] => return Vec::new(), // lib.rs declares every module
        [folder, "mod"] if holds_rooms(folder) => return Vec::new(), // and this one those in it
        _ => {}
    }
    let Some(own) = room(floors, &words) else {
        let name = words[..if holds_rooms(words[0]) { 2 } else { 1 }].join("/");
        let advice = format!("give `{name}` a place in FLOORS of tests/tidy/main.rs");
        return vec![source.at(1, &advice)];
    };
    let floor_of = |room: &str| floors.iter().position(|floor| floor.contains(&room));
    let floor = floor_of(own);
    let mut findings = Vec::new();
    for (line, module) in imports(source, floors, own) {
        let there = floor_of(module);
        if there >= floor {
            let relation = if there == floor { "a sibling" } else { "above" };
            let advice = format!(
                "`{own}` (floor {}) names `{module}` (floor {}), {relation}: move what it needs down",
                floor.unwrap_or(0),
                there.unwrap_or(0)
            );
            findings.push(source.at(line, &advice));
        }
    }
    findings.dedup(); // `use crate::plan::{A, B}` names the module twice
    findings
}

/// Which room imports which, as far as this file of the explorer knows.
pub fn arrows(source: &Source) -> Vec<(&'static str, &'static str)> {
    let of_app = floors_of(source).filter(|_| source.path.starts_with("app/"));
    let Some((floors, words)) = of_app else { return Vec::new() };
    let Some(own) = room(floors, &words) else { return Vec::new() };
    imports(source, floors, own).into_iter().map(|(_, there)| (own, there)).collect()
}

pub fn purity(source: &Source) -> Vec<String> {
    if !source.is_rust() || !source.path.starts_with("core/src/") {
        return Vec::new();
    }
    let mut findings = forbid(source, FORBIDDEN_IN_CORE, |named| !named.in_test);
    let by_target = [("target_arch", "core is the same everywhere: decide in app or runner")];
    findings.extend(forbid(source, &by_target, |_| true));
    findings
}

pub fn unfinished(source: &Source) -> Vec<String> {
    if source.is_rust() { forbid(source, FORBIDDEN, |_| true) } else { Vec::new() }
}

pub fn strangers(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for &(folder, stranger, advice) in STRANGERS {
        if source.path.starts_with(folder) && source.is_rust() {
            findings.extend(forbid(source, &[(stranger, advice)], |_| true));
        }
        let package = stranger.replace('_', "-");
        if source.path == format!("{folder}Cargo.toml") {
            let lines = source.text.lines().enumerate();
            let bad = lines.filter(|(_, line)| line.starts_with(&package));
            findings.extend(bad.map(|(i, _)| source.at(i + 1, &format!("{package}: {advice}"))));
        }
    }
    findings
}

/// Paths that are, begin with, or (for a single word) contain a forbidden name.
fn forbid(
    source: &Source,
    rules: &[(&str, &str)],
    applies: impl Fn(&Named) -> bool,
) -> Vec<String> {
    let mut findings = Vec::new();
    for named in named(source).iter().filter(|named| applies(named)) {
        for (name, advice) in rules {
            let path = &named.path;
            let begins =
                path.strip_prefix(name).is_some_and(|r| r.is_empty() || r.starts_with("::"));
            if begins || path.split("::").any(|part| part == *name) {
                findings.push(source.at(named.line, &format!("`{name}`: {advice}")));
            }
        }
    }
    findings.dedup();
    findings
}

/// What a file has beyond its exceptions, or that it needs fewer of them.
pub fn packed_parameters(source: &Source) -> Vec<String> {
    if !source.is_rust() || source.path.contains("tests/") || source.path.contains("benches/") {
        return Vec::new();
    }
    let found = packed(source);
    let of_file = PACKED.iter().find(|(path, _)| *path == source.path);
    let exceptions = of_file.map_or(0, |(_, exceptions)| *exceptions);
    if found.len() < exceptions {
        let advice = format!("{} packed parameters, not {exceptions}: lower PACKED", found.len());
        return vec![source.at(1, &advice)];
    }
    let beyond = found.len() > exceptions;
    let all = found.into_iter().filter(|_| beyond).map(|(line, name)| {
        let advice =
            format!("`{name}` takes a bare bool or number in a tuple: name the parts in a struct");
        source.at(line, &advice)
    });
    all.collect()
}

pub fn machine_paths(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for folder in MACHINE_FOLDERS {
            let path = format!("/{folder}/");
            // Behind a word it is the middle of some longer path or address, which is harmless.
            let begins = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}~".contains(c))
            };
            if line.match_indices(&path).any(|(at, _)| begins(at)) {
                let advice = format!("{path} exists on one machine only: make the path relative");
                findings.push(source.at(index + 1, &advice));
            }
        }
    }
    findings
}

#[cfg(test)]
#[path = "bad_examples.rs"]
mod bad_examples;
