//! Searches side by side, each in a thread, until time or moves are used up or a signal comes.

use super::progress::Progress;
use crate::train::StopFlag;
use pipewright_core::recompute::{Answer, Cost, Goal, Problem, Search, chen, exact};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// Moves between two looks at the clock: some hundredths of a second. It is no part of the result:
/// a search does the same moves whoever asks for how many at a time.
const SLICE: u64 = 5_000;

/// How long and how widely is searched.
pub(super) struct Effort {
    /// When it ends.
    pub until: Option<Instant>,
    /// Moves of each search.
    pub moves: Option<u64>,
    /// Seed of the first search.
    pub seed: u64,
    /// Searches.
    pub threads: u32,
    /// Set by a signal.
    pub stop: StopFlag,
}

/// How far a search is.
#[derive(Clone, Copy)]
pub(super) struct Report {
    /// Which one.
    pub thread: u32,
    /// What its best answer costs.
    pub best: Cost,
    /// Moves so far.
    pub moves: u64,
}

/// What was found.
pub(super) struct Found {
    /// Trade-offs: ascending in peak, descending in time.
    pub front: Vec<Answer>,
    /// Moves of all searches.
    pub moves: u64,
    /// Whether nothing better exists.
    pub optimal: bool,
}

impl Found {
    /// The fastest answer within `limit`, else the one of least memory.
    pub fn within(&self, limit: u64) -> &Answer {
        let after = self.front.partition_point(|answer| answer.cost.peak <= limit);
        &self.front[after.saturating_sub(1)]
    }
}

/// Searches, and adds the answers that cost nothing to know: segments of the forward pass, and for
/// small graphs the optimum itself.
pub(super) fn search(
    problem: &Problem,
    forward: &[bool],
    goal: Goal,
    effort: &Effort,
    progress: &mut Progress,
) -> Found {
    if let Ok(front) = exact::front(problem) {
        return Found { front, moves: 0, optimal: true };
    }
    let (reports, incoming) = channel();
    let mut answers = chen::sweep(problem, forward);
    let mut moves = 0;
    std::thread::scope(|scope| {
        let start = |thread: u32| {
            let reports = reports.clone();
            scope.spawn(move || one(problem, goal, effort, thread, &reports))
        };
        let searches: Vec<_> = (0..effort.threads).map(start).collect();
        // The loop ends when the last search drops its end of the channel.
        drop(reports);
        for report in incoming {
            progress.report(report);
        }
        // In the order of seeds, so that of equal answers the same one is taken every time.
        for search in searches {
            let (front, done) = search.join().expect("searches do not panic");
            answers.extend(front);
            moves += done;
        }
    });
    Found { front: unbeaten(answers), moves, optimal: false }
}

/// One search, with the next seed for each thread.
fn one(
    problem: &Problem,
    goal: Goal,
    effort: &Effort,
    thread: u32,
    reports: &Sender<Report>,
) -> (Vec<Answer>, u64) {
    let mut search = Search::new(problem, goal, effort.seed.wrapping_add(u64::from(thread)));
    loop {
        let left = effort.moves.map_or(SLICE, |moves| moves.saturating_sub(search.moves()));
        let late = effort.until.is_some_and(|until| Instant::now() >= until);
        if left == 0 || late || effort.stop.load(Ordering::Relaxed) {
            break;
        }
        let more = search.advance(left.min(SLICE));
        // Nobody listens after a failure elsewhere.
        let _ = reports.send(Report { thread, best: search.best().cost, moves: search.moves() });
        if !more {
            break;
        }
    }
    (search.front().to_vec(), search.moves())
}

/// The answers that no other beats: ascending in peak, descending in time; the first of equals.
fn unbeaten(mut answers: Vec<Answer>) -> Vec<Answer> {
    answers.sort_by(|a, b| a.cost.peak.cmp(&b.cost.peak).then(a.cost.time.total_cmp(&b.cost.time)));
    let mut least = f64::INFINITY;
    answers.retain(|answer| {
        // The same computations in another order differ in the last bits of their sum.
        let better = answer.cost.time < least * (1.0 - 1e-12);
        least = least.min(answer.cost.time);
        better
    });
    answers
}
