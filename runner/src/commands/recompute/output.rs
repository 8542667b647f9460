//! Results: a table, JSON, a file, a picture.

use super::plot;
use super::progress::{duration, percent};
use super::search::Found;
use crate::args::RecomputeArgs;
use crate::commands::write_text;
use crate::failure::Failure;
use pipewright_core::recompute::file::{
    FRONT_FORMAT, FrontFile, GraphFile, PointRecord, SEQUENCE_FORMAT, SequenceFile,
};
use pipewright_core::recompute::{Answer, Cost, chen, least_time};
use pipewright_core::units::Bytes;
use std::path::Path;
use std::time::Instant;

/// All that can be told.
pub(super) struct Context<'a> {
    pub args: &'a RecomputeArgs,
    pub graph: &'a GraphFile,
    /// Every needed node once.
    pub without: &'a Answer,
    /// Bytes that no sequence goes below.
    pub bound: u64,
    pub begun: Instant,
    pub found: &'a Found,
}

impl Context<'_> {
    /// Tells the best answer for `limit` bytes.
    pub fn budget(&self, limit: u64) -> Result<(), Failure> {
        let best = self.found.within(limit);
        let without = self.without.cost;
        let point = self.point(best, limit.max(best.cost.peak));
        let file = |point| SequenceFile {
            format: SEQUENCE_FORMAT,
            model: &self.graph.model,
            budget_bytes: limit,
            peak_without_bytes: without.peak,
            time_without_us: without.time,
            bound_bytes: self.bound,
            point,
        };
        // What does not fit is told, and not taken for an answer by whoever reads the file.
        let fits = best.cost.peak <= limit;
        if fits {
            self.write(|| file(point.clone()).to_json())?;
        }
        if let Some(path) = self.args.svg.as_ref().filter(|_| fits) {
            let picture = plot::memory_over_time(self.graph, self.without, best, limit);
            write_text(path, &picture)?;
        }
        if self.args.json {
            say!("{}", file(short(&point)).to_json());
            return Ok(());
        }
        self.tell(&self.head());
        self.tell(&row("without recomputation", without, without));
        self.tell(&row(if self.found.optimal { "optimal" } else { "found" }, best.cost, without));
        let share = |bytes: u64| percent(bytes as f64, without.peak as f64);
        let line =
            |what, bytes| format!("{what:24}{:>12} {:>8}", Bytes(bytes).to_string(), share(bytes));
        self.tell(&line("budget", limit));
        self.tell(&line("no sequence below", self.bound));
        if let Some(time) = point.bound_time_us {
            let share = percent(time, without.time);
            self.tell(&format!(
                "within the budget no sequence takes less than {share} of the time"
            ));
        }
        let again = best.sequence.len() - self.without.sequence.len();
        self.tell(&format!("{again} computations more than without, {}", self.effort()));
        Ok(())
    }

    /// Tells all trade-offs.
    pub fn front(&self) -> Result<(), Failure> {
        let without = self.without.cost;
        let answers = &self.found.front;
        let points: Vec<PointRecord> =
            answers.iter().map(|answer| self.point(answer, answer.cost.peak)).collect();
        let file = |points| FrontFile {
            format: FRONT_FORMAT,
            model: &self.graph.model,
            peak_without_bytes: without.peak,
            time_without_us: without.time,
            bound_bytes: self.bound,
            points,
        };
        self.write(|| file(points.clone()).to_json())?;
        if let Some(path) = &self.args.svg {
            let baseline = chen::sweep(&self.graph.problem, &self.graph.forward());
            let share = self.bound as f64 / without.peak.max(1) as f64;
            let picture = plot::trade_offs(self.graph, answers, &baseline, without, share);
            write_text(path, &picture)?;
        }
        if self.args.json {
            say!("{}", file(points.iter().map(short).collect()).to_json());
            return Ok(());
        }
        self.tell(&self.head());
        // The fastest of each fortieth of the memory; files have all.
        let step = |answer: &Answer| answer.cost.peak.saturating_mul(40) / without.peak.max(1);
        let next = answers.iter().skip(1).map(|answer| Some(step(answer))).chain([None]);
        let mut shown = 0;
        for ((answer, point), next) in answers.iter().zip(&points).zip(next) {
            if next == Some(step(answer)) {
                continue;
            }
            shown += 1;
            let proven = point.bound_time_us.map(|time| percent(time, without.time));
            let proven = proven.map_or(String::new(), |share| format!("   at least {share}"));
            self.tell(&(row("", answer.cost, without) + proven.as_str()));
        }
        self.tell(&row("without recomputation", without, without));
        let share = percent(self.bound as f64, without.peak as f64);
        self.tell(&format!("no sequence needs less than {} ({share})", Bytes(self.bound)));
        let count = match answers.len() {
            all if all == shown => format!("{all} trade-offs"),
            all => format!("{shown} of {all} trade-offs (-o writes them all)"),
        };
        self.tell(&format!("{count}, {}", self.effort()));
        Ok(())
    }

    /// What is told of an answer; with --bounds also what is proven for `limit` bytes.
    fn point<'s>(&self, answer: &'s Answer, limit: u64) -> PointRecord<'s> {
        let proven = self.args.bounds.then(|| least_time(&self.graph.problem, limit));
        let point = PointRecord::new(answer.cost, self.without.cost, Some(&answer.sequence));
        PointRecord { bound_time_us: proven.flatten(), ..point }
    }

    /// Writes the file that is asked for.
    fn write(&self, text: impl Fn() -> String) -> Result<(), Failure> {
        match &self.args.output {
            Some(path) => write_text(path, &text()),
            None => Ok(()),
        }
    }

    /// Prints a line beside the file: where that goes to the standard output, elsewhere.
    fn tell(&self, line: &str) {
        if self.args.output.as_deref() == Some(Path::new("-")) {
            note!("{line}");
        } else {
            say!("{line}");
        }
    }

    fn head(&self) -> String {
        let name = if self.graph.model.is_empty() { "the graph" } else { &self.graph.model };
        let head = format!("{name}, {} nodes", self.graph.problem.len());
        format!("{head:24}{:>12} {:>8} {:>11} {:>8}", "memory", "", "time", "")
    }

    fn effort(&self) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        if self.found.optimal {
            return format!("proven in {seconds:.1} s");
        }
        format!("{:.1} million moves in {seconds:.1} s", self.found.moves as f64 / 1e6)
    }
}

/// The figures alone.
fn short<'a>(point: &PointRecord<'a>) -> PointRecord<'a> {
    PointRecord { sequence: None, ..point.clone() }
}

fn row(what: &str, cost: Cost, without: Cost) -> String {
    format!(
        "{what:24}{:>12} {:>8} {:>11} {:>8}",
        Bytes(cost.peak).to_string(),
        percent(cost.peak as f64, without.peak as f64),
        duration(cost.time).to_string(),
        percent(cost.time, without.time)
    )
}
