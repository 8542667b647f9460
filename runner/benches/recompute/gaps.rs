//! Gaps between the times of answers and what is proven to be the least.

use super::{load, search};
use pipewright_core::recompute::{Goal, cost, least_time, without_recomputation};
use std::path::Path;
use std::time::Instant;

/// Budgets, as shares of the peak without recomputation.
const SHARES: [f64; 2] = [0.5, 0.3];

/// Prints for each graph and budget what computing again costs after `seconds`, what it costs at
/// least, and the difference, all in points: per cent of the time without recomputation.
pub fn list<'a>(folder: &Path, graphs: impl Iterator<Item = &'a str>, seconds: f64) {
    println!("graph            memory  overhead  at least    gap  (the bound took)");
    let mut gaps = vec![];
    for name in graphs {
        let graph = load(folder.join(format!("{name}.json.gz")));
        let problem = &graph.problem;
        let base = cost(problem, &without_recomputation(problem));
        for share in SHARES {
            let limit = (share * base.peak as f64) as u64;
            let best = search(problem, Goal::Budget(limit), seconds).best().cost;
            let start = Instant::now();
            let bound = least_time(problem, limit);
            let took = start.elapsed().as_secs_f64();
            let points = |time: f64| 100.0 * (time / base.time - 1.0);
            print!("{name:16} {:4.0} % ", 100.0 * share);
            let Some(bound) = bound else {
                println!("  no sequence needs so little  ({took:.2} s)");
                continue;
            };
            let ours = if best.peak <= limit { points(best.time) } else { f64::INFINITY };
            let gap = ours - points(bound);
            println!("{ours:9.2} {:9.2} {gap:6.2}  ({took:.2} s)", points(bound));
            gaps.push(gap);
        }
    }
    gaps.sort_by(f64::total_cmp);
    // The least gap that so much of all do not exceed.
    let quantile = |share: f64| gaps[(share * gaps.len() as f64).ceil() as usize - 1];
    if !gaps.is_empty() {
        let [median, most, worst] = [0.5, 0.9, 1.0].map(quantile);
        println!("gap: median {median:.2}, 90th percentile {most:.2}, worst {worst:.2}");
    }
}
