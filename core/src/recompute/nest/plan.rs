//! The blocks put together: dynamic programming over what is kept of each.

use super::super::Problem;
use super::super::cut::without_waste;
use super::block::{Local, Side};
use super::shared::{Holdings, Values, correction, last_readers, united};
use std::rc::Rc;

/// Blocks of a segment, at most: through longer ones the forward pass runs again in parts.
const LONGEST: usize = 8;

/// Trade-offs of a segment that are looked at.
const REMEMBERED: usize = 40;

/// States after each block: one for each such share of the limit.
const SHARES: i64 = 250;

/// A block in its place.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// First node of its forward pass.
    pub from: u32,
    /// Which local problem it is.
    pub kind: usize,
    /// Its problems with and without a hole.
    pub sides: [Side; 2],
}

/// How blocks are run when only the inputs of the first were kept.
#[derive(Clone, Debug)]
enum Again {
    /// One block, by this run of its kind.
    Alone(usize, usize),
    /// The block by this choice of its kind, the others in its hole.
    Around(usize, usize, Rc<Again>),
    /// The forward pass of the blocks from one to before another, then from that on, then these.
    Split(usize, usize, Rc<Again>, Rc<Again>),
}

/// Peak, time beyond that of the backward passes, and how.
type Point = (i64, f64, Rc<Again>);

/// Makes plans.
#[derive(Clone, Debug)]
pub(super) struct Planner {
    blocks: Vec<Block>,
    locals: Vec<Local>,
    /// By first block and number of blocks: trade-offs of running them again.
    segments: Vec<Vec<Vec<Point>>>,
    holdings: Vec<Holdings>,
    /// The last block that reads each node.
    last: Vec<usize>,
}

/// A plan.
#[derive(Clone, Debug)]
pub(super) struct NestPlan {
    /// What it computes; `None` where nothing keeps the limit.
    pub sequence: Option<Vec<u32>>,
    /// Moves that making it was worth.
    pub moves: u64,
}

/// What was decided up to some block.
#[derive(Clone, Debug)]
struct Prefix {
    /// Bytes that the blocks so far keep, and those of the values that are read later.
    kept: i64,
    values: Values,
    again: f64,
    /// Blocks before the decision, and the stage there.
    from: (usize, usize),
    step: Decision,
}

#[derive(Clone, Debug)]
enum Decision {
    Start,
    Choice(usize),
    Segment(Rc<Again>),
}

impl Planner {
    /// Of blocks, of which the last is the head, and their solved kinds.
    pub fn new(problem: &Problem, owner: &[usize], blocks: Vec<Block>, locals: Vec<Local>) -> Self {
        let last = last_readers(problem, owner);
        let holdings = (0..blocks.len()).map(|i| {
            let choices = &locals[blocks[i].kind].choices;
            Holdings::new(problem, &blocks, &last, i, choices, LONGEST)
        });
        let holdings = holdings.collect();
        let mut planner = Self { blocks, locals, segments: vec![], holdings, last };
        let below = planner.blocks.len() - 1;
        planner.segments = vec![vec![]; below];
        for first in (0..below).rev() {
            for count in 0..=LONGEST.min(below - first) {
                let points = planner.points(first, count);
                planner.segments[first].push(thinned(points));
            }
        }
        planner
    }

    fn local(&self, block: usize) -> &Local {
        &self.locals[self.blocks[block].kind]
    }

