//! The first computation of a node: what is there at that moment in every sequence, or computed later.

use super::super::Problem;
use super::super::state::Ticks;
use super::joint::Joint;

/// Prices that are looked at, at most.
const STEPS: u32 = 40;

/// How much dearer the next price is until everything has room.
const RISE: f64 = 4.0;

/// The dearest price: that all time pays for so little of the limit.
const DEAREST: f64 = 1024.0;

/// Ticks that all bytes together may cost, so that sums of capacities stay far below what counts as
/// unbounded.
const MOST_TICKS: f64 = (1u64 << 56) as f64;

/// As near to the largest bound as is looked for, as a share.
const CLOSE: f64 = 1e-9;

/// Nodes that are computed before, and first after, the first computation of a node.
pub(super) struct Sides {
    pub before: Vec<bool>,
    pub after: Vec<bool>,
}

impl Sides {
    pub fn new(problem: &Problem, node: u32) -> Self {
        let n = problem.len();
        let (mut before, mut after) = (vec![false; n], vec![false; n]);
        before[node as usize] = true;
        for v in (0..=node).rev() {
            if before[v as usize] {
                problem.inputs(v).iter().for_each(|input| before[*input as usize] = true);
            }
        }
        after[node as usize] = true;
        for v in node + 1..n as u32 {
            after[v as usize] = problem.inputs(v).iter().any(|input| after[*input as usize]);
        }
        before[node as usize] = false;
        after[node as usize] = false;
        Self { before, after }
    }
}

/// The first computation of a node, at which something has to be given up.
#[derive(Clone, Debug)]
pub(in super::super) struct First {
    /// Values that may have to be there afterwards, without those that this computation needs.
    pub values: Vec<Later>,
    /// By node: its place in `values`, from 1; 0: none.
    pub places: Vec<u32>,
    /// Bytes for `values`.
    pub room: f64,
    /// Bytes beyond the room when all that is wanted is kept.
    most: f64,
    /// The highest price of a byte that is looked at.
    dearest: f64,
}

/// A value that may have to be there after a moment.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Later {
    pub node: u32,
    /// Something reads it that is first computed later.
    pub wanted: bool,
    /// Ticks of computing it later; `None` where it cannot be.
    pub again: Option<u64>,
}

impl First {
    /// `None` where all that may be wanted later has room.
    ///
    /// What is neither before nor after the node is computed by then or later. It takes room in the
    /// one case and, as it is computed once in any case, no further time in the other.
    pub fn new(
        problem: &Problem,
        ticks: &Ticks,
        needed: &[bool],
        node: u32,
        limit: u64,
    ) -> Option<Self> {
        let n = problem.len();
        let sides = Sides::new(problem, node);
        let mut there = vec![false; n];
        let own = problem.inputs(node).iter().chain([&node]);
        own.for_each(|v| there[*v as usize] = true);
        let mut wanted = vec![false; n];
        for reader in (0..n).filter(|v| sides.after[*v] && needed[*v]) {
            for &input in problem.inputs(reader as u32) {
                let input = input as usize;
                wanted[input] |= !sides.after[input] && !there[input];
            }
        }
        let bytes = |flags: &[bool]| -> u64 {
            (0..n).filter(|v| flags[*v]).map(|v| problem.node(v as u32).bytes).sum()
        };
        let room = limit as f64 - (bytes(&there) + problem.node(node).scratch) as f64;
        let most = bytes(&wanted) as f64 - room;
        if most <= 0.0 {
            return None;
        }
        let again = |v: u32| match (sides.before[v as usize], problem.node(v).once) {
            (true, true) => None,
            (true, false) => Some(ticks.of(v)),
            (false, _) => Some(0),
        };
        let mut first = Self { values: vec![], places: vec![0; n], room, most, dearest: 0.0 };
        let mut open: Vec<u32> = (0..n as u32).filter(|v| wanted[*v as usize]).collect();
        while let Some(v) = open.pop() {
            if first.places[v as usize] != 0 {
                continue;
            }
            let later = Later { node: v, wanted: wanted[v as usize], again: again(v) };
            first.values.push(later);
            first.places[v as usize] = first.values.len() as u32;
            if later.again.is_some() {
                open.extend(problem.inputs(v).iter().filter(|input| !there[**input as usize]));
            }
        }
        let all: u64 = first.values.iter().map(|later| problem.node(later.node).bytes).sum();
        let scale = ticks.base as f64 / limit as f64;
        first.dearest = (DEAREST * scale).min(MOST_TICKS / all as f64);
        Some(first)
    }

    /// The price of a byte with the largest bound, and that bound. What lies certainly below `enough`
    /// is not looked at closely.
    ///
    /// Every decision is a line over the price, and the bound is the lowest of these lines. Of two that
    /// enclose the largest value the crossing is looked at next: it is the value, or a line lies below.
    pub fn best(&self, joint: &mut Joint, guess: f64, enough: f64) -> Priced {
        let mut low = Line { ticks: 0.0, excess: self.most };
        let mut high: Option<Line> = None;
        let mut best = Priced { price: 0.0, ticks: 0.0 };
        let mut price = guess.min(self.dearest);
        for _ in 0..STEPS {
            let decision = joint.cut(&[self], &[price]);
            let line = Line { ticks: decision.ticks, excess: decision.excess[0] };
            if line.at(price) > best.ticks {
                best = Priced { price, ticks: line.at(price) };
            }
            if line.excess > 0.0 {
                low = line;
            } else {
                high = Some(line);
            }
            let Some(high) = high else {
                if price >= self.dearest {
                    break;
                }
                price = (price * RISE).min(self.dearest);
                continue;
            };
            price = (high.ticks - low.ticks) / (low.excess - high.excess);
            let most = low.at(price);
            if most <= enough || most <= best.ticks * (1.0 + CLOSE) {
                break;
            }
        }
        best
    }
}

/// A price of a byte, and the bound that it gives, in ticks.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Priced {
    pub price: f64,
    pub ticks: f64,
}

/// What a decision costs over the price of a byte.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Of what is computed again.
    ticks: f64,
    /// Bytes beyond the room.
    excess: f64,
}

impl Line {
    fn at(self, price: f64) -> f64 {
        self.ticks + price * self.excess
    }
}
