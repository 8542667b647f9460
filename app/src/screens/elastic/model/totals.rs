//! Figures of a whole life, and how two of them differ.

use super::time::spoken;
use crate::base::format::{self, count, percent};
use crate::base::texts::{t, tr};
use pipewright_core::elastic::life::{End, Life};
use pipewright_core::elastic::{Occasion, Verdict};
use pipewright_core::units::Nanos;

/// Figures of a life.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// How it ended; none: it goes on.
    pub end: Option<End>,
    /// The last moment that is known.
    pub until: Nanos,
    /// When it ends if it goes on as now.
    pub expected: Option<Nanos>,
    /// Share of the work that is done, 0 to 1.
    pub progress: f64,
    /// Steps that count.
    pub steps: u64,
    /// Steps that were begun or trained and had to be trained again.
    pub steps_lost: u64,
    /// Share of the time in which what counts was trained.
    pub goodput: f64,
    /// Samples a second over all of the time.
    pub throughput: f64,
    /// Starts of all ranks.
    pub generations: usize,
    /// Generations that ended by a loss.
    pub losses: usize,
    /// Times that the policy answered other than to run.
    pub refusals: usize,
    /// Median and 99th percentile of the time until a loss is known.
    pub detect: Option<(Nanos, Nanos)>,
    /// Median and 99th percentile of the time from a loss until it trains again.
    pub recover: Option<(Nanos, Nanos)>,
}

impl Totals {
    /// Those of a life.
    pub fn of(life: &Life) -> Self {
        let generations = &life.generations;
        let lost = || generations.iter().filter_map(|generation| generation.loss);
        let seconds = life.until.secs();
        Self {
            end: life.end.clone(),
            until: life.until,
            expected: life.expected_end(),
            progress: (life.samples() as f64 / life.samples_total.max(1) as f64).min(1.0),
            steps: life.steps(),
            steps_lost: life.steps_lost(),
            goodput: life.goodput(),
            throughput: if seconds > 0.0 { life.samples() as f64 / seconds } else { 0.0 },
            generations: generations.len(),
            losses: lost().count(),
            refusals: refusals(life),
            detect: percentiles(lost().filter_map(|loss| loss.detected).collect()),
            recover: percentiles(generations.iter().filter_map(|g| g.recovered).collect()),
        }
    }

    /// What became of it, in a few words.
    pub fn outcome(&self) -> String {
        match &self.end {
            Some(End::Done) => t("done").to_owned(),
            Some(End::Failed(_)) => tr!("ended at {share} %", share = percent(self.progress, 0)),
            None if self.expected.is_some() => {
                tr!("at {share} %, goes on", share = percent(self.progress, 0))
            }
            None => tr!("at {share} %, waits", share = percent(self.progress, 0)),
        }
    }
}

/// Answers other than to run; who waits and is asked again says it once.
fn refusals(life: &Life) -> usize {
    let (mut last, mut count) = (None, 0);
    for asked in &life.asked {
        let again = asked.occasion == Occasion::Timer && last == Some(&asked.verdict);
        let runs = matches!(asked.verdict, Verdict::Run { .. });
        count += usize::from(!again && !runs);
        last = Some(&asked.verdict);
    }
    count
}

/// Median and 99th percentile by nearest rank.
fn percentiles(mut all: Vec<Nanos>) -> Option<(Nanos, Nanos)> {
    all.sort_unstable();
    let at = |share: f64| all[((all.len() as f64 * share).ceil() as usize).clamp(1, all.len()) - 1];
    (!all.is_empty()).then(|| (at(0.5), at(0.99)))
}

/// A line of the table of figures.
pub struct Row {
    /// What it is, in the page's language.
    pub name: &'static str,
    /// For tests and style sheets.
    pub key: &'static str,
    /// The figure of each life.
    pub values: Vec<String>,
    /// How the second differs from the first; empty where there is nothing to compare.
    pub change: String,
}

