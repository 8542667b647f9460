//! A plan with everything that is predicted of it.

use super::inputs::Inputs;
use pipewright_core::plan::Plan;
use pipewright_core::predict::Prediction;

/// The plan that is shown, with everything that is predicted of it.
#[derive(Debug)]
pub struct Ready {
    pub plan: Plan,
    pub prediction: Prediction,
}

impl Ready {
    /// What follows from the choices.
    ///
    /// # Errors
    /// What contradicts itself in them.
    pub fn new(inputs: &Inputs) -> Result<Self, String> {
        let (plan, prediction) = inputs.plan()?;
        Ok(Self { plan, prediction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::content::{Content, recognise};
    use crate::planner::engine::{Ground, solve};
    use crate::planner::link::read;
    use pipewright_core::units::Nanos;

    #[test]
    fn groups_are_solved_as_they_are_planned() {
        for words in [
            "model=gpt2&cluster=dgx-a100&d=2&batch=32&mb=4&tensor=4",
            "model=gpt2&cluster=dgx-a100&d=2&batch=64&mb=4&tensor=2&replicas=2&s=zb-h1",
            "model=llama-7b&cluster=dgx-a100&d=4&batch=16&mb=8&tensor=8",
        ] {
            let inputs = read(words, None).inputs;
            let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
            let ready = Ready::new(&inputs).unwrap();
            assert_eq!(solved.timeline, ready.prediction.timeline, "{words}");
            assert_eq!(inputs.ranks(), ready.plan.ranks(), "{words}");
            let Ok(Content::Plan(again)) = recognise("plan.json", &ready.plan.to_json()) else {
                panic!("{words}")
            };
            assert_eq!(*again, inputs);
            // The same lanes without groups hold more and take longer.
            let mut alone = inputs.clone();
            alone.rest.tensor = 1;
            let alone = solve(&alone, &Ground::of(&alone)).unwrap().figures;
            assert!(alone.peak > solved.figures.peak && alone.step > solved.figures.step);
        }
        let words = "model=mixtral-mini&cluster=dgx-a100&d=2&batch=32&mb=4&replicas=4&experts=4";
        let inputs = read(words, None).inputs;
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let ready = Ready::new(&inputs).unwrap();
        assert_eq!(solved.timeline, ready.prediction.timeline);
        let mut whole = inputs.clone();
        whole.rest.data_parallel.expert_parallel = 1;
        let all = solve(&whole, &Ground::of(&whole)).unwrap();
        assert!(all.figures.peak > solved.figures.peak && all.exchanged.is_empty());
        assert!(solved.exchanged.iter().all(|stage| stage.forward > Nanos::ZERO));
        whole.rest.data_parallel.expert_parallel = 3;
        let why = solve(&whole, &Ground::of(&whole)).unwrap_err();
        assert!(why.contains("is 3, must be a divisor of `replicas`"), "{why}");
        let odd = read("model=gpt2&cluster=dgx-a100&d=2&batch=32&mb=4&tensor=7", None).inputs;
        let why = solve(&odd, &Ground::of(&odd)).unwrap_err();
        assert!(why.contains("do not divide among 7"), "{why}");
    }
}