    /// All ways to run a segment again.
    fn points(&self, first: usize, count: usize) -> Vec<Point> {
        let local = self.local(first);
        let mut points = vec![];
        if count == 1 {
            let runs = local.runs.iter().enumerate();
            points.extend(runs.map(|(i, r)| (r.peak, r.again, Rc::new(Again::Alone(first, i)))));
        }
        if count < 2 {
            return points;
        }
        for (i, choice) in local.choices.iter().enumerate() {
            for (peak, again, inner) in &self.segments[first + 1][count - 1] {
                let how = Rc::new(Again::Around(first, i, inner.clone()));
                let peak = choice.peak.max(choice.kept + peak);
                points.push((peak, choice.again + local.forward + again, how));
            }
        }
        let (mut forward, mut passing) = (0.0, 0);
        for lower in 1..count {
            let middle = first + lower;
            forward += self.local(middle - 1).forward;
            passing = self.local(middle - 1).passing.max(passing);
            for above in &self.segments[middle][count - lower] {
                for below in &self.segments[first][lower] {
                    let how = Again::Split(first, middle, above.2.clone(), below.2.clone());
                    let peak = (local.inputs + passing.max(above.0)).max(below.0);
                    points.push((peak, forward + above.1 + below.1, Rc::new(how)));
                }
            }
        }
        points
    }

    /// The fastest plan that should need no more than `limit` bytes.
    pub fn plan(&self, problem: &Problem, limit: i64) -> NestPlan {
        let head = self.blocks.len() - 1;
        let mut stages: Vec<Vec<Prefix>> = vec![vec![]; head + 1];
        stages[0].push(Prefix {
            kept: 0,
            values: Rc::default(),
            again: 0.0,
            from: (0, 0),
            step: Decision::Start,
        });
        let mut decisions = 0;
        for block in 0..head {
            stages[block] = distinct(std::mem::take(&mut stages[block]), limit);
            for index in 0..stages[block].len() {
                decisions += self.decide(&mut stages, block, index, limit);
            }
        }
        let mut best: Option<(f64, usize, usize)> = None;
        for (i, stage) in stages[head].iter().enumerate() {
            let needs = self.holdings[head].segments.last().map_or(&[][..], |needs| needs);
            let kept = stage.kept + correction(&stage.values, needs) - self.local(head).inputs;
            for (r, run) in self.local(head).runs.iter().enumerate() {
                let again = stage.again + run.again;
                if kept + run.peak <= limit && best.is_none_or(|b| again < b.0) {
                    best = Some((again, i, r));
                }
            }
        }
        let sequence = best.map(|(_, i, r)| self.sequence(problem, &stages, i, r));
        NestPlan { sequence, moves: decisions / 50 + 1 }
    }

    /// What can be done with a block, and what follows it; returns the number of decisions.
    fn decide(&self, stages: &mut [Vec<Prefix>], block: usize, index: usize, limit: i64) -> u64 {
        let Prefix { kept, again, ref values, .. } = stages[block][index];
        let values = values.clone();
        let (local, holdings) = (self.local(block), &self.holdings[block]);
        let from = (block, index);
        let outcome = |list: &Vec<_>| {
            (correction(&values, list), united(&values, list, &self.last, block + 1))
        };
        let outcomes: Vec<(i64, Values)> = holdings.lists.iter().map(outcome).collect();
        for (i, choice) in local.choices.iter().enumerate() {
            let (more, values) = &outcomes[holdings.list[i]];
            if kept + choice.peak + more <= limit {
                let (kept, again) = (kept + choice.kept + more, again + choice.again);
                let (values, step) = (values.clone(), Decision::Choice(i));
                stages[block + 1].push(Prefix { kept, values, again, from, step });
            }
        }
        let mut passing = 0;
        for (count, points) in self.segments[block].iter().enumerate().skip(1) {
            passing = self.local(block + count - 1).passing.max(passing);
            let needs = &holdings.segments[count];
            let more = correction(&values, needs);
            if kept + more + passing > limit {
                break;
            }
            // The peaks of points count the inputs.
            let fits = points.partition_point(|p| kept + more - local.inputs + p.0 <= limit);
            if let Some(at) = fits.checked_sub(1) {
                let (_, time, how) = &points[at];
                let values = united(&values, needs, &self.last, block + count);
                let (kept, again) = (kept + more, again + time);
                let step = Decision::Segment(how.clone());
                stages[block + count].push(Prefix { kept, values, again, from, step });
            }
        }
        (local.choices.len() + LONGEST) as u64
    }

