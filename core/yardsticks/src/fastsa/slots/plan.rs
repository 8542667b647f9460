//! Effects of a move: values that live longer or shorter, and changes of memory.

use super::{Move, NONE, Slots};

impl Slots<'_> {
    /// Plans a move; false if it is none: a target that is taken or an input, output or used value
    /// that would be missing. A computation does not leave the range in which its own readers stay
    /// its readers.
    pub fn plan(&mut self, what: Move) -> bool {
        self.change.what = what;
        self.change.points.clear();
        self.change.ends.clear();
        self.change.across = 0;
        match what {
            Move::Add { node, to } => self.plan_add(node, to),
            Move::Remove { from } => self.plan_remove(from),
            Move::Swap { from, to } => self.plan_swap(from, to),
        }
    }

    fn plan_add(&mut self, node: u32, to: u32) -> bool {
        let before = self.places.before(node, to);
        if before == NONE || self.item[to as usize] != NONE {
            return false;
        }
        self.change.ticks = self.ticks[node as usize] as i64;
        let end = self.end[before as usize];
        if end > to {
            let last = self.last_use(node, before, to);
            self.move_end(node, before, last);
        }
        self.change.end = end.max(to);
        self.live(node, to, end.max(to), 1);
        self.compute(node, to, 1);
        let problem = self.problem;
        for &input in problem.inputs(node) {
            // It was computed before `before`.
            let born = self.places.before(input, to);
            if self.end[born as usize] < to {
                self.move_end(input, born, to);
            }
        }
        true
    }

    fn plan_remove(&mut self, from: u32) -> bool {
        let node = self.item[from as usize];
        let end = self.end[from as usize];
        if end > from {
            let before = self.places.before(node, from);
            if before == NONE {
                return false;
            }
            self.move_end(node, before, end);
        } else if self.problem.node(node).output && self.places.get(node).len() == 1 {
            return false;
        }
        self.change.ticks = -(self.ticks[node as usize] as i64);
        self.live(node, from, end, -1);
        self.compute(node, from, -1);
        let problem = self.problem;
        for &input in problem.inputs(node) {
            let born = self.places.before(input, from);
            if self.end[born as usize] == from {
                let last = self.last_use(input, born, from);
                self.move_end(input, born, last);
            }
        }
        true
    }

    fn plan_swap(&mut self, from: u32, to: u32) -> bool {
        let node = self.item[from as usize];
        if self.item[to as usize] != NONE || !self.stays(node, from, to) {
            return false;
        }
        self.change.ticks = 0;
        let end = self.end[from as usize];
        let new_end = if end == from { to } else { end };
        self.change.end = new_end;
        self.live(node, from, end, -1);
        self.live(node, to, new_end, 1);
        self.compute(node, from, -1);
        self.compute(node, to, 1);
        let problem = self.problem;
        for &input in problem.inputs(node) {
            let old = self.places.before(input, from);
            let new = self.places.before(input, to);
            if new == NONE {
                return false;
            }
            let leaves = self.end[old as usize] == from;
            if old != new || to < from {
                if leaves {
                    let last = self.last_use(input, old, from);
                    let last = if old == new { last.max(to) } else { last };
                    self.move_end(input, old, last);
                }
                if old != new && self.end[new as usize] < to {
                    self.move_end(input, new, to);
                }
            } else if self.end[old as usize] < to {
                self.move_end(input, old, to);
            }
        }
        true
    }

    /// Whether the readers of the value at `from`, and of the one before it, stay theirs when it
    /// is computed at `to`.
    fn stays(&self, node: u32, from: u32, to: u32) -> bool {
        if to > from {
            let again = self.places.after(node, from);
            return to < again
                && (self.end[from as usize] == from || to < self.first_use(node, from));
        }
        let before = self.places.before(node, from);
        before == NONE || to > self.end[before as usize]
    }

    /// A value that begins or ceases to live from `from` to `to`.
    pub(super) fn live(&mut self, node: u32, from: u32, to: u32, sign: i64) {
        let bytes = self.bytes[node as usize] * sign;
        if self.crosses(from, to) {
            self.change.across += bytes * i64::from(self.problem.copies());
        } else {
            self.change.points.extend([(from, bytes), (to + 1, -bytes)]);
        }
    }

    /// What a computation needs besides values.
    pub(super) fn compute(&mut self, node: u32, slot: u32, sign: i64) {
        let extra = self.extra[node as usize] * sign;
        if extra != 0 {
            self.change.points.extend([(slot, extra), (slot + 1, -extra)]);
        }
    }

    /// A value computed at `born` that is used up to `to`.
    fn move_end(&mut self, node: u32, born: u32, to: u32) {
        let old = self.end[born as usize];
        if old == to {
            return;
        }
        self.change.ends.push((born, to));
        if self.crosses(born, old.max(to)) {
            self.live(node, born, old, -1);
            self.live(node, born, to, 1);
        } else {
            let bytes = self.bytes[node as usize];
            self.change.points.extend([(old + 1, bytes), (to + 1, -bytes)]);
        }
    }

    fn crosses(&self, from: u32, to: u32) -> bool {
        self.marks.iter().any(|mark| from < *mark && *mark <= to)
    }
}
