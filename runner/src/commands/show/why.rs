//! Explanation of the predicted step, and advice to shorten it.

use crate::commands::words::are;
use crate::failure::Failure;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{
    BestMicroBatches, Prediction, Term, best_micro_batches, best_move, constant, explain,
};
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{Work, reason};
use pipewright_core::units::Nanos;

/// Terms that are printed.
const TERMS: usize = 6;

/// Spans of the critical path that are printed.
const SPANS: usize = 24;

/// Prints the critical path in terms and in actions, the best number of micro-batches and the best
/// move of a cut.
pub(super) fn why(plan: &Plan, prediction: &Prediction) -> Result<(), Failure> {
    let timeline = &prediction.timeline;
    let arrivals = Arrivals::on(timeline, &plan.cluster);
    let why = explain(timeline, &arrivals, &plan.cluster);
    let step = timeline.step;
    if let Some(reason) = reason(timeline, &arrivals) {
        say!("\n{reason}");
    }
    say!("\ncritical path, {step}:");
    for Term { what, time } in why.terms.iter().take(TERMS) {
        say!("{:>12} {:>5.1} %  {what}", time.to_string(), percent(*time, step));
    }
    let rest: Nanos = why.terms.iter().skip(TERMS).map(|term| term.time).sum();
    if rest > Nanos::ZERO {
        say!("{:>12} {:>5.1} %  all else", rest.to_string(), percent(rest, step));
    }
    let constant = constant(plan, prediction, &why.path);
    if constant > Nanos::ZERO {
        let share = percent(constant, step);
        say!("of it {constant} ({share:.1} %) is the same for micro-batches of any size");
    }
    let mut path: Vec<String> = vec![];
    for &(lane, index) in why.path.iter().take(SPANS) {
        path.push(match prediction.timeline.lanes[lane].spans[index].work {
            Work::Run(action) => action.to_string(),
            Work::Optimizer(stage) => format!("{stage}U"),
        });
    }
    let more = why.path.len().saturating_sub(SPANS);
    let more = if more > 0 { format!(" .. {more} more") } else { String::new() };
    say!("path: {}{more}", path.join(" "));
    if let Some(bound) = why.bound() {
        say!("bound by: {} ({:.0} % of the step)", bound.what, percent(bound.time, step));
    }
    if let Some(best) = best_micro_batches(plan)? {
        micro_batches(plan, step, &best);
    }
    match best_move(plan, prediction)? {
        Some(found) => {
            let gain = 100.0 * (found.step.secs() / step.secs() - 1.0);
            say!("best move: cut {} after {}: {gain:+.1} %", found.cut + 1, found.after);
        }
        None if plan.stages() > 1 && plan.recompute.is_empty() => {
            say!("best move: none, every single move is slower")
        }
        None => {}
    }
    Ok(())
}

fn micro_batches(plan: &Plan, step: Nanos, best: &BestMicroBatches) {
    let gain = 100.0 * (best.step.secs() / step.secs() - 1.0);
    let flat = match best.flat {
        (from, to) if from == to => String::new(),
        (from, to) => format!("; within 1 % from {from} to {to}"),
    };
    let now = plan.micro_batches;
    if best.best == now {
        say!("micro-batches: {} best{flat}", are(now));
    } else {
        say!("micro-batches: {} best, {gain:+.1} % against {now}{flat}", are(best.best));
    }
}

fn percent(part: Nanos, whole: Nanos) -> f64 {
    100.0 * part.0 as f64 / whole.0.max(1) as f64
}
