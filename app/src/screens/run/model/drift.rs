//! The table of what makes a measured step longer or shorter than the predicted one, and the
//! sentence that names the most of it.

use crate::base::format::{self, Clock, Delta};
use crate::base::texts::{n, t, tr};
use pipewright_core::predict::{Busy, Drift, Part, PartTimes, Rest};
use pipewright_core::schedule::ActionKind;
use pipewright_core::units::Nanos;

/// How far the table is. Shares come one after the other: each is a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub rows: Vec<Row>,
    pub rest: Option<Rest>,
    /// What the steps took.
    pub predicted: Nanos,
    pub measured: Nanos,
    /// All shares are there.
    pub done: bool,
}

/// A kind of work of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub times: PartTimes,
    /// By how many nanoseconds the step is longer by this alone.
    pub share: Option<i64>,
}

/// What the sentence is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    Part(PartTimes),
    Before,
    After,
    Between,
}

impl Table {
    /// The table of a step, without shares.
    ///
    /// # Errors
    /// As [`Drift::rest`].
    pub fn new(drift: &Drift, predicted: Nanos, measured: Nanos) -> Result<Self, String> {
        let rows = drift.parts().into_iter().map(|times| Row { times, share: None }).collect();
        let rest = Some(drift.rest().map_err(|e| e.to_string())?);
        Ok(Self { rows, rest, predicted, measured, done: false })
    }

    /// Rows in the order of stages, or those that matter most first.
    pub fn sorted(&self, by_share: bool) -> Vec<Row> {
        let mut rows = self.rows.clone();
        if by_share {
            rows.sort_by_key(|row| {
                (std::cmp::Reverse(row.share.unwrap_or(0).unsigned_abs()), row.times.part)
            });
        }
        rows
    }

    /// What most of the difference comes from.
    pub fn sentence(&self) -> String {
        let Some(rest) = self.rest.filter(|_| self.done) else {
            return t("Simulating each part's share of the difference.").into();
        };
        let all = self.measured.0 as i64 - self.predicted.0 as i64;
        if all.unsigned_abs() * 200 < self.predicted.0 {
            return t("The step takes what was predicted, within half a percent.").into();
        }
        let parts =
            self.rows.iter().map(|row| (Cause::Part(row.times), row.share.unwrap_or_default()));
        let others = [
            (Cause::Before, rest.before),
            (Cause::After, rest.after),
            (Cause::Between, rest.between),
        ];
        // Of what points in the direction of the whole; something does, as they make it up.
        let most = parts.chain(others).max_by_key(|(_, share)| share * all.signum());
        let Some((cause, share)) = most.filter(|(_, share)| share * all.signum() > 0) else {
            return t("No single part explains the difference; together they do.").into();
        };
        let clock = Clock::of(self.predicted.max(self.measured));
        let time = signed(share, &clock);
        match cause {
            Cause::Part(times) => {
                let what = t(subject(times.part.busy));
                let stage = times.part.stage;
                match format::relative(times.measured.secs(), times.predicted.secs()) {
                    Delta::By { down: false, text } => tr!(
                        "{what} of stage {stage} is {percent} slower than predicted; alone it \
                         changes the step by {time}.",
                        what,
                        stage,
                        percent = text,
                        time
                    ),
                    Delta::By { down: true, text } => tr!(
                        "{what} of stage {stage} is {percent} faster than predicted; alone it \
                         changes the step by {time}.",
                        what,
                        stage,
                        percent = text,
                        time
                    ),
                    Delta::Same => tr!(
                        "{what} of stage {stage} varies around the predicted median; alone it \
                         changes the step by {time}.",
                        what,
                        stage,
                        time
                    ),
                }
            }
            Cause::Before => {
                tr!(
                    "The first action starts late, waiting for samples or ranks: {time} of the \
                     step.",
                    time
                )
            }
            Cause::After => {
                tr!("The step goes on after the last action: {time} of it.", time)
            }
            Cause::Between => tr!(
                "Messages, sums and waiting account for {time} of the step, more than any computation.",
                time
            ),
        }
    }
}

/// A kind of work as the subject of a sentence.
fn subject(busy: Busy) -> &'static str {
    match busy {
        Busy::Pass(ActionKind::Forward) => n("The forward pass"),
        Busy::Pass(ActionKind::Backward) => n("The backward pass"),
        Busy::Pass(ActionKind::BackwardInput) => n("The input gradient"),
        Busy::Pass(ActionKind::BackwardWeight) => n("The weight gradient"),
        Busy::Update => n("The update"),
    }
}

