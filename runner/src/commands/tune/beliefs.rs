//! Beliefs about plans that were not measured: what is predicted of them, times what steps of plans like them
//! took over what is predicted of those.
//!
//! A simulator that is calibrated to one plan still errs for others, and errs alike for plans that are alike.
//! What a ratio of another plan counts follows from what the two have in common (a kernel estimate, Nadaraya
//! 1964, Watson 1964, over a distance of choices).

use pipewright_core::plan::Plan;
use pipewright_core::units::Nanos;

/// What of a plan its errors depend on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traits {
    replicas: u32,
    samples: u64,
    schedule: String,
}

impl Traits {
    pub fn of(plan: &Plan) -> Self {
        let (replicas, samples) = (plan.data_parallel.replicas, plan.samples());
        Self { replicas, samples, schedule: plan.schedule.name.clone() }
    }

    /// What a ratio of `other` counts.
    fn weight(&self, other: &Self) -> f64 {
        let same = [
            self.replicas == other.replicas,
            self.samples == other.samples,
            self.schedule == other.schedule,
        ];
        same.into_iter().filter(|same| *same).fold(1.0, |weight, _| weight * COMMON)
    }
}

/// How much more a ratio counts for each thing that two plans have in common.
const COMMON: f64 = 4.0;

/// By what share predictions of plans err of which too few were measured to know.
const UNKNOWN: f64 = 0.03;

/// Doubts beyond it would have everything tried.
pub(super) const MOST: f64 = 0.1;

/// Ratios of measured to predicted steps.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    known: Vec<(Traits, f64)>,
}

impl Beliefs {
    /// A plan that was measured, and what is predicted of it now.
    pub fn learn(&mut self, traits: Traits, measured: Nanos, predicted: Nanos) {
        if measured.0 > 0 && predicted.0 > 0 {
            self.known.push((traits, measured.secs() / predicted.secs()));
        }
    }

    /// What a plan with such traits will take.
    pub fn expected(&self, traits: &Traits, predicted: Nanos) -> Nanos {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (known, ratio) in &self.known {
            let weight = traits.weight(known);
            (sum, weights) = (sum + weight * ratio, weights + weight);
        }
        let ratio = if weights > 0.0 { sum / weights } else { 1.0 };
        Nanos::from_secs(predicted.secs() * ratio)
    }

    /// Standard deviation of the ratios around what the others say of them, a share.
    pub fn doubt(&self) -> f64 {
        if self.known.len() < 3 {
            return UNKNOWN;
        }
        let error = |at: usize| {
            let mut others = Self { known: self.known.clone() };
            let (traits, ratio) = others.known.swap_remove(at);
            let expected = others.expected(&traits, Nanos::from_secs(1.0)).secs();
            (ratio / expected - 1.0).powi(2)
        };
        let squares: f64 = (0..self.known.len()).map(error).sum();
        (squares / (self.known.len() - 1) as f64).sqrt().min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(replicas: u32, samples: u64, schedule: &str) -> Traits {
        Traits { replicas, samples, schedule: schedule.into() }
    }

    #[test]
    fn plans_that_are_alike_say_most() {
        let mut beliefs = Beliefs::default();
        let second = Nanos::from_secs(1.0);
        assert_eq!(beliefs.expected(&traits(1, 4, "1f1b"), second), second);
        beliefs.learn(traits(1, 4, "1f1b"), second, second);
        beliefs.learn(traits(2, 8, "gpipe"), Nanos::from_secs(2.0), second);
        let expected = |replicas, samples, schedule| {
            beliefs.expected(&traits(replicas, samples, schedule), second).secs()
        };
        assert!(expected(1, 4, "1f1b") < 1.1, "{}", expected(1, 4, "1f1b"));
        assert!(expected(2, 8, "gpipe") > 1.9, "{}", expected(2, 8, "gpipe"));
        assert!((expected(1, 8, "zb-h1") - 1.5).abs() < 1e-6);
    }

    #[test]
    fn doubt_is_how_far_others_were_off() {
        let mut beliefs = Beliefs::default();
        let second = Nanos::from_secs(1.0);
        for schedule in ["1f1b", "gpipe", "zb-h1"] {
            assert!((beliefs.doubt() - UNKNOWN).abs() < 1e-12);
            beliefs.learn(traits(1, 4, schedule), second, second);
        }
        assert!(beliefs.doubt() < 1e-9);
        beliefs.learn(traits(1, 4, "v-half"), Nanos::from_secs(1.05), second);
        assert!((0.02..0.05).contains(&beliefs.doubt()), "{}", beliefs.doubt());
        beliefs.learn(traits(1, 4, "v-min"), Nanos::from_secs(9.0), second);
        assert!((beliefs.doubt() - MOST).abs() < 1e-12);
    }
}
