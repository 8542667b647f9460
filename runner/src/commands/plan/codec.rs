//! Codecs of gradients and activations: what was asked for, what it is worth.

use crate::args::{Codec, CommunicationArgs};
use crate::failure::Failure;
use pipewright_core::compress::{CodecKind, Reduction, Rounding, Scale, USUAL, relative_error};
use pipewright_core::cost::Cluster;
use pipewright_core::ids::LaneId;
use pipewright_core::plan::{Choose, Communication, DataParallel, Draft, Edges, Plan};
use pipewright_core::predict::search::{Encoding, encodings, usual_encodings};
use pipewright_core::predict::{Offer, Prediction, adaptive, offers, predict};
use pipewright_core::timeline::Message;
use std::collections::BTreeSet;

/// A step that becomes so many times as fast is worth a note.
const NOTE: f64 = 1.05;

/// What the command line fixes before anything is searched.
pub(super) fn asked(args: &CommunicationArgs, draft: &Draft) -> Result<Communication, Failure> {
    for way in args.codecs.iter().map(|way| args.with_feedback(*way)) {
        if let Some(what) = way.fault() {
            return Err(Failure::usage(format!("--codecs: `{way}` is not possible: {what}")));
        }
    }
    let DataParallel { zero, expert_parallel, .. } = draft.data_parallel;
    let plain = [
        (draft.tensor > 1, "--tensor", draft.tensor, "ranks of tensor groups"),
        (expert_parallel > 1, "--expert-parallel", expert_parallel, "replicas that divide experts"),
        (zero > 1, "--zero", zero.into(), "replicas that divide gradients"),
    ];
    let asks = matches!(args.codec, Some(Codec::Auto | Codec::Adaptive));
    let refused = plain.into_iter().find(|(divides, ..)| asks && *divides);
    if let Some((_, option, number, who)) = refused {
        let why = format!("{who} send gradients as they are; leave --codec out");
        return Err(Failure::usage(format!("--codec with {option} {number}: {why}")));
    }
    Ok(fixed(args))
}

fn fixed(args: &CommunicationArgs) -> Communication {
    let gradients = match args.codec {
        Some(Codec::One(way)) => args.with_feedback(way),
        _ => Reduction::default(),
    };
    Communication {
        gradients,
        hierarchical: args.hierarchical && !gradients.is_plain(),
        edges: Edges {
            within: args.edge_codec_within.unwrap_or_default(),
            across: args.edge_codec.unwrap_or_default(),
        },
        choose: choice(args),
        ..Communication::default()
    }
}

fn choice(args: &CommunicationArgs) -> Option<Choose> {
    let candidates: Vec<Reduction> =
        args.choose.iter().map(|way| args.with_feedback(*way)).collect();
    let (every, trial) = (args.choose_every, args.choose_trial);
    (!candidates.is_empty()).then_some(Choose { every, trial, candidates })
}

/// The ways of a search, and the one that is fixed: `None` where all of them may be chosen.
pub(super) fn searched(
    args: &CommunicationArgs,
    cluster: &Cluster,
) -> (Vec<Encoding>, Option<Option<usize>>) {
    let asked = fixed(args);
    match args.codec {
        Some(Codec::Search) => {
            let gradients: Vec<Reduction> = std::iter::once(Reduction::default())
                .chain(args.codecs.iter().map(|way| args.with_feedback(*way)))
                .collect();
            let across = match args.edge_codec {
                Some(codec) => vec![codec],
                None => EDGES.to_vec(),
            };
            let mut found = encodings(cluster, &gradients, &across);
            found.iter_mut().for_each(|found| found.edges.within = asked.edges.within);
            if args.hierarchical {
                found.retain(|way| way.by_hosts || way.gradients.is_plain());
            }
            (found, None)
        }
        _ => fixed_way(&asked),
    }
}

/// The same where ranks send in one way.
pub(super) fn fixed_way(asked: &Communication) -> (Vec<Encoding>, Option<Option<usize>>) {
    let way =
        Encoding { gradients: asked.gradients, by_hosts: asked.hierarchical, edges: asked.edges };
    match way == Encoding::default() {
        true => (usual_encodings(), Some(None)),
        false => (vec![way], Some(Some(0))),
    }
}

/// Codecs for edges that a search may choose.
const EDGES: [CodecKind; 4] = [
    CodecKind::Fp32,
    CodecKind::Bf16,
    CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo },
    CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo },
];

/// Chooses how the plan's gradients are summed, if that was left open; says what others would bring.
pub(super) fn choose(
    args: &CommunicationArgs,
    plan: &mut Plan,
    prediction: &mut Prediction,
) -> Result<(), Failure> {
    match args.codec {
        // Tensor groups do not encode.
        _ if plan.tensor > 1 => Ok(()),
        None => note(plan, prediction),
        Some(Codec::One(_) | Codec::Search) => Ok(()),
        Some(Codec::Auto) => {
            let all = offers_of(args, plan, prediction)?;
            table(plan, &all);
            let Some(best) = all.iter().min_by_key(|offer| offer.step) else { return Ok(()) };
            let (gradients, hierarchical) = (best.way, best.by_hosts);
            let chosen = Communication { gradients, hierarchical, ..plan.communication.clone() };
            adopt(plan, prediction, chosen)
        }
        Some(Codec::Adaptive) => {
            let ways: Vec<Reduction> =
                args.codecs.iter().map(|way| args.with_feedback(*way)).collect();
            let (chosen, _) = adaptive(plan, prediction, &ways, args.hierarchical)
                .map_err(|e| Failure::usage(e.to_string()))?;
            report_buckets(&chosen);
            let choose = plan.communication.choose.clone();
            adopt(plan, prediction, Communication { choose, ..chosen })
        }
    }
}

