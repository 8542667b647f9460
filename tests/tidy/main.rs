//! The house rules, as a test: see the tables below, they are the rules.
//!
//! `source` reads the repository's files and cuts Rust into tokens, `paths` resolves `use` lines,
//! `checks` compares with the tables, `packed` reads parameters, `words` looks at type names and at
//! the first words of modules, `exports` compares files with each other, `links` follows those of the
//! documents, `classes` are those of the page's style. Tests feed each check a bad file in memory, so that a check that sees nothing cannot pass
//! for one that finds nothing.

mod checks;
mod classes;
mod exceptions;
mod exports;
mod links;
mod packed;
mod paths;
mod source;
mod words;

use exceptions::PACKED;
use source::Source;
use std::collections::BTreeSet;

/// Modules by floor, the lowest first.
type Floors = &'static [&'static [&'static str]];

/// The modules of a crate below the folder that is named. A module imports itself and lower floors, nothing
/// else; its tests too.
const FLOORS: &[(&str, Floors)] =
    &[("core/src/", CORE_FLOORS), ("runner/src/", RUNNER_FLOORS), ("app/src/", APP_FLOORS)];

const CORE_FLOORS: &[&[&str]] = &[
    &["units", "ids", "order"],
    &["graph", "compress"],
    &["cost", "hf", "onnx"],
    &["partition", "recompute", "adapt"],
    &["schedule"],
    &["plan"],
    &["timeline"],
    &["simulate"],
    &["predict"],
    &["elastic"],
];

const RUNNER_FLOORS: &[&[&str]] = &[
    &["data", "failure", "fence", "files", "hash", "lock", "notes", "onnx", "signals"],
    &["init", "tensor_file"],
    &["transport"],
    &["device"],
    &["exchange", "report"],
    &["execute"],
    &["checkpoint"],
    &["args", "train", "weights"],
    &["elastic"],
    &["commands"],
];

const APP_FLOORS: &[&[&str]] = &[
    &["base"],
    &["planner"],
    &["draw"],
    &["state"],
    &["widgets"],
    &[
        "screens/communication",
        "screens/compare",
        "screens/elastic",
        "screens/model",
        "screens/plan",
        "screens/playground",
        "screens/recompute",
        "screens/run",
    ],
    &["page"],
];

/// Rooms of the explorer, and arrows from one that imports to one that is imported. Floors alone would let
/// everything know everything below it.
const MAX_APP_ROOMS: usize = 20;
const MAX_APP_ARROWS: usize = 80;

/// What core must not name, and what to do instead. In-file tests are exempt.
const FORBIDDEN_IN_CORE: &[(&str, &str)] = &[
    ("std::time", "core has no clock: take the time as an argument"),
    ("std::fs", "core reads no files: take the content as an argument"),
    ("std::env", "core has no environment: take the value as an argument"),
    ("std::thread", "core has no threads: the caller decides where it runs"),
    ("std::process", "core starts and ends no process: return an error"),
    ("std::net", "core has no network"),
    ("HashMap", "its order differs from run to run: use BTreeMap, or Vec indexed by id"),
    ("HashSet", "its order differs from run to run: use BTreeSet, or Vec indexed by id"),
    ("println!", "core prints nothing: return the text"),
    ("eprintln!", "core prints nothing: return the text"),
    ("print!", "core prints nothing: return the text"),
    ("eprint!", "core prints nothing: return the text"),
];

/// What no file may name.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "finish it, or return an error that says it is missing"),
    ("unimplemented!", "finish it, or return an error that says it is missing"),
    ("dbg!", "remove the debugging aid"),
];

