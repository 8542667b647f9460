//! FastSA's moves a second in the browser, beside the same moves natively: prints both, and holds
//! both to the same answer: `cargo test --test browser moves:: -- --ignored --nocapture`, after
//! `cargo run -p pipewright-web -- meter`.

use pipewright::Outcome;
use pipewright::explorer::Meter;
use pipewright_meter::measure_moves;
use std::time::Instant;

/// Nodes of the graphs, and moves on each.
const NODES: [u32; 3] = [1_000, 5_000, 20_000];
const MOVES: u32 = 1_000_000;

/// Calls the function that tests/meter exports.
const MEASURE: &str = "
    const begin = performance.now();
    const [count, peak] = meter.measure_moves(NODES, MOVES);
    return [count, performance.now() - begin, peak];";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn moves_a_second_in_the_browser() -> Outcome<()> {
    let Some(meter) = Meter::start("moves")? else { return Ok(()) };
    println!("| nodes | moves/s in the browser | natively |\n|---|---|---|");
    for nodes in NODES {
        let script = MEASURE.replace("NODES", &nodes.to_string());
        let found = meter.js(&script.replace("MOVES", &MOVES.to_string()))?;
        let number = |at: usize| found[at].as_f64().unwrap_or(f64::NAN);
        let begin = Instant::now();
        let native = measure_moves(nodes, MOVES);
        let seconds = begin.elapsed().as_secs_f64();
        let browsers = 1e3 * number(0) / number(1);
        println!("| {nodes} | {browsers:.0} | {:.0} |", native[0] / seconds);
        assert_eq!([number(0), number(2)], native[..], "{nodes} nodes");
    }
    Ok(())
}
