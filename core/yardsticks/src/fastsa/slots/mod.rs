//! A sequence that changes: computations at slots, most of which are empty, and what a change would
//! cost before it is made.
//!
//! A change is planned first: which values live longer or shorter. That alone often decides against
//! it (see [`Slots::least_peak`]). Then the tree of memory changes, and only an accepted change is
//! written into the sequence; anything else takes the tree back.

mod plan;

use super::places::Places;
use super::tree::Tree;
use pipewright_core::recompute::Problem;

/// No node, or no slot.
pub(super) const NONE: u32 = u32::MAX;

/// Slots for each item when they are laid out.
const SPACING: usize = 3;

/// A change of the sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Move {
    /// Computes a node once more, at an empty slot.
    Add { node: u32, to: u32 },
    /// Takes a computation away.
    Remove { from: u32 },
    /// Computes at an empty slot what another slot computes.
    Swap { from: u32, to: u32 },
}

/// What a move would change.
#[derive(Clone, Debug)]
struct Change {
    what: Move,
    /// Bytes from slots on.
    points: Vec<(u32, i64)>,
    /// Last uses of other computations: slot, its new end.
    ends: Vec<(u32, u32)>,
    /// Last use of the value that is added or moved.
    end: u32,
    /// Bytes that live across marks.
    across: i64,
    ticks: i64,
    /// Bytes then where the peak is now.
    least_peak: i64,
}

/// The sequence.
#[derive(Clone, Debug)]
pub(super) struct Slots<'p> {
    pub problem: &'p Problem,
    bytes: Vec<i64>,
    /// Bytes that a node needs only while it is computed.
    extra: Vec<i64>,
    /// Times as whole numbers, so that sums do not depend on their order.
    ticks: Vec<u64>,
    /// What each slot computes.
    item: Vec<u32>,
    /// Of each slot that computes something: the last slot that uses the value.
    end: Vec<u32>,
    places: Places,
    /// Nodes computed more than once, and where in that list each node stands.
    again: Vec<u32>,
    again_at: Vec<u32>,
    tree: Tree,
    peak_at: u32,
    /// Slots of the marks, ascending.
    marks: Vec<u32>,
    across: i64,
    time: u64,
    items: usize,
    change: Change,
}

impl<'p> Slots<'p> {
    /// A sequence that can be run, laid out. `extra` has a number for each node, or is empty: bytes
    /// besides the node's scratch.
    pub fn new(problem: &'p Problem, extra: &[u64], sequence: &[u32]) -> Self {
        const TOTAL: f64 = (1u64 << 44) as f64;
        let total = problem.time().max(f64::MIN_POSITIVE);
        let nodes = problem.nodes();
        let change = Change {
            what: Move::Remove { from: 0 },
            points: vec![],
            ends: vec![],
            end: 0,
            across: 0,
            ticks: 0,
            least_peak: 0,
        };
        let extra =
            |node: usize| (extra.get(node).copied().unwrap_or(0) + nodes[node].scratch) as i64;
        let mut slots = Self {
            problem,
            bytes: nodes.iter().map(|node| node.bytes as i64).collect(),
            extra: (0..nodes.len()).map(extra).collect(),
            ticks: nodes.iter().map(|node| (node.time / total * TOTAL).round() as u64).collect(),
            item: vec![],
            end: vec![],
            places: Places::default(),
            again: vec![],
            again_at: vec![],
            tree: Tree::new(2),
            peak_at: 0,
            marks: vec![],
            across: 0,
            time: 0,
            items: 0,
            change,
        };
        slots.lay_out(sequence);
        slots
    }

    /// Starts again from a sequence that can be run. O(items + their inputs).
    pub fn lay_out(&mut self, sequence: &[u32]) {
        let slots = (sequence.len() * SPACING).next_power_of_two().max(64);
        let stride = slots / (sequence.len() + 1);
        let mut counts = vec![0; self.problem.len()];
        sequence.iter().for_each(|node| counts[*node as usize] += 1);
        self.places = Places::new(&counts);
        self.item = vec![NONE; slots];
        self.end = vec![0; slots];
        self.again.clear();
        self.again_at = vec![NONE; self.problem.len()];
        self.marks.clear();
        self.time = 0;
        self.items = 0;
        let mut points = vec![];
        let slot = |at: usize| ((at + 1) * stride - 1) as u32;
        for (at, &node) in sequence.iter().enumerate() {
            let p = slot(at);
            self.end[p as usize] = p;
            for &input in self.problem.inputs(node) {
                let born = self.places.before(input, p);
                self.end[born as usize] = p;
            }
            self.put(node, p);
            if self.problem.marks().contains(&node) {
                self.marks.push(p);
            }
        }
        self.change.across = 0;
        self.change.points.clear();
        // The last slot stays empty: every end has a slot after it.
        for (at, &node) in sequence.iter().enumerate() {
            let p = slot(at);
            self.live(node, p, self.end[p as usize], 1);
            self.compute(node, p, 1);
            points.append(&mut self.change.points);
        }
        self.across = self.change.across;
        self.tree = Tree::new(slots);
        points.chunks(16).for_each(|some| self.tree.apply(some));
        self.peak_at = self.tree.peak_at() as u32;
    }

