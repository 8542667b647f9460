//! Paths that Rust code names, with `use` trees expanded and `super` resolved.

use crate::source::{Source, Token, tokens};

/// A path such as `std::fs::read` or `println!`, where it stands, and whether in test code.
#[derive(Debug)]
pub struct Named {
    pub path: String,
    pub line: usize,
    pub in_test: bool,
}

/// Every path of a Rust file. Paths from `crate`, `self` and `super` come out as `crate::...`.
pub fn named(source: &Source) -> Vec<Named> {
    let code = source.code();
    let tokens = tokens(&code);
    let file = module_of(&source.path);
    let test_file = in_tests(&source.path);
    let mut found = Vec::new();
    let mut scopes: Vec<Option<&str>> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let modules: Vec<&str> =
            file.iter().map(String::as_str).chain(scopes.iter().flatten().copied()).collect();
        let in_test = test_file || scopes.contains(&Some("tests"));
        let mut add = |path: &str, line| {
            found.push(Named { path: absolute(path, &modules), line, in_test });
        };
        match tokens[at].text {
            "mod" if text(&tokens, at + 2) == "{" => {
                scopes.push(Some(tokens[at + 1].text));
                at += 3;
            }
            "{" => {
                scopes.push(None);
                at += 1;
            }
            "}" => {
                scopes.pop();
                at += 1;
            }
            // `use<'a>` in a return type is something else.
            "use" if text(&tokens, at + 1) != "<" => {
                at = expand(&tokens, at + 1, String::new(), &mut add);
            }
            _ if tokens[at].is_word() => {
                let (path, end) = straight(&tokens, at);
                add(&path, tokens[at].line);
                at = end;
            }
            _ => at += 1,
        }
    }
    found
}

/// Whether a file is part of a package's own tests.
pub fn in_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn text<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

/// Reads `a::b::c` or `a::b!`; returns it with the index behind it.
fn straight(tokens: &[Token], mut at: usize) -> (String, usize) {
    let mut path = tokens[at].text.to_string();
    at += 1;
    while text(tokens, at) == "::" && tokens.get(at + 1).is_some_and(Token::is_word) {
        path = format!("{path}::{}", tokens[at + 1].text);
        at += 2;
    }
    if text(tokens, at) == "!" && text(tokens, at + 1) != "=" {
        path.push('!');
    }
    (path, at)
}

/// Reads one tree of a `use` after `prefix` and adds its leaves; returns the index behind it.
fn expand(
    tokens: &[Token],
    mut at: usize,
    prefix: String,
    add: &mut impl FnMut(&str, usize),
) -> usize {
    let mut path = prefix;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    at = expand(tokens, at, path.clone(), add);
                    at += usize::from(text(tokens, at) == ",");
                }
                return at + 1;
            }
            // Behind a list this is its end: nothing is left to add.
            ";" | "," | "}" => break,
            "as" => at += 2,
            "::" => at += 1,
            part => {
                path = if path.is_empty() { part.to_string() } else { format!("{path}::{part}") };
                at += 1;
                if text(tokens, at) != "::" {
                    add(&path, token.line);
                }
            }
        }
    }
    at
}

/// `core/src/graph/op.rs` is `[graph, op]`, `core/src/graph/mod.rs` is `[graph]`.
fn module_of(path: &str) -> Vec<String> {
    let below_src = path.split_once("src/").map_or("", |(_, rest)| rest).trim_end_matches(".rs");
    let parts = below_src.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main" | ""));
    parts.map(str::to_string).collect()
}

fn absolute(path: &str, modules: &[&str]) -> String {
    let mut rest: Vec<&str> = path.split("::").collect();
    let mut base = modules.to_vec();
    if !matches!(rest[0], "self" | "super") {
        return path.to_string();
    }
    while matches!(rest.first(), Some(&("self" | "super"))) {
        if rest.remove(0) == "super" {
            base.pop();
        }
    }
    [vec!["crate"], base, rest].concat().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(path: &str, code: &str) -> Vec<String> {
        named(&Source::new(path, code)).into_iter().map(|n| n.path).collect()
    }

    #[test]
    fn trees_are_expanded() {
        let code = "pub use crate::{a::{B, c::*}, d as e, f::{self}};";
        let found = paths("core/src/x.rs", code);
        assert_eq!(found[1..], ["crate::a::B", "crate::a::c::*", "crate::d", "crate::f::self"]);
    }

    #[test]
    fn super_is_resolved_also_in_an_inline_module() {
        let file = "core/src/graph/op.rs";
        assert_eq!(paths(file, "use super::super::plan::Plan;"), ["crate::plan::Plan"]);
        let inline = "mod tests { use super::super::Graph; }";
        assert_eq!(paths(file, inline), ["crate::graph::Graph"]);
        assert_eq!(paths("core/src/graph/mod.rs", "use super::ids;"), ["crate::ids"]);
    }

    #[test]
    fn comments_and_literals_name_nothing() {
        let code = concat!(
            "// a::b\n/* c /* d */ e */ let f = \"g \\\" h\"; let i: &'j str = r#\"k \" l\"#;\n",
            "let m = 'n'; let o = '\\''; let p = br\"q\";"
        );
        let found = paths("core/src/x.rs", code);
        assert_eq!(
            found,
            ["let", "f", "let", "i", "j", "str", "let", "m", "let", "o", "let", "p", "b"]
        );
    }
}
