//! The settle window: a burst of changes is one change.

use std::time::{Duration, Instant};

/// Windows that a burst may last; then it counts even if it goes on.
const LONGEST: u32 = 5;

/// Changes that have not been looked at.
#[derive(Debug)]
pub struct Debounce {
    window: Duration,
    /// The first and the last of them.
    pending: Option<(Instant, Instant)>,
    /// Changes count no sooner.
    held: Option<Instant>,
}

impl Debounce {
    /// Changes count when none came for `window`.
    pub fn new(window: Duration) -> Self {
        Self { window, pending: None, held: None }
    }

    /// There was a change.
    pub fn note(&mut self, now: Instant) {
        let first = self.pending.map_or(now, |(first, _)| first);
        self.pending = Some((first, now));
    }

    /// When the changes so far will have settled, if there are any.
    pub fn due(&self) -> Option<Instant> {
        let (first, last) = self.pending?;
        let due = (last + self.window).min(first + self.window * LONGEST);
        Some(self.held.map_or(due, |held| held.max(due)))
    }

    /// All changes so far have been looked at.
    pub fn clear(&mut self) {
        (self.pending, self.held) = (None, None);
    }

    /// No change counts before `moment`, whenever it comes.
    pub fn hold(&mut self, moment: Instant) {
        self.held = Some(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_change() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let mut settle = Debounce::new(second);
        assert_eq!(settle.due(), None);
        settle.note(start);
        settle.note(start + second / 2);
        assert_eq!(settle.due(), Some(start + second * 3 / 2));
        for i in 1..100 {
            settle.note(start + second / 2 * i);
        }
        assert_eq!(settle.due(), Some(start + second * 5), "it ends although changes go on");
        settle.clear();
        assert_eq!(settle.due(), None);
        settle.hold(start + second * 9);
        settle.note(start);
        assert_eq!(settle.due(), Some(start + second * 9));
    }
}
