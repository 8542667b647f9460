//! One round of trials: every candidate has trained a little from the same state, and one goes on.

use super::{Candidate, ChoiceError, Decision, MOST_AHEAD, Point, Question, choose, forecast};
use serde::{Deserialize, Serialize};

/// What a candidate's trial showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The candidate's name.
    pub name: String,
    /// Whether its loss became no number; then it has no points.
    #[serde(default)]
    pub diverged: bool,
    /// Accuracy by step; places go on from those of the history.
    pub points: Vec<Point>,
    /// Time of one of its steps, in seconds.
    pub seconds_per_step: f64,
}

/// All that a choice is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Steps that were trained before.
    pub step: u64,
    /// Steps until the next round.
    pub every: u64,
    /// Accuracy by step, by whatever was chosen then.
    pub history: Vec<Point>,
    /// Trials in the order of the candidates, the more precise first.
    pub trials: Vec<Trial>,
    /// Time of all trials, in seconds.
    pub trial_seconds: f64,
}

/// What a round came to, with its reasons: [`Round::decide`] of `round` gives the same again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// What was known.
    pub round: Round,
    /// By candidate: why its curve could not be extended. Its last accuracy stands for the
    /// forecast then.
    pub refused: Vec<Option<String>>,
    /// The comparison.
    pub decision: Decision,
}

/// Points whose mean is the accuracy now: single ones are noisy.
const NOW: usize = 5;

impl Round {
    /// Takes the candidate with the largest expected gain for its time.
    ///
    /// # Errors
    /// Without candidates, or when a time is none.
    pub fn decide(self) -> Result<Chosen, ChoiceError> {
        let now = match self.history.len() {
            0 => self
                .trials
                .iter()
                .filter_map(|t| t.points.first())
                .map(|p| p.accuracy)
                .fold(1.0, f64::min),
            seen => mean(&self.history[seen.saturating_sub(NOW)..]),
        };
        let mut refused = vec![];
        let mut candidates = vec![];
        for trial in &self.trials {
            let (predicted, why) = match self.expected(trial) {
                Ok(accuracy) => (accuracy, None),
                Err(why) => {
                    (mean(&trial.points[trial.points.len().saturating_sub(NOW)..]), Some(why))
                }
            };
            refused.push(why);
            candidates.push(Candidate {
                name: trial.name.clone(),
                current: now,
                predicted,
                seconds_per_step: trial.seconds_per_step,
            });
        }
        let (steps, trial_seconds) = (self.every, self.trial_seconds);
        let decision = choose(Question { candidates, steps, trial_seconds })?;
        Ok(Chosen { round: self, refused, decision })
    }

    /// Accuracy at the next round if `trial` goes on.
    fn expected(&self, trial: &Trial) -> Result<f64, String> {
        if trial.diverged {
            return Err("its loss became no number".into());
        }
        let points: Vec<Point> = self.history.iter().chain(&trial.points).copied().collect();
        let last = points.last().map_or(0.0, |point| point.x);
        let horizon = ((self.step + self.every) as f64).min(MOST_AHEAD * last).max(last);
        forecast(&points, horizon).map(|f| f.accuracy).map_err(|e| e.to_string())
    }
}

fn mean(points: &[Point]) -> f64 {
    if points.is_empty() {
        return 0.0;
    }
    points.iter().map(|point| point.accuracy).sum::<f64>() / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapt::History;

    /// Saturating accuracy, reached `speed` times as fast, at `top` in the end.
    fn curve(steps: std::ops::Range<u64>, top: f64, speed: f64) -> Vec<Point> {
        let mut history = History::new(5);
        for step in steps {
            history.push(step, top * (1.0 - 1.0 / (1.0 + speed * step as f64 / 100.0)));
        }
        history.points().to_vec()
    }

    fn round(step: u64, seconds: [f64; 2], tops: [f64; 2]) -> Round {
        let trial = |name: &str, i: usize| Trial {
            name: name.into(),
            diverged: false,
            points: curve(step..step + 40, tops[i], 1.0),
            seconds_per_step: seconds[i],
        };
        Round {
            step,
            every: 200,
            history: curve(0..step, tops[0], 1.0),
            trials: vec![trial("fp32", 0), trial("table(1)", 1)],
            trial_seconds: 40.0 * (seconds[0] + seconds[1]),
        }
    }

    #[test]
    fn the_faster_wins_among_equals_and_loses_when_it_learns_nothing() {
        let equal = round(200, [0.3, 0.1], [0.9, 0.9]).decide().unwrap();
        assert_eq!(equal.decision.winner().name, "table(1)");
        let worse = round(200, [0.3, 0.1], [0.9, 0.4]).decide().unwrap();
        assert_eq!(worse.decision.winner().name, "fp32");
        assert_eq!(worse.refused, [None, None]);
    }

    #[test]
    fn a_decision_can_be_replayed_from_its_record() {
        let chosen = round(0, [0.3, 0.1], [0.9, 0.8]).decide().unwrap();
        let text = serde_json::to_string(&chosen).unwrap();
        let read: Chosen = serde_json::from_str(&text).unwrap();
        assert_eq!(read.round.clone().decide().unwrap(), chosen);
    }

    #[test]
    fn trials_that_are_too_short_say_so_and_stand_for_themselves() {
        let mut short = round(0, [0.3, 0.1], [0.9, 0.8]);
        short.trials.iter_mut().for_each(|trial| trial.points.truncate(3));
        let chosen = short.decide().unwrap();
        assert!(chosen.refused.iter().all(|why| why.as_ref().unwrap().contains("3 points")));
    }

    #[test]
    fn histories_stay_short_and_keep_their_mean() {
        let mut history = History::new(1);
        (0..10_000).for_each(|step| history.push(step, (step % 2) as f64));
        let points = history.points();
        assert!((100..=200).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert!(points.iter().all(|point| (point.accuracy - 0.5).abs() < 0.3));
    }
}
