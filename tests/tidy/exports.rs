//! The rule that what a module of core exports is used by the product, and its list of exceptions.
//!
//! An export is a `pub` item or a leaf of a `pub use` at the root of a module of core. It is used when
//! a product's file, or another module of core, names it by its path: `pipewright_core::plan::lower`,
//! or `lower` after importing it. A type is also used when a public signature of its module has it:
//! then values of it are handed on, and whoever takes them need not name it.

use crate::paths::{Named, in_tests, named};
use crate::source::{Source, Token, tokens};
use std::collections::{BTreeMap, BTreeSet};

/// Folders whose code is the product beside core.
const PRODUCT: &[&str] =
    &["runner/src/", "runner/kernels/src/", "app/src/", "app/worker/src/", "serve/"];

/// What is exported and only tests or benches name: nothing, and so it stays.
const UNUSED_EXPORTS: &[&str] = &[];

#[test]
fn what_core_exports_is_used() {
    let findings = unused_exports(&crate::source::repository(), UNUSED_EXPORTS);
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

/// An exported name, as `plan::Draft`, and where it is declared.
struct Export<'a> {
    name: String,
    source: &'a Source,
    line: usize,
}

/// What is exported and not used, but for `exceptions`; and exceptions that are none any more.
fn unused_exports(sources: &[Source], exceptions: &[&str]) -> Vec<String> {
    let exports: Vec<Export<'_>> = sources.iter().flat_map(exports).collect();
    let used = uses(sources);
    let mut findings = vec![];
    for Export { name, source, line } in &exports {
        if !used.contains(name) && !exceptions.contains(&name.as_str()) {
            let advice = "no product names it: use it, make it private, or delete it";
            findings.push(source.at(*line, &format!("`{name}`: {advice}")));
        }
    }
    for exception in exceptions {
        let exported = exports.iter().any(|export| export.name == *exception);
        if !exported || used.contains(*exception) {
            let why = if exported { "is used" } else { "is not exported" };
            findings.push(format!("`{exception}` {why}: strike it from UNUSED_EXPORTS"));
        }
    }
    findings
}

/// `plan` of `core/src/plan/lower.rs` and of `core/src/plan.rs`; none outside of core.
fn core_module(path: &str) -> Option<&str> {
    let below = path.strip_prefix("core/src/")?.strip_suffix(".rs")?;
    below.split('/').next().filter(|module| *module != "lib")
}

/// What the root of a module exports; nothing for other files.
fn exports(source: &Source) -> Vec<Export<'_>> {
    let Some(module) = core_module(&source.path) else { return vec![] };
    let roots = [format!("core/src/{module}.rs"), format!("core/src/{module}/mod.rs")];
    if !roots.contains(&source.path) {
        return vec![];
    }
    let code = source.code();
    let tokens = tokens(&code);
    let (mut depth, mut found) = (0, vec![]);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            "pub" if depth == 0 => found.extend(declared(&tokens[at + 1..])),
            _ => {}
        }
    }
    let export = |(name, line)| Export { name: format!("{module}::{name}"), source, line };
    found.into_iter().map(export).collect()
}

/// The names that an item declares, behind its `pub`; none of `pub(crate)` and of fields.
fn declared<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    if text(0) == "use" {
        let end = tokens.iter().position(|token| token.text == ";").unwrap_or(tokens.len());
        // The last word of a leaf: `b` of `a::b`, `c` of `a::b as c`.
        let ends = |at: &usize| tokens[*at].is_word() && matches!(text(at + 1), "," | "}" | ";");
        return (1..end).filter(ends).map(|at| (text(at), tokens[at].line)).collect();
    }
    let kinds = ["fn", "struct", "enum", "union", "trait", "type", "static", "mod"];
    let before = ["async", "const", "unsafe"];
    let kind = tokens.iter().take_while(|token| before.contains(&token.text)).count();
    let name = match text(kind) {
        word if kinds.contains(&word) => kind + 1,
        _ if text(0) == "const" => 1,
        _ => return vec![],
    };
    tokens.get(name).map(|token| (token.text, token.line)).into_iter().collect()
}

