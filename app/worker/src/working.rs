//! A search for all trade-offs, one for the budget that a person looks at, and the answer that is
//! shown.

use crate::grid::Cells;
use crate::open::Work;
use crate::picture::{picture, point};
use crate::protocol::{Described, Opened, Progress, Reply, Request, Taken};
use pipewright_core::recompute::file::{PointRecord, SEQUENCE_FORMAT, SequenceFile};
use pipewright_core::recompute::{
    Answer, Cost, Goal, Search, chen, least_peak, without_recomputation,
};
use std::collections::VecDeque;

/// Moves for the front before any for a budget: the first picture has every trade-off.
const FIRST: u64 = 50_000;

/// A graph that is worked on.
pub struct Working {
    work: &'static Work,
    cells: Cells,
    without: Answer,
    /// Looks for all trade-offs.
    front: Search<'static>,
    /// Looks for the budget.
    focus: Option<Search<'static>>,
    /// What else was found: segments, and what earlier searches found.
    found: Vec<Answer>,
    budget: u64,
    seed: u64,
    on: bool,
    /// Nothing better can be found.
    done: bool,
    /// What is shown.
    shown: Option<Cost>,
    /// Moves of earlier searches.
    moves: u64,
}

impl Working {
    pub fn new(work: &'static Work) -> Self {
        let problem = &work.problem;
        let without = Answer::new(problem, without_recomputation(problem));
        let forward: Vec<bool> = work.labels.iter().map(|label| label.forward).collect();
        Self {
            work,
            cells: Cells::new(problem, &work.labels),
            front: Search::new(problem, Goal::Front, 1),
            focus: None,
            found: chen::sweep(problem, &forward),
            budget: without.cost.peak,
            without,
            seed: 1,
            on: false,
            done: false,
            shown: None,
            moves: 0,
        }
    }

    pub fn opened(&mut self) -> Opened {
        let Work { title, problem, .. } = self.work;
        Opened {
            title: title.clone(),
            nodes: problem.len() as u32,
            edges: (0..problem.len() as u32).map(|node| problem.inputs(node).len() as u32).sum(),
            base: point(self.work, &self.without),
            floor: least_peak(problem),
            room: self.work.room,
            copies: problem.copies(),
            segments: self.found.iter().map(|answer| point(self.work, answer)).collect(),
            grid: self.cells.grid.clone(),
        }
    }

    pub fn receive(&mut self, request: Request, out: &mut VecDeque<Reply>) {
        match request {
            Request::Stage { .. }
            | Request::Plans { .. }
            | Request::Advise { .. }
            | Request::Orders { .. }
            | Request::Make { .. } => {}
            Request::Budget { bytes, search } => {
                self.budget = bytes;
                if search {
                    self.focus();
                }
                self.report(out);
            }
            Request::Run { on } => self.on = on,
            Request::Reseed => {
                self.seed += 1;
                let fresh = Search::new(&self.work.problem, Goal::Front, self.seed);
                let old = std::mem::replace(&mut self.front, fresh);
                self.keep(&old);
                self.focus();
            }
            Request::Describe { cell } => out.extend(self.describe(cell).map(Reply::Described)),
            Request::Take => out.push_back(Reply::Taken(self.taken())),
        }
    }

    /// A search for the budget alone, if that asks for less than there is without.
    fn focus(&mut self) {
        self.unfocus();
        if self.budget < self.without.cost.peak {
            let goal = Goal::Budget(self.budget);
            self.focus = Some(Search::new(&self.work.problem, goal, self.seed));
        }
    }

    fn unfocus(&mut self) {
        if let Some(search) = self.focus.take() {
            self.keep(&search);
        }
    }

    /// Keeps what a search found when it ends.
    fn keep(&mut self, search: &Search) {
        self.moves += search.moves();
        self.found.extend_from_slice(search.front());
        unbeaten(&mut self.found, |answer| (answer.cost.peak, answer.cost.time));
    }

