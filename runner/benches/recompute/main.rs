//! Recomputation beside other methods, on the same graphs.
//!
//! `cargo bench -p pipewright-runner --bench recompute [-- SECONDS [GRAPH ..]]`
//!
//! For every graph one search of the whole front for SECONDS (10) on one core. At each point of the
//! lower envelope of the others: their time, ours, and the time below which nothing can be. Then the
//! graphs of Moccasin's repository with one search a budget, and how soon a budget is met. Needs the
//! graphs beside the repository; says so where there are none. `-- SECONDS scale` prints how the search
//! grows with the number of layers instead, which needs no files. `-- SECONDS points [GRAPH ..]` searches
//! SECONDS for each point of the envelope by itself, as whoever has a budget does. `-- SECONDS gaps [GRAPH ..]`
//! searches SECONDS for half the memory and for 30 % of it, and prints how far the answers are from proven bounds.

mod gaps;
mod published;
mod scale;

use flate2::read::GzDecoder;
use pipewright_core::recompute::file::{GraphFile, read};
use pipewright_core::recompute::{
    Cost, Goal, Problem, Search, cost, least_peak, least_time, without_recomputation,
};
use published::{OTHERS, Others, TABLE};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Moves between two looks at the clock.
const SLICE: u64 = 500;

fn main() {
    // Cargo passes `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let seconds: f64 = args.next().map_or(10.0, |text| text.parse().expect("seconds"));
    let mut graphs: Vec<String> = args.collect();
    let [points, gaps] = ["points", "gaps"].map(|mode| graphs.first().is_some_and(|w| w == mode));
    graphs.drain(..usize::from(points || gaps));
    let wanted = |name: &str| graphs.is_empty() || graphs.iter().any(|graph| graph == name);
    if graphs == ["scale"] {
        return scale::grow(seconds, SLICE);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/graphs");
    if !folder.is_dir() {
        println!("skipped: there are no graphs in {}", folder.display());
        return;
    }
    if gaps {
        let graphs = OTHERS.iter().map(|others| others.graph).filter(|graph| wanted(graph));
        return gaps::list(&folder, graphs, seconds);
    }
    println!("per cent of no recomputation; memory: others' time / ours / least possible\n");
    let mut sums = Sums::default();
    for others in OTHERS.iter().filter(|others| wanted(others.graph)) {
        beside(&folder, others, seconds, points, &mut sums);
    }
    println!("\n{sums:?}\n");
    if points {
        return;
    }
    table(&folder.join("moccasin"), seconds, wanted);
}

fn load(path: PathBuf) -> GraphFile {
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = vec![];
    GzDecoder::new(file).read_to_end(&mut text).expect("gzip");
    read(&text).expect("a graph")
}

fn search(problem: &Problem, goal: Goal, seconds: f64) -> Search<'_> {
    let start = Instant::now();
    let mut search = Search::new(problem, goal, 1);
    while start.elapsed().as_secs_f64() < seconds && search.advance(SLICE) {}
    search
}

/// Over all graphs.
#[derive(Debug, Default)]
struct Sums {
    graphs: u32,
    /// Points of others that none of ours beats.
    unbeaten: u32,
    /// Graphs whose mean overhead is at most 0.85 of the envelope's.
    well_below: u32,
    /// Graphs on which that is proven to be impossible.
    impossible: u32,
    /// Graphs whose least memory at 140 % time is at most 0.85 of anyone's or 1.1 of the bound.
    least: u32,
}

