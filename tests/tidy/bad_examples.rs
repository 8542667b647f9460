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
}

#[test]
fn upward_imports_in_the_explorer() {
    let view = "app/src/screens/plan/view/tray.rs";
    bad(floors, view, 1, "use crate::screens::run::model::Ready;");
    bad(floors, view, 2, "\nuse super::super::super::{run::view, plan::state};");
    bad(floors, view, 1, "fn f() { crate::page::address::push() }");
    bad(floors, "app/src/widgets/pair.rs", 1, "use crate::screens::compare::view::CompareView;");
    bad(floors, "app/src/state/mod.rs", 1, "use crate::page::files;");
    bad(floors, "app/src/screens/unheard_of/view.rs", 1, "");
    bad(floors, "app/src/unheard_of.rs", 1, "");
    good(floors, view, "use super::speedup; use crate::screens::plan::state::PlanState;");
    good(floors, view, "use crate::state::State; use crate::{base::texts::t, widgets::split};");
    good(floors, "app/src/screens/mod.rs", "pub mod plan;");
    good(floors, "app/src/page/app.rs", "use crate::screens::run::view::RunView;");
}

#[test]
fn arrows_between_rooms() {
    let of = |path, text| arrows(&Source::new(path, text));
    let code = "use crate::{state::State, screens::{plan::view::PlanView, run}}; use super::files;";
    let expected = [("page", "state"), ("page", "screens/plan"), ("page", "screens/run")];
    assert_eq!(of("app/src/page/app.rs", code), expected);
    assert_eq!(of("runner/src/train/mod.rs", "use crate::execute::Rank;"), []);
}

#[test]
fn upward_imports_in_the_runner() {
    let save = "runner/src/checkpoint/save.rs";
    bad(floors, save, 1, "use crate::elastic::Fence;");
    bad(floors, save, 2, "\nuse crate::{fence::Fence, train::train};");
    bad(floors, save, 1, "#[cfg(test)] mod tests { use super::super::super::commands::run; }");
    bad(floors, "runner/src/exchange/mod.rs", 1, "fn f() -> crate::report::Metrics {}");
    bad(floors, "runner/src/transport/error.rs", 1, "use crate::device::DeviceError;");
    bad(floors, "runner/src/unheard_of.rs", 1, "");
    good(floors, save, "use super::agree; use crate::checkpoint::name; use crate::execute::Rank;");
    good(floors, "runner/src/main.rs", "use crate::commands;");
    // Other crates have floors of their own.
    good(floors, "runner/kernels/src/cpu/pool.rs", "use crate::commands;");
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
fn packed_parameters_are_found() {
    let check = packed_parameters;
    bad(check, "x.rs", 2, "\nfn f((a, b): (u64, bool)) {}");
    bad(check, "x.rs", 1, "trait T { fn f<'a, F: Fn(u8) -> u8>(&self, at: &'a mut (&str, f32)); }");
    bad(check, "x.rs", 1, "fn f(a: u8, ((b, c), d): ((&Plan, usize), Vec<(u8, u8)>)) -> u8 { 1 }");
    bad(
        check,
        "runner/src/x.rs",
        1,
        "pub fn f<T>(\n    pair: (\n        T,\n        i64,\n    ),\n) {}",
    );
    good(
        check,
        "x.rs",
        "fn f(a: u64, b: bool, (c, d): (&Plan, Bytes), e: (), g: (Vec<u8>, [u8; 2])) {}",
    );
    good(
        check,
        "x.rs",
        "fn f(pairs: &[(u64, bool)], of: impl Fn((u8, u8)), g: Option<(u8, u8)>) {}",
    );
    good(check, "x.rs", "fn f() -> (u8, u8) { let g = |(a, b): (u8, bool)| a; g((1, true)) }");
    good(check, "x.rs", "type F = fn((u8, u8)); // fn f(a: (u8, u8)) {}");
    good(check, "runner/tests/x.rs", "fn f((a, b): (u64, bool)) {}");
    // Exceptions cover so many, and no fewer.
    for (path, exceptions) in PACKED.iter().take(1) {
        let function = "fn f((a, b): (u64, bool)) {}\n";
        good(check, path, &function.repeat(*exceptions));
        bad(check, path, 1, &function.repeat(exceptions - 1));
        assert_eq!(
            check(&Source::new(path, &function.repeat(exceptions + 1))).len(),
            exceptions + 1
        );
    }
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
