//! One round of trials: every candidate has trained a little from the same state, and one goes on.

use super::two_stage::MOST_AHEAD;
use super::{Candidate, ChoiceError, Curve, Decision, Forecast, Point, Question};
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
    /// Mean losses of the same steps; without them accuracies are compared.
    #[serde(default)]
    pub losses: Vec<f64>,
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
    /// Steps of the whole training.
    pub end: u64,
    /// Predictions of a step.
    pub samples: u64,
    /// Accuracy by step, by whatever was chosen then.
    pub history: Vec<Point>,
    /// Trials in the order of the candidates, the most precise first.
    pub trials: Vec<Trial>,
    /// Time of all trials, in seconds.
    pub trial_seconds: f64,
}

/// What is expected of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// Accuracy at the next round.
    pub accuracy: f64,
    /// How much lower it may well be than the most precise candidate's: the difference that the trials
    /// showed, in either direction, and what chance may have hidden of it.
    pub behind: f64,
    /// What of that would still be missing at the end, were the most precise taken from the next round
    /// on; all of it, while the end is too far to be foretold.
    pub lasting: f64,
    /// Why its curve could not be extended; its last accuracies stand for the forecast then.
    pub refused: Option<String>,
}

/// What a round came to, with its reasons: [`Round::decide`] of `round` gives the same again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// What was known.
    pub round: Round,
    /// By candidate.
    pub expected: Vec<Expected>,
    /// By index: candidates that could leave nothing behind that lasts; where none of them gains
    /// anything, the fastest alone.
    pub admitted: Vec<usize>,
    /// The comparison of those.
    pub decision: Decision,
}

impl Chosen {
    /// Index of the candidate that was chosen.
    pub fn winner(&self) -> usize {
        self.admitted[self.decision.winner]
    }
}

/// Points whose mean is the accuracy now: single ones are noisy.
const NOW: usize = 5;

/// What all rounds together may leave behind at the end of the training.
const LASTING: f64 = 0.005;

/// The last part of the training, in which hardly anything is made good any more: what rounds leave behind
/// there adds up.
const LATE: f64 = 0.2;

/// What a candidate may be behind while nobody can tell what of it lasts. Early harm did last: a network
/// that began with 100 steps by table(1) ended 18 points below, with fp8 for all other steps. There
/// table(1) is behind by 0.4 and more, fp8 by 0.007.
const LASTING_UNKNOWN: f64 = 0.02;

/// Standard deviations that chance is given.
const CHANCE: f64 = 2.0;

impl Round {
    /// Takes the candidate with the largest expected gain for its time (Oyama), of those that do no
    /// harm that lasts: what a lossy method loses early in training, a precise one makes good in the
    /// steps after; what it loses near the end, nothing does. So candidates need the better evidence the
    /// nearer the end is.
    ///
    /// # Errors
    /// Without candidates, or when a time is none.
    pub fn decide(self) -> Result<Chosen, ChoiceError> {
        let base = self.trials.first().map(|precise| self.future(precise));
        let now = match &base {
            // On the same curve as what is expected: single accuracies are noisy.
            Some(Ok(base)) => base.at((self.step as f64).max(1.0)).clamp(0.0, 1.0),
            _ => self.now(),
        };
        let expected: Vec<Expected> = self.trials.iter().map(|t| self.expected(t, &base)).collect();
        let most = if self.foretells_the_end() { self.share() } else { LASTING_UNKNOWN };
        let admits = |at: &usize| *at == 0 || expected[*at].lasting <= most;
        let mut admitted: Vec<usize> = (0..expected.len()).filter(admits).collect();
        if admitted.iter().all(|at| expected[*at].accuracy <= now) {
            // Losses divided by times would prefer the slowest.
            let seconds = |at: &usize| self.trials[*at].seconds_per_step;
            admitted.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
            admitted.truncate(1);
        }
        let candidate = |&at: &usize| Candidate {
            name: self.trials[at].name.clone(),
            current: now,
            predicted: expected[at].accuracy,
            seconds_per_step: self.trials[at].seconds_per_step,
        };
        let candidates = admitted.iter().map(candidate).collect();
        let (steps, trial_seconds) = (self.every, self.trial_seconds);
        let decision = Decision::of(Question { candidates, steps, trial_seconds })?;
        Ok(Chosen { round: self, expected, admitted, decision })
    }

    /// What this round may leave behind at the end: late rounds share what all of them may.
    fn share(&self) -> f64 {
        LASTING / (LATE * self.end as f64 / self.every.max(1) as f64).max(1.0)
    }

    /// Accuracy before the trials.
    fn now(&self) -> f64 {
        let seen = self.history.len();
        if seen > 0 {
            return mean(&self.history[seen.saturating_sub(NOW)..]);
        }
        let firsts = self.trials.iter().filter_map(|trial| trial.points.first());
        firsts.map(|point| point.accuracy).fold(1.0, f64::min)
    }

    /// The curve that `trial` would go on with.
    fn future(&self, trial: &Trial) -> Result<Forecast, String> {
        if trial.diverged {
            return Err("its loss became no number".into());
        }
        let points: Vec<Point> = self.history.iter().chain(&trial.points).copied().collect();
        Curve::forecast(&points, self.within((self.step + self.every) as f64))
            .map_err(|e| e.to_string())
    }

