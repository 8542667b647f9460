//! All texts are found in the sources and have translations.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MANIFEST: &str = env!("CARGO_MANIFEST_DIR");

/// Text of a source file without comments of whole lines, and without its tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "texts.rs" {
            found.push(code(&path));
        }
    }
}

/// The string literal at the start of `code`, read as Rust reads it, and what follows.
fn literal(code: &str) -> Option<(String, &str)> {
    let body = code.trim_start().strip_prefix('"')?;
    let mut end = None;
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            '"' if !escaped => {
                end = Some(at);
                break;
            }
            _ => escaped = c == '\\' && !escaped,
        }
    }
    let (raw, rest) = body.split_at(end?);
    let mut text = String::new();
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next()? {
            'n' => text.push('\n'),
            '\n' => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            c => text.push(c),
        }
    }
    Some((text, &rest[1..]))
}

/// The calls of `name` with a literal, each with the code after it.
fn calls<'a>(code: &'a str, name: &str) -> Vec<(String, &'a str)> {
    let mut found = vec![];
    for (at, _) in code.match_indices(name) {
        let whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        found.extend(literal(&code[at + name.len()..]).filter(|_| whole));
    }
    found
}

/// Names in braces.
fn names(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0)).collect()
}

/// Names that a call of `tr!` gives, as they stand before the closing parenthesis.
fn given(rest: &str) -> BTreeSet<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, vec![]);
    for (at, c) in rest.char_indices() {
        match c {
            ')' | ']' | '}' if depth == 0 => {
                parts.push(&rest[start..at]);
                break;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&rest[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    let name = |part: &'_ str| part.find('=').map_or(part.len(), |end| end);
    parts.into_iter().map(|p| p[..name(p)].trim()).filter(|p| !p.is_empty()).collect()
}

fn every_text() -> BTreeSet<String> {
    let mut files = vec![];
    sources(&Path::new(MANIFEST).join("src"), &mut files);
    let mut found = BTreeSet::new();
    for code in &files {
        for (text, rest) in calls(code, "tr!(") {
            assert_eq!(names(&text), given(rest), "what {text:?} needs, and what it is given");
            found.insert(text);
        }
        for name in ["t(", "n("] {
            for (text, _) in calls(code, name) {
                assert!(names(&text).is_empty(), "{text:?} has values: tr! fills them in");
                found.insert(text);
            }
        }
    }
    found
}

#[test]
fn every_text_has_a_japanese_translation_with_the_same_values() {
    let file = std::fs::read_to_string(Path::new(MANIFEST).join("texts/ja.json")).unwrap();
    let table: BTreeMap<String, String> = serde_json::from_str(&file).unwrap();
    let texts = every_text();
    let missing: Vec<_> = texts.iter().filter(|text| !table.contains_key(*text)).collect();
    assert!(missing.is_empty(), "{} texts without translation: {missing:#?}", missing.len());
    let core = sentences_of_core();
    let known =
        |text: &&String| texts.contains(*text) || core.iter().any(|(known, _)| known == *text);
    let literals = literals_of_core();
    let is_part = |text: &&String| pieces(text).all(|piece| literals.contains(piece));
    let unused: Vec<_> =
        table.keys().filter(|text| !known(text)).filter(|text| !is_part(text)).collect();
    assert!(unused.is_empty(), "{} translations of no text: {unused:#?}", unused.len());
    for (english, japanese) in &table {
        // Endings of plurals, which core's sentences have as values, have no place in Japanese.
        let fits = match english.contains("{0}") {
            true => names(japanese).is_subset(&names(english)),
            false => names(english) == names(japanese),
        };
        assert!(fits, "{english}: {japanese}");
    }
}

/// Folders of core whose errors no screen shows: messages between ranks, fits of curves, weights.
const UNSHOWN: [&str; 4] = ["adapt", "compress/mod.rs", "cost/calibrate.rs", "onnx/weights.rs"];

/// Core's sources by their paths there.
fn core_sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.push((name, code(&path)));
            }
        }
    }
    let root = Path::new(MANIFEST).join("../core/src");
    let mut found = vec![];
    walk(&root, &root, &mut found);
    found
}

/// The texts of core's errors with values by number, and where they stand.
fn sentences_of_core() -> Vec<(String, String)> {
    let mut all = vec![];
    for (path, code) in core_sources() {
        let texts = calls(&code, "#[error(").into_iter().map(|(text, _)| numbered(&text));
        all.extend(texts.map(|text| (text, path.clone())));
    }
    all
}

