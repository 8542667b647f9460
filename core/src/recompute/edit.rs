//! Changes of a state that can be taken back.

use super::state::{NONE, State};

/// How far to look for empty slots before everything is laid out again.
const REACH: u32 = 4096;

#[derive(Clone, Copy, Debug)]
enum Change {
    Inserted(u32),
    Removed(u32, u32),
    Slid(u32, u32),
}

/// A state, and what was changed since the last decision.
pub(super) struct Editor<'p> {
    state: State<'p>,
    log: Vec<Change>,
    /// There was no room: lay out again at the next decision.
    crowded: bool,
    dead: Vec<(u32, u32)>,
    met: Vec<u32>,
}

impl<'p> Editor<'p> {
    pub fn new(state: State<'p>) -> Self {
        Self { state, log: vec![], crowded: false, dead: vec![], met: vec![] }
    }

    pub fn state(&self) -> &State<'p> {
        &self.state
    }

    /// Starts again from a sequence that can be run.
    pub fn load(&mut self, sequence: &[u32]) {
        self.log.clear();
        self.crowded = false;
        self.state.lay_out(sequence);
    }

    /// Keeps all changes.
    pub fn commit(&mut self) {
        self.log.clear();
        self.make_space();
    }

    /// Takes all changes back.
    pub fn rollback(&mut self) {
        while let Some(change) = self.log.pop() {
            match change {
                Change::Inserted(slot) => self.state.remove(slot),
                Change::Removed(node, slot) => self.state.insert(node, slot),
                Change::Slid(from, to) => self.state.slide(to, from),
            }
        }
        self.make_space();
    }

    /// Whether a change failed for want of room; the next decision makes some.
    pub fn crowded(&self) -> bool {
        self.crowded
    }

    fn make_space(&mut self) {
        if std::mem::take(&mut self.crowded) {
            let sequence = self.state.sequence();
            self.state.lay_out(&sequence);
        }
    }

    fn insert(&mut self, node: u32, slot: u32) {
        self.state.insert(node, slot);
        self.log.push(Change::Inserted(slot));
    }

    fn remove(&mut self, slot: u32) {
        let node = self.state.item(slot);
        self.state.remove(slot);
        self.log.push(Change::Removed(node, slot));
    }

    fn slide(&mut self, from: u32, to: u32) {
        if from != to {
            self.state.slide(from, to);
            self.log.push(Change::Slid(from, to));
        }
    }

    /// Computes `nodes`, in that order, right before the item at `slot`, and no longer what nobody
    /// needs then; returns where that item is now. `None`: there is no room, nothing was inserted.
    pub fn insert_before(&mut self, slot: u32, nodes: &[u32]) -> Option<u32> {
        let slot = self.make_room(slot, nodes.len() as u32)?;
        let first = slot - nodes.len() as u32;
        for (at, &node) in (first..).zip(nodes) {
            self.insert(node, at);
        }
        // What they replace may have kept alive what they read, so it goes last.
        for (at, &node) in (first..).zip(nodes) {
            if let Some(before) = self.state.before(node, at) {
                self.dead.push((node, before));
                self.bury();
            }
        }
        Some(slot)
    }

    /// Of `nodes`, computed right before `slot`: those that are computed again later are kept until
    /// then instead, where that needs no more than `limit`.
    pub fn merge(&mut self, slot: u32, nodes: &[u32], limit: i64) {
        let first = slot - nodes.len() as u32;
        for (at, &node) in (first..slot).zip(nodes).rev() {
            if self.state.item(at) != node {
                continue;
            }
            let Some(again) = self.state.after(node, at) else { continue };
            let idle = self.state.end(at) + 1;
            let bytes = self.state.bytes(node);
            if idle >= again || self.state.most(idle, again) + bytes <= limit {
                self.remove_with_causes(again);
            }
        }
    }

    /// Takes away the computation at `slot`, which is not the node's first, and every one that
    /// nobody needs then.
    pub fn remove_with_causes(&mut self, slot: u32) {
        let node = self.state.item(slot);
        self.remove(slot);
        self.mourn(node, slot);
        self.bury();
    }

    /// Moves the item at `from` to the empty slot `to`, after its inputs and before its first use.
    pub fn shift(&mut self, from: u32, to: u32) {
        let node = self.state.item(from);
        self.insert(node, to);
        self.remove(from);
    }

    /// What a computation at `slot` read may be dead without it.
    fn mourn(&mut self, node: u32, slot: u32) {
        for &input in self.state.problem.inputs(node) {
            if let Some(born) = self.state.before(input, slot) {
                self.dead.push((input, born));
            }
        }
    }

    /// Takes away the computations under suspicion that nobody needs, and their causes.
    fn bury(&mut self) {
        while let Some((node, slot)) = self.dead.pop() {
            if self.state.item(slot) != node || self.state.end(slot) != slot {
                continue;
            }
            if self.state.problem.node(node).output && self.state.places(node).len() == 1 {
                continue;
            }
            self.remove(slot);
            self.mourn(node, slot);
        }
    }

    /// Empties `count` slots right before the item at `slot`; returns where it is then.
    fn make_room(&mut self, slot: u32, count: u32) -> Option<u32> {
        let found = self.room_before(slot, count).or_else(|| self.room_after(slot, count));
        self.crowded |= found.is_none();
        found
    }

    fn is_mark(&self, node: u32) -> bool {
        self.state.problem.marks().contains(&node)
    }

    /// Slides items before `slot` to earlier slots.
    fn room_before(&mut self, slot: u32, count: u32) -> Option<u32> {
        let (mut found, mut at) = (0, slot);
        self.met.clear();
        while found < count {
            at = at.checked_sub(1).filter(|at| slot - at <= REACH)?;
            match self.state.item(at) {
                NONE => found += 1,
                node if self.is_mark(node) => return None,
                _ => self.met.push(at),
            }
        }
        for (to, i) in (at..).zip((0..self.met.len()).rev()) {
            self.slide(self.met[i], to);
        }
        Some(slot)
    }

    /// Slides the item at `slot` and those after it to later slots.
    fn room_after(&mut self, slot: u32, count: u32) -> Option<u32> {
        let (mut found, mut at) = (0, slot);
        self.met.clear();
        while found < count {
            // The last slot stays empty.
            if at + 1 >= self.state.slots() || at - slot > REACH {
                return None;
            }
            match self.state.item(at) {
                NONE => found += 1,
                node if self.is_mark(node) => return None,
                _ => self.met.push(at),
            }
            at += 1;
        }
        for i in (0..self.met.len()).rev() {
            at -= 1;
            self.slide(self.met[i], at);
        }
        Some(at)
    }
}
