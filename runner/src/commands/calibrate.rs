//! `runner calibrate`: parameters of the cost model from measurements, with their uncertainty.

use super::figures;
use crate::args::CalibrateArgs;
use crate::failure::Failure;
use pipewright_core::cost::calibrate::{Estimate, Fit, Point, pipeline};
use pipewright_core::predict::{TraceFit, predict};
use pipewright_core::timeline::{Trace, chrome};
use serde_json::{Value, json};

/// Runs the command.
pub fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let text = super::read_text(&args.file)?;
    let file = args.file.display();
    if text.trim_start().starts_with(['{', '[']) {
        let trace = chrome::read(&text).map_err(|e| Failure::usage(format!("{file}: {e}")))?;
        return from_trace(args, trace);
    }
    let points = points(&text).map_err(|e| Failure::usage(format!("{file}: {e}")))?;
    if points.is_empty() {
        let message = format!(
            "{file}: no measurements: lines of m,d,seconds, such as 20,8,0.125, are wanted"
        );
        return Err(Failure::usage(message));
    }
    let layers = args.layers.ok_or_else(|| {
        Failure::usage("--layers is missing: points of (m, d, seconds) need the network's layers")
    })?;
    let found = pipeline(layers, &points).map_err(|e| Failure::usage(format!("{file}: {e}")))?;
    if args.json {
        let point = |point: &Point| {
            let Point { m, d, time } = *point;
            json!({ "m": m, "d": d, "measured_s": time, "predicted_s": found.time(m, d, layers) })
        };
        figures::print(&json!({
            "layers": layers,
            "parameters": estimates(&found.fit),
            "mean_error": found.fit.mean_error(),
            "largest_error": found.fit.largest_error(),
            "points": points.iter().map(point).collect::<Vec<Value>>(),
        }));
        return Ok(());
    }
    say!("seconds; t_comp: one process, undivided; t0, transfer: a message; k: a layer");
    say!("{}", found.fit);
    say!("\n    m     d    measured   predicted   error");
    for point in &points {
        let predicted = found.time(point.m, point.d, layers);
        let error = 100.0 * (predicted / point.time - 1.0);
        let Point { m, d, time } = point;
        say!("{m:>5} {d:>5}  {time:>10.4}  {predicted:>10.4}  {error:>+5.1} %");
    }
    Ok(())
}

/// Lines of `m,d,seconds`; a first line without numbers is a header.
fn points(text: &str) -> Result<Vec<Point>, String> {
    let mut found = vec![];
    for (number, line) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if line.trim().is_empty() || (number == 1 && cells[0].parse::<f64>().is_err()) {
            continue;
        }
        let bad = || format!("line {number}: `{line}` is not m,d,seconds, such as 20,8,0.125");
        let [m, d, time] = cells[..] else { return Err(bad()) };
        let count = |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(bad);
        let time = time.parse().ok().filter(|t: &f64| t.is_finite() && *t > 0.0);
        found.push(Point { m: count(m)?, d: count(d)?, time: time.ok_or_else(bad)? });
    }
    Ok(found)
}

/// Means of every stage's passes, latency and bandwidth of the messages; the cluster file that
/// follows from them, where one is wanted.
fn from_trace(args: &CalibrateArgs, trace: Trace) -> Result<(), Failure> {
    let plan = args.plan.as_ref().map(|file| super::read_plan(file)).transpose()?;
    let planned = plan.as_ref().map(|plan| Ok::<_, Failure>((plan, predict(plan)?))).transpose()?;
    // Programs that update a rank's stages at once are read as the plan has them.
    let trace = match &planned {
        Some((_, prediction)) => trace.with_updates_of(&prediction.timeline),
        None => trace,
    };
    let found = TraceFit::new(&trace).map_err(|e| Failure::usage(e.to_string()))?;
    if args.json {
        figures::print(&of_trace(&found));
    } else {
        tell_trace(&found);
    }
    let Some(((plan, prediction), output)) = planned.zip(args.output.as_ref()) else {
        return Ok(());
    };
    let cluster = found.cluster(plan, &prediction);
    let cluster = cluster.map_err(|e| Failure::usage(e.to_string()))?;
    let text = serde_json::to_string_pretty(&cluster).expect("plain data") + "\n";
    super::write_text(output, &text)
}

fn tell_trace(found: &TraceFit) {
    say!("stage  pass   count        mean");
    for fit in &found.stages {
        let letter = fit.kind.letter();
        let (stage, count) = (fit.stage, fit.count);
        let spread = fit.mean.deviation.map_or(String::new(), |d| format!(" ± {:.4}", 1e3 * d));
        say!("{stage:>5}  {letter:>4}  {count:>6}  {:>10.4}{spread} ms", 1e3 * fit.mean.value);
    }
    match &found.link {
        Ok((link, fit)) => {
            let rate = link.bytes_per_sec / 1e9;
            say!("\nlink: {} and {rate:.3} GB/s\n{fit}", link.latency_ns);
        }
        Err(why) => say!("\nlink: {why}"),
    }
}

/// What a trace says, as JSON; times in seconds.
fn of_trace(found: &TraceFit) -> Value {
    let stages = found.stages.iter().map(|fit| {
        json!({
            "stage": fit.stage.0,
            "pass": fit.kind.letter(),
            "count": fit.count,
            "mean_s": fit.mean.value,
            "deviation_s": fit.mean.deviation,
        })
    });
    let link = match &found.link {
        Ok((link, fit)) => json!({
            "latency_ns": link.latency_ns.0,
            "bytes_per_sec": link.bytes_per_sec,
            "parameters": estimates(fit),
        }),
        Err(why) => json!({ "why_not": why.to_string() }),
    };
    json!({ "stages": stages.collect::<Vec<Value>>(), "link": link })
}

/// Numbers that were found, by their names.
fn estimates(fit: &Fit) -> Value {
    let value = |e: &Estimate| json!({ "value": e.value, "deviation": e.deviation });
    fit.estimates.iter().map(|e| (e.name.replace(' ', "_"), value(e))).collect()
}
