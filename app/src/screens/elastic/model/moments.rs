//! Moments of a job's life, one sentence each: for hovering, the keyboard and screen readers.

use super::time::spoken;
use crate::base::format::count;
use crate::base::texts::{t, tr};
use pipewright_core::elastic::life::{Cause, End, Generation, Life};
use pipewright_core::elastic::{Member, Occasion, Verdict};
use pipewright_core::units::Nanos;

/// What kind of thing happened: its sign in pictures and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node came.
    Joined,
    /// It went, and said so.
    Left,
    /// It is gone.
    Lost,
    /// The policy lets the job run.
    Run,
    /// The policy waits.
    Wait,
    /// The policy ends the job.
    Fail,
    /// Ranks were started.
    Launched,
    /// They train.
    Trains,
    /// They ended.
    Ended,
    /// The job ended.
    Over,
}

impl Kind {
    /// Its sign.
    pub fn sign(self) -> &'static str {
        match self {
            Kind::Joined => "+",
            Kind::Left => "−",
            Kind::Lost | Kind::Fail => "✕",
            Kind::Run => "✓",
            Kind::Wait => "…",
            Kind::Launched => "▷",
            Kind::Trains => "▶",
            Kind::Ended | Kind::Over => "■",
        }
    }

    /// What comes first of things at the same time.
    fn place(self) -> u8 {
        match self {
            Kind::Joined | Kind::Left | Kind::Lost => 0,
            Kind::Run | Kind::Wait | Kind::Fail => 1,
            Kind::Ended => 2,
            Kind::Launched => 3,
            Kind::Trains => 4,
            Kind::Over => 5,
        }
    }

    /// Its class in style sheets.
    pub fn class(self) -> &'static str {
        match self {
            Kind::Lost | Kind::Fail => "bad",
            Kind::Wait | Kind::Left => "warn",
            _ => "",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// When.
    pub at: Nanos,
    /// What kind of thing.
    pub kind: Kind,
    /// A sentence without its full stop.
    pub text: String,
}

/// Everything that happened, in order.
pub fn of(life: &Life) -> Vec<Moment> {
    let mut all = vec![];
    members(life, &mut all);
    verdicts(life, &mut all);
    life.generations.iter().for_each(|generation| ran(generation, &mut all));
    if let Some(end) = &life.end {
        let text = match end {
            End::Done => t("Training is done").to_owned(),
            End::Failed(why) => tr!("The job ended: {why}", why),
        };
        all.push(Moment { at: life.until, kind: Kind::Over, text });
    }
    // Of one moment, causes stand before what follows from them.
    all.sort_by_key(|moment| (moment.at, moment.kind.place()));
    all
}

/// Why nodes that are not there any more went, as the next question says.
pub(super) fn why_gone(life: &Life, at: Nanos) -> Kind {
    let next = life.asked.iter().find(|asked| asked.at >= at);
    match next.map(|asked| asked.occasion) {
        Some(Occasion::Lost) => Kind::Lost,
        _ => Kind::Left,
    }
}

fn members(life: &Life, all: &mut Vec<Moment>) {
    let mut before: &[Member] = &[];
    for (at, now) in &life.members {
        let named = |list: &[Member], name: &str| list.iter().any(|member| member.name == name);
        for member in now.iter().filter(|member| !named(before, &member.name)) {
            let text = match member.slots {
                1 => tr!("{node} joins with 1 slot", node = member.name),
                slots => tr!("{node} joins with {slots} slots", node = member.name, slots),
            };
            all.push(Moment { at: *at, kind: Kind::Joined, text });
        }
        for member in before.iter().filter(|member| !named(now, &member.name)) {
            let kind = why_gone(life, *at);
            let text = match kind {
                Kind::Lost => tr!("{node} fails", node = member.name),
                _ => tr!("{node} leaves", node = member.name),
            };
            all.push(Moment { at: *at, kind, text });
        }
        before = now;
    }
}

