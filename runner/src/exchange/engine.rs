//! All buckets of a rank: a state machine that somebody calls again and again.

use super::bucket::Bucket;
use super::memory::Values;
use super::residual::Residual;
use super::resources::Resources;
use crate::transport::TransportError;
use std::ops::Range;

pub(super) struct Engine {
    // Before the buckets: it takes back what is under way before their memory goes.
    pub resources: Resources,
    pub buckets: Vec<Bucket>,
    /// Buckets under way, in the order in which they were started.
    under_way: Vec<usize>,
}

/// What the caller asked for.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub bucket: usize,
    pub reduction: usize,
    /// None: the device's.
    pub values: Option<Values>,
}

impl Engine {
    pub fn new(resources: Resources, buckets: Vec<Bucket>) -> Self {
        let under_way = Vec::with_capacity(buckets.len());
        Self { resources, buckets, under_way }
    }

    pub fn start(&mut self, start: Start) -> Result<(), TransportError> {
        self.under_way.push(start.bucket);
        self.buckets[start.bucket].start(start.reduction, start.values, &mut self.resources)
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Lets each bucket do one thing; whether one did. `done` hears of those that are summed.
    pub fn advance(&mut self, mut done: impl FnMut(usize)) -> Result<bool, TransportError> {
        self.resources.endpoint.look()?;
        let mut worked = false;
        for bucket in &self.under_way {
            worked |= self.buckets[*bucket].advance(&mut self.resources)?;
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

    /// From now on sums can be undone.
    pub fn allow_undo(&mut self) -> Result<(), TransportError> {
        let Self { resources, buckets, .. } = self;
        buckets.iter_mut().try_for_each(|bucket| Ok(bucket.allow_undo(resources.coder())?))
    }

    /// See [`Exchange::settle`](super::Exchange::settle).
    pub fn settle(&mut self, undo: bool) -> Result<(), TransportError> {
        assert!(self.is_idle(), "residuals change while buckets are summed");
        let Self { resources, buckets, .. } = self;
        buckets.iter_mut().try_for_each(|bucket| Ok(bucket.settle(undo, resources.coder())?))
    }

    /// See [`Exchange::residuals`](super::Exchange::residuals).
    pub fn residuals(
        &mut self,
        mut visit: impl FnMut(usize, Residual, Range<usize>, &mut [f32]),
    ) -> Result<(), TransportError> {
        assert!(self.is_idle(), "residuals change while buckets are summed");
        let Self { resources, buckets, .. } = self;
        buckets.iter_mut().try_for_each(|bucket| Ok(bucket.visit(resources.coder(), &mut visit)?))
    }
}