/// All `module::name` of core that products, other modules of core or its public signatures name.
fn uses(sources: &[Source]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let own = core_module(&source.path);
        let product = PRODUCT.iter().any(|folder| source.path.starts_with(folder));
        if in_tests(&source.path) || own.is_none() && !product {
            continue;
        }
        let root = if own.is_some() { "crate" } else { "pipewright_core" };
        let all: Vec<Named> = named(source).into_iter().filter(|named| !named.in_test).collect();
        let imports = imports(&all, root);
        for Named { path, .. } in &all {
            let (first, rest) = path.split_once("::").unwrap_or((path, ""));
            let imported = imports.get(first).map(|start| format!("{start}::{rest}"));
            let whole = imported.as_ref().unwrap_or(path);
            if let [start, module, name, ..] = whole.split("::").collect::<Vec<_>>()[..]
                && start == root
                && own != Some(module)
            {
                used.insert(format!("{module}::{name}"));
            }
        }
        let handed = own.into_iter().flat_map(|module| {
            handed_on(source).into_iter().map(move |name| format!("{module}::{name}"))
        });
        used.extend(handed);
    }
    used
}

/// The paths into core that the last words of a file's paths stand for.
fn imports<'a>(all: &'a [Named], root: &str) -> BTreeMap<&'a str, &'a str> {
    let paths = all.iter().map(|named| named.path.strip_suffix("::self").unwrap_or(&named.path));
    let into_core = paths.filter(|path| path.split_once("::").is_some_and(|(it, _)| it == root));
    into_core.filter_map(|path| Some((path.rsplit("::").next()?, path))).collect()
}

/// The types in a file's public signatures, but for those that they declare: of parameters, results,
/// fields and variants, and associated types.
fn handed_on(source: &Source) -> BTreeSet<String> {
    let code = source.code();
    let tokens = tokens(&code);
    let mut types = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        let public =
            token.text == "pub" && !matches!(rest, [a, ..] if matches!(a.text, "use" | "("));
        // Also one of a trait's implementation.
        let name = match token.text {
            "pub" if public => declared(rest).first().map_or("", |declared| declared.0),
            "type" => rest.first().map_or("", |token| token.text),
            _ => continue,
        };
        let signature = &rest[..end_of_signature(rest)];
        let text = |at: usize| signature.get(at).map_or("", |token| token.text);
        for at in 0..signature.len() {
            // A variant is no type: it follows `{`, `,` or an attribute, and ends or has a body.
            let variant = at > 0
                && matches!(text(at - 1), "{" | "," | "]")
                && matches!(text(at + 1), "{" | "(" | "," | "}");
            if text(at).starts_with(char::is_uppercase) && text(at) != name && !variant {
                types.insert(text(at).to_string());
            }
        }
    }
    types
}

