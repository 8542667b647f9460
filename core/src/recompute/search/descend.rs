//! Less memory step by step.

use super::local::{Local, Repair};

/// Each step asks for this share of the peak.
const STEP: f64 = 0.98;

/// Values that a step gives up, at most.
const ROUNDS: u32 = 200;

/// Values that a step looks at before it gives one up.
const LOOKS: u32 = 256;

impl Local<'_> {
    /// Lowers the peak step by step until it is at most `target`, no step succeeds, or the sequence
    /// takes `longest` times what all nodes take. Calls `found` after every step. Returns the moves
    /// that this took.
    pub fn descend(&mut self, target: i64, longest: f64, mut found: impl FnMut(&[u32])) -> u64 {
        self.moves = 0;
        let longest = (longest * self.state().ticks.base as f64) as u64;
        while self.peak() > target && self.state().time() <= longest {
            let limit = ((self.peak() as f64 * STEP) as i64).max(target);
            if !self.step_down(limit, longest) {
                break;
            }
            found(&self.sequence());
        }
        self.moves
    }

    fn step_down(&mut self, limit: i64, longest: u64) -> bool {
        // Steps pay for themselves in different coin: what a byte is worth follows slowly.
        const FOLLOW: f64 = 0.1;
        let (peak, time) = (self.peak(), self.state().time());
        let how = Repair { limit, looks: LOOKS, rounds: ROUNDS, longest, random: false };
        while !self.repair(how) {
            let more = self.editor.crowded();
            if !more {
                self.editor.rollback();
                return false;
            }
            // What was done is kept, and laid out with more space.
            self.editor.commit();
        }
        self.editor.commit();
        let paid = self.state().time().saturating_sub(time) as f64;
        let paid = paid / (peak - self.peak()).max(1) as f64;
        self.worth += FOLLOW * (paid.max(0.1 * self.worth) - self.worth);
        true
    }

    /// Lowers the peak of a sequence at which descending has ended by a hundredth, by random steps;
    /// whether that worked.
    pub fn squeeze(&mut self, target: i64) -> bool {
        const TRIES: u32 = 6;
        let limit = ((self.peak() as f64 * 0.99) as i64).max(target);
        let share = self.state().ticks.base as f64 * 0.04;
        for attempt in 0..TRIES {
            let longest = self.state().time() + (share * f64::from(1 + attempt)) as u64;
            let random = attempt > 0;
            if self.repair(Repair { limit, looks: 12, rounds: 12, longest, random }) {
                self.editor.commit();
                return true;
            }
            self.editor.rollback();
        }
        false
    }
}
