//! Output of sizes: a table, JSON and a picture.

use crate::args::ScaleArgs;
use crate::commands::frame::Frame;
use crate::commands::plan::Ranked;
use crate::commands::words::column;
use crate::failure::Failure;
use pipewright_core::cost::Cluster;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Price, Speed, Throughput};
use pipewright_core::units::Nanos;
use serde::Serialize;

/// A number of devices with its best plan.
#[derive(Serialize)]
pub(super) struct Row {
    devices: u32,
    #[serde(flatten)]
    found: Option<Best>,
    /// Why there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

/// What the best plan of a size takes.
#[derive(Serialize)]
struct Best {
    step_ns: Nanos,
    #[serde(flatten)]
    throughput: Throughput,
    /// Samples per second and device, over those of the smallest size.
    efficiency: f64,
    memory_bytes: u64,
    days: Option<f64>,
    cost: Option<f64>,
    lanes: u32,
    replicas: u32,
    micro_batches: u32,
    schedule: String,
    words: String,
}

impl Row {
    /// `goal` is in samples, `base` the smallest size that has a plan.
    pub fn new(
        devices: u32,
        found: Result<&Ranked, &Failure>,
        goal: Option<f64>,
        base: Option<Speed>,
        price: Option<Price>,
    ) -> Self {
        let ranked = match found {
            Ok(ranked) => ranked,
            Err(why) => {
                let why_not = Some(why.message.clone());
                return Self { devices, found: None, why_not };
            }
        };
        let plan: &Plan = &ranked.plan;
        let throughput = plan.throughput(&ranked.prediction.graph, ranked.step());
        let days = goal.map(|samples| throughput.days(samples));
        let size = Speed { devices, throughput };
        let found = Best {
            step_ns: ranked.step(),
            throughput,
            efficiency: size.efficiency(&base.unwrap_or(size)),
            memory_bytes: ranked.peak().0,
            days,
            cost: days.zip(price).map(|(days, price)| price.of(devices, days)),
            lanes: plan.lanes(),
            replicas: plan.data_parallel.replicas,
            micro_batches: plan.micro_batches,
            schedule: plan.schedule.name.clone(),
            words: ranked.words.clone(),
        };
        Self { devices, found: Some(found), why_not: None }
    }

    pub fn fits(&self) -> bool {
        self.found.is_some()
    }

    /// How many devices get how much done.
    pub fn size(&self) -> Option<Speed> {
        Some(Speed { devices: self.devices, throughput: self.found.as_ref()?.throughput })
    }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Scaling<'a> {
    model: &'a str,
    cluster: &'a str,
    mini_batch: u64,
    sizes: &'a [Row],
}

pub(super) fn figures<'a>(
    args: &'a ScaleArgs,
    cluster: &'a Cluster,
    mini_batch: u64,
    sizes: &'a [Row],
) -> Scaling<'a> {
    Scaling { model: &args.model, cluster: &cluster.name, mini_batch, sizes }
}

/// Prints the table.
pub(super) fn report(args: &ScaleArgs, cluster: &Cluster, mini_batch: u64, rows: &[Row]) {
    say!("{} on {}, mini-batch {mini_batch}", args.model, cluster.name);
    let has_tokens = rows.iter().any(|row| {
        row.found.as_ref().is_some_and(|found| found.throughput.tokens_per_sec.is_some())
    });
    let rate = if has_tokens { "tokens/s" } else { "samples/s" };
    let days = if args.tokens.or(args.samples).is_some() {
        format!(" {:>9}", "days")
    } else {
        String::new()
    };
    let cost = if args.price.is_some() { format!(" {:>13}", "cost") } else { String::new() };
    say!(
        "{:>7} {:>11} {rate:>11} {:>7} {:>10}{days}{cost} {:>10}  plan",
        "devices",
        "step",
        "MFU",
        "efficiency",
        "memory"
    );
    let steps = rows.iter().filter_map(|row| row.found.as_ref());
    let mut steps = column(&steps.map(|found| found.step_ns).collect::<Vec<_>>()).into_iter();
    for Row { devices, found, why_not } in rows {
        let Some(found) = found else {
            say!("{devices:>7} {}", why_not.as_deref().unwrap_or_default());
            continue;
        };
        let throughput = &found.throughput;
        let rate = scaled(throughput.tokens_per_sec.unwrap_or(throughput.samples_per_sec));
        let mfu = throughput.mfu.map_or("-".into(), |mfu| format!("{:.1} %", 100.0 * mfu));
        let efficiency = format!("{:.1} %", 100.0 * found.efficiency);
        let days = found.days.map_or(String::new(), |days| format!(" {days:>9.2}"));
        let cost = found.cost.map_or(String::new(), |cost| format!(" {:>13}", grouped(cost)));
        let memory = pipewright_core::units::Bytes(found.memory_bytes).to_string();
        say!(
            "{devices:>7} {:>11} {rate:>11} {mfu:>7} {efficiency:>10}{days}{cost} {memory:>10}  {}",
            steps.next().unwrap_or_default(),
            found.words
        );
    }
}

/// A rate in whole numbers from 100 on, with thousands apart.
fn scaled(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate) }
}

/// A whole number with thousands apart: 1,234,567.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const FOUND: &str = "#2563eb";
const IDEAL: &str = "#9aa4b2";

/// Throughput over devices, beside that of the smallest size times devices.
pub(super) fn picture(model: &str, cluster: &Cluster, rows: &[Row]) -> String {
    let rate = |row: &Row| {
        let found = &row.found.as_ref()?.throughput;
        Some((f64::from(row.devices), found.tokens_per_sec.unwrap_or(found.samples_per_sec)))
    };
    let points: Vec<(f64, f64)> = rows.iter().filter_map(rate).collect();
    let tokens = rows.iter().filter_map(|row| row.found.as_ref()?.throughput.tokens_per_sec);
    let unit = if tokens.count() > 0 { "tokens/s" } else { "samples/s" };
    let most = rows.last().map_or(1.0, |row| f64::from(row.devices));
    let ideal = points.first().map_or(0.0, |(devices, rate)| rate / devices);
    let highest = points.iter().map(|point| point.1).fold(most * ideal, f64::max);
    let mut frame = Frame::new(
        &format!("{model} on {}", cluster.name),
        ("devices", 0.0, most),
        (unit, 0.0, highest),
    );
    frame.line(&[(0.0, 0.0), (most, most * ideal)], IDEAL);
    frame.legend(IDEAL, "ideal: the smallest size, times devices");
    frame.line(&points, FOUND);
    frame.dots(&points, FOUND);
    frame.legend(FOUND, "best plan of each size, simulated");
    frame.finish()
}

#[cfg(test)]
mod tests {
    use super::{grouped, scaled};

    #[test]
    fn numbers_have_thousands_apart() {
        assert_eq!(
            [0.4, 999.0, 1000.0, 1_234_567.8].map(grouped),
            ["0", "999", "1,000", "1,234,568"]
        );
        assert_eq!([12.34, 100.0].map(scaled), ["12.3", "100"]);
    }
}