    /// The items in order.
    pub fn sequence(&self) -> Vec<u32> {
        self.item.iter().copied().filter(|node| *node != NONE).collect()
    }

    /// What each slot computes, [`NONE`] where it is empty.
    pub fn items(&self) -> &[u32] {
        &self.item
    }

    /// Whether moves find too few empty slots.
    pub fn crowded(&self) -> bool {
        self.items * 8 > self.item.len() * 5
    }

    /// Slots of a node, ascending.
    pub fn places(&self, node: u32) -> &[u32] {
        self.places.get(node)
    }

    /// Nodes that are computed more than once.
    pub fn again(&self) -> &[u32] {
        &self.again
    }

    /// Slots of the marks.
    pub fn marks(&self) -> &[u32] {
        &self.marks
    }

    /// Time of all items, in units of which the whole graph takes 2^44.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Most bytes at one moment.
    pub fn peak(&self) -> i64 {
        self.across + self.tree.peak()
    }

    /// The last computation of `node` before `slot`, else [`NONE`].
    pub fn before(&self, node: u32, slot: u32) -> u32 {
        self.places.before(node, slot)
    }

    /// Last slot that uses the value computed at `slot`.
    pub fn end(&self, slot: u32) -> u32 {
        self.end[slot as usize]
    }

    /// Last slot between `from` and `to` that reads `node`, else `from`.
    fn last_use(&self, node: u32, from: u32, to: u32) -> u32 {
        let mut last = from;
        for &reader in self.problem.readers(node) {
            let place = self.places.before(reader, to);
            if place != NONE && place > last {
                last = place;
            }
        }
        last
    }

    /// First slot after `from` that reads `node`, else [`NONE`].
    pub fn first_use(&self, node: u32, from: u32) -> u32 {
        let readers = self.problem.readers(node).iter();
        readers.map(|reader| self.places.after(*reader, from)).min().unwrap_or(NONE)
    }
}

/// Decisions.
impl Slots<'_> {
    /// Time of all items after the planned move.
    pub fn time_then(&self) -> u64 {
        self.time.wrapping_add_signed(self.change.ticks)
    }

    /// The peak after the planned move is at least this: the memory then where the peak is now.
    pub fn least_peak(&mut self) -> i64 {
        let at = self.peak_at;
        let there: i64 = self
            .change
            .points
            .iter()
            .map(|(slot, bytes)| if *slot <= at { *bytes } else { 0 })
            .sum();
        self.change.least_peak = self.peak() + self.change.across + there;
        self.change.least_peak
    }

    /// Changes the tree as planned; returns the peak then. To be kept or taken back.
    pub fn try_out(&mut self) -> i64 {
        self.tree.apply(&self.change.points);
        self.across += self.change.across;
        self.peak()
    }

    /// Takes back what was tried out.
    pub fn take_back(&mut self) {
        self.tree.undo(&self.change.points);
        self.across -= self.change.across;
    }

    /// Makes the move that was tried out. Returns which slots changed, and what they computed.
    pub fn keep(&mut self) -> [Option<(u32, u32)>; 2] {
        for &(born, end) in &self.change.ends {
            self.end[born as usize] = end;
        }
        let changed = match self.change.what {
            Move::Add { node, to } => {
                self.put(node, to);
                self.end[to as usize] = self.change.end;
                [Some((to, NONE)), None]
            }
            Move::Remove { from } => [Some((from, self.clear(from))), None],
            Move::Swap { from, to } => {
                let node = self.clear(from);
                self.put(node, to);
                self.end[to as usize] = self.change.end;
                [Some((from, node)), Some((to, NONE))]
            }
        };
        // Where the peak was it still is, unless there was a change there or a higher one elsewhere.
        if self.change.least_peak != self.peak() {
            self.peak_at = self.tree.peak_at() as u32;
        }
        changed
    }

    fn put(&mut self, node: u32, slot: u32) {
        self.item[slot as usize] = node;
        self.places.insert(node, slot);
        if self.places.get(node).len() == 2 {
            self.again_at[node as usize] = self.again.len() as u32;
            self.again.push(node);
        }
        self.time += self.ticks[node as usize];
        self.items += 1;
    }

    fn clear(&mut self, slot: u32) -> u32 {
        let node = std::mem::replace(&mut self.item[slot as usize], NONE);
        self.places.remove(node, slot);
        if self.places.get(node).len() == 1 {
            let at = self.again_at[node as usize];
            self.again.swap_remove(at as usize);
            if let Some(moved) = self.again.get(at as usize) {
                self.again_at[*moved as usize] = at;
            }
        }
        self.time -= self.ticks[node as usize];
        self.items -= 1;
        node
    }
}
