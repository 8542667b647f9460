//! The candidate that gains most for its time.
//!
//! gain = (predicted - current) / (steps · seconds a step + seconds of the trials). The trials' time
//! is everybody's: it counts the more, the less a candidate's own steps take.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A method that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Accuracy now, between 0 and 1.
    pub current: f64,
    /// Accuracy that is expected at the horizon.
    pub predicted: f64,
    /// Time of one of its steps, in seconds.
    pub seconds_per_step: f64,
}

/// What a choice is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Methods, the more precise first: it wins a tie.
    pub candidates: Vec<Candidate>,
    /// Steps until the next choice.
    pub steps: u64,
    /// Time that the trials took, in seconds.
    pub trial_seconds: f64,
}

/// A choice with all that led to it; choosing again from `question` gives the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What was asked.
    pub question: Question,
    /// Gain of each candidate, in accuracy a second.
    pub gains: Vec<f64>,
    /// Index of the candidate with the largest gain.
    pub winner: usize,
}

impl Decision {
    /// The candidate that won.
    pub fn winner(&self) -> &Candidate {
        &self.question.candidates[self.winner]
    }
}

/// Why there is no choice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// Nothing to choose from.
    #[error("no candidates: name one method at least")]
    NoCandidates,
    /// A number that is none, or a time that does not pass.
    #[error("{name}: accuracies must be numbers, times and the number of steps above 0")]
    Numbers {
        /// Whose, or the trials'.
        name: String,
    },
}

impl Decision {
    /// The candidate with the largest gain for its time; the first of equals.
    ///
    /// # Errors
    /// No candidates, numbers that are none, times that do not pass.
    pub fn of(question: Question) -> Result<Self, ChoiceError> {
        let trials = question.trial_seconds;
        if !(trials >= 0.0 && trials.is_finite()) {
            return Err(ChoiceError::Numbers { name: "trials".into() });
        }
        let gain = |candidate: &Candidate| {
            let time = question.steps as f64 * candidate.seconds_per_step + trials;
            let gain = (candidate.predicted - candidate.current) / time;
            let good = candidate.seconds_per_step > 0.0 && question.steps > 0 && gain.is_finite();
            good.then_some(gain)
                .ok_or_else(|| ChoiceError::Numbers { name: candidate.name.clone() })
        };
        let gains = question.candidates.iter().map(gain).collect::<Result<Vec<f64>, _>>()?;
        let better = |best: usize, i: usize| if gains[i] > gains[best] { i } else { best };
        let winner = (0..gains.len()).reduce(better).ok_or(ChoiceError::NoCandidates)?;
        Ok(Decision { question, gains, winner })
    }
}