fn beside(folder: &Path, others: &Others, seconds: f64, points: bool, sums: &mut Sums) {
    let graph = load(folder.join(format!("{}.json.gz", others.graph)));
    let problem = &graph.problem;
    let base = cost(problem, &without_recomputation(problem));
    let percent =
        |cost: Cost| (100.0 * cost.peak as f64 / base.peak as f64, 100.0 * cost.time / base.time);
    let search = search(problem, Goal::Front, seconds);
    let front: Vec<(f64, f64)> = search.front().iter().map(|a| percent(a.cost)).collect();
    search.front().iter().for_each(|a| assert_eq!(problem.check(&a.sequence), Ok(())));
    let floor = 100.0 * least_peak(problem) as f64 / base.peak as f64;
    println!("{} ({} nodes), working set {floor:.1}", others.graph, problem.len());
    let (mut ours_sum, mut theirs_sum, mut bound_sum) = (0.0, 0.0, 0.0);
    for &(memory, theirs) in envelope(others.points).iter() {
        // Their figures are rounded to a tenth.
        let limit = memory + 0.05;
        let bytes = (limit / 100.0 * base.peak as f64) as u64;
        let mut ours = front.iter().rfind(|point| point.0 <= limit).map_or(f64::INFINITY, |p| p.1);
        if points {
            let best = crate::search(problem, Goal::Budget(bytes), seconds).best().cost;
            ours = if best.peak <= bytes { percent(best).1 } else { f64::INFINITY };
        }
        let bound = least_time(problem, bytes).map_or(f64::NAN, |time| 100.0 * time / base.time);
        let beaten = ours <= theirs + 0.05;
        sums.unbeaten += u32::from(!beaten);
        let note = if beaten { "" } else { "  NOT BEATEN" };
        println!("  {memory:5.1}: {theirs:6.1} / {ours:6.1} / {bound:6.1}{note}");
        ours_sum += ours - 100.0;
        theirs_sum += theirs - 100.0;
        bound_sum += bound - 100.0;
    }
    let (ratio, possible) = (ours_sum / theirs_sum, bound_sum / theirs_sum);
    let least = front.iter().find(|point| point.1 <= 140.0).expect("the start").0;
    let smallest = others.points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let goal = (0.85 * smallest).max(1.1 * floor);
    println!(
        "  overhead {ratio:.2} of theirs (less than {possible:.2} is impossible); \
         least memory {:.1} at {:.0} %, {least:.1} at 140 % (goal {goal:.1})",
        front[0].0, front[0].1,
    );
    sums.graphs += 1;
    sums.well_below += u32::from(ratio <= 0.85);
    sums.impossible += u32::from(possible > 0.85);
    sums.least += u32::from(least <= goal);
}

/// The points that no other beats.
fn envelope(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let beats = |a: &(f64, f64), b: &(f64, f64)| a != b && a.0 <= b.0 && a.1 <= b.1;
    let mut envelope: Vec<(f64, f64)> =
        points.iter().filter(|b| !points.iter().any(|a| beats(a, b))).copied().collect();
    envelope.sort_by(|a, b| a.0.total_cmp(&b.0));
    envelope
}

/// Table 1 of Imanishi et al. 2023.
fn table(folder: &Path, seconds: f64, wanted: impl Fn(&str) -> bool) {
    println!("graph of Moccasin  budget  increase: best published (s)  ours at 1 s  ours (s)");
    for row in TABLE.iter().filter(|row| wanted(row.graph)) {
        let graph = load(folder.join(format!("{}.json.gz", row.graph)));
        let problem = &graph.problem;
        let base = cost(problem, &without_recomputation(problem));
        let limit = ((row.budget + 0.05) / 100.0 * base.peak as f64) as u64;
        let increase = |search: &Search| {
            let best = search.best().cost;
            let met = best.peak <= limit;
            if met { 100.0 * (best.time / base.time - 1.0) } else { f64::NAN }
        };
        let soon = increase(&search(problem, Goal::Budget(limit), 1.0));
        let search = search(problem, Goal::Budget(limit), seconds);
        println!(
            "{:14} {:9.1} {:12.2} ({:5.1}, {}) {soon:12.2} {:9.2} ({seconds:.0})",
            row.graph,
            row.budget,
            row.increase,
            row.seconds,
            row.whose,
            increase(&search),
        );
    }
}
