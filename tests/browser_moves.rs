//! FastSA's moves a second in the browser, beside the same moves natively: prints both, and holds
//! both to the same answer. `cargo test --release --test browser_moves -- --ignored --nocapture`.

#[path = "../core/benches/recompute_moves/graph.rs"]
mod graph;

use base64::Engine;
use pipewright::browser::Browser;
use pipewright::{Outcome, tools};
use pipewright_core::recompute::fastsa::{Annealing, Settings};
use pipewright_core::recompute::{cost, without_recomputation};
use std::process::Command;
use std::time::Instant;

/// Nodes of the graphs, and moves on each.
const NODES: [u32; 3] = [1_000, 5_000, 20_000];
const MOVES: u32 = 1_000_000;

#[test]
#[ignore = "needs a browser: make test"]
fn moves_a_second_in_the_browser() -> Outcome<()> {
    let Some(browser) = Browser::start("moves")? else { return Ok(()) };
    let module = std::fs::read(compiled()?)?;
    let module = base64::engine::general_purpose::STANDARD.encode(module);
    browser.js(&format!(
        "const bytes = Uint8Array.from(atob('{module}'), c => c.charCodeAt(0));
         window.moves = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;"
    ))?;
    println!("| nodes | moves/s in the browser | natively |\n|---|---|---|");
    for nodes in NODES {
        let found = browser.js(&format!(
            "const begin = performance.now(), count = window.moves.anneal({nodes}, {MOVES});
             return [count, performance.now() - begin, window.moves.peak()];"
        ))?;
        let number = |at: usize| found[at].as_f64().unwrap_or(f64::NAN);
        let begin = Instant::now();
        let (evaluated, peak) = native(nodes);
        let seconds = begin.elapsed().as_secs_f64();
        let browsers = 1e3 * number(0) / number(1);
        println!("| {nodes} | {browsers:.0} | {:.0} |", evaluated as f64 / seconds);
        assert_eq!((number(0) as u64, number(2) as u64), (evaluated, peak), "{nodes} nodes");
    }
    Ok(())
}

fn native(nodes: u32) -> (u64, u64) {
    let problem = graph::training_like(nodes as usize);
    let start = without_recomputation(&problem);
    let limit = cost(&problem, &start).peak / 3;
    let settings = Settings { limit, moves: MOVES.into(), ..Settings::default() };
    let mut annealing = Annealing::new(&problem, &[], &start, settings);
    annealing.advance(MOVES.into());
    (annealing.counts().evaluated, cost(&problem, &annealing.best()).peak)
}

/// The module, with the worker's own profile.
fn compiled() -> Outcome<std::path::PathBuf> {
    let cargo = std::env::var("PIPEWRIGHT_WEB_CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(tools::root())
        .args(["build", "--locked", "-p", "pipewright-core", "--example", "recompute_moves"])
        .args(["--profile", "worker", "--target", "wasm32-unknown-unknown"])
        .arg("--message-format=json-render-diagnostics")
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let files = message["filenames"].as_array().into_iter().flatten();
        let wasm = |file: &&str| file.ends_with("/recompute_moves.wasm");
        if let Some(file) = files.filter_map(|f| f.as_str()).find(wasm) {
            return Ok(file.into());
        }
    }
    Err("cargo built no recompute_moves.wasm".into())
}
