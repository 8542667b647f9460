//! Ranks that make no whole replica: their plan re-routes the work of those that are missing to their
//! peers (`--reroute`), where that trains faster than fewer whole replicas do.
//!
//! Which places stay empty is free: state lies in files by parameters' names, so ranks take any. When
//! a spare comes, the next generation has the plan of the whole job again.

use super::Supervisor;
use pipewright_core::elastic::{Size, reroute_to};
use pipewright_core::plan::Plan;

/// Whether `plan` takes less time a sample than another size is said to take.
fn is_faster(plan: &Plan, than: &Size) -> bool {
    let Some(step) = than.step_ns else { return true };
    let time = |step: u64, samples: u64| u128::from(step) * u128::from(samples);
    time(plan.prediction.step_ns.0, than.mini_batch) < time(step.0, plan.mini_batch)
}

impl Supervisor<'_> {
    /// The re-routed plan for so many ranks, where it is faster than `fewer`, the largest size of whole
    /// replicas that they make, if they make one.
    ///
    /// # Errors
    /// Why there is none, where one was asked for.
    pub(super) fn rerouted(
        &self,
        ranks: u32,
        fewer: Option<&Size>,
    ) -> Result<Option<Plan>, String> {
        let whole = &self.job.plan;
        if !self.job.reroute || ranks >= whole.ranks() {
            return Ok(None);
        }
        let plan = reroute_to(whole, ranks).map_err(|why| why.to_string())?.plan;
        if fewer.is_some_and(|size| size.ranks >= ranks) {
            // They all have work without it.
            return Ok(None);
        }
        match fewer.filter(|size| !is_faster(&plan, size)) {
            None => Ok(Some(plan)),
            Some(Size { ranks, step_ns, .. }) => Err(format!(
                "it would take {} a step, and {ranks} ranks take {} without it",
                plan.prediction.step_ns,
                step_ns.unwrap_or_default()
            )),
        }
    }

    /// The ways to run on so many slots, with the re-routed one; says why there is none.
    pub(super) fn with_rerouted(&self, slots: u32, mut sizes: Vec<Size>) -> Vec<Size> {
        match self.rerouted(slots, sizes.last()) {
            Ok(Some(plan)) => sizes.push(Size {
                ranks: slots,
                // Whole ones.
                replicas: slots / self.job.plan.lanes().max(1),
                mini_batch: plan.mini_batch,
                step_ns: Some(plan.prediction.step_ns),
            }),
            Ok(None) => {}
            Err(why) => note!("{slots} ranks do not run re-routed: {why}"),
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::units::Nanos;

    #[test]
    fn faster_is_less_time_a_sample() {
        let text = include_str!("../../../../tests/data/plans/v1-digits-cnn.json");
        let mut plan = Plan::from_json(text).unwrap();
        (plan.mini_batch, plan.prediction.step_ns) = (32, Nanos(300));
        let size =
            |mini_batch, step| Size { step_ns: Some(Nanos(step)), ..Size::ranks(2, mini_batch) };
        assert!(is_faster(&plan, &size(32, 301)) && !is_faster(&plan, &size(32, 300)));
        assert!(is_faster(&plan, &size(16, 151)) && !is_faster(&plan, &size(16, 150)));
        assert!(is_faster(&plan, &Size::ranks(2, 32)), "nobody knows");
    }
}
