//! Speed of schedules without programs: generate, check, estimate. Growth by actions at 64 lanes,
//! and the largest pipelines. `cargo bench -p pipewright-core --bench schedules`.

use pipewright_core::schedule::{ScheduleKind, check};
use pipewright_core::simulate::{Footprint, Sends, StageCost, estimate};
use pipewright_core::units::{Bytes, Nanos};
use std::time::Instant;

/// Best of `times`, in milliseconds.
fn best<T>(times: u32, mut work: impl FnMut() -> T) -> f64 {
    let time = |work: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        std::hint::black_box(work());
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..times).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

fn row(kind: ScheduleKind, stages: u32, micro_batches: u32, times: u32) {
    let schedule = match kind.generate(stages, micro_batches) {
        Ok(schedule) => schedule,
        Err(error) => return println!("{error}"),
    };
    // Uneven, so that lanes do not march in step.
    let cost = |s: u32| StageCost {
        forward: Nanos(1000 + u64::from(s * 7 % 13)),
        backward_input: Nanos(1100 + u64::from(s * 5 % 11)),
        backward_weight: Nanos(900 + u64::from(s * 3 % 7)),
        update: Nanos(500),
    };
    let costs: Vec<StageCost> = (0..stages).map(cost).collect();
    let footprint = Footprint { weights: Bytes(100), stash: Bytes(10), ..Footprint::default() };
    let footprints = vec![footprint; costs.len()];
    let run = |sends| estimate(&schedule, &costs, &footprints, sends, |_| Nanos(50));
    let generate = best(times, || kind.generate(stages, micro_batches));
    let checked = best(times, || check(&schedule));
    let (free, outbox) = (best(times, || run(Sends::Free)), best(times, || run(Sends::Outbox)));
    let actions: usize = schedule.lanes.iter().map(Vec::len).sum();
    let total = generate + checked + outbox;
    println!(
        "{:<14} {:>5} x {:>4} {:>8} actions: generate {:>8.2} ms, check {:>8.2}, estimate {:>8.2} \
         (with outboxes {:>8.2}); all {:>8.2} ms, {:>5.1} ns an action",
        kind.to_string(),
        schedule.lanes.len(),
        micro_batches,
        actions,
        generate,
        checked,
        free,
        outbox,
        total,
        total * 1e6 / actions as f64,
    );
}

/// Most memory that the process has had, from the system.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find(|line| line.starts_with("VmHWM")).map(str::to_owned)
}

fn main() {
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::GPipe] {
        for micro_batches in [8, 64, 512, 4096] {
            row(kind, 64, micro_batches, 7);
        }
    }
    for kind in ScheduleKind::ALL {
        let chunks = 64 / kind.lanes(64).unwrap_or(64);
        row(kind, 64 * chunks, 512, 7);
    }
    row(ScheduleKind::OneFOneB, 1024, 4096, 2);
    row(ScheduleKind::GPipe, 1024, 4096, 2);
    println!("{}", peak_memory().unwrap_or_default());
}