/// Explorer and runner only meet in core. What elastic jobs decide depends on no clock that people set.
const STRANGERS: &[(&str, &str, &str)] = &[
    ("app/", "pipewright_runner", "move what both need to core"),
    ("runner/", "pipewright_app", "move what both need to core"),
    ("runner/src/elastic/membership/", "SystemTime", "wall clocks jump: take Instant"),
    ("runner/src/elastic/supervisor/", "SystemTime", "wall clocks jump: take Instant"),
    ("runner/src/elastic/heartbeat", "SystemTime", "wall clocks jump: take the monotonic clock"),
    ("runner/src/elastic/watch", "SystemTime", "wall clocks jump: take Instant"),
    ("runner/src/elastic/debounce", "SystemTime", "wall clocks jump: take Instant"),
    ("runner/src/elastic/restarts", "SystemTime", "wall clocks jump: take Instant"),
];

/// Folders of somebody's machine, without the slashes: this file must pass its own check.
const MACHINE_FOLDERS: &[&str] = &["work", "root", "farm"];

const MAX_FILE_LINES: usize = 500;
const MAX_MEDIAN_LINES: usize = 200;
const MAX_FUNCTION_LINES: usize = 70;

/// Fails with every finding of `check` on every file of the repository.
fn expect_tidy(check: impl Fn(&Source) -> Vec<String>) {
    let findings: Vec<String> = source::repository().iter().flat_map(check).collect();
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

#[test]
fn files_are_short() {
    expect_tidy(checks::file_length);
}

#[test]
fn the_median_file_is_short() {
    let lengths: Vec<usize> =
        source::repository().iter().filter(|s| s.is_rust()).map(Source::line_count).collect();
    let median = checks::median(lengths);
    assert!(median <= MAX_MEDIAN_LINES, "the median Rust file has {median} lines: split some");
}

#[test]
fn functions_are_short() {
    expect_tidy(checks::function_length);
}

#[test]
fn modules_say_what_they_are() {
    expect_tidy(checks::header);
}

#[test]
fn modules_begin_with_a_noun() {
    let findings = words::loose_headers(&source::repository());
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

#[test]
fn type_names_mean_one_thing() {
    let findings = words::homonyms(&source::repository());
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}

#[test]
fn floors_are_respected() {
    expect_tidy(checks::floors);
}

#[test]
fn the_explorer_has_few_rooms_and_arrows() {
    let arrows: BTreeSet<_> = source::repository().iter().flat_map(checks::arrows).collect();
    let rooms = APP_FLOORS.iter().copied().flatten().count();
    println!("{rooms} rooms, {} arrows", arrows.len());
    assert!(rooms <= MAX_APP_ROOMS, "the explorer has {rooms} rooms: a new file belongs into one");
    assert!(arrows.len() <= MAX_APP_ARROWS, "{} arrows: {arrows:?}", arrows.len());
    assert!(arrows.contains(&("page", "state")), "nothing was read");
}

#[test]
fn core_is_pure() {
    expect_tidy(checks::purity);
}

#[test]
fn parameters_have_names() {
    expect_tidy(checks::packed_parameters);
}

/// A file that was moved takes its exceptions along.
#[test]
fn exceptions_are_of_files_that_exist() {
    let files: Vec<String> = source::repository().into_iter().map(|s| s.path).collect();
    let gone: Vec<_> = PACKED.iter().filter(|(path, _)| !files.iter().any(|f| f == path)).collect();
    assert!(gone.is_empty(), "PACKED lists files that are not there: {gone:?}");
}

#[test]
fn nothing_is_unfinished() {
    expect_tidy(checks::unfinished);
}

#[test]
fn app_and_runner_are_strangers() {
    expect_tidy(checks::strangers);
}

#[test]
fn no_machine_is_named() {
    expect_tidy(checks::machine_paths);
}

#[test]
fn links_lead_somewhere() {
    let root = pipewright::tools::root();
    let broken = links::broken(&source::repository(), |path| root.join(path).exists());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page() {
    let unlisted = links::unlisted(&source::repository());
    assert!(unlisted.is_empty(), "not in docs/SUMMARY.md: {unlisted:?}");
}

#[test]
fn a_class_of_the_style_is_of_one_screen() {
    let findings = classes::shared_classes(&source::repository());
    assert!(findings.is_empty(), "\n\n{}\n", findings.join("\n"));
}