    pub fn step(&mut self, moves: u64) -> bool {
        if !self.on {
            return false;
        }
        let early = self.front.moves() < FIRST;
        match &mut self.focus {
            Some(focus) if !early && focus.moves() < self.front.moves() => {
                // A budget that cannot be met, or is met for nothing: the front goes on.
                if !focus.advance(moves) {
                    self.unfocus();
                }
            }
            _ => self.done = !self.front.advance(moves),
        }
        self.on &= !self.done;
        self.on
    }

    /// All that was found.
    fn answers(&self) -> impl Iterator<Item = &Answer> {
        let focus = self.focus.as_ref().map_or(&[][..], |search| search.front());
        self.front.front().iter().chain(focus).chain(&self.found)
    }

    /// The fastest within the budget, the one of least memory if there is none.
    fn best(&self) -> &Answer {
        let within = self.answers().filter(|answer| answer.cost.peak <= self.budget);
        let fastest = within
            .min_by(|a, b| a.cost.time.total_cmp(&b.cost.time).then(a.cost.peak.cmp(&b.cost.peak)));
        let least = self
            .answers()
            .min_by(|a, b| a.cost.peak.cmp(&b.cost.peak).then(a.cost.time.total_cmp(&b.cost.time)));
        fastest.or(least).unwrap_or(&self.without)
    }

    pub fn report(&mut self, out: &mut VecDeque<Reply>) {
        let mut front: Vec<_> = self.answers().map(|answer| point(self.work, answer)).collect();
        unbeaten(&mut front, |point| (point.peak, point.time));
        let best = self.best();
        let changed = self.shown != Some(best.cost);
        let focus = self.focus.as_ref().map_or(0, Search::moves);
        out.push_back(Reply::Progress(Progress {
            moves: self.moves + self.front.moves() + focus,
            front,
            best: point(self.work, best),
            done: self.done,
        }));
        if changed {
            self.show(out);
        }
    }

    pub fn show(&mut self, out: &mut VecDeque<Reply>) {
        let best = self.best();
        let shown = picture(self.work, &self.cells, &self.without, best);
        self.shown = Some(best.cost);
        out.push_back(Reply::Shown(Box::new(shown)));
    }

    fn describe(&self, cell: u32) -> Option<Described> {
        let node = *self.cells.nodes.get(cell as usize)?;
        let (problem, labels) = (&self.work.problem, &self.work.labels);
        let label = &labels[node as usize];
        let cells =
            |nodes: &[u32]| nodes.iter().filter_map(|n| self.cells.of[*n as usize]).collect();
        let readers = problem.readers(node);
        let backward = readers.iter().filter(|reader| !labels[**reader as usize].forward).count();
        Some(Described {
            cell,
            name: label.name.clone(),
            op: label.op.clone(),
            bytes: problem.node(node).bytes,
            time: problem.node(node).time * self.work.unit,
            times: self.best().sequence.iter().filter(|n| **n == node).count() as u32,
            inputs: cells(problem.inputs(node)),
            readers: cells(readers),
            backward: backward as u32,
        })
    }

    fn taken(&self) -> Taken {
        let best = self.best();
        let cost = point(self.work, best);
        if let Some((stage, problem)) = &self.work.stage {
            let text = problem.sequence(&best.sequence).to_string();
            return Taken { stage: Some(*stage), text, cost };
        }
        let without = self.without.cost;
        let text = SequenceFile {
            format: SEQUENCE_FORMAT,
            model: &self.work.title,
            budget_bytes: self.budget,
            peak_without_bytes: without.peak,
            time_without_us: without.time,
            bound_bytes: self.front.floor(),
            point: PointRecord::new(best.cost, without, Some(&best.sequence)),
        };
        Taken { stage: None, text: text.to_json(), cost }
    }
}

/// Leaves what no other beats: ascending in peak, descending in time.
fn unbeaten<T>(all: &mut Vec<T>, cost: impl Fn(&T) -> (u64, f64)) {
    all.sort_by(|a, b| {
        let (a, b) = (cost(a), cost(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut least = f64::INFINITY;
    all.retain(|one| {
        let time = cost(one).1;
        // The same computations in another order differ in the last bits of their sum.
        let better = time < least * (1.0 - 1e-12);
        least = least.min(time);
        better
    });
}
