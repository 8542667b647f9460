//! What the search found out about compression and about more stages.

use super::{Choice, Search};
use crate::cost::collective::{Channel, Verdict, verdict};
use crate::units::Nanos;

/// The fastest plan with so many lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Lanes of the pipeline.
    pub lanes: u32,
    /// Its step.
    pub step: Nanos,
}

/// What to say beside the best plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdicts {
    /// For each codec, whether compressing the best plan's gradients pays; empty without replicas.
    pub compression: Vec<(&'static str, Verdict)>,
    /// The fastest plan by number of lanes, ascending; only plans that fit and were tried.
    pub lanes: Vec<Lanes>,
}

impl Search<'_> {
    /// Compression of the fastest plan's gradients, and how the step depends on the lanes.
    pub fn verdicts(&self) -> Verdicts {
        let lanes = self.by_lanes.iter().map(|(lanes, step)| Lanes { lanes: *lanes, step: *step });
        let compression = match self.front.fastest() {
            Some(best) if best.choice.replicas > 1 => self.compression(&best.choice),
            _ => vec![],
        };
        Verdicts { compression, lanes: lanes.collect() }
    }

    /// On the lane with most gradients.
    fn compression(&self, best: &Choice) -> Vec<(&'static str, Verdict)> {
        let space = self.space;
        let Some(chain) = self.chains.get(&(best.samples(space.mini_batch), best.tensor)) else {
            return vec![];
        };
        let ends = best.starts.iter().copied().chain([chain.len() as u32]);
        let ranges = [0].iter().chain(&best.starts).copied().zip(ends);
        let gradients = |(from, to)| {
            let parameters = chain.range(from, to).parameters.0 / space.parameter_bytes.max(1);
            space.states.bytes(parameters, best.replicas).gradients
        };
        let most = ranges.map(gradients).max().unwrap_or_default();
        let near = space.cluster.ranks_per_node / best.tensor;
        let link =
            if best.replicas <= near { &space.cluster.local } else { &space.cluster.network };
        let of = |c: &super::Compression| {
            (c.name, verdict(best.replicas, most.0 as f64, &c.codec, Channel::from(link)))
        };
        space.codecs.iter().map(of).collect()
    }
}