/// Warns of ways to sum gradients that are in the plan, where nobody sums any.
pub(super) fn in_vain(args: &CommunicationArgs, plan: &Plan, prediction: &Prediction) {
    let (mesh, cluster) = (plan.mesh(), &plan.cluster);
    let far = |message: &Message| {
        let node = |lane: LaneId, copy: u32| cluster.node_of(LaneId(mesh.rank(lane, copy)));
        (0..mesh.copies()).any(|copy| node(message.from, copy) != node(message.to, copy))
    };
    if args.edge_codec.is_some_and(|codec| !codec.is_lossless())
        && !prediction.timeline.messages.iter().any(far)
    {
        warn!(
            "--edge-codec: no two stages that follow each other are on different nodes; --edge-codec-within is for those on one"
        );
    }
    let summed = prediction.programs.iter().flat_map(|lane| &lane.stages);
    if summed.into_iter().any(|stage| !stage.buckets.is_empty()) {
        return;
    }
    let encodes = matches!(args.codec, Some(Codec::One(way)) if !way.is_plain());
    for (flag, given) in [("--codec", encodes), ("--choose", !args.choose.is_empty())] {
        if given {
            warn!("{flag}: {NOTHING_SUMMED}");
        }
    }
}

const NOTHING_SUMMED: &str = "no gradients are summed, so there is nothing to encode";

fn adopt(
    plan: &mut Plan,
    prediction: &mut Prediction,
    chosen: Communication,
) -> Result<(), Failure> {
    if chosen != plan.communication {
        plan.communication = chosen;
        *prediction = predict(plan)?;
        plan.prediction = prediction.expectation();
    }
    Ok(())
}

/// Each allowed way, flat and, where hosts have several ranks, by hosts.
fn offers_of(
    args: &CommunicationArgs,
    plan: &Plan,
    prediction: &Prediction,
) -> Result<Vec<Offer>, Failure> {
    let cluster = &plan.cluster;
    // Where ranks that sum together are on several hosts, and several of them on one.
    let hosts = |group: &Vec<LaneId>| {
        let on: BTreeSet<_> = group.iter().map(|rank| cluster.node_of(*rank)).collect();
        on.len() > 1 && on.len() < group.len()
    };
    let several = prediction.groups.iter().any(hosts);
    let mut ways = vec![];
    for way in args.codecs.iter().map(|way| args.with_feedback(*way)) {
        if !args.hierarchical {
            ways.push((way, false));
        }
        if args.hierarchical || several && !way.is_plain() {
            ways.push((way, true));
        }
    }
    offers(plan, prediction, &ways).map_err(|e| Failure::usage(e.to_string()))
}

fn table(plan: &Plan, offers: &[Offer]) {
    if offers.is_empty() {
        note!("codecs: {NOTHING_SUMMED}");
        return;
    }
    note!("{:<31} {:>11} {:>12} {:>12} {:>7}", "gradients", "sent", "sums", "step", "error");
    for offer in offers {
        let hosts = if offer.by_hosts { " by hosts" } else { "" };
        let error = relative_error(offer.way, plan.data_parallel.replicas).unwrap_or(f64::NAN);
        note!(
            "{:<31} {:>11} {:>12} {:>12} {error:>7.3}  {}",
            format!("{}{hosts}", offer.way),
            offer.sent.to_string(),
            offer.exchange.to_string(),
            offer.step.to_string(),
            offer.verdict
        );
    }
}

fn report_buckets(chosen: &Communication) {
    let mut counts: Vec<(Reduction, usize)> = vec![];
    for way in chosen.buckets.iter().flatten() {
        match counts.iter_mut().find(|(known, _)| known == way) {
            Some((_, count)) => *count += 1,
            None => counts.push((*way, 1)),
        }
    }
    let words: Vec<String> = counts.iter().map(|(way, n)| format!("{n} by {way}")).collect();
    if words.is_empty() {
        note!("codecs: {NOTHING_SUMMED}");
    } else {
        note!("buckets of gradients: {}", words.join(", "));
    }
}

/// Says of the usual codecs whether each would pay.
pub(super) fn verdicts(plan: &Plan, prediction: &Prediction) -> Result<(), Failure> {
    // Tensor groups do not encode.
    if plan.tensor > 1 {
        return Ok(());
    }
    let usual = USUAL.map(|way| (way, false));
    let all = offers(plan, prediction, &usual).map_err(|e| Failure::usage(e.to_string()))?;
    all.iter().skip(1).for_each(|offer| note!("{}: {}", offer.way, offer.verdict));
    Ok(())
}

/// Says which codec would pay, where one would.
fn note(plan: &Plan, prediction: &Prediction) -> Result<(), Failure> {
    let usual = USUAL.map(|way| (way, false));
    let all = offers(plan, prediction, &usual).map_err(|e| Failure::usage(e.to_string()))?;
    let Some(best) = all.iter().min_by_key(|offer| offer.step) else { return Ok(()) };
    let times = plan.prediction.step_ns.secs() / best.step.secs();
    if times >= NOTE {
        let way = best.way;
        note!("{way} would make the step {times:.1}x as fast: --codec {way}");
    }
    Ok(())
}