/// All literals of core in one text: parts of sentences are among them.
fn literals_of_core() -> String {
    let mut all = String::new();
    for (_, code) in core_sources() {
        for (at, _) in code.match_indices('"') {
            if let Some((text, _)) = literal(&code[at..]) {
                all.push_str(&text);
                all.push('\n');
            }
        }
    }
    all
}

/// `{name} of {}` as `{0} of {1}`.
fn numbered(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut number = 0;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, after)) = after.split_once('}') else { break };
        out += &format!("{before}{{{number}}}");
        (rest, number) = (after, number + 1);
    }
    out + rest
}

/// What stands around the values of a text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let after = |part| str::split_once(part, '}').map_or(part, |(_, after)| after);
    text.split('{').map(after).filter(|piece| !piece.trim().is_empty())
}

#[test]
fn every_sentence_of_core_that_a_screen_shows_has_a_translation() {
    let file = std::fs::read_to_string(Path::new(MANIFEST).join("texts/ja.json")).unwrap();
    let table: BTreeMap<String, String> = serde_json::from_str(&file).unwrap();
    let all = sentences_of_core();
    assert!(all.len() > 150, "core has {} sentences", all.len());
    let shown = |path: &str| !UNSHOWN.iter().any(|hidden| path.starts_with(hidden));
    let missing: Vec<_> =
        all.iter().filter(|(text, path)| shown(path) && !table.contains_key(text)).collect();
    assert!(missing.is_empty(), "{} sentences without translation: {missing:#?}", missing.len());
}

#[test]
fn a_refused_plan_is_said_in_japanese_from_its_first_word_to_its_last() {
    let file = std::fs::read_to_string(Path::new(MANIFEST).join("texts/ja.json")).unwrap();
    let table: BTreeMap<String, String> = serde_json::from_str(&file).unwrap();
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    speak(table.into_iter().map(|(key, value)| (leak(key), leak(value))).collect());
    use pipewright_core::schedule::ScheduleKind;
    let why = ScheduleKind::DualPipe.generate(5, 8).unwrap_err();
    let text = tr!("The plan cannot be used: {why}.", why);
    speak(vec![]);
    let english = text.replace("dualpipe", "");
    assert!(!english.contains(|c: char| c.is_ascii_alphabetic()), "{text}");
}

#[test]
fn a_text_is_translated_filled_in_and_otherwise_english() {
    let (count, name) = (3, "VGG-16");
    let english = || tr!("{count} layers of {name}", count, name = name.to_lowercase());
    assert_eq!((t("Undo"), english()), ("Undo", "3 layers of vgg-16".to_owned()));
    speak(vec![("Undo", "元に戻す"), ("{count} layers of {name}", "{name} の {count} 層")]);
    assert_eq!((t("Undo"), english()), ("元に戻す", "vgg-16 の 3 層".to_owned()));
    assert_eq!(t("Redo"), "Redo");
    speak(vec![]);
}

#[test]
fn the_finder_sees_what_rust_sees() {
    let code = r#"t("a \"b\" c"), format("x"), fit("y"), n("d"), tr!("{e} f", e = g(1, "h)"), )"#;
    assert_eq!(calls(code, "t(")[0].0, "a \"b\" c");
    assert_eq!(calls(code, "t(").len(), 1);
    let (text, rest) = calls(code, "tr!(").remove(0);
    assert_eq!((names(&text), given(rest)), (["e"].into(), ["e"].into()));
    assert_eq!(literal("\"a \\\n   b\"").unwrap().0, "a b");
}

#[test]
fn verdicts_of_policies_and_codecs_are_said_in_japanese() {
    let file = std::fs::read_to_string(Path::new(MANIFEST).join("texts/ja.json")).unwrap();
    let table: BTreeMap<String, String> = serde_json::from_str(&file).unwrap();
    let templates = table.keys().filter(|text| text.contains("{0}"));
    let literals: Vec<String> = core_sources()
        .iter()
        .filter(|(path, _)| {
            ["elastic/built_in", "elastic/policy", "predict/sums.rs"]
                .iter()
                .any(|begin| path.starts_with(begin))
        })
        .flat_map(|(_, code)| calls(code, "format!("))
        .map(|(text, _)| numbered(&text))
        .collect();
    let known: Vec<&String> = templates.filter(|text| literals.contains(text)).collect();
    assert_eq!(known.len(), 15, "{known:#?}");
    let missing: Vec<&String> =
        literals.iter().filter(|text| text.contains(' ') && !known.contains(text)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
