//! A sequence under change: computations at slots, most of which are empty, and the memory in use
//! over them.

use super::Problem;
use super::tree::Tree;
use std::sync::Arc;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Slots for each item when they are laid out, at least.
const SPACING: usize = 4;

/// Slots whose latest last use is known together.
const BLOCK: usize = 64;

/// Times as whole numbers, so that sums do not depend on their order: 2^44 for every node once.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    of: Arc<[u64]>,
    /// Every node once.
    pub base: u64,
}

impl Ticks {
    pub fn new(problem: &Problem) -> Self {
        const TOTAL: f64 = (1u64 << 44) as f64;
        let total = problem.time().max(f64::MIN_POSITIVE);
        let ticks = |time: f64| (time / total * TOTAL).round() as u64;
        let of: Arc<[u64]> = problem.nodes().iter().map(|n| ticks(n.time)).collect();
        Self { base: of.iter().sum::<u64>().max(1), of }
    }

    /// Of a node.
    pub fn of(&self, node: u32) -> u64 {
        self.of[node as usize]
    }
}

/// A sequence. Every value lives from its computation to its last use before it is computed again.
#[derive(Clone)]
pub(super) struct State<'p> {
    pub problem: &'p Problem,
    pub ticks: Ticks,
    /// What each slot computes.
    item: Vec<u32>,
    /// Of each slot that computes something: the last slot that uses the value. Else 0.
    end: Vec<u32>,
    /// The latest end of each block of slots.
    latest: Vec<u32>,
    /// Slots of each node, ascending.
    places: Vec<Vec<u32>>,
    tree: Tree,
    /// Slots of the marks, ascending.
    marks: Vec<u32>,
    /// Bytes that live across marks, of all copies.
    across: i64,
    /// Ticks of all items.
    time: u64,
}

impl<'p> State<'p> {
    /// The state of a sequence that can be run.
    pub fn new(problem: &'p Problem, ticks: Ticks, sequence: &[u32]) -> Self {
        let mut state = Self {
            problem,
            ticks,
            item: vec![],
            end: vec![],
            latest: vec![],
            places: vec![vec![]; problem.len()],
            tree: Tree::new(2),
            marks: vec![],
            across: 0,
            time: 0,
        };
        state.lay_out(sequence);
        state
    }

    /// Starts again from a sequence that can be run. O(slots + items x their inputs).
    pub fn lay_out(&mut self, sequence: &[u32]) {
        let slots = (sequence.len() * SPACING).next_power_of_two().max(self.item.len()).max(64);
        let stride = slots / (sequence.len() + 1);
        self.item.clear();
        self.item.resize(slots, NONE);
        self.end.clear();
        self.end.resize(slots, 0);
        self.latest.clear();
        self.latest.resize(slots.div_ceil(BLOCK), 0);
        self.places.iter_mut().for_each(Vec::clear);
        self.marks.clear();
        (self.time, self.across) = (0, 0);
        // The last slot stays empty, so that every end has a slot after it.
        let slot = |at: usize| ((at + 1) * stride - 1) as u32;
        for (at, &node) in sequence.iter().enumerate() {
            let place = slot(at);
            self.item[place as usize] = node;
            self.end[place as usize] = place;
            for &input in self.problem.inputs(node) {
                let born = *self.places[input as usize].last().expect("the sequence can be run");
                self.end[born as usize] = place;
            }
            self.places[node as usize].push(place);
            self.time += self.ticks.of(node);
            if self.problem.marks().contains(&node) {
                self.marks.push(place);
            }
        }
        self.tree = Tree::new(slots + 1);
        for (at, &node) in sequence.iter().enumerate() {
            let place = slot(at);
            let end = self.end[place as usize];
            let latest = &mut self.latest[place as usize / BLOCK];
            *latest = end.max(*latest);
            self.count(node, place, end, 1);
        }
    }

    /// The items in order.
    pub fn sequence(&self) -> Vec<u32> {
        self.item.iter().copied().filter(|node| *node != NONE).collect()
    }