    /// The sequence of the stage and the head's run.
    fn sequence(
        &self,
        problem: &Problem,
        stages: &[Vec<Prefix>],
        stage: usize,
        run: usize,
    ) -> Vec<u32> {
        let head = self.blocks.len() - 1;
        let mut steps = vec![];
        let mut at = (head, stage);
        while at.0 > 0 {
            let stage = &stages[at.0][at.1];
            steps.push((stage.from.0, at.0, &stage.step));
            at = stage.from;
        }
        let mut items = vec![];
        for &(block, next, step) in steps.iter().rev() {
            match step {
                Decision::Choice(i) => {
                    self.put(block, &self.local(block).choices[*i].before, &mut items)
                }
                _ => self.pass(block, next, &mut items),
            }
        }
        self.alone(head, run, &mut items);
        for &(block, _, step) in &steps {
            match step {
                Decision::Choice(i) => {
                    self.put(block, &self.local(block).choices[*i].after, &mut items)
                }
                Decision::Segment(how) => self.again(how, &mut items),
                Decision::Start => {}
            }
        }
        // Some nodes can be computed once only, and the forward pass may compute what nobody reads.
        let mut done = vec![false; problem.len()];
        items.retain(|v| {
            let seen = std::mem::replace(&mut done[*v as usize], true);
            !(seen && problem.node(*v).once)
        });
        without_waste(problem, &items)
    }

    /// Items of a choice of a block.
    fn put(&self, block: usize, local: &[u32], items: &mut Vec<u32>) {
        let side = &self.blocks[block].sides[0];
        let own = local.iter().filter(|v| side.own[**v as usize]);
        items.extend(own.map(|v| side.of[*v as usize]));
    }

    /// Items of a run of a block.
    fn alone(&self, block: usize, run: usize, items: &mut Vec<u32>) {
        let side = &self.blocks[block].sides[1];
        let own = self.local(block).runs[run].items.iter().filter(|v| side.own[**v as usize]);
        items.extend(own.map(|v| side.of[*v as usize]));
    }

    /// The forward pass from one block to before another.
    fn pass(&self, first: usize, next: usize, items: &mut Vec<u32>) {
        items.extend(self.blocks[first].from..self.blocks[next].from);
    }

    fn again(&self, how: &Again, items: &mut Vec<u32>) {
        match how {
            Again::Alone(block, run) => self.alone(*block, *run, items),
            Again::Around(block, i, inner) => {
                let choice = &self.local(*block).choices[*i];
                self.put(*block, &choice.before, items);
                self.again(inner, items);
                self.put(*block, &choice.after, items);
            }
            Again::Split(first, middle, above, below) => {
                self.pass(*first, *middle, items);
                self.again(above, items);
                self.again(below, items);
            }
        }
    }
}

/// Peaks ascending and times descending, not too many.
fn thinned(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    points.retain(|p| {
        let faster = p.1 < least;
        least = least.min(p.1);
        faster
    });
    let count = points.len();
    if count <= REMEMBERED {
        return points;
    }
    (0..REMEMBERED).map(|i| points[i * (count - 1) / (REMEMBERED - 1)].clone()).collect()
}

/// The stages that no other beats: of each share of the limit the fastest.
fn distinct(mut stages: Vec<Prefix>, limit: i64) -> Vec<Prefix> {
    stages.sort_by(|a, b| a.kept.cmp(&b.kept).then(a.again.total_cmp(&b.again)));
    let mut least = f64::INFINITY;
    stages.retain(|s| {
        let faster = s.again < least;
        least = least.min(s.again);
        faster
    });
    let share = |s: &Prefix| s.kept / (limit / SHARES).max(1);
    let mut last = None;
    stages.reverse();
    stages.retain(|s| last.replace(share(s)) != Some(share(s)));
    stages
}
