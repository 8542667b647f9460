//! Steps of a plan with its gradients encoded in other ways.
//!
//! A lossy codec trains something else: here is said what it would bring, not whether to use it.

use super::Prediction;
use crate::compress::Reduction;
use crate::cost::collective::{Group, Price, price};
use crate::plan::{Communication, Plan, Program, StageProgram};
use crate::simulate::{Stuck, simulate};
use crate::units::{Bytes, Nanos};

/// Shorter steps than this share of the plain one count as shorter.
const WORTH: f64 = 0.995;

/// A plan's step with gradients summed in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// How each bucket is summed.
    pub way: Reduction,
    /// Whether encoded gradients travel between hosts only.
    pub by_hosts: bool,
    /// Bytes of gradients that the busiest rank sends in a step; by hosts those to other hosts.
    pub sent: Bytes,
    /// Time of the sums of the rank that sums most, one after the other, nothing beside them.
    pub exchange: Nanos,
    /// Time of the step.
    pub step: Nanos,
    /// Whether the step is shorter than in single precision.
    pub pays: bool,
    /// Why, in one sentence with the figures that decide; nothing for single precision.
    pub verdict: String,
}

/// The predicted step of `plan` as if its gradients travelled as in `communication`; `prediction` is that of the plan.
///
/// # Errors
/// When programs would wait for each other.
pub(super) fn with_communication(
    plan: &Plan,
    prediction: &Prediction,
    communication: &Communication,
) -> Result<Nanos, Stuck> {
    let mut programs = prediction.programs.clone();
    for stage in programs.iter_mut().flat_map(|program| &mut program.stages) {
        for (at, bucket) in stage.buckets.iter_mut().enumerate() {
            bucket.reduction = communication.bucket(stage.stage, at);
        }
    }
    let mut copies = plan.copies(&prediction.groups);
    copies.by_hosts = communication.hierarchical;
    Ok(simulate(&programs, &prediction.stages, &plan.cluster, copies)?.step)
}

/// Single precision, then each of `ways` with whether it goes by hosts, on the plan's cluster. Single precision alone
/// where the plan cannot have encoded gradients, empty where nobody sums.
///
/// # Errors
/// When programs would wait for each other.
pub fn offers(
    plan: &Plan,
    prediction: &Prediction,
    ways: &[(Reduction, bool)],
) -> Result<Vec<Offer>, Stuck> {
    if plan.data_parallel.through_first() || !prediction.programs.iter().any(sums_gradients) {
        return Ok(vec![]);
    }
    let encoded = plan.data_parallel.check_encoded();
    let ways = if encoded.is_ok() { ways } else { &[] };
    let mut offers: Vec<Offer> = vec![];
    for (way, by_hosts) in [(Reduction::default(), false)].iter().chain(ways).copied() {
        let step = with_communication(plan, prediction, &single(plan, way, by_hosts))?;
        let price = busiest(plan, prediction, way, by_hosts);
        let exchange = Nanos::from_secs(price.seconds);
        let (pays, verdict) = match offers.first() {
            Some(plain) => judge(plain, step, &price),
            None => (false, String::new()),
        };
        let sent = Bytes(price.sent as u64);
        offers.push(Offer { way, by_hosts, sent, exchange, step, pays, verdict });
    }
    Ok(offers)
}

/// The plan's communication with every bucket summed in one way.
fn single(plan: &Plan, way: Reduction, by_hosts: bool) -> Communication {
    let edges = plan.communication.edges;
    Communication { gradients: way, hierarchical: by_hosts, edges, ..Communication::default() }
}

fn sums_gradients(program: &Program) -> bool {
    program.stages.iter().any(|stage| !stage.buckets.is_empty())
}