    /// Whether forecasts reach to the end of the training.
    fn foretells_the_end(&self) -> bool {
        self.within(self.end as f64) >= self.end as f64
    }

    /// A place ahead, or the last for which forecasts are made.
    fn within(&self, x: f64) -> f64 {
        let seen = self.trials.iter().filter_map(|trial| trial.points.last());
        let last = seen.map(|point| point.x).fold(0.0, f64::max);
        x.min(MOST_AHEAD * last).max(last)
    }

    fn expected(&self, trial: &Trial, base: &Option<Result<Forecast, String>>) -> Expected {
        let last = mean(&trial.points[trial.points.len().saturating_sub(NOW)..]);
        let base = match base {
            Some(Ok(base)) if !trial.diverged => base,
            Some(Err(why)) if !trial.diverged => {
                let refused = Some(why.clone());
                return Expected { accuracy: last, behind: 0.0, lasting: 0.0, refused };
            }
            _ => {
                let refused = Some("its loss became no number".into());
                return Expected { accuracy: 0.0, behind: 1.0, lasting: 1.0, refused };
            }
        };
        let (behind, chance) = self.behind(trial);
        // Differences grow as states drift apart, and level out as each finds its own.
        let growth = (self.every as f64 / self.trial_steps().max(1.0)).sqrt();
        // A lossy method that learns better for a few steps trains otherwise, not better: table(1), whose
        // steps are larger, led for 200 steps of a network and ended 9 points below.
        let (behind, chance) = (behind.abs() * growth, chance * growth);
        let accuracy = (base.accuracy - behind).clamp(0.0, 1.0);
        let behind = behind + CHANCE * chance;
        let lasting = self.lasting(base, behind);
        Expected { accuracy, behind, lasting, refused: None }
    }

    /// By how much `trial` was behind the most precise one, in accuracy, and the standard error of that. Both saw the same samples, so differences vary less than accuracies do.
    ///
    /// Losses tell more than accuracies, which count only samples that change sides; wrong
    /// predictions go with the loss, about one for three of its units in cross entropy.
    fn behind(&self, trial: &Trial) -> (f64, f64) {
        let precise = &self.trials[0];
        let wrong = 1.0 - mean(&precise.points);
        let loss = precise.losses.iter().sum::<f64>() / precise.losses.len().max(1) as f64;
        let by_loss = loss > 0.0 && trial.losses.len() == precise.losses.len();
        let differences: Vec<f64> = if by_loss {
            let pairs = precise.losses.iter().zip(&trial.losses);
            pairs.map(|(a, b)| (b - a) * wrong / loss).collect()
        } else {
            let pairs = precise.points.iter().zip(&trial.points);
            pairs.map(|(a, b)| a.accuracy - b.accuracy).collect()
        };
        // The first step's losses are of the same state.
        let later = differences.get(1..).unwrap_or_default();
        if later.len() < 2 {
            return (0.0, 1.0);
        }
        let count = later.len() as f64;
        let mean = later.iter().sum::<f64>() / count;
        let squares = later.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>();
        // Where no sample changed sides, the next may have been the first.
        let predictions = (self.trial_steps() - 1.0) * self.samples as f64;
        let least = if by_loss { 0.0 } else { 1.0 / predictions.max(1.0) };
        (mean, (squares / (count - 1.0) / count).sqrt().max(least))
    }

    fn trial_steps(&self) -> f64 {
        let last = self.trials.first().and_then(|trial| trial.points.last());
        last.map_or(0.0, |point| point.x - self.step as f64)
    }

    /// What is missing at the end of who is `behind` at the next round and goes on along `base`: it comes
    /// to the end as many steps too late as it takes `base` to make good what is missing.
    fn lasting(&self, base: &Forecast, behind: f64) -> f64 {
        let next = self.within((self.step + self.every) as f64);
        let end = self.within(self.end as f64);
        if behind <= 0.0 || !self.foretells_the_end() {
            return behind;
        }
        let goal = base.at(next) - behind;
        // By halves: curves rise, or rise no more.
        let (mut low, mut high) = (0.0f64, next);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if base.at(middle) < goal { low = middle } else { high = middle }
        }
        let late = next - low;
        (base.at(end) - base.at((end - late).max(0.0))).clamp(0.0, behind.min(1.0))
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
            losses: vec![],
            points: curve(step..step + 40, tops[i], 1.0),
            seconds_per_step: seconds[i],
        };
        Round {
            step,
            every: 200,
            end: 2000,
            samples: 10_000,
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
        assert!(worse.expected.iter().all(|expected| expected.refused.is_none()));
        let too_good = round(200, [0.3, 0.1], [0.4, 0.9]).decide().unwrap();
        assert_eq!(too_good.decision.winner().name, "fp32");
        let flat = round(200, [0.3, 0.1], [0.0, 0.0]).decide().unwrap();
        assert_eq!(flat.decision.winner().name, "table(1)", "nothing to gain but time");
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
        assert!(chosen.expected.iter().all(|e| e.refused.as_ref().unwrap().contains("3 points")));
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
