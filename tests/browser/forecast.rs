//! What a forecast of a learning curve takes in the browser: five fits and their weights, printed beside
//! the bar: `cargo test --test browser forecast:: -- --ignored --nocapture` after `make web`.

use pipewright::Outcome;
use pipewright::explorer::explorer;
use pipewright_core::adapt::{Point, forecast};

/// Points, and forecasts of them.
const POINTS: u32 = 200;
const TIMES: u32 = 20;

/// Most milliseconds of one.
const BAR: f64 = 60.0;

/// Calls the function that the worker's module exports.
const MEASURE: &str = "
    const begin = performance.now();
    const accuracy = worker.measure_forecasts(POINTS, TIMES);
    return [accuracy, (performance.now() - begin) / TIMES];";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_forecast_in_the_browser() -> Outcome<()> {
    let Some(browser) = explorer("forecast", "")? else { return Ok(()) };
    let script = MEASURE.replace("POINTS", &POINTS.to_string());
    let found = browser.in_worker(&script.replace("TIMES", &TIMES.to_string()))?;
    let number = |at: usize| found[at].as_f64().unwrap_or(f64::NAN);
    let reached = if number(1) < BAR { "reached" } else { "MISSED" };
    println!(
        "{POINTS} points: {:.2} ms a forecast in the browser, bar {BAR}: {reached}",
        number(1)
    );
    assert!((number(0) - native()).abs() < 1e-9, "{} is not the native {}", number(0), native());
    Ok(())
}

/// The same points as the worker's.
fn native() -> f64 {
    let noise = |x: u32| f64::from(x.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 - 0.5;
    let point = |x: u32| {
        let accuracy = 0.8 - 0.7 / f64::from(x).sqrt() + 0.01 * noise(x);
        Point { x: f64::from(x), accuracy: accuracy.max(0.0) }
    };
    let points: Vec<Point> = (1..=POINTS).map(point).collect();
    forecast(&points, 2.0 * f64::from(POINTS)).map_or(f64::NAN, |forecast| forecast.accuracy)
}
