//! What the search found out about compression and about more stages.

use super::evaluate::sum;
use super::{Choice, Encoding, Search};
use crate::cost::collective::{Verdict, judge};
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
    /// For each way of the space, whether the best plan's gradients are summed faster so than in
    /// single precision; empty without replicas.
    pub sums: Vec<(Encoding, Verdict)>,
    /// The fastest plan by number of lanes, ascending; only plans that fit and were tried.
    pub lanes: Vec<Lanes>,
}

impl Search<'_> {
    /// Compression of the fastest plan's gradients, and how the step depends on the lanes.
    pub fn verdicts(&self) -> Verdicts {
        let lanes = self.by_lanes.iter().map(|(lanes, step)| Lanes { lanes: *lanes, step: *step });
        let sums = match self.front.fastest() {
            Some(best) if best.choice.replicas > 1 => self.sums(&best.choice),
            _ => vec![],
        };
        Verdicts { sums, lanes: lanes.collect() }
    }

    /// On the lane with most gradients.
    fn sums(&self, best: &Choice) -> Vec<(Encoding, Verdict)> {
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
        let of = |way| {
            sum(space, &Choice { encoding: way, ..best.clone() }, best.replicas, most.0 as f64)
        };
        let plain = of(None);
        let encoded =
            (0..space.encodings.len()).filter(|at| !space.encodings[*at].gradients.is_plain());
        encoded.map(|at| (space.encodings[at], judge(&plain, &of(Some(at))))).collect()
    }
}
