//! Time of a learning curve's forecast in the browser: five fits and their weights, printed beside
//! the bar: `cargo test --test browser forecast:: -- --ignored --nocapture`, after
//! `cargo run -p pipewright-web -- meter`.

use pipewright::Outcome;
use pipewright::explorer::Meter;
use pipewright_meter::measure_forecasts;

/// Points, and forecasts of them.
const POINTS: u32 = 200;
const TIMES: u32 = 20;

/// Most milliseconds of one.
const BAR: f64 = 60.0;

/// Calls the function that tests/meter exports.
const MEASURE: &str = "
    const begin = performance.now();
    const accuracy = meter.measure_forecasts(POINTS, TIMES);
    return [accuracy, (performance.now() - begin) / TIMES];";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_forecast_in_the_browser() -> Outcome<()> {
    let Some(meter) = Meter::start("forecast")? else { return Ok(()) };
    let script = MEASURE.replace("POINTS", &POINTS.to_string());
    let found = meter.js(&script.replace("TIMES", &TIMES.to_string()))?;
    let number = |at: usize| found[at].as_f64().unwrap_or(f64::NAN);
    let reached = if number(1) < BAR { "reached" } else { "MISSED" };
    println!(
        "{POINTS} points: {:.2} ms a forecast in the browser, bar {BAR}: {reached}",
        number(1)
    );
    let native = measure_forecasts(POINTS, 1);
    assert!((number(0) - native).abs() < 1e-9, "{} is not the native {native}", number(0));
    Ok(())
}
