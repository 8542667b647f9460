//! Undo and redo. A drag is one step, however many positions it passes.

use crate::planner::inputs::Inputs;

/// What there was before, and what was undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    past: Vec<Inputs>,
    future: Vec<Inputs>,
    /// The state in which the drag in progress began.
    drag: Option<Inputs>,
}

/// Enough for an afternoon; each entry is a few hundred bytes.
const STEPS_MAX: usize = 200;

impl History {
    /// A position of a drag: `now` is the state before it.
    pub fn drag(&mut self, now: &Inputs) {
        self.drag.get_or_insert_with(|| now.clone());
    }

    /// The drag is over; true when it changed something.
    pub fn release(&mut self, now: &Inputs) -> bool {
        match self.drag.take() {
            Some(start) if start != *now => {
                self.push(start);
                true
            }
            _ => false,
        }
    }

    /// A change at once: `now` is the state before it.
    pub fn push(&mut self, now: Inputs) {
        self.past.push(now);
        if self.past.len() > STEPS_MAX {
            self.past.remove(0);
        }
        self.future.clear();
    }

    pub fn undo(&mut self, now: &Inputs) -> Option<Inputs> {
        self.release(now);
        let before = self.past.pop()?;
        self.future.push(now.clone());
        Some(before)
    }

    pub fn redo(&mut self, now: &Inputs) -> Option<Inputs> {
        let after = self.future.pop()?;
        self.past.push(now.clone());
        Some(after)
    }

    /// The state before the last edit: what "last edit" compares with.
    pub fn before(&self) -> Option<&Inputs> {
        self.drag.as_ref().or(self.past.last())
    }

    pub fn dragging(&self) -> bool {
        self.drag.is_some()
    }

    pub fn can_undo(&self) -> bool {
        !self.past.is_empty()
    }

    pub fn can_redo(&self) -> bool {
        !self.future.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::first;

    fn with(micro_batches: u32) -> Inputs {
        Inputs { micro_batches, ..first() }
    }

    #[test]
    fn a_drag_is_one_step() {
        let mut h = History::default();
        for m in [1, 2, 4] {
            h.drag(&with(m));
        }
        assert!(h.dragging());
        assert!(h.release(&with(8)));
        assert_eq!(h.undo(&with(8)).map(|i| i.micro_batches), Some(1));
        assert_eq!(h.redo(&with(1)).map(|i| i.micro_batches), Some(8));
        assert!(!h.can_redo());
    }

    #[test]
    fn a_drag_back_to_where_it_began_is_no_step() {
        let mut h = History::default();
        h.drag(&with(2));
        assert!(!h.release(&with(2)));
        assert!(!h.can_undo());
    }

    #[test]
    fn an_edit_ends_the_future() {
        let mut h = History::default();
        h.push(with(1));
        h.undo(&with(2));
        h.push(with(1));
        assert!(!h.can_redo());
        assert_eq!(h.before().map(|i| i.micro_batches), Some(1));
    }
}
