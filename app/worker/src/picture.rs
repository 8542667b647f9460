//! JSON pictures of answers, for the page.

use crate::curve::Curve;
use crate::grid::{Cells, short};
use crate::open::Work;
use crate::protocol::{Point, Share, Shown};
use pipewright_core::recompute::{Answer, last_uses};
use std::collections::BTreeMap;

/// Rows of a list of shares.
const ROWS: usize = 10;

/// Draws `answer` beside what is computed `without` recomputation.
pub fn picture(work: &Work, cells: &Cells, without: &Answer, answer: &Answer) -> Shown {
    let (base, own) = (Curve::new(work, without), Curve::new(work, answer));
    let end = base.end.max(own.end);
    let fate = Fate::new(work, answer);
    let letters: Vec<char> = cells.nodes.iter().map(|node| fate.letter(*node)).collect();
    let kept = letters.iter().filter(|letter| **letter == 'k').count();
    Shown {
        cost: point(work, answer),
        end,
        without: base.columns(end),
        with: own.columns(end),
        runs: own.runs(end),
        peaks: [base.peak(), own.peak()],
        backward: own.starts.get(fate.backward).copied().unwrap_or(own.end),
        cells: letters.into_iter().collect(),
        kept: (kept as u32, cells.nodes.len() as u32),
        again: again(work, answer),
        alive: alive(work, answer, own.peak_at),
    }
}

/// What an answer costs.
pub fn point(work: &Work, answer: &Answer) -> Point {
    Point { peak: answer.cost.peak, time: answer.cost.time * work.unit }
}

/// What becomes of each value.
struct Fate {
    /// How often each node is computed.
    times: Vec<u32>,
    /// Whether its value waits for the backward pass.
    across: Vec<bool>,
    /// First item of the backward pass.
    backward: usize,
}

impl Fate {
    fn new(work: &Work, answer: &Answer) -> Self {
        let count = work.problem.len();
        let (mut times, mut across) = (vec![0; count], vec![false; count]);
        let sequence = &answer.sequence;
        let begins = |node: &u32| !work.labels[*node as usize].forward;
        let backward = sequence.iter().position(begins).unwrap_or(sequence.len());
        for (at, last) in last_uses(&work.problem, sequence).into_iter().enumerate() {
            let node = sequence[at] as usize;
            times[node] += 1;
            across[node] |= at < backward && backward <= last as usize;
        }
        Self { times, across, backward }
    }

    fn letter(&self, node: u32) -> char {
        match (self.times[node as usize], self.across[node as usize]) {
            (0 | 1, false) => '.',
            (0 | 1, true) => 'k',
            (times, _) => char::from_digit(times.min(9), 10).unwrap_or('9'),
        }
    }
}

/// What is computed again, by operation.
fn again(work: &Work, answer: &Answer) -> Vec<Share> {
    let mut seen = vec![false; work.problem.len()];
    let repeated =
        answer.sequence.iter().filter(|node| std::mem::replace(&mut seen[**node as usize], true));
    let repeated = repeated.map(|node| (*node, work.problem.node(*node).time * work.unit));
    longest(shares(work, repeated))
}

/// What is held while item `at` runs, by operation; what waits for the backward pass as often as
/// there are micro-batches in flight.
fn alive(work: &Work, answer: &Answer, at: usize) -> Vec<Share> {
    let (problem, sequence) = (&work.problem, &answer.sequence);
    let is_mark = |item: &usize| problem.marks().contains(&sequence[*item]);
    let marks: Vec<usize> = (0..sequence.len()).filter(is_mark).collect();
    let there = last_uses(problem, sequence).into_iter().enumerate().filter_map(|(item, last)| {
        let last = last as usize;
        let bytes = problem.node(sequence[item]).bytes as f64;
        if marks.iter().any(|mark| item < *mark && *mark <= last) {
            return Some((sequence[item], bytes * f64::from(problem.copies())));
        }
        (item <= at && at <= last).then_some((sequence[item], bytes))
    });
    let mut all = shares(work, there);
    let scratch = sequence.get(at).map_or(0, |node| problem.node(*node).scratch);
    if scratch > 0 {
        all.push(Share { name: "workspace".into(), count: 1, amount: scratch as f64 });
    }
    longest(all)
}

/// Nodes with amounts, by operation and pass.
fn shares(work: &Work, nodes: impl Iterator<Item = (u32, f64)>) -> Vec<Share> {
    let mut all: BTreeMap<String, (u32, f64)> = BTreeMap::new();
    for (node, amount) in nodes.filter(|(_, amount)| *amount > 0.0) {
        let label = &work.labels[node as usize];
        let part = if label.forward { "" } else { " (backward)" };
        let share = all.entry(format!("{}{part}", short(label))).or_default();
        *share = (share.0 + 1, share.1 + amount);
    }
    let share = |(name, (count, amount))| Share { name, count, amount };
    all.into_iter().map(share).collect()
}

/// The largest amounts first, those beyond the last row as one.
fn longest(mut all: Vec<Share>) -> Vec<Share> {
    all.sort_by(|a, b| b.amount.total_cmp(&a.amount).then_with(|| a.name.cmp(&b.name)));
    if all.len() > ROWS {
        let rest = all.split_off(ROWS - 1);
        let count = rest.iter().map(|share| share.count).sum();
        let amount = rest.iter().map(|share| share.amount).sum();
        all.push(Share { name: "all others".into(), count, amount });
    }
    all
}