/// All sums of the program whose sums take longest.
fn busiest(plan: &Plan, prediction: &Prediction, way: Reduction, by_hosts: bool) -> Price {
    let add = |a: Price, b: Price| Price {
        seconds: a.seconds + b.seconds,
        codec: a.codec + b.codec,
        sent: a.sent + b.sent,
    };
    let of = |program: &Program| {
        let buckets = program.stages.iter().flat_map(|stage| &stage.buckets);
        let price = |bucket: &crate::plan::Bucket| {
            let (group, bytes) = (bucket.group, bucket.region.bytes);
            bucket_price(plan, prediction, group, (way, by_hosts), bytes)
        };
        buckets.map(price).fold(Price::default(), add)
    };
    let programs = prediction.programs.iter().map(of);
    programs.reduce(|a, b| if b.seconds > a.seconds { b } else { a }).unwrap_or_default()
}

fn bucket_price(
    plan: &Plan,
    prediction: &Prediction,
    group: u32,
    (way, by_hosts): (Reduction, bool),
    bytes: Bytes,
) -> Price {
    let ranks = &prediction.groups[group as usize];
    let group = Group::new(&plan.cluster, ranks, plan.ranks());
    price(&plan.cluster, &group, by_hosts, way, bytes.0 as f64)
}

fn judge(plain: &Offer, step: Nanos, price: &Price) -> (bool, String) {
    let (before, after) = (plain.step.secs(), step.secs());
    let sums = Nanos::from_secs(price.seconds);
    let (codec, wait) = (Nanos::from_secs(price.codec), plain.exchange);
    if after < WORTH * before {
        let times = before / after;
        return (true, format!("pays: steps {times:.2}x as fast, sums {sums} instead of {wait}"));
    }
    let text = if price.codec == 0.0 && step == plain.step {
        "changes nothing: ranks that sum together share a host".into()
    } else if sums < wait && after <= before / WORTH {
        format!("does not pay: sums {sums} instead of {wait}, but computing hides them")
    } else if codec >= wait {
        format!("would be slower here: the codec alone takes {codec}, plain sums {wait}")
    } else if sums < wait {
        let share = 100.0 * (after / before - 1.0);
        format!("would be slower here: steps {share:+.1} %, codecs take {codec} from computing")
    } else {
        format!("would be slower here: sums {sums} instead of {wait}, {codec} of it codec")
    };
    (false, text)
}

/// For every bucket of every stage the fastest of `ways`, single precision among them (Oyama's
/// "adaptive"), or the one way with which steps are shorter still; with its step.
///
/// # Errors
/// When programs would wait for each other.
pub fn adaptive(
    plan: &Plan,
    prediction: &Prediction,
    ways: &[Reduction],
    by_hosts: bool,
) -> Result<(Communication, Nanos), Stuck> {
    let all = || [Reduction::default()].into_iter().chain(ways.iter().copied());
    let fastest = |stage: &StageProgram| -> Vec<Reduction> {
        let of = |bucket: &crate::plan::Bucket| {
            let (group, bytes) = (bucket.group, bucket.region.bytes);
            let timed = all().map(|way| {
                (way, bucket_price(plan, prediction, group, (way, by_hosts), bytes).seconds)
            });
            let best = timed.reduce(|best, next| if next.1 < best.1 { next } else { best });
            best.map(|(way, _)| way).unwrap_or_default()
        };
        stage.buckets.iter().map(of).collect()
    };
    let mut communication = single(plan, Reduction::default(), by_hosts);
    communication.buckets = vec![vec![]; plan.stages() as usize];
    for stage in prediction.programs.iter().flat_map(|program| &program.stages) {
        communication.buckets[stage.stage.index()] = fastest(stage);
    }
    let mut best = (communication.clone(), with_communication(plan, prediction, &communication)?);
    for way in all() {
        // Time that codecs take from computing is in steps, not in sums.
        let same = |stage: &Vec<Reduction>| vec![way; stage.len()];
        let buckets = communication.buckets.iter().map(same).collect();
        let one = Communication { buckets, ..communication.clone() };
        let step = with_communication(plan, prediction, &one)?;
        if step < best.1 {
            best = (one, step);
        }
    }
    Ok(best)
}
