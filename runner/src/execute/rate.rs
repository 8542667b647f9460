//! The learning rate of each step.

use crate::device::cpu::decimal;
use pipewright_core::plan::{Decay, Plan, RateSchedule};

/// The course of a plan's learning rate.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    schedule: RateSchedule,
    /// After the warm-up, with the linear scaling rule applied.
    full: f64,
    steps: u64,
}

impl Rates {
    /// Of a plan.
    pub fn new(plan: &Plan) -> Self {
        let schedule = plan.training.rate;
        let scaled = schedule.base_batch.map_or(1.0, |base| plan.mini_batch as f64 / base as f64);
        Self { schedule, full: decimal(plan.optimizer.learning_rate()) * scaled, steps: plan.steps }
    }

    /// The rate of `step`, from 0.
    pub fn at(&self, step: u64) -> f64 {
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

    fn rates(decay: Decay, warmup: u64, base_batch: Option<u64>) -> Rates {
        let schedule = RateSchedule { decay, warmup, base_batch };
        let text = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/plans/v1-digits-cnn.json"
        ));
        let mut plan = Plan::from_json(&text.expect("a plan")).expect("a plan");
        plan.optimizer = "sgd:lr=0.1".parse().expect("an optimizer");
        (plan.training.rate, plan.steps, plan.mini_batch) = (schedule, 10, 32);
        Rates::new(&plan)
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
}
