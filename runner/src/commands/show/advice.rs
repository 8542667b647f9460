//! Advice of `runner show`: other plans that are better, as a table.

use crate::commands::words::{column, counted};
use crate::commands::write_text;
use crate::failure::Failure;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Advice, Advisor, Takes};
use pipewright_core::units::Nanos;
use serde_json::{Value, json};
use std::path::Path;

/// Tries everything.
pub(super) fn look(plan: &Plan) -> Result<Advisor, Failure> {
    let mut advisor = Advisor::new(plan)?;
    while advisor.advance() {}
    Ok(advisor)
}

/// Prints it.
pub(super) fn say(plan: &Plan, advisor: &Advisor) {
    let (advice, now) = (advisor.advice(), advisor.now());
    let tried = counted(advisor.tried(), "plan");
    if advice.is_empty() {
        say!("\nadvice: none of {tried} is better");
    } else {
        let count = match (now.peak > plan.cluster.device.memory, advice.len()) {
            (false, count) => counted(count as u32, "better one"),
            (true, 1) => "1 that fits, as this one does not,".into(),
            (true, count) => format!("{count} that fit, as this one does not,"),
        };
        say!("\nadvice, {count} of {tried}; --advice -o FILE --row N writes one:");
        say!("{:>3} {:>12} {:>8} {:>12} {:>8}  change", "row", "step", "", "memory", "");
    }
    let steps: Vec<Nanos> = advice.iter().map(|one| one.step).collect();
    for (row, (one, step)) in (1..).zip(advice.into_iter().zip(column(&steps))) {
        let time = change(one.step.0, now.step.0);
        let (peak, memory) = (one.peak.to_string(), change(one.peak.0, now.peak.0));
        say!("{row:>3} {step:>12} {time:>8} {peak:>12} {memory:>8}  {}", words(plan, one));
    }
    bound(plan, advisor, now);
}

/// How much there is to gain at all.
fn bound(plan: &Plan, advisor: &Advisor, now: Takes) {
    // The bound is of these devices in this precision.
    let alike = |one: &Advice| {
        one.more_ranks == 0 && !one.changes.iter().any(|change| change.alters_training())
    };
    let fastest = advisor.advice().iter().filter(|one| alike(one)).map(|one| one.step).min();
    let best = fastest.unwrap_or(now.step).min(now.step);
    let bound = advisor.bound();
    let over = 100.0 * (best.secs() / bound.secs().max(1e-12) - 1.0);
    let devices = u64::from(plan.ranks()).min(plan.cluster.devices());
    say!(
        "bound: no plan on {} takes less than {bound} in {}; {} is {over:.1} % above it",
        counted(u32::try_from(devices).unwrap_or(u32::MAX), "device"),
        plan.training.precision.word(),
        if fastest.is_some() { "the best of these" } else { "this one" },
    );
}

/// What changes, and what that means.
fn words(plan: &Plan, advice: &Advice) -> String {
    let changes: Vec<String> = advice.changes.iter().map(ToString::to_string).collect();
    let mut words = changes.join(", ");
    if advice.more_ranks > 0 {
        let ranks = counted(plan.ranks() + advice.more_ranks, "rank");
        words += &format!(" ({ranks})");
    }
    if advice.changes.iter().any(|change| change.alters_training()) {
        words += " (other numerics)";
    }
    words
}

fn change(new: u64, old: u64) -> String {
    format!("{:+.1} %", 100.0 * (new as f64 / old.max(1) as f64 - 1.0))
}

/// For `--json`.
pub(super) fn json(advisor: &Advisor) -> Value {
    let row = |one: &&Advice| {
        json!({
            "changes": one.changes.iter().map(ToString::to_string).collect::<Vec<String>>(),
            "alters_training": one.changes.iter().any(|change| change.alters_training()),
            "ranks": one.plan.ranks(),
            "step_ns": one.step.0,
            "memory_bytes": one.peak.0,
        })
    };
    json!({
        "tried": advisor.tried(),
        "bound_ns": advisor.bound().0,
        "plans": advisor.advice().iter().map(row).collect::<Vec<Value>>(),
    })
}

/// Writes the plan of a row.
pub(super) fn write(advisor: &Advisor, row: u32, path: &Path) -> Result<(), Failure> {
    let advice = advisor.advice();
    let Some(one) = advice.get(row as usize - 1) else {
        return Err(Failure::usage(match advice.len() {
            0 => "there is no advice to write: nothing that was tried is better".into(),
            rows => format!("--row {row}: the advice has {}", counted(rows as u32, "row")),
        }));
    };
    write_text(path, &one.plan.to_json())
}