/// The table of one life, or of two with their difference.
pub fn rows(lives: &[Totals]) -> Vec<Row> {
    let row = |key, name, value: &dyn Fn(&Totals) -> String, change: Change| Row {
        name,
        key,
        values: lives.iter().map(value).collect(),
        change: match lives {
            [a, b] => change(a, b),
            _ => String::new(),
        },
    };
    let counted = |key, name, of: fn(&Totals) -> u64| {
        row(key, name, &|life| of(life).to_string(), &|a, b| difference(of(a), of(b)))
    };
    let none = |_: &Totals, _: &Totals| String::new();
    vec![
        row("outcome", t("Training"), &Totals::outcome, &none),
        row("end", t("Ends after"), &ends, &later),
        row("goodput", t("Goodput"), &|life| format!("{} %", percent(life.goodput, 1)), &points),
        row("rate", t("Samples/s overall"), &|life| count(life.throughput), &|a, b| {
            let comparable = a.throughput > 0.0;
            if comparable {
                format::signed_percent(b.throughput, a.throughput)
            } else {
                String::new()
            }
        }),
        row("steps", t("Steps"), &|life| life.steps.to_string(), &none),
        counted("lost", t("Steps lost"), |life| life.steps_lost),
        counted("generations", t("Generations"), |life| life.generations as u64),
        counted("losses", t("Failures"), |life| life.losses as u64),
        counted("refusals", t("Waits and refusals"), |life| life.refusals as u64),
        row("detect", t("Detected after, median"), &|life| half(life.detect), &none),
        row("detect-99", t("Detected after, p99"), &|life| most(life.detect), &none),
        row("recover", t("Trains again after, median"), &|life| half(life.recover), &none),
        row("recover-99", t("Trains again after, p99"), &|life| most(life.recover), &none),
    ]
}

/// How the second of two lives differs, as text.
type Change<'a> = &'a dyn Fn(&Totals, &Totals) -> String;

fn ends(totals: &Totals) -> String {
    match (&totals.end, totals.expected) {
        (Some(_), _) => spoken(totals.until.0),
        (None, Some(at)) => format!("≈ {}", spoken(at.0)),
        (None, None) => "–".to_owned(),
    }
}

/// Ends are compared where both came to theirs.
fn later(a: &Totals, b: &Totals) -> String {
    match (&a.end, &b.end) {
        (Some(End::Done), Some(End::Done)) => {
            format::signed_percent(b.until.secs(), a.until.secs())
        }
        _ => String::new(),
    }
}

fn points(a: &Totals, b: &Totals) -> String {
    match format::points(b.goodput, a.goodput) {
        format::Delta::Same => "0 pt".to_owned(),
        format::Delta::By { down, text } => format!("{}{text}", if down { '−' } else { '+' }),
    }
}

fn difference(a: u64, b: u64) -> String {
    match b.cmp(&a) {
        std::cmp::Ordering::Equal => "0".to_owned(),
        std::cmp::Ordering::Less => format!("−{}", a - b),
        std::cmp::Ordering::Greater => format!("+{}", b - a),
    }
}

fn half(times: Option<(Nanos, Nanos)>) -> String {
    times.map_or("–".to_owned(), |(half, _)| spoken(half.0))
}

fn most(times: Option<(Nanos, Nanos)>) -> String {
    times.map_or("–".to_owned(), |(_, most)| spoken(most.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Totals {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        Totals::of(&super::super::read("losses.jsonl", text).unwrap().life)
    }

    #[test]
    fn a_recorded_job_has_its_figures() {
        let totals = recorded();
        assert_eq!(totals.end, Some(End::Done));
        assert!(totals.losses > 0 && totals.goodput > 0.0 && totals.goodput <= 1.0, "{totals:?}");
        let (detect, recover) = (totals.detect.unwrap(), totals.recover.unwrap());
        assert!(detect.0 <= detect.1 && recover.0 <= recover.1 && detect.0 < recover.0);
        let table = rows(&[totals]);
        assert!(table.iter().all(|row| row.values.len() == 1 && row.change.is_empty()));
    }

    #[test]
    fn two_lives_are_compared() {
        let a = recorded();
        let b =
            Totals { goodput: a.goodput - 0.1, losses: a.losses + 2, steps_lost: 0, ..a.clone() };
        let table = rows(&[a, b]);
        let change = |key: &str| table.iter().find(|row| row.key == key).unwrap().change.clone();
        assert_eq!(
            (change("goodput"), change("losses"), change("end")),
            ("−10 pt".into(), "+2".into(), "0 %".into())
        );
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let all = |count: u64| percentiles((1..=count).map(Nanos).collect());
        assert_eq!((all(0), all(1)), (None, Some((Nanos(1), Nanos(1)))));
        assert_eq!(
            (all(4), all(200)),
            (Some((Nanos(2), Nanos(4))), Some((Nanos(100), Nanos(198))))
        );
    }
}