/// Where a declaration ends: before the body of a function or struct and before a value, behind a
/// field, and behind the body of a trait or an enum.
fn end_of_signature(tokens: &[Token<'_>]) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let with_body = (0..2).any(|at| matches!(text(at), "enum" | "trait"));
    let with_value = matches!(text(0), "const" | "static");
    let field = text(1) == ":";
    let (mut depth, mut angles) = (0, 0);
    for at in 0..tokens.len() {
        match text(at) {
            "{" if depth == 0 && !with_body => return at,
            "=" if depth == 0 && with_value => return at,
            "," if depth == 0 && angles == 0 && field => return at,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            "<" => angles += 1,
            ">" if at > 0 && text(at - 1) != "-" => angles -= 1,
            _ => {}
        }
        if depth < 0 || depth == 0 && matches!(text(at), ";" | "}") {
            return at;
        }
    }
    tokens.len()
}

mod bad_examples {
    use super::*;

    /// `core/src/plan/mod.rs` with `exports`, beside one more file.
    fn findings(exports: &str, (path, text): (&str, &str), exceptions: &[&str]) -> Vec<String> {
        let sources = [Source::new("core/src/plan/mod.rs", exports), Source::new(path, text)];
        unused_exports(&sources, exceptions)
    }

    /// One thing is found, `plan::name` on `line`.
    fn bad(exports: &str, other: (&str, &str), name: &str, line: usize) {
        let findings = findings(exports, other, &[]);
        let [finding] = findings.as_slice() else { panic!("{exports}\n{other:?}\n{findings:?}") };
        let start = format!("core/src/plan/mod.rs:{line}: `plan::{name}`: ");
        assert!(finding.starts_with(&start), "{finding}");
    }

    fn good(exports: &str, other: (&str, &str)) {
        assert_eq!(findings(exports, other, &[]), Vec::<String>::new(), "{exports}\n{other:?}");
    }

    const RUNNER: &str = "runner/src/main.rs";

    #[test]
    fn exports_that_nobody_names() {
        let nobody = (RUNNER, "fn main() {}");
        bad("\npub fn lower() {}", nobody, "lower", 2);
        bad("pub const fn lower() {}", nobody, "lower", 1);
        bad("pub const MOST: u32 = 1;", nobody, "MOST", 1);
        bad("pub mod export;", nobody, "export", 1);
        bad("pub use lower::{\n    a as lower\n};", nobody, "lower", 2);
        bad("pub use crate::graph::Precision;", nobody, "Precision", 1);
        bad("pub enum Plan { Next(Box<Plan>) }", nobody, "Plan", 1);
        good("pub(crate) fn lower() {} fn f() {} mod a { pub fn g() {} }", nobody);
        good("impl A { pub fn lower() {} } pub(super) use a::B;", nobody);
        assert!(exports(&Source::new("core/src/plan/lower.rs", "pub fn a() {}")).is_empty());
        assert_eq!(exports(&Source::new("core/src/plan.rs", "pub fn a() {}")).len(), 1);
    }

    #[test]
    fn names_that_are_no_use() {
        let lower = "pub fn lower() {}";
        bad(lower, ("core/src/plan/data.rs", "use crate::plan::lower;"), "lower", 1);
        bad(lower, ("core/src/plan/data.rs", "use super::lower;"), "lower", 1);
        bad(lower, ("core/src/graph/tests.rs", "use crate::plan::lower;"), "lower", 1);
        bad(lower, ("core/src/graph/op.rs", "mod tests { use crate::plan::lower; }"), "lower", 1);
        bad(lower, ("core/tests/plan.rs", "use pipewright_core::plan::lower;"), "lower", 1);
        bad(lower, ("core/yardsticks/src/a.rs", "use pipewright_core::plan::lower;"), "lower", 1);
        bad(lower, (RUNNER, "use pipewright_core::graph::lower; fn f() { lower() }"), "lower", 1);
        bad(lower, (RUNNER, "// pipewright_core::plan::lower\nfn lower() {}"), "lower", 1);
        good(lower, (RUNNER, "use pipewright_core::{graph, plan::{Plan, lower}};"));
        good(lower, (RUNNER, "use pipewright_core::plan;\nfn f() { plan::lower() }"));
        good(lower, (RUNNER, "use pipewright_core::plan::{self, Plan};\nfn f() { plan::lower() }"));
        good(lower, ("app/src/a/b.rs", "fn f() { pipewright_core::plan::lower() }"));
        good(lower, ("core/src/predict/mod.rs", "use crate::plan::lower as low;"));
        good(lower, ("core/src/predict/mod.rs", "use super::plan::lower;"));
        good("pub mod export;", (RUNNER, "use pipewright_core::plan::export::graphviz;"));
    }

    #[test]
    fn types_that_are_handed_on() {
        let other = |text| ("core/src/plan/data.rs", text);
        let plan = "pub use a::Plan;";
        bad(plan, other("fn f() -> Plan {}"), "Plan", 1);
        bad(plan, other("pub fn f() { Plan::new() }"), "Plan", 1);
        bad(plan, other("pub(crate) fn f() -> Plan {}"), "Plan", 1);
        bad(plan, other("pub const A: u32 = Plan::A;"), "Plan", 1);
        bad(plan, other("pub struct A { a: Plan, pub b: u32, c: Plan }"), "Plan", 1);
        bad(plan, other("pub enum A { Plan, B(u32) }"), "Plan", 1);
        bad(plan, other("pub struct Plan;"), "Plan", 1);
        bad("pub use a::plan;", other("pub fn f(plan: u32) {}"), "plan", 1);
        good(plan, other("pub fn f(a: u32) -> Result<Plan, u32> {}"));
        good(plan, other("pub struct A { pub b: BTreeMap<u32, Plan> }"));
        good(plan, other("pub enum A { B(Plan) }"));
        good(plan, other("pub trait A { fn f(&self) -> Plan; }"));
        good(plan, other("impl FromStr for A { type Err = Plan; }"));
    }

    #[test]
    fn exceptions_that_are_none() {
        let named = (RUNNER, "use pipewright_core::plan::lower;");
        let nobody = (RUNNER, "fn main() {}");
        let lower = "pub fn lower() {}";
        assert!(findings(lower, nobody, &["plan::lower"]).is_empty());
        let struck = |why: &str| [format!("`plan::lower` {why}: strike it from UNUSED_EXPORTS")];
        assert_eq!(findings(lower, named, &["plan::lower"]), struck("is used"));
        assert_eq!(findings("", nobody, &["plan::lower"]), struck("is not exported"));
    }
}
