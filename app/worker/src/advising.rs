//! Advice for the plan that is on the screen: one simulation after the other, so that an edit ends it at once.

use crate::protocol::{Advised, Better, FoundPlan, Reply};
use pipewright_core::plan::{Plan, Sequence};
use pipewright_core::predict::{Advice, Advisor};

/// A plan that is looked at.
pub struct Advising {
    advisor: Advisor,
    done: bool,
}

impl Advising {
    /// Of a plan's text.
    ///
    /// # Errors
    /// A sentence for the person.
    pub fn new(plan: &str) -> Result<Self, String> {
        let plan = Plan::from_json(plan).map_err(|e| e.to_string())?;
        let advisor = Advisor::new(&plan).map_err(|e| e.to_string())?;
        Ok(Self { advisor, done: false })
    }

    /// One simulation; whether there is more to do.
    pub fn step(&mut self) -> bool {
        self.done = self.done || !self.advisor.advance();
        !self.done
    }

    /// The best so far.
    pub fn report(&self) -> Reply {
        let now = self.advisor.now();
        Reply::Advice(Advised {
            tried: self.advisor.tried(),
            step: now.step.0,
            drawn: self.advisor.drawn().0,
            fits: now.fits,
            bound: self.advisor.bound().0,
            plans: self.advisor.advice().into_iter().map(better).collect(),
            done: self.done,
        })
    }
}

fn better(advice: &Advice) -> Better {
    let plan = &advice.plan;
    Better {
        changes: advice.changes.clone(),
        precision: plan.training.precision,
        gradients: plan.communication.gradients,
        more_ranks: advice.more_ranks,
        plan: FoundPlan {
            cuts: plan.cuts.clone(),
            schedule: plan.schedule.name.clone(),
            micro_batches: plan.micro_batches,
            replicas: plan.data_parallel.replicas,
            tensor: plan.tensor,
            sequence_parallel: plan.sequence_parallel,
            recompute: plan.recompute.iter().map(Sequence::to_string).collect(),
            step: advice.step.0,
            peak: advice.peak.0,
            traffic: 0,
        },
    }
}
