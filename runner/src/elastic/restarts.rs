//! The budget of restarts.

use std::time::{Duration, Instant};

/// Losses without progress between them.
#[derive(Debug)]
pub struct Restarts {
    most: usize,
    within: Duration,
    /// Since the last progress.
    losses: Vec<Instant>,
    step: u64,
    total: u32,
}

impl Restarts {
    /// At most `most` restarts `within` a time while no step more is trained.
    pub fn new(most: usize, within: Duration) -> Self {
        Self { most, within, losses: vec![], step: 0, total: 0 }
    }

    /// A generation was lost when `step` steps were kept; whether another may begin.
    pub fn allow(&mut self, now: Instant, step: u64) -> bool {
        if step > self.step {
            self.losses.clear();
            self.step = step;
        }
        self.total += 1;
        self.losses.retain(|loss| now.duration_since(*loss) < self.within);
        self.losses.push(now);
        self.losses.len() <= self.most
    }

    /// All losses so far.
    pub fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_allows_more() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut restarts = Restarts::new(3, minute * 10);
        for step in 1..100 {
            assert!(restarts.allow(start, step), "a step more each time");
        }
        assert!(restarts.allow(start + minute, 99) && restarts.allow(start + minute, 99));
        assert!(!restarts.allow(start + minute * 2, 99), "the fourth at step 99");
        assert!(restarts.allow(start + minute * 12, 99), "after a time, again");
        assert_eq!(restarts.total(), 103);
    }
}