/// A kind of work in a table.
pub fn kind(busy: Busy) -> &'static str {
    match busy {
        Busy::Pass(ActionKind::Forward) => n("forward"),
        Busy::Pass(ActionKind::Backward) => n("backward"),
        Busy::Pass(ActionKind::BackwardInput) => n("input gradient"),
        Busy::Pass(ActionKind::BackwardWeight) => n("weight gradient"),
        Busy::Update => n("update"),
    }
}

/// `+3.1 ms`, with a real minus sign.
pub fn signed(nanos: i64, clock: &Clock) -> String {
    format!("{} {}", signed_number(nanos, clock), clock.unit)
}

/// `+3.1` in the clock's unit.
pub fn signed_number(nanos: i64, clock: &Clock) -> String {
    let size = clock.number(Nanos(nanos.unsigned_abs()));
    match nanos {
        n if n < 0 => format!("−{size}"),
        0 => size,
        _ => format!("+{size}"),
    }
}

/// `1.18`: measured over predicted; empty where nothing was predicted.
pub fn ratio(times: &PartTimes) -> String {
    let ratio = times.measured.secs() / times.predicted.secs();
    if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() }
}

/// The next part without a share.
pub fn next(table: &Table) -> Option<(usize, Part)> {
    let at = table.rows.iter().position(|row| row.share.is_none())?;
    Some((at, table.rows[at].times.part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;
    use crate::planner::ready::Ready;
    use pipewright_core::ids::StageId;
    use pipewright_core::timeline::Work;

    /// The first example's plan, with the spans of some work made longer; later ones move along.
    fn table(slow: impl Fn(Work) -> u64, late: u64) -> Table {
        let inputs = EXAMPLES[0].inputs();
        let ready = Ready::new(&inputs).unwrap();
        let mut measured = ready.prediction.timeline.clone();
        for lane in &mut measured.lanes {
            let mut shift = Nanos(late);
            for span in &mut lane.spans {
                span.start += shift;
                shift += Nanos(slow(span.work));
                span.end += shift;
            }
        }
        let ends = measured.lanes.iter().flat_map(|l| &l.spans).map(|s| s.end);
        measured.step = ends.max().unwrap();
        let drift = Drift::new(&ready.plan, &ready.prediction, &measured).unwrap();
        let predicted = ready.prediction.timeline.step;
        let mut table = Table::new(&drift, predicted, measured.step).unwrap();
        assert!(table.sentence().contains("Simulating"));
        while let Some((at, part)) = next(&table) {
            table.rows[at].share = Some(drift.share(part).unwrap());
        }
        table.done = true;
        table
    }

    #[test]
    fn the_sentence_names_the_largest_cause() {
        let slow = |work: Work| match work {
            Work::Run(a) if a.stage == StageId(2) && a.kind == ActionKind::Backward => 30_000_000,
            Work::Run(_) => 1_000_000,
            Work::Optimizer(_) => 0,
        };
        let table = table(slow, 0);
        let said = table.sentence();
        assert!(said.starts_with("The backward pass of stage 2 is "), "{said}");
        assert!(said.contains(" slower than predicted; alone it changes the step by +"), "{said}");
        let first = table.sorted(true)[0].times;
        assert_eq!((first.part.stage, kind(first.part.busy)), (StageId(2), "backward"));
        assert_eq!(first.measured.0 - first.predicted.0, 30_000_000);
        assert_eq!(table.sorted(false)[0].times.part.stage, StageId(0));
    }

    #[test]
    fn what_begins_late_or_on_time_is_said() {
        let said = table(|_| 0, 400_000_000).sentence();
        assert!(
            said.starts_with("The first action starts late") && said.contains("+400"),
            "{said}"
        );
        assert!(table(|_| 0, 0).sentence().contains("what was predicted"));
    }

    #[test]
    fn amounts_have_signs() {
        let clock = Clock::of(Nanos(100_000_000));
        assert_eq!(signed(-3_100_000, &clock), "−3.1 ms");
        assert_eq!(signed(3_100_000, &clock), "+3.1 ms");
        assert_eq!(signed(0, &clock), "0.0 ms");
    }
}
