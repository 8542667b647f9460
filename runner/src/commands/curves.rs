//! `runner curves`: what runs learned in their time.

use super::frame::Frame;
use crate::args::{CurvesArgs, Measure};
use crate::failure::Failure;
use crate::report::{Curve, CurvePoint};
use std::path::Path;

const COLORS: [&str; 8] =
    ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563"];

/// A run with the curve that is compared.
struct Run {
    name: String,
    points: Vec<CurvePoint>,
    curve: Curve,
}

/// Runs the command.
pub fn curves(args: &CurvesArgs) -> Result<(), Failure> {
    let runs = args.runs.iter().map(|folder| read(folder, args.measure));
    let runs = runs.collect::<Result<Vec<Run>, Failure>>()?;
    let best = |run: &Run| run.points.iter().map(|p| p.accuracy).fold(0.0, f64::max);
    let goal = best(&runs[0]) - args.within / 100.0;
    let reached = |run: &Run| run.points.iter().find(|p| p.accuracy >= goal).copied();
    let before = reached(&runs[0]).map(|point| point.seconds);
    let width = runs.iter().map(|run| run.name.chars().count()).max().unwrap_or(0).max(3);
    say!(
        "{:width$}  {:>7}  {:>7}  {:>8}  {:>13}  {:>8}",
        "run",
        "best",
        "last",
        "time",
        format!("to {:.1} %", 100.0 * goal),
        "speed-up"
    );
    for run in &runs {
        let last = run.points.last().map_or(0.0, |point| point.accuracy);
        let reached = reached(run).map(|point| point.seconds);
        let time = reached.map_or("never".into(), |seconds| format!("{seconds:.1} s"));
        let gain = before.zip(reached).map(|(before, after)| before / after);
        let gain = gain.map_or("-".into(), |gain| format!("{gain:.2}x"));
        say!(
            "{:width$}  {:>5.1} %  {:>5.1} %  {:>6.1} s  {time:>13}  {gain:>8}",
            run.name,
            100.0 * best(run),
            100.0 * last,
            run.curve.seconds
        );
    }
    for Run { name, curve, .. } in runs.iter().filter(|run| !run.curve.ways.is_empty()) {
        let ways = curve.ways.iter().map(|(way, steps)| format!("{way} {steps}"));
        say!("{name}: steps by {}", ways.collect::<Vec<_>>().join(", "));
    }
    match &args.output {
        None => Ok(()),
        Some(path) => super::write_text(path, &picture(&runs, args.measure)),
    }
}

fn read(folder: &Path, measure: Measure) -> Result<Run, Failure> {
    let curve = Curve::read(folder).map_err(|e| Failure::usage(e.to_string()))?;
    let points = match measure {
        Measure::Test => curve.test.clone(),
        Measure::Train => curve.train.clone(),
    };
    if points.is_empty() {
        let hint = match measure {
            Measure::Test => "run it with --eval-every, or use --measure train",
            Measure::Train => "nothing is classified there",
        };
        return Err(Failure::usage(format!("{}: no accuracies: {hint}", folder.display())));
    }
    let name = folder
        .file_name()
        .map_or(folder.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(Run { name, points, curve })
}

/// Accuracy over time, a dot at each run's best.
fn picture(runs: &[Run], measure: Measure) -> String {
    let all = || runs.iter().flat_map(|run| &run.points);
    let longest = all().map(|point| point.seconds).fold(0.0, f64::max);
    let highest = all().map(|point| point.accuracy).fold(0.0, f64::max);
    let what = match measure {
        Measure::Test => "test accuracy (%)",
        Measure::Train => "training accuracy (%)",
    };
    let mut frame = Frame::new(
        "accuracy by time, trials included",
        ("seconds of steps and trials", 0.0, longest),
        (what, 0.0, 100.0 * highest),
    );
    for (run, color) in runs.iter().zip(COLORS.iter().cycle()) {
        let place = |point: &CurvePoint| (point.seconds, 100.0 * point.accuracy);
        let points: Vec<(f64, f64)> = run.points.iter().map(place).collect();
        frame.line(&points, color);
        let best = points.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        frame.dots(best.as_slice(), color);
        frame.legend(color, &run.name);
    }
    frame.finish()
}
