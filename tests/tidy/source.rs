//! The repository's files, and Rust code without its comments and literals.

use std::path::Path;

/// One text file.
pub struct Source {
    /// Relative to the repository's root, with `/`.
    pub path: String,
    pub text: String,
}

/// A word, a `::`, or a single other character, with its line counted from 1.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub line: usize,
    pub text: &'a str,
}

impl Token<'_> {
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    }
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_string(), text: text.to_string() }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn line_count(&self) -> usize {
        self.text.lines().count()
    }

    /// A finding in the form that editors make clickable.
    pub fn at(&self, line: usize, advice: &str) -> String {
        format!("{}:{line}: {advice}", self.path)
    }

    /// The text with comments and literals blanked; lines stay where they are.
    pub fn code(&self) -> String {
        let chars: Vec<char> = self.text.chars().collect();
        let mut code = String::with_capacity(self.text.len());
        let mut at = 0;
        while at < chars.len() {
            let end = end_of_silence(&chars, at);
            if end == at {
                code.push(chars[at]);
                at += 1;
            } else {
                code.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
                at = end;
            }
        }
        code
    }
}

/// The end of the comment or literal that begins at `at`; `at` itself when none does.
fn end_of_silence(chars: &[char], at: usize) -> usize {
    let next = |i: usize| chars.get(at + i).copied().unwrap_or('\0');
    let inside_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match next(0) {
        '/' if next(1) == '/' => position(chars, at, |i| chars[i] == '\n'),
        '/' if next(1) == '*' => end_of_block(chars, at),
        '"' => end_of_string(chars, at),
        // 'a' and '\n' are characters, 'a alone is a lifetime.
        '\'' if next(1) == '\\' => position(chars, at + 3, |i| chars[i] == '\'') + 1,
        '\'' if next(2) == '\'' => at + 3,
        'r' if !inside_word || matches!(chars[at - 1], 'b' | 'c') => end_of_raw(chars, at),
        _ => at,
    }
}

fn position(chars: &[char], from: usize, wanted: impl Fn(usize) -> bool) -> usize {
    (from..chars.len()).find(|&i| wanted(i)).unwrap_or(chars.len().saturating_sub(1))
}

fn end_of_block(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// `r"..."`, `r#"..."#`; a word that begins with r, or `r#word`, is code.
fn end_of_raw(chars: &[char], at: usize) -> usize {
    let quote = position(chars, at + 1, |i| chars[i] != '#');
    if chars.get(quote) != Some(&'"') {
        return at;
    }
    let hashes = quote - at - 1;
    let closes = |i: usize| {
        chars[i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= hashes
    };
    position(chars, quote + 1, closes) + 1 + hashes
}

/// Cuts what [`Source::code`] returned.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                c => c.len_utf8(),
            };
            tokens.push(Token { line: index + 1, text: &rest[..length] });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Every text file of the repository; what `.gitignore` names is left out, and what is hidden,
/// except `.ci` and `.gitignore` itself.
pub fn repository() -> Vec<Source> {
    let mut sources = Vec::new();
    read_below(pipewright::tools::root(), "", &mut sources);
    // A walk that finds nothing would make every check pass.
    let known = ["core/src/lib.rs", "tests/tidy/main.rs", "scripts/setup.sh", ".ci/run"];
    for path in known.into_iter().chain(["runner/src/commands/run/state.rs"]) {
        assert!(sources.iter().any(|s| s.path == path), "{path} was not found");
    }
    sources
}

fn read_below(dir: &Path, prefix: &str, sources: &mut Vec<Source>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        // At the root `run` is what runs left there; further down it is code.
        let built = matches!(name.as_str(), "target" | "dist" | "node_modules")
            || (prefix.is_empty() && name == "run")
            // A copy of dist/, for the wheel.
            || format!("{prefix}{name}") == "python/wheel/data/share/pipewright/explorer";
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".gitignore");
        let path = format!("{prefix}{name}");
        if hidden {
            continue;
        }
        if entry.path().is_dir() {
            // Folders only: `.ci/run` is a file.
            if !built {
                read_below(&entry.path(), &format!("{path}/"), sources);
            }
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            sources.push(Source { path, text });
        }
    }
}
