//! The learning rate of each step.

use pipewright_core::elastic::Origin;
use pipewright_core::plan::{Decay, Plan, RateSchedule};
use pipewright_kernels::decimal;

/// The course of a plan's learning rate. It is written in steps of the mini-batch that was planned
/// with: where mini-batches are of another size, the same samples make the same way along it.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    schedule: RateSchedule,
    /// After the warm-up, with the linear scaling rule applied, for the planned mini-batch.
    full: f64,
    /// What it all is multiplied by for the mini-batch that is.
    factor: f64,
    /// As planned.
    steps: u64,
    /// Samples of a step: as planned, and as they are.
    mini_batches: (u64, u64),
    origin: Origin,
}

impl Rates {
    /// Of a plan.
    pub fn new(plan: &Plan) -> Self {
        let schedule = plan.training.rate;
        let planned = plan.planned_batch();
        let scaled = schedule.base_batch.map_or(1.0, |base| planned as f64 / base as f64);
        Self {
            schedule,
            full: decimal(plan.optimizer.learning_rate()) * scaled,
            factor: plan.rate_factor(),
            steps: plan.steps,
            mini_batches: (planned, plan.mini_batch),
            origin: Origin::default(),
        }
    }

    /// Has the course go on where mini-batches of other sizes ended.
    pub fn go_on_at(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The rate of `step`, from 0.
    pub fn at(&self, step: u64) -> f64 {
        let (planned, mini_batch) = self.mini_batches;
        self.factor * self.planned(self.origin.planned_step(mini_batch, step, planned))
    }

    /// The rate of a planned step.
    fn planned(&self, step: u64) -> f64 {
        let warmup = self.schedule.warmup;
        if step < warmup {
            return self.full * (step + 1) as f64 / warmup as f64;
        }
        let step = step - warmup;
        match self.schedule.decay {
            Decay::Constant => self.full,
            Decay::Step { every, factor } => {
                let times = i32::try_from(step / every.max(1)).unwrap_or(i32::MAX);
                self.full * decimal(factor).powi(times)
            }
            Decay::Cosine { floor } => {
                let floor = decimal(floor);
                let length = self.steps.saturating_sub(warmup).max(1) as f64;
                let part = (step as f64 / length).min(1.0);
                floor + (self.full - floor) * (1.0 + (std::f64::consts::PI * part).cos()) / 2.0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::plan::{RateRule, Resized};

    fn plan(decay: Decay, warmup: u64, base_batch: Option<u64>) -> Plan {
        let text = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/plans/v1-digits-cnn.json"
        ));
        let mut plan = Plan::from_json(&text.expect("a plan")).expect("a plan");
        plan.optimizer = "sgd:lr=0.1".parse().expect("an optimizer");
        plan.training.rate = RateSchedule { decay, warmup, base_batch };
        (plan.steps, plan.mini_batch) = (10, 32);
        plan
    }

    fn rates(decay: Decay, warmup: u64, base_batch: Option<u64>) -> Rates {
        Rates::new(&plan(decay, warmup, base_batch))
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn warm_up_rises_to_the_full_rate() {
        let rates = rates(Decay::Constant, 4, None);
        for (step, rate) in [0.025, 0.05, 0.075, 0.1, 0.1].into_iter().enumerate() {
            near(rates.at(step as u64), rate);
        }
    }

    /// `torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)` and the scaling rule.
    #[test]
    fn steps_multiply_the_scaled_rate() {
        let rates = rates(Decay::Step { every: 3, factor: 0.5 }, 0, Some(8));
        for (step, rate) in [0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1].into_iter().enumerate() {
            near(rates.at(step as u64), rate);
        }
    }

    /// `CosineAnnealingLR(optimizer, T_max=8, eta_min=0.02)` after two steps of warm-up.
    #[test]
    fn cosine_falls_to_the_floor() {
        let rates = rates(Decay::Cosine { floor: 0.02 }, 2, None);
        near(rates.at(2), 0.1);
        near(rates.at(6), 0.06);
        near(rates.at(4), 0.02 + 0.08 * (1.0 + 0.5f64.sqrt()) / 2.0);
        near(rates.at(10), 0.02);
        near(rates.at(99), 0.02);
    }

    /// Half and twice the mini-batch: as many samples are as far along the course, at the rule's rate.
    #[test]
    fn the_course_counts_samples() {
        let rules = [(RateRule::Linear, 1.0), (RateRule::SquareRoot, 0.5), (RateRule::None, 0.0)];
        for (decay, (rate, power)) in
            [Decay::Constant, Decay::Step { every: 3, factor: 0.5 }, Decay::Cosine { floor: 0.02 }]
                .into_iter()
                .flat_map(|decay| rules.map(|rule| (decay, rule)))
        {
            let mut plan = plan(decay, 2, Some(8));
            let whole = Rates::new(&plan);
            plan.resized = Some(Resized { mini_batch: 32, rate });
            // Three steps of 32, then six of 16, then one of 64.
            for (mini_batch, step, samples) in
                [(16, 3, 96), (16, 5, 128), (16, 8, 176), (64, 9, 192)]
            {
                plan.mini_batch = mini_batch;
                let mut rates = Rates::new(&plan);
                rates.go_on_at(match mini_batch {
                    16 => Origin { step: 3, samples: 96 },
                    _ => Origin { step: 9, samples: 192 },
                });
                let factor = (mini_batch as f64 / 32.0).powf(power);
                near(rates.at(step), factor * whole.at(samples / 32));
            }
        }
    }

    #[test]
    fn without_another_size_nothing_changes() {
        let whole = rates(Decay::Cosine { floor: 0.01 }, 3, Some(8));
        let mut resumed = whole;
        resumed.go_on_at(Origin { step: 5, samples: 5 * 32 });
        for step in 5..20 {
            assert_eq!(resumed.at(step).to_bits(), whole.at(step).to_bits());
        }
    }
}
