//! The facts as a script sees them: constants. Times are in seconds; what nobody knows is `()`,
//! with which every comparison but `!=` is false.

use crate::elastic::{Facts, Member, Occasion, Size};
use crate::units::Nanos;
use rhai::{Array, Dynamic, Map, Scope};

/// Name and meaning of every constant.
pub(super) const NAMES: [(&str, &str); 22] = [
    ("occasion", "why it is asked: \"started\", \"joined\", \"left\", \"lost\" or \"timer\""),
    ("initial", "whether nothing has run yet"),
    ("members", "who is there: an array of #{name, slots}"),
    ("running", "who is or was in the generation that ran last"),
    ("running_ranks", "ranks of that generation; 0 at first"),
    ("slots", "ranks that the members can run together"),
    ("ranks", "ranks that the plan can use of them; 0: too few"),
    ("sizes", "all ways to run, ascending: #{ranks, replicas, mini_batch, step_time, time_left}"),
    ("least", "fewest ranks that the plan can be divided over"),
    ("most", "most ranks that it can use"),
    ("asked", "ranks that it was made for"),
    ("progress", "share of the work that is done, 0.0 to 1.0"),
    ("step", "steps that are done"),
    ("epoch", "epochs that are done"),
    ("samples", "samples that are done"),
    ("samples_total", "samples of the whole training"),
    ("step_time", "measured time of a step of the generation that ran last"),
    ("time_left", "what the rest takes with `ranks` ranks"),
    ("elapsed", "time since the job began"),
    ("time_limit", "time until somebody else ends the job"),
    ("generation", "number of the generation that ran last; 0 at first"),
    ("restarts", "generations that ended by a loss"),
];

/// All constants.
pub(super) fn scope(facts: &Facts) -> Scope<'static> {
    let mut scope = Scope::new();
    for (name, _) in NAMES {
        scope.push_constant_dynamic(name, value(facts, name));
    }
    scope
}

fn value(facts: &Facts, name: &str) -> Dynamic {
    let largest = facts.sizes.last();
    match name {
        "occasion" => occasion(facts.occasion).into(),
        "initial" => facts.initial.into(),
        "members" => members(&facts.members).into(),
        "running" => members(&facts.running).into(),
        "running_ranks" => i64::from(facts.running_ranks).into(),
        "slots" => i64::from(facts.slots()).into(),
        "ranks" => largest.map_or(0, |size| i64::from(size.ranks)).into(),
        "sizes" => facts.sizes.iter().map(|s| size(facts, s)).collect::<Array>().into(),
        "least" => i64::from(facts.limits.least).into(),
        "most" => i64::from(facts.limits.most).into(),
        "asked" => i64::from(facts.limits.asked).into(),
        "progress" => facts.progress.share().into(),
        "step" => whole(facts.progress.step),
        "epoch" => whole(facts.progress.epoch()),
        "samples" => whole(facts.progress.samples),
        "samples_total" => whole(facts.progress.samples_total),
        "step_time" => seconds(facts.step_ns),
        "time_left" => seconds(largest.and_then(|size| facts.time_left(size))),
        "elapsed" => facts.elapsed_ns.secs().into(),
        "time_limit" => seconds(facts.left_ns),
        "generation" => whole(facts.generation),
        "restarts" => i64::from(facts.restarts).into(),
        _ => unreachable!("every name has a value"),
    }
}

fn occasion(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Started => "started",
        Occasion::Joined => "joined",
        Occasion::Left => "left",
        Occasion::Lost => "lost",
        Occasion::Timer => "timer",
    }
}

fn members(members: &[Member]) -> Array {
    let member = |member: &Member| {
        map([("name", member.name.as_str().into()), ("slots", i64::from(member.slots).into())])
    };
    members.iter().map(member).collect()
}

fn size(facts: &Facts, size: &Size) -> Dynamic {
    map([
        ("ranks", i64::from(size.ranks).into()),
        ("replicas", i64::from(size.replicas).into()),
        ("mini_batch", whole(size.mini_batch)),
        ("step_time", seconds(size.step_ns)),
        ("time_left", seconds(facts.time_left(size))),
    ])
}

fn map<const N: usize>(entries: [(&str, Dynamic); N]) -> Dynamic {
    entries.into_iter().map(|(key, value)| (key.into(), value)).collect::<Map>().into()
}

fn seconds(time: Option<Nanos>) -> Dynamic {
    time.map_or(Dynamic::UNIT, |time| time.secs().into())
}

fn whole(number: u64) -> Dynamic {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}
