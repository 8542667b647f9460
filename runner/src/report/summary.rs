//! The closing lines: predicted beside measured.

use super::{Outcome, loss_text};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, Throughput};
use pipewright_core::units::{Bytes, Nanos};
use std::fmt::Write;

/// What rank 0 prints at the end of a run.
pub fn summary(
    plan: &Plan,
    prediction: &Prediction,
    outcome: &Outcome,
    measured: Option<&Throughput>,
) -> String {
    let mut out = String::new();
    let ended = if outcome.interrupted { "interrupted after" } else { "done:" };
    let time = outcome.total_ns as f64 / 1e9;
    let _ = write!(
        out,
        "{ended} {} step{} in {time:.1} s",
        outcome.steps,
        if outcome.steps == 1 { "" } else { "s" }
    );
    let _ = match outcome.trained {
        true if outcome.steps == 0 => Ok(()),
        true => write!(out, ", loss {}", loss_text(outcome.loss)),
        false => write!(out, ", device model: nothing was trained"),
    };
    if let Some(test) = outcome.test {
        let end = if test.samples == 1 { "" } else { "s" };
        let _ = write!(out, ", test loss {} on {} sample{end}", loss_text(test.loss), test.samples);
        if let Some((correct, all)) = test.correct {
            let share = 100.0 * correct as f64 / all as f64;
            let _ = write!(out, ", test accuracy {share:.1} % ({correct}/{all})");
        }
    }
    if let Some(skipped @ 1..) = outcome.skipped {
        let _ = write!(out, ", {skipped} steps skipped: gradients were not finite");
    }
    if outcome.step_ns == 0 {
        // A continued run that had nothing left to train.
        out.push('\n');
        return out;
    }
    let timeline = &prediction.timeline;
    let error = 100.0 * (outcome.step_ns as f64 / timeline.step.0.max(1) as f64 - 1.0);
    let _ = writeln!(out, "\n              predicted    measured");
    let (predicted, step) = (timeline.step.to_string(), Nanos(outcome.step_ns).to_string());
    let _ = writeln!(out, "step time   {predicted:>11} {step:>11}   {error:+.1} %");
    let (predicted, idle) = (100.0 * timeline.bubble(), 100.0 * outcome.bubble);
    let points = idle - predicted;
    let _ = writeln!(out, "bubble      {predicted:>9.1} % {idle:>9.1} %   {points:+.1} points");
    let predicted = prediction.programs.iter().map(|p| p.arena.0).max().unwrap_or(0);
    let allocated = outcome.arena.iter().copied().max().unwrap_or(0);
    let (p, m) = (Bytes(predicted).to_string(), Bytes(allocated).to_string());
    let same = if predicted == allocated { "to the byte" } else { "differs" };
    let _ = writeln!(out, "peak memory {p:>11} {m:>11}   {same}");
    if let Some(measured) = measured {
        let predicted = plan.throughput(&prediction.graph, timeline.step);
        rates(&mut out, [&predicted, measured]);
    }
    out
}

/// Rows of what the steps get done, predicted and measured.
fn rates(out: &mut String, both: [&Throughput; 2]) {
    let mut row = |name: &str, of: fn(&Throughput) -> Option<f64>| {
        if let [Some(predicted), Some(measured)] = both.map(of) {
            let [predicted, measured] = [predicted, measured].map(three_digits);
            let _ = writeln!(out, "{name:<11} {predicted:>11} {measured:>11}");
        }
    };
    row("samples/s", |rates| Some(rates.samples_per_sec));
    row("tokens/s", |rates| rates.tokens_per_sec);
    row("GFLOP/s", |rates| Some(rates.device_flops_per_sec? / 1e9));
    row("MFU, %", |rates| Some(100.0 * rates.mfu?));
}

fn three_digits(rate: f64) -> String {
    let decimals = [99.95, 9.995, 0.9995].iter().filter(|least| rate < **least).count();
    format!("{rate:.decimals$}")
}