fn verdicts(life: &Life, all: &mut Vec<Moment>) {
    let mut last: Option<&Verdict> = None;
    for asked in &life.asked {
        // Who waits is asked again and again.
        if asked.occasion == Occasion::Timer && last == Some(&asked.verdict) {
            continue;
        }
        last = Some(&asked.verdict);
        let occasion = match asked.occasion {
            Occasion::Started => t("the job starts"),
            Occasion::Joined => t("a node joined"),
            Occasion::Left => t("a node left"),
            Occasion::Lost => t("a node or rank failed"),
            Occasion::Timer => t("time passed"),
        };
        let (kind, text) = match &asked.verdict {
            Verdict::Run { ranks } => {
                (Kind::Run, tr!("Policy, as {occasion}: run with {ranks} ranks", occasion, ranks))
            }
            Verdict::Wait { why } => {
                (Kind::Wait, tr!("Policy, as {occasion}: wait, {why}", occasion, why))
            }
            Verdict::Fail { why } => {
                (Kind::Fail, tr!("Policy, as {occasion}: fail, {why}", occasion, why))
            }
        };
        all.push(Moment { at: asked.at, kind, text });
    }
}

/// What a generation is called: `generation 3: 8 ranks (2 × 4), 64 samples a step`.
pub fn title(generation: &Generation) -> String {
    let Generation { number, ranks, replicas, mini_batch: samples, rate_factor, .. } = generation;
    // Of a replica: on other numbers of nodes the pipeline is cut anew.
    let each = ranks / replicas.max(&1);
    match rate_factor {
        None => tr!(
            "generation {number}: {ranks} ranks ({replicas} × {each}), {samples} samples a step",
            number,
            ranks,
            replicas,
            each,
            samples
        ),
        Some(factor) => tr!(
            "generation {number}: {ranks} ranks ({replicas} × {each}), {samples} samples a step, learning rate × {factor}",
            number,
            ranks,
            replicas,
            each,
            samples,
            factor = (factor * 1000.0).round() / 1000.0
        ),
    }
}

fn ran(generation: &Generation, all: &mut Vec<Moment>) {
    let number = generation.number;
    let mut add = |at, kind, text| all.push(Moment { at, kind, text });
    add(generation.launched, Kind::Launched, tr!("Start of {title}", title = title(generation)));
    if let Some(at) = generation.training {
        let step = generation.first_step;
        let text = match generation.recovered {
            Some(after) => tr!(
                "Generation {number} trains from step {step}, {after} after the failure",
                number,
                step,
                after = spoken(after.0)
            ),
            None => tr!("Generation {number} trains from step {step}", number, step),
        };
        add(at, Kind::Trains, text);
    }
    let Some((at, cause)) = generation.ended else { return };
    let why = cause_text(cause);
    let mut text = tr!(
        "Generation {number} ends at step {step}: {why}",
        number,
        step = generation.last_step(),
        why
    );
    if let Some(rate) = generation.throughput() {
        text += &tr!("; {rate} samples/s", rate = count(rate))[..];
    }
    if let Some(loss) = generation.loss {
        if let Some(rank) = loss.rank {
            text += &tr!("; rank {rank} was the first", rank)[..];
        }
        if let Some(after) = loss.detected {
            text += &tr!("; known after {after}", after = spoken(after.0))[..];
        }
    }
    let kind = if cause.is_loss() { Kind::Lost } else { Kind::Ended };
    add(at, kind, text);
}

/// Why a generation ended, in words.
pub fn cause_text(cause: Cause) -> &'static str {
    match cause {
        Cause::Done => t("all is trained"),
        Cause::RankLost => t("a rank failed"),
        Cause::RankSilent => t("a rank stopped answering"),
        Cause::Hung => t("no rank made progress"),
        Cause::MemberLost => t("a node failed"),
        Cause::Reconfigured => t("another size takes over"),
        Cause::Stopped => t("it was stopped"),
        Cause::Failed => t("it failed"),
        Cause::Unknown => t("for a reason this page does not know"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_job_is_told_in_order() {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        let recorded = super::super::read("losses.jsonl", text).unwrap();
        let all = of(&recorded.life);
        assert!(all.windows(2).all(|w| w[0].at <= w[1].at));
        let kinds = |kind: Kind| all.iter().filter(|moment| moment.kind == kind).count();
        assert_eq!(kinds(Kind::Launched), recorded.life.generations.len());
        assert!(kinds(Kind::Lost) > 0 && kinds(Kind::Run) > 0 && kinds(Kind::Joined) > 0);
        assert_eq!(kinds(Kind::Over), 1);
        assert!(all.iter().any(|m| m.text.contains("after the failure")), "{all:#?}");
        assert!(all.iter().any(|m| m.text.contains("known after")), "{all:#?}");
    }
}
