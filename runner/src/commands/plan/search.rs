//! The search over what the command line leaves open: tried, compared, printed.

use super::rank::{Ranked, rank};
use super::{Chosen, Question, codec, divided};
use crate::args::{Forms, Order, PlanArgs, Recompute, TensorDegree};
use crate::commands::words::{are, column, counted};
use crate::failure::{Code, Failure};
use crate::notes;
use indicatif::{ProgressBar, ProgressStyle};
use pipewright_core::cost::{Cluster, Costs, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::plan::Draft;
use pipewright_core::predict::search::{Choice, Fixed, Scored, Search, SearchError, Space};
use pipewright_core::units::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Instant;

/// Fewer and more lanes that are compared with the best number.
const NEAR: usize = 3;

/// Rows of the table.
const SHOWN: usize = 10;

/// Choices that are predicted exactly: what the search estimates only says which.
const PREDICTED: usize = 64;

/// The same at least of each way to divide lanes, where several are searched.
const PREDICTED_OF_EACH: usize = 16;

/// Estimates between two looks at the clock.
const AT_ONCE: u64 = 256;

/// The plans of a search.
pub(in crate::commands) struct Shortlist {
    /// Those that fit, by their predicted steps; at least one.
    pub ranked: Vec<Ranked>,
    /// Plans that were estimated, and those that a bound made superfluous.
    estimated: u64,
    skipped: u64,
    /// Plans that were predicted exactly.
    predicted: usize,
}

/// The plans that fit of those that the runner executes, the fastest first.
pub(in crate::commands) fn find(
    question: &Question,
    graph: &Graph,
    draft: &Draft,
) -> Result<Shortlist, Failure> {
    find_among(question, graph, std::slice::from_ref(draft))
}

/// The same of several drafts, which share the budget: with some of them nothing may fit.
pub(in crate::commands) fn find_among(
    question: &Question,
    graph: &Graph,
    drafts: &[Draft],
) -> Result<Shortlist, Failure> {
    let budget = question.budget.div_ceil(drafts.len() as u64);
    let most = (PREDICTED / drafts.len()).max(PREDICTED_OF_EACH);
    let (mut all, mut refused) = (None::<Shortlist>, None);
    for draft in drafts {
        let found = with_space(question, graph, draft, |space| {
            let search = searched(space, budget)?;
            let choices = search.shortlist(most).into_iter();
            let choices: Vec<Chosen> =
                choices.map(|scored| chosen((space, draft), graph, scored)).collect();
            let predicted = choices.len();
            let ranked = rank(question, draft, choices)?;
            let (estimated, skipped) = search.counts();
            Ok(Shortlist { ranked, estimated, skipped, predicted })
        });
        match (found, &mut all) {
            (Ok(found), Some(all)) => all.join(found),
            (Ok(found), None) => all = Some(found),
            (Err(failure), _) => refused = refused.or(Some(failure)),
        }
    }
    all.ok_or_else(|| refused.expect("at least one draft is searched"))
}

impl Shortlist {
    fn join(&mut self, other: Self) {
        self.ranked.extend(other.ranked);
        self.ranked.sort_by_key(Ranked::step);
        self.estimated += other.estimated;
        self.skipped += other.skipped;
        self.predicted += other.predicted;
    }
}

/// The draft, or with `--tensor auto` what it is with each degree that the network and the hosts allow; `sliced`: only
/// with sequence parallelism where it is divided.
pub(in crate::commands) fn degrees(
    tensor: TensorDegree,
    sliced: bool,
    graph: &Graph,
    draft: &Draft,
) -> Vec<Draft> {
    if tensor != TensorDegree::Auto {
        return vec![draft.clone()];
    }
    let cluster = &draft.cluster;
    let within = cluster.devices_per_node.min(cluster.ranks_per_node);
    let mut drafts = vec![draft.clone()];
    for tensor in (2..=within).filter(|degree| within.is_multiple_of(*degree)) {
        for sequence_parallel in [false, true] {
            let divided = Draft { tensor, sequence_parallel, ..draft.clone() };
            let wanted = sequence_parallel || !sliced;
            if wanted && graph.divided(tensor, sequence_parallel).is_ok() && divided.check().is_ok()
            {
                drafts.push(divided);
            }
        }
    }
    drafts
}

/// The fastest plan that fits of those that the runner executes, and what is said of the others.
pub(super) fn search(
    args: &PlanArgs,
    question: &Question,
    graph: &Graph,
    draft: &Draft,
) -> Result<(Ranked, Searched), Failure> {
    let begin = Instant::now();
    let drafts = degrees(args.tensor, args.sequence_parallel, graph, draft);
    let found = find_among(question, graph, &drafts);
    let found = found.or_else(|failure| divided::search(question, graph, &drafts, failure))?;
    let Shortlist { mut ranked, estimated, skipped, predicted } = found;
    let more = match skipped {
        0 => String::new(),
        more => format!("; {more} more were certain to be no better"),
    };
    note!(
        "estimated {} and predicted {predicted} of them in {:.2} s{more}",
        counted(estimated, "plan"),
        begin.elapsed().as_secs_f64()
    );
    let rows = rows(&ranked);
    let Some(&written) = rows.get(args.row as usize - 1) else {
        return Err(Failure::usage(format!(
            "--row {}: the table has {}; leave it out for the fastest",
            args.row,
            counted(rows.len() as u32, "row")
        )));
    };
    report(&ranked, &rows);
    more_lanes(&ranked);
    let best = ranked[0].step();
    let tensor = match args.forms {
        Forms::All if args.tensor == TensorDegree::Given(1) => {
            let looked = (graph, draft, best);
            with_space(question, graph, draft, |space| tensor(question.budget, space, looked))?
        }
        Forms::All | Forms::Runnable => None,
    };
    let plans = ranked.iter().map(Row::of).collect();
    let searched = Searched { estimated, skipped, predicted, plans, tensor };
    let best = ranked.swap_remove(written);
    codec::verdicts(&best.plan, &best.prediction)?;
    Ok((best, searched))
}

/// What was searched, for `--json`.
#[derive(Serialize)]
pub(super) struct Searched {
    /// Plans that were estimated, and those that a bound made superfluous.
    estimated: u64,
    skipped: u64,
    /// Plans that were predicted exactly.
    predicted: usize,
    /// Those that fit, the fastest first.
    plans: Vec<Row>,
    /// The best by tensor parallelism, an estimate, where it was asked for.
    tensor: Option<Tensor>,
}

/// A plan of the search.
#[derive(Serialize)]
struct Row {
    step_ns: u64,
    memory_bytes: u64,
    sent_bytes: u64,
    bubble: f64,
    lanes: u32,
    replicas: u32,
    tensor: u32,
    sequence_parallel: bool,
    micro_batches: u32,
    schedule: String,
    words: String,
}

impl Row {
    fn of(ranked: &Ranked) -> Self {
        let plan = &ranked.plan;
        Self {
            step_ns: ranked.step().0,
            memory_bytes: ranked.peak().0,
            sent_bytes: ranked.traffic().0,
            bubble: ranked.bubble(),
            lanes: plan.lanes(),
            replicas: plan.data_parallel.replicas,
            tensor: plan.tensor,
            sequence_parallel: plan.sequence_parallel,
            micro_batches: plan.micro_batches,
            schedule: plan.schedule.name.clone(),
            words: ranked.words.clone(),
        }
    }
}

/// What tensor parallelism would give.
#[derive(Serialize)]
struct Tensor {
    step_ns: u64,
    words: String,
    /// Whether a plan can hold it: `--tensor` makes one.
    runnable: bool,
}

/// The whole search, with a bar where somebody looks.
fn searched<'a>(space: &'a Space<'a>, budget: u64) -> Result<Search<'a>, Failure> {
    let mut search = Search::new(space).map_err(failure)?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} plans, {elapsed}")
        .expect("a template that is tested");
    let bar = match notes::are_unwanted() {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(budget).with_style(style),
    };
    let mut left = budget;
    while left > 0 {
        let tried = search.advance(left.min(AT_ONCE)).map_err(failure)?;
        left -= tried;
        bar.set_position(budget - left);
        if tried < AT_ONCE {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(search)
}

fn chosen((space, draft): (&Space<'_>, &Draft), graph: &Graph, scored: Scored) -> Chosen {
    let first_node = |block: &u32| graph.layers()[*block as usize].first_node.0;
    let cuts = scored.choice.starts.iter().map(first_node).collect();
    // Of a search among groups each stands for a device.
    let tensor = scored.choice.tensor * draft.tensor;
    let mut words = Choice { tensor, ..scored.choice.clone() }.describe(&space.encodings);
    if draft.sequence_parallel {
        words += ", sequence-parallel";
    }
    let Choice { schedule, micro_batches, replicas, encoding, .. } = scored.choice;
    let encoding = encoding.map(|at| space.encodings[at]);
    let (order, split, automatic) = (None, None, None);
    Chosen { cuts, split, automatic, schedule, order, micro_batches, replicas, encoding, words }
}

/// Does something with what is searched for a question.
fn with_space<T>(
    question: &Question,
    graph: &Graph,
    draft: &Draft,
    with: impl FnOnce(&Space) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (cluster, precision, tensor) = (&draft.cluster, draft.training.precision, draft.tensor);
    let usage = |why: &dyn Display| Failure::usage(why.to_string());
    let mut shard = match tensor {
        1 => None,
        _ => Some(graph.divided(tensor, draft.sequence_parallel).map_err(|e| usage(&e))?),
    };
    let experts = draft.data_parallel.expert_parallel;
    if experts > 1 {
        let whole = shard.unwrap_or_else(|| graph.clone());
        shard = Some(whole.expert_parallel(experts).map_err(|e| usage(&e))?);
    }
    let graph = shard.as_ref().unwrap_or(graph);
    let there = devices(question, cluster)?;
    let devices = there / tensor;
    if devices == 0 {
        return Err(Failure::usage(format!(
            "--tensor {tensor}: a group takes {tensor} devices, and {there} are there; give at most {there}, or more --nodes"
        )));
    }
    let model = |samples| {
        let costs = Costs::new(graph, cluster, samples, precision);
        let work = Workload::of_training(graph, &costs, precision);
        match question.forms {
            Forms::All => work.divided(graph, &cluster.device, precision),
            Forms::Runnable => work,
        }
    };
    let (encodings, encoding) = question.encodings.clone();
    let fixed = Fixed {
        encoding,
        ranks: question.ranks.map(|ranks| groups(ranks, tensor)).transpose()?,
        replicas: question.replicas,
        stages: question.stages,
        micro_batches: question.micro_batches,
        schedule: match question.schedule {
            Some(Order::Kind(kind)) => Some(kind),
            // Where a file gives the order nothing of the pipeline is searched; one is made for the best
            // of those by name.
            Some(Order::File(_) | Order::Automatic) | None => None,
        },
        recompute: match question.recompute {
            Recompute::None | Recompute::Selective => Some(false),
            Recompute::Auto => None,
            Recompute::Full => Some(true),
        },
        ..Fixed::default()
    };
    with(&Space {
        model: &model,
        blocks: graph.layers().iter().map(|layer| layer.first_node.0).collect(),
        cluster: cluster.of_groups(tensor),
        devices,
        memory: cluster.device.memory,
        mini_batch: draft.mini_batch,
        states: draft.data_parallel.states(draft.optimizer),
        parameter_bytes: 4,
        fixed: fixed.plain(),
        encodings,
        seed: draft.seed,
    })
}

/// Tensor groups of so many ranks.
fn groups(ranks: u32, tensor: u32) -> Result<u32, Failure> {
    match ranks.is_multiple_of(tensor) {
        true => Ok(ranks / tensor),
        false => Err(Failure::usage(format!(
            "--ranks {ranks} do not make groups of {tensor} tensor-parallel ranks; give a multiple of {tensor}"
        ))),
    }
}

/// Ranks to use at most: as many as there are devices, unless more are asked for, which share them.
fn devices(question: &Question, cluster: &Cluster) -> Result<u32, Failure> {
    let [there, room] =
        [cluster.devices(), cluster.ranks()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let name = &cluster.name;
    if let Some(devices) = question.devices.filter(|devices| *devices > there) {
        return Err(Failure::usage(format!(
            "--devices {devices}: cluster `{name}` has {there}; use 1 to {there}, more --nodes, another --cluster, \
             or --ranks for ranks that share devices"
        )));
    }
    if let Some(ranks) = question.ranks.filter(|ranks| *ranks > room) {
        return Err(Failure::usage(format!(
            "--ranks {ranks}: cluster `{name}` has room for {room}; use fewer, or another --cluster"
        )));
    }
    Ok(question.ranks.or(question.devices).unwrap_or(there))
}

fn failure(error: SearchError) -> Failure {
    let code = match error {
        SearchError::Empty { .. } => Code::Usage,
        SearchError::Memory { .. } => Code::Hardware,
    };
    Failure::new(code, error.to_string())
}

/// The plans that are best in step, memory or traffic, the fastest first: each is one that a run takes.
fn rows(ranked: &[Ranked]) -> Vec<usize> {
    let mut rows: Vec<usize> = vec![];
    for (at, one) in ranked.iter().enumerate() {
        let covers = |other: &usize| {
            let other = &ranked[*other];
            other.peak() <= one.peak() && other.traffic() <= one.traffic()
        };
        if !rows.iter().any(covers) {
            rows.push(at);
        }
    }
    rows
}

fn report(ranked: &[Ranked], rows: &[usize]) {
    note!(
        "{:>3} {:>12} {:>12} {:>12} {:>7}  plan (best in step, memory or traffic; --row N writes another)",
        "row",
        "step",
        "memory",
        "sent",
        "bubble"
    );
    let shown: Vec<&Ranked> = rows.iter().take(SHOWN).map(|at| &ranked[*at]).collect();
    let steps: Vec<Nanos> = shown.iter().map(|one| one.step()).collect();
    for (row, (one, step)) in (1..).zip(shown.into_iter().zip(column(&steps))) {
        let peak = one.peak().to_string();
        let (traffic, bubble) = (one.traffic().to_string(), 100.0 * one.bubble());
        note!("{row:>3} {step:>12} {peak:>12} {traffic:>12} {bubble:>5.1} %  {}", one.words);
    }
    if let Some(more) = rows.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        note!("{:>16} and {more} more that use less memory or send less", "..");
    }
}

/// Whether another number of lanes would be better, and by how much.
fn more_lanes(ranked: &[Ranked]) {
    let mut by_lanes: BTreeMap<usize, Nanos> = BTreeMap::new();
    for one in ranked {
        by_lanes.entry(one.prediction.programs.len()).or_insert(one.step());
    }
    let lanes: Vec<(usize, Nanos)> = by_lanes.into_iter().collect();
    let Some(at) = (0..lanes.len()).min_by_key(|at| lanes[*at].1) else { return };
    let (best, least) = lanes[at];
    let near = at.saturating_sub(NEAR)..(at + NEAR + 1).min(lanes.len());
    let others = lanes[near].iter().filter(|(count, _)| *count != best);
    let compare = |(count, step): &(usize, Nanos)| {
        let more = 100.0 * (step.secs() / least.secs() - 1.0);
        format!("{count} {step} ({more:+.0} %)")
    };
    let others: Vec<String> = others.map(compare).collect();
    if !others.is_empty() {
        note!("lanes: {} fastest, {least}; others: {}", are(best as u64), others.join(", "));
    }
}

/// What tensor parallelism would give, by an estimate, and how to make a plan of it where one can hold it.
fn tensor(
    budget: u64,
    space: &Space<'_>,
    (graph, draft, best): (&Graph, &Draft, Nanos),
) -> Result<Option<Tensor>, Failure> {
    let open = Fixed { tensor: None, ..space.fixed.clone() };
    let all = Space {
        fixed: open,
        encodings: space.encodings.clone(),
        blocks: space.blocks.clone(),
        cluster: space.cluster.clone(),
        ..*space
    };
    let search = searched(&all, budget)?;
    let fastest = search.fastest(|choice| !choice.is_plain());
    let Some(fastest) = fastest else {
        note!("tensor parallelism: not judged: nothing says what parts of these layers take");
        return Ok(None);
    };
    let (step, more) = (fastest.step, 100.0 * (fastest.step.secs() / best.secs() - 1.0));
    let words = fastest.choice.describe(&space.encodings);
    let Choice { tensor, replicas, micro_batches, schedule, .. } = fastest.choice;
    let stages = fastest.choice.stages();
    let runnable = {
        let chosen = chosen((&all, draft), graph, fastest.clone());
        Draft { tensor, ..chosen.draft(draft) }.check().is_ok()
    };
    let by = match runnable {
        false => "an estimate that no plan holds".into(),
        true => format!(
            "an estimate; for a plan --tensor {tensor} --stages {stages} --schedule {schedule} \
             --micro-batches {micro_batches} --replicas {replicas}"
        ),
    };
    note!("tensor parallelism: best {step} ({more:+.0} %): {words}, {by}");
    Ok(Some(Tensor { step_ns: step.0, words, runnable }))
}
