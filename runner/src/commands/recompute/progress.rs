//! Progress of the search: a line that changes on a terminal, nothing elsewhere.

use super::search::Report;
use indicatif::{ProgressBar, ProgressStyle};
use pipewright_core::recompute::{Cost, Goal};
use pipewright_core::units::{Bytes, Nanos};
use std::io::IsTerminal;

/// Shows the best answer of all searches.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    goal: Goal,
    without: Cost,
    bound: u64,
    reports: Vec<Option<Report>>,
}

impl Progress {
    /// For so many searches of a graph that needs `without` recomputation, and at least `bound`
    /// bytes in any case.
    pub fn new(silent: bool, searches: u32, goal: Goal, without: Cost, bound: u64) -> Self {
        let bar = (!silent && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}");
            bar.set_style(style.expect("a constant"));
            bar
        });
        Self { bar, goal, without, bound, reports: vec![None; searches as usize] }
    }

    /// A search came further.
    pub fn report(&mut self, report: Report) {
        self.reports[report.thread as usize] = Some(report);
        let Some(bar) = &self.bar else { return };
        let all = self.reports.iter().flatten();
        let moves: u64 = all.clone().map(|report| report.moves).sum();
        let rank = |cost: &Cost| match self.goal {
            // Within the budget the fastest counts, above it the smallest.
            Goal::Budget(limit) => (cost.peak.max(limit), cost.time),
            Goal::Front => (cost.peak, cost.time),
        };
        let best = all.map(|report| report.best).min_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let best = best.expect("one has just reported");
        bar.set_message(format!(
            "memory {} ({})  time {} ({})  bound {}  {:.1} million moves",
            Bytes(best.peak),
            percent(best.peak as f64, self.without.peak as f64),
            duration(best.time),
            percent(best.time, self.without.time),
            percent(self.bound as f64, self.without.peak as f64),
            moves as f64 / 1e6,
        ));
        bar.tick();
    }

    /// No more reports.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `12.5 %`; of nothing everything is all.
pub(super) fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", if whole > 0.0 { 100.0 * part / whole } else { 100.0 })
}

/// Microseconds in a unit that people read.
pub(super) fn duration(micros: f64) -> Nanos {
    Nanos::from_secs(micros * 1e-6)
}
