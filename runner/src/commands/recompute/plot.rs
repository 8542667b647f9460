//! Pictures: memory over time, and time over memory. Plain SVG that needs nothing else.

use super::super::frame::Frame;
use pipewright_core::recompute::file::GraphFile;
use pipewright_core::recompute::{Answer, Cost, Problem, memory};

const GIB: f64 = (1u64 << 30) as f64;
const WITHOUT: &str = "#9aa4b2";
const WITH: &str = "#2563eb";
const LIMIT: &str = "#dc2626";

/// Memory over time, without recomputation and with that of `best`; peaks and limit as lines.
pub(super) fn memory_over_time(
    graph: &GraphFile,
    without: &Answer,
    best: &Answer,
    limit: u64,
) -> String {
    let problem = &graph.problem;
    let highest = without.cost.peak.max(limit.min(2 * without.cost.peak)) as f64;
    let (unit, scale) = if highest < GIB { ("MiB", GIB / 1024.0) } else { ("GiB", GIB) };
    let longest = without.cost.time.max(best.cost.time);
    let mut frame = Frame::new(
        &format!("{}: memory while a step is computed", graph.model),
        ("time (ms)", 0.0, longest / 1e3),
        (&format!("memory ({unit})"), 0.0, highest / scale),
    );
    let both = [(without, WITHOUT, "without recomputation"), (best, WITH, "with recomputation")];
    for (answer, color, name) in both {
        frame.line(&stairs(problem, &answer.sequence, scale), color);
        let peak = answer.cost.peak as f64 / scale;
        let name = format!("{name}: peak {peak:.2} {unit}, {:.2} ms", answer.cost.time / 1e3);
        frame.level(peak, color, true);
        frame.legend(color, &name);
    }
    if limit as f64 <= highest {
        frame.level(limit as f64 / scale, LIMIT, false);
    }
    frame.legend(LIMIT, &format!("limit {:.2} {unit}", limit as f64 / scale));
    frame.finish()
}

/// Time (ms) and memory at both ends of each computation.
fn stairs(problem: &Problem, sequence: &[u32], scale: f64) -> Vec<(f64, f64)> {
    let mut time = 0.0;
    let mut points = vec![(0.0, 0.0)];
    for (node, held) in sequence.iter().zip(memory(problem, sequence)) {
        let held = held as f64 / scale;
        points.push((time, held));
        time += problem.node(*node).time / 1e3;
        points.push((time, held));
    }
    points
}

/// Time over memory, both in percent of what is needed `without` recomputation; the baseline's
/// points, and the share of memory that no sequence goes below.
pub(super) fn trade_offs(
    graph: &GraphFile,
    front: &[Answer],
    baseline: &[Answer],
    without: Cost,
    bound: f64,
) -> String {
    let percent = |answer: &Answer| {
        let memory = 100.0 * answer.cost.peak as f64 / without.peak.max(1) as f64;
        let time = if without.time > 0.0 { answer.cost.time / without.time } else { 1.0 };
        (memory, 100.0 * time)
    };
    let points: Vec<(f64, f64)> = front.iter().map(percent).collect();
    let others: Vec<(f64, f64)> = baseline.iter().map(percent).collect();
    let longest = points.iter().chain(&others).map(|point| point.1).fold(101.0, f64::max);
    let mut frame = Frame::new(
        &format!("{}: time for memory", graph.model),
        ("memory (% of that without recomputation)", 0.0, 100.0),
        ("time (%)", 100.0, longest),
    );
    // What is fastest within a memory stays so until the next one.
    let steps = points.windows(2).flat_map(|p| [p[0], (p[1].0, p[0].1)]);
    let line: Vec<(f64, f64)> = steps.chain(points.last().copied()).collect();
    frame.line(&line, WITH);
    frame.dots(&points, WITH);
    frame.legend(WITH, "found");
    frame.dots(&others, WITHOUT);
    frame.legend(WITHOUT, "segments of the forward pass");
    frame.wall(100.0 * bound, LIMIT);
    frame.legend(LIMIT, &format!("no sequence below {:.1} %", 100.0 * bound));
    frame.finish()
}
