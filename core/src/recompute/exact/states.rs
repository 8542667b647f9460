//! States that were reached, to know those that another one beats.

use std::collections::BTreeMap;

/// A set of nodes.
pub(super) type Bits = u32;

/// By what is done: values that are there, and at what time.
#[derive(Default)]
pub(super) struct States {
    reached: BTreeMap<Bits, Vec<(Bits, f64)>>,
    /// Made so far, at most.
    pub comparisons: u64,
}

impl States {
    /// Adds a state, and says whether it is worth going on from: no other with the same results
    /// has all of its values at no more time. O(states with the same results).
    pub fn add(&mut self, done: Bits, there: Bits, time: f64) -> bool {
        let states = self.reached.entry(done).or_default();
        self.comparisons += 1 + states.len() as u64;
        if states.iter().any(|(other, earlier)| there & !other == 0 && *earlier <= time) {
            return false;
        }
        states.retain(|(other, later)| other & !there != 0 || *later < time);
        states.push((there, time));
        true
    }
}
