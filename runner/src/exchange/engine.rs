//! All buckets of a rank: a state machine that somebody calls again and again.

use super::bucket::Bucket;
use super::memory::Values;
use super::tools::Tools;
use crate::transport::TransportError;

pub(super) struct Engine {
    // Before the buckets: it takes back what is under way before their memory goes.
    pub tools: Tools,
    pub buckets: Vec<Bucket>,
    /// Buckets under way, in the order in which they were started.
    under_way: Vec<usize>,
}

/// What the caller asked for.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub bucket: usize,
    pub reduction: usize,
    pub values: Values,
}

impl Engine {
    pub fn new(tools: Tools, buckets: Vec<Bucket>) -> Self {
        let under_way = Vec::with_capacity(buckets.len());
        Self { tools, buckets, under_way }
    }

    pub fn start(&mut self, start: Start) -> Result<(), TransportError> {
        self.under_way.push(start.bucket);
        self.buckets[start.bucket].start(start.reduction, start.values, &mut self.tools)
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Lets each bucket do one thing; whether one did. `done` hears of those that are summed.
    pub fn advance(&mut self, mut done: impl FnMut(usize)) -> Result<bool, TransportError> {
        self.tools.links.look()?;
        let mut worked = false;
        for bucket in &self.under_way {
            worked |= self.buckets[*bucket].advance(&mut self.tools)?;
        }
        let buckets = &self.buckets;
        self.under_way.retain(|bucket| {
            let ended = buckets[*bucket].is_done();
            if ended {
                done(*bucket);
            }
            !ended
        });
        Ok(worked)
    }
}
