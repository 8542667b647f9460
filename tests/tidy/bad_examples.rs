//! Each check on files in memory that break its rule, and on the nearest ones that do not.

use super::*;

type Check = fn(&Source) -> Vec<String>;

/// The check finds exactly one thing, on `line`.
fn bad(check: Check, path: &str, line: usize, text: &str) {
    let findings = check(&Source::new(path, text));
    let [finding] = findings.as_slice() else { panic!("{path}: {text}\n{findings:?}") };
    assert!(finding.starts_with(&format!("{path}:{line}: ")), "{finding}");
}

fn good(check: Check, path: &str, text: &str) {
    assert_eq!(check(&Source::new(path, text)), Vec::<String>::new(), "{path}: {text}");
}

#[test]
fn long_files() {
    bad(file_length, "app/style.css", 501, &"a {}\n".repeat(501));
    good(file_length, "app/style.css", &"a {}\n".repeat(500));
    good(file_length, "tests/golden/long.json", &"\n".repeat(501));
    assert_eq!(median(vec![900, 1, 2]), 2);
}

#[test]
fn long_functions() {
    let function =
        |lines: usize| format!("\n\nfn f() -> [u8; 2] {{\n{}}}\n", "x();\n".repeat(lines));
    bad(function_length, "x.rs", 3, &function(69));
    good(function_length, "x.rs", &function(68));
    // Braces that are no braces, and a function without a body before a long `impl`.
    let masked = "fn f() { let a = \"{\"; let b = '{'; /* { */ } // {\n";
    good(function_length, "x.rs", &format!("{masked}{}", "mod a {}\n".repeat(99)));
    good(function_length, "x.rs", &format!("trait T {{ fn f(&self); {} }}", "\n".repeat(99)));
    good(function_length, "x.rs", &format!("type F = fn(u8); {}", "\n".repeat(99)));
}

#[test]
fn missing_headers() {
    bad(header, "x.rs", 1, "use a;\n");
    good(header, "x.rs", "//! What it is.\n");
    good(header, "x.sh", "echo\n");
}

#[test]
fn upward_imports() {
    let cost = "core/src/cost/roofline.rs";
    bad(floors, cost, 2, "\nuse crate::plan::Plan;");
    bad(floors, cost, 1, "fn f() -> crate::schedule::Schedule {}");
    bad(floors, cost, 1, "use crate::{graph::Graph, units, simulate};");
    bad(floors, cost, 1, "use super::super::plan::{Plan, Program};");
    bad(floors, "core/src/partition.rs", 1, "use crate::recompute::peak;");
    bad(floors, "core/src/unheard_of.rs", 1, "");
    good(floors, cost, "use super::Costs; use crate::cost::Cluster; use crate::graph::Graph;");
    good(floors, cost, "//! See [`crate::plan`].\nuse serde::plan;");
    good(floors, "core/src/lib.rs", "pub use crate::plan::Plan;");
    good(floors, "app/src/state.rs", "use crate::plan;");
}

#[test]
fn impurities() {
    let file = "core/src/cost/roofline.rs";
    bad(purity, file, 2, "\nuse std::time::Instant;");
    bad(purity, file, 2, "\nuse std::{fmt, fs};");
    bad(purity, file, 1, "fn f() { std::env::var(); }");
    bad(purity, file, 1, "fn f() { println!(); }");
    bad(purity, file, 1, "use std::collections::{BTreeMap, HashMap};");
    bad(purity, file, 1, "#[cfg(target_arch = \"wasm32\")] fn f() {}");
    good(purity, file, "#[cfg(test)] mod tests { fn f() { println!(); } }");
    bad(purity, file, 1, "mod tests { } fn f() { println!(); }");
    good(purity, file, "// std::fs\nfn f() { g(\"std::fs\"); }");
    good(purity, "runner/src/main.rs", "use std::fs;");
}

#[test]
fn unfinished_code() {
    bad(unfinished, "x.rs", 1, "fn f() { todo!() }");
    bad(unfinished, "x.rs", 1, "fn f() { std::unimplemented!() }");
    bad(unfinished, "x.rs", 1, "fn f() { dbg!(1); }");
    good(unfinished, "x.rs", "fn todo() -> bool { todo != 1 } // todo!");
}

#[test]
fn strangers_that_meet() {
    bad(strangers, "app/src/a.rs", 1, "use pipewright_runner::report;");
    bad(strangers, "runner/src/a.rs", 1, "fn f() { pipewright_app::view(); }");
    bad(strangers, "app/Cargo.toml", 2, "[dependencies]\npipewright-runner.workspace = true");
    let clock = "use std::time::{Duration, SystemTime};";
    bad(strangers, "runner/src/elastic/supervisor/mod.rs", 1, clock);
    good(strangers, "runner/src/elastic/journal.rs", clock);
    good(strangers, "runner/src/main.rs", "use pipewright_runner::report;");
    good(strangers, "runner/Cargo.toml", "name = \"pipewright-runner\"");
}

#[test]
fn machine_folders() {
    for folder in MACHINE_FOLDERS {
        bad(machine_paths, "x.md", 2, &format!("\nsee `/{folder}/file`"));
        bad(machine_paths, "x.md", 1, &format!("cd /{folder}/file"));
        good(machine_paths, "x.md", &format!("see target/{folder}/file and ./{folder}/x"));
    }
}
