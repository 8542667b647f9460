//! The policies that need no program.

use super::together::all;
use super::{Facts, ScalePolicy, Size, Verdict};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// A policy by name and numbers; its text is like `min-max:2:8+deadline:48h`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// Runs with whatever the plan fits on.
    #[default]
    Any,
    /// Waits for so many ranks at first, and ends when there are fewer later.
    FailStop(u32),
    /// Runs with so many ranks, neither more nor fewer; waits until they are there.
    FixedSize(u32),
    /// Runs with at least the first and at most the second number of ranks; waits for more below.
    MinMax(u32, u32),
    /// Ends the job when it would take longer than this since it began, or longer than
    /// [`Facts::left_ns`]. Whole seconds in the text.
    Deadline(Nanos),
    /// Goes on with fewer ranks than before only if at least this share of the work is done.
    ProgressGate(f64),
    /// Takes a size whose mini-batch has at least the first and at most the second number of
    /// samples.
    BatchRange(u64, u64),
    /// What all of them agree on: if one ends the job it ends, if one waits it waits, else it runs
    /// with the fewest ranks that anybody names and nobody objects to.
    All(Vec<Policy>),
}

impl ScalePolicy for Policy {
    fn decide(&self, facts: &Facts) -> Verdict {
        match *self {
            Policy::Any => largest(facts, 1, u32::MAX),
            Policy::FailStop(ranks) => match largest(facts, ranks, ranks) {
                Verdict::Wait { why } if !facts.initial => Verdict::Fail { why },
                verdict => verdict,
            },
            Policy::FixedSize(ranks) => largest(facts, ranks, ranks),
            Policy::MinMax(least, most) => largest(facts, least, most),
            Policy::Deadline(limit) => deadline(facts, limit),
            Policy::ProgressGate(share) => progress(facts, share),
            Policy::BatchRange(least, most) => batch(facts, least, most),
            Policy::All(ref policies) => {
                let policies: Vec<&dyn ScalePolicy> = policies.iter().map(|p| p as _).collect();
                all(&policies, facts)
            }
        }
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

fn run(size: &Size) -> Verdict {
    Verdict::Run { ranks: size.ranks }
}

/// The largest size between two numbers of ranks, or a wait for more.
fn largest(facts: &Facts, least: u32, most: u32) -> Verdict {
    match facts.largest(most) {
        Some(size) if size.ranks >= least => run(size),
        Some(size) => {
            let (slots, ranks) = (facts.slots(), size.ranks);
            Verdict::wait(format!("{slots} slots are enough for {ranks} ranks, not for {least}"))
        }
        None => {
            let least = if facts.sizes.is_empty() { least.max(facts.limits.least) } else { least };
            Verdict::wait(format!("{} slots are not enough for {least} ranks", facts.slots()))
        }
    }
}

fn deadline(facts: &Facts, limit: Nanos) -> Verdict {
    let left = limit.saturating_sub(facts.elapsed_ns);
    let left = facts.left_ns.map_or(left, |others| others.min(left));
    let Some(size) = facts.sizes.last() else { return without_size(facts, left == Nanos::ZERO) };
    match facts.time_left(size) {
        Some(needed) if needed > left && facts.initial && left > Nanos::ZERO => {
            Verdict::wait(format!("{} ranks would take {needed}, {left} are left", size.ranks))
        }
        Some(needed) if needed > left => {
            Verdict::fail(format!("{} ranks would take {needed}, {left} are left", size.ranks))
        }
        // What nobody knows is not held against the job, until the time is over.
        None if left == Nanos::ZERO => without_size(facts, true),
        _ => run(size),
    }
}

fn without_size(facts: &Facts, over: bool) -> Verdict {
    if over {
        return Verdict::fail(format!("the time is over after {}", facts.elapsed_ns));
    }
    largest(facts, 1, u32::MAX)
}

fn progress(facts: &Facts, share: f64) -> Verdict {
    let Some(size) = facts.sizes.last() else { return largest(facts, 1, u32::MAX) };
    let done = facts.progress.share();
    if facts.initial || size.ranks >= facts.running_ranks || done >= share {
        return run(size);
    }
    Verdict::fail(format!(
        "{} of {} ranks are left after {:.1} % of the work, less than {:.1} %",
        size.ranks,
        facts.running_ranks,
        done * 100.0,
        share * 100.0
    ))
}

fn batch(facts: &Facts, least: u64, most: u64) -> Verdict {
    let fits = |size: &&Size| (least..=most).contains(&size.mini_batch);
    match facts.sizes.iter().rev().find(fits) {
        Some(size) => run(size),
        None => Verdict::wait(format!(
            "no size that fits on {} slots has a mini-batch of {least} to {most} samples",
            facts.slots()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elastic::{Member, Occasion, decide};

    const HOUR: u64 = 3_600_000_000_000;

    /// A job of 8 ranks and 1000 steps that ran with `before` ranks and has `now` slots. Any
    /// number of ranks is a size, the mini-batch is 32 a rank, a step takes 8 minutes by one rank.
    fn facts(before: u32, now: u32) -> Facts {
        let mut facts = Facts::initial(8, 1000, 256);
        facts.occasion = if now < before { Occasion::Lost } else { Occasion::Joined };
        facts.initial = before == 0;
        facts.running_ranks = before;
        facts.members = (0..now).map(|i| Member::new(format!("node{i}"), 1)).collect();
        let size = |ranks: u32| Size {
            step_ns: Some(Nanos(8 * HOUR / 60)),
            ..Size::ranks(ranks, 32 * u64::from(ranks))
        };
        facts.sizes = (1..=now.min(8)).map(size).collect();
        facts
    }

    fn verdict(policy: &str, facts: &Facts) -> String {
        match decide(&policy.parse::<Policy>().unwrap(), facts) {
            Verdict::Run { ranks } => format!("run {ranks}"),
            Verdict::Wait { .. } => "wait".into(),
            Verdict::Fail { .. } => "fail".into(),
        }
    }

    fn check(policy: &str, cases: &[(u32, u32, &str)]) {
        for &(before, now, expected) in cases {
            assert_eq!(verdict(policy, &facts(before, now)), expected, "{policy} {before} {now}");
        }
    }

    #[test]
    fn any_takes_what_there_is() {
        check("any", &[(0, 0, "wait"), (0, 3, "run 3"), (4, 9, "run 8"), (4, 1, "run 1")]);
    }

    #[test]
    fn fail_stop_waits_at_first_only() {
        check("fail-stop:4", &[(0, 3, "wait"), (0, 4, "run 4"), (4, 3, "fail"), (4, 5, "run 4")]);
    }

    #[test]
    fn fixed_size_waits_until_the_size_is_restored() {
        check("fixed-size:4", &[(0, 3, "wait"), (0, 6, "run 4"), (4, 3, "wait"), (4, 0, "wait")]);
    }

    #[test]
    fn min_max_follows_the_members_between_its_limits() {
        let cases =
            [(0, 1, "wait"), (0, 2, "run 2"), (2, 5, "run 4"), (4, 3, "run 3"), (4, 1, "wait")];
        check("min-max:2:4", &cases);
    }

    #[test]
    fn deadline_compares_the_time_that_is_left() {
        // 8 ranks need 1000 steps of 8 minutes, 133 h; 4 ranks twice as many.
        check("deadline:150h", &[(0, 8, "run 8"), (0, 4, "wait"), (8, 4, "fail"), (4, 0, "wait")]);
        let mut late = facts(8, 8);
        late.elapsed_ns = Nanos(100 * HOUR);
        assert_eq!(verdict("deadline:150h", &late), "fail");
        late.progress.samples = late.progress.samples_total * 2 / 3;
        assert_eq!(verdict("deadline:150h", &late), "run 8");
        late.left_ns = Some(Nanos(HOUR));
        assert_eq!(verdict("deadline:150h", &late), "fail", "the queue's limit counts, too");
        let mut unknown = facts(8, 4);
        unknown.sizes.iter_mut().for_each(|size| size.step_ns = None);
        assert_eq!(verdict("deadline:150h", &unknown), "run 4", "nobody knows");
        unknown.elapsed_ns = Nanos(150 * HOUR);
        assert_eq!(verdict("deadline:150h", &unknown), "fail", "the time is over");
        let mut nobody = facts(0, 0);
        nobody.elapsed_ns = Nanos(151 * HOUR);
        assert_eq!(verdict("deadline:150h", &nobody), "fail");
    }

    #[test]
    fn progress_gates_losses_only() {
        check("progress:0.8", &[(0, 2, "run 2"), (4, 3, "fail"), (4, 5, "run 5"), (4, 0, "wait")]);
        let mut late = facts(4, 3);
        late.progress.samples = late.progress.samples_total / 10 * 9;
        assert_eq!(verdict("progress:0.8", &late), "run 3");
    }

    #[test]
    fn batch_range_takes_the_largest_size_within() {
        let cases = [(0, 1, "wait"), (0, 3, "run 3"), (2, 8, "run 5"), (5, 1, "wait")];
        check("batch-range:64:190", &cases);
    }

    #[test]
    fn together_the_most_careful_counts() {
        check("min-max:2:6+fail-stop:4", &[(0, 3, "wait"), (4, 3, "fail"), (4, 8, "run 4")]);
        check("min-max:2:6+batch-range:32:100", &[(4, 8, "run 3"), (4, 2, "run 2")]);
        // What one asks for is too little for the other: nobody runs with what only one wants.
        check("min-max:4:8+batch-range:32:100", &[(4, 8, "wait")]);
        check("fixed-size:6+min-max:1:4", &[(0, 8, "wait")]);
    }
}