    /// Ticks of all items.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.item.len() as u32
    }

    /// What a slot computes, or [`NONE`].
    pub fn item(&self, slot: u32) -> u32 {
        self.item[slot as usize]
    }

    /// Last use of the value computed at `slot`.
    pub fn end(&self, slot: u32) -> u32 {
        self.end[slot as usize]
    }

    /// Slots that compute `node`, ascending.
    pub fn places(&self, node: u32) -> &[u32] {
        &self.places[node as usize]
    }

    /// Slots of the marks, ascending.
    pub fn marks(&self) -> &[u32] {
        &self.marks
    }

    /// Size of a node's value.
    pub fn bytes(&self, node: u32) -> i64 {
        self.problem.node(node).bytes as i64
    }

    /// Most bytes at one slot.
    pub fn peak(&self) -> i64 {
        self.across + self.tree.peak()
    }

    /// The first slot with so many.
    pub fn peak_at(&self) -> u32 {
        self.tree.peak_at() as u32
    }

    /// Most bytes at the slots `from..to`, which are not empty.
    pub fn most(&self, from: u32, to: u32) -> i64 {
        self.across + self.tree.most(from as usize, to as usize)
    }

    /// The last computation of `node` before `slot`.
    pub fn before(&self, node: u32, slot: u32) -> Option<u32> {
        let places = &self.places[node as usize];
        match places[..] {
            [] => None,
            [one] => (one < slot).then_some(one),
            _ => places[..places.partition_point(|p| *p < slot)].last().copied(),
        }
    }

    /// The first computation of `node` after `slot`.
    pub fn after(&self, node: u32, slot: u32) -> Option<u32> {
        let places = &self.places[node as usize];
        places.get(places.partition_point(|p| *p <= slot)).copied()
    }

    /// The last slot in `from + 1..to` that reads `node`, else `from`.
    pub fn last_use(&self, node: u32, from: u32, to: u32) -> u32 {
        let last = |reader: &u32| self.before(*reader, to);
        let last = self.problem.readers(node).iter().filter_map(last).max();
        last.map_or(from, |last| last.max(from))
    }

    /// The first slot after `from` that reads `node`.
    pub fn first_use(&self, node: u32, from: u32) -> Option<u32> {
        let first = |reader: &u32| self.after(*reader, from);
        self.problem.readers(node).iter().filter_map(first).min()
    }

    /// Whether a value that lives from `from` to `to` lives across a mark.
    pub fn crosses(&self, from: u32, to: u32) -> bool {
        self.marks.iter().any(|mark| from < *mark && *mark <= to)
    }

    /// Calls `each` with every slot before `slot` whose value lives at `slot`.
    pub fn living(&self, slot: u32, mut each: impl FnMut(u32)) {
        for block in 0..=slot as usize / BLOCK {
            if self.latest[block] < slot {
                continue;
            }
            let first = block * BLOCK;
            let last = (first + BLOCK).min(slot as usize);
            for at in first..last {
                if self.end[at] >= slot {
                    each(at as u32);
                }
            }
        }
    }

    /// Adds (1) or takes away (-1) a value that lives from `from` to `to`, and its scratch.
    fn count(&mut self, node: u32, from: u32, to: u32, sign: i64) {
        let scratch = self.problem.node(node).scratch as i64 * sign;
        if scratch != 0 {
            self.tree.add(from as usize, from as usize + 1, scratch);
        }
        let bytes = self.bytes(node) * sign;
        if self.crosses(from, to) {
            self.across += bytes * i64::from(self.problem.copies());
        } else {
            self.tree.add(from as usize, to as usize + 1, bytes);
        }
    }

    fn set_end(&mut self, slot: u32, end: u32) {
        let old = std::mem::replace(&mut self.end[slot as usize], end);
        let block = slot as usize / BLOCK;
        let latest = &mut self.latest[block];
        if end >= *latest {
            *latest = end;
        } else if old == *latest {
            let first = block * BLOCK;
            let last = (first + BLOCK).min(self.end.len());
            *latest = self.end[first..last].iter().copied().max().unwrap_or(0);
        }
    }

    /// The value computed at `from` is used until `to`.
    fn change_end(&mut self, node: u32, from: u32, to: u32) {
        let old = self.end[from as usize];
        if old == to {
            return;
        }
        self.set_end(from, to);
        let (before, now) = (self.crosses(from, old), self.crosses(from, to));
        if before != now {
            self.count(node, from, old, -1);
            self.count(node, from, to, 1);
        } else if !before {
            let bytes = self.bytes(node);
            self.tree.add(old as usize + 1, to as usize + 1, bytes);
        }
    }

    /// Computes `node` at an empty slot; its inputs were computed before.
    pub fn insert(&mut self, node: u32, slot: u32) {
        let before = self.before(node, slot);
        let end = match before {
            Some(born) if self.end[born as usize] > slot => {
                let end = self.end[born as usize];
                let shorter = self.last_use(node, born, slot);
                self.change_end(node, born, shorter);
                end
            }
            Some(_) => slot,
            None => self.last_use(node, slot, self.after(node, slot).unwrap_or(u32::MAX)),
        };
        self.item[slot as usize] = node;
        self.set_end(slot, end);
        self.count(node, slot, end, 1);
        let places = &mut self.places[node as usize];
        places.insert(places.partition_point(|p| *p < slot), slot);
        self.time += self.ticks.of(node);
        for &input in self.problem.inputs(node) {
            let born = self.before(input, slot).expect("inputs are computed before");
            if self.end[born as usize] < slot {
                self.change_end(input, born, slot);
            }
        }
    }

    /// Takes away the computation at `slot`. If it is the node's first, nothing uses it.
    pub fn remove(&mut self, slot: u32) {
        let node = self.item[slot as usize];
        let end = self.end[slot as usize];
        self.count(node, slot, end, -1);
        self.item[slot as usize] = NONE;
        self.set_end(slot, 0);
        let places = &mut self.places[node as usize];
        places.remove(places.partition_point(|p| *p < slot));
        self.time -= self.ticks.of(node);
        if end > slot
            && let Some(born) = self.before(node, slot)
        {
            self.change_end(node, born, end);
        }
        for &input in self.problem.inputs(node) {
            let born = self.before(input, slot).expect("inputs are computed before");
            if self.end[born as usize] == slot {
                let end = self.last_use(input, born, slot);
                self.change_end(input, born, end);
            }
        }
    }

    /// Moves an item that is no mark to an empty slot, with no item between.
    pub fn slide(&mut self, from: u32, to: u32) {
        let node = self.item[from as usize];
        let end = self.end[from as usize];
        let new_end = if end == from { to } else { end };
        self.count(node, from, end, -1);
        self.item[from as usize] = NONE;
        self.set_end(from, 0);
        self.item[to as usize] = node;
        self.set_end(to, new_end);
        self.count(node, to, new_end, 1);
        let places = &mut self.places[node as usize];
        let at = places.partition_point(|p| *p < from);
        places[at] = to;
        for &input in self.problem.inputs(node) {
            let born = self.before(input, from.min(to)).expect("inputs are computed before");
            if self.end[born as usize] == from {
                self.change_end(input, born, to);
            }
        }
    }
}
