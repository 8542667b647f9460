//! Speed of the planner's inner loop in a real browser. Prints figures and asserts none of them:
//! `cargo test --test browser speed:: -- --ignored --nocapture`, after
//! `cargo run -p pipewright-web -- meter`.

use pipewright::Outcome;
use pipewright::explorer::Meter;

/// Calls the function that tests/meter exports: the best of nine times of each part.
const MEASURE: &str = "
    const best = [0, 1, 2].map((part) => {
        let least = Infinity;
        for (let round = 0; round < 9; round++) {
            const begin = performance.now();
            if (!meter.measure_schedule(64, 512, part + 1)) return NaN;
            least = Math.min(least, performance.now() - begin);
        }
        return least;
    });
    return [best[0], best[1] - best[0], best[2] - best[1]];";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn schedules_of_64_lanes_and_512_micro_batches() -> Outcome<()> {
    let Some(meter) = Meter::start("speed")? else { return Ok(()) };
    let times = meter.js(MEASURE)?;
    let times: Vec<f64> = serde_json::from_value(times)?;
    let [generate, check, estimate] = times[..] else { return Err("three times".into()) };
    assert!(times.iter().all(|ms| ms.is_finite()), "{times:?}");
    let total = generate + check + estimate;
    println!(
        "64 lanes x 512 micro-batches in Chromium: generate {generate:.1} ms, check {check:.1} ms, \
         estimate {estimate:.1} ms, together {total:.1} ms"
    );
    Ok(())
}
