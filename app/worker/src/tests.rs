//! A whole conversation with a session, natively.

mod plans;

use crate::Session;
use crate::protocol::{COLUMNS, Opened, Progress, Reply, Request, Shown};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::recompute::cost;
use pipewright_core::recompute::file::read;
use std::fmt::Write;

/// Everything that waits.
fn replies(session: &mut Session) -> Vec<Reply> {
    std::iter::from_fn(|| session.take()).collect()
}

fn opened(replies: &[Reply]) -> &Opened {
    let found = replies.iter().find_map(|reply| match reply {
        Reply::Opened(opened) => Some(opened),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing opened: {replies:?}"))
}

fn shown(replies: &[Reply]) -> &Shown {
    let found = replies.iter().rev().find_map(|reply| match reply {
        Reply::Shown(shown) => Some(&**shown),
        _ => None,
    });
    found.expect("a picture")
}

fn progress(replies: &[Reply]) -> &Progress {
    let found = replies.iter().rev().find_map(|reply| match reply {
        Reply::Progress(progress) => Some(progress),
        _ => None,
    });
    found.expect("a report")
}

fn plan() -> Plan {
    let cluster = Cluster::preset("dgx-a100").unwrap();
    Draft::new(Model::Preset(Preset::Vgg16), cluster, vec![9, 18]).plan().unwrap().0
}

/// A chain of equal layers and its backward pass.
fn chain(layers: usize) -> String {
    let mut text = r#"{"format":"recompute-graph/1","model":"chain","nodes":["#.to_owned();
    for id in 0..2 * layers {
        let inputs = match id {
            0 => String::new(),
            id if id < layers => format!("{}", id - 1),
            id if id == layers => format!("{}", layers - 1),
            id => format!("{},{}", 2 * layers - 1 - id, id - 1),
        };
        let (phase, time) = if id < layers { ("F", 1.5) } else { ("B", 2.0) };
        let output = if id + 1 == 2 * layers { r#","output":"gradient""# } else { "" };
        let comma = if id == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"id":{id},"name":"node_{id}","op":"aten.{phase}","bytes":1000,"time":{time},"inputs":[{inputs}],"phase":"{phase}"{output}}}"#
        )
        .unwrap();
    }
    text + "]}"
}

fn search(session: &mut Session, moves: u64) -> Vec<Reply> {
    session.receive(Request::Run { on: true });
    for _ in 0..20 {
        if !session.step(moves / 20) {
            break;
        }
    }
    session.receive(Request::Run { on: false });
    session.report();
    replies(session)
}

#[test]
fn a_file_is_searched_shown_and_taken_away() {
    let text = chain(40);
    let mut session = Session::default();
    session.open_file("chain.json", text.as_bytes());
    let first = replies(&mut session);
    let graph = opened(&first);
    assert_eq!((graph.nodes, graph.title.as_str(), graph.room), (80, "chain", None));
    // Microseconds become nanoseconds.
    assert_eq!(graph.base.time, 40.0 * 3500.0);
    assert_eq!(shown(&first).cost, graph.base);
    let limit = graph.base.peak / 2;
    session.receive(Request::Budget { bytes: limit, search: true });
    let found = search(&mut session, 60_000);
    let best = progress(&found).best;
    assert!(best.peak <= limit && best.time > graph.base.time, "{best:?}");
    let picture = shown(&found);
    assert_eq!(picture.cost, best);
    assert_eq!(picture.with.iter().max(), Some(&best.peak));
    assert_eq!(picture.without.iter().max(), Some(&graph.base.peak));
    assert_eq!((picture.with.len(), picture.runs.len()), (COLUMNS, COLUMNS));
    assert!(picture.runs.starts_with('F') && picture.runs.contains('R'), "{}", picture.runs);
    let again: f64 = picture.again.iter().map(|share| share.amount).sum();
    assert!((again - (best.time - graph.base.time)).abs() < 1e-6, "{again}");
    let held: f64 = picture.alive.iter().map(|share| share.amount).sum();
    assert_eq!(held, best.peak as f64, "{:?}", picture.alive);

    session.receive(Request::Take);
    let Some(Reply::Taken(taken)) = session.take() else { panic!("nothing taken") };
    let file: serde_json::Value = serde_json::from_str(&taken.text).unwrap();
    let sequence = file["sequence"].as_array().unwrap();
    let sequence: Vec<u32> = sequence.iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let problem = read(text.as_bytes()).unwrap().problem;
    problem.check(&sequence).unwrap();
    assert_eq!(cost(&problem, &sequence).peak, best.peak);
}

#[test]
fn a_stage_of_a_plan_gets_a_sequence_that_the_plan_takes() {
    let plan = plan();
    let mut session = Session::default();
    session.receive(Request::Stage { plan: plan.to_json(), stage: 0 });
    let first = replies(&mut session);
    let graph = opened(&first);
    assert_eq!(graph.copies, 3, "1F1B has as many micro-batches in flight as stages follow");
    let held: f64 = shown(&first).alive.iter().map(|share| share.amount).sum();
    assert_eq!(held, graph.base.peak as f64);
    let bytes = graph.base.peak * 7 / 10;
    session.receive(Request::Budget { bytes, search: true });
    let found = search(&mut session, 40_000);
    assert!(progress(&found).best.peak <= bytes);
    session.receive(Request::Take);
    let Some(Reply::Taken(taken)) = session.take() else { panic!("nothing taken") };
    assert_eq!(taken.stage, Some(0));
    let recompute = vec![taken.text.parse().unwrap(), Default::default(), Default::default()];
    let before = pipewright_core::predict::predict(&plan).unwrap();
    let after = pipewright_core::predict::predict(&Plan { recompute, ..plan }).unwrap();
    assert!(after.programs[0].arena < before.programs[0].arena);
}

#[test]
fn cells_say_what_is_kept_and_describe_their_nodes() {
    let mut session = Session::default();
    session.open_file("chain.json", chain(30).as_bytes());
    let first = replies(&mut session);
    let cells: u32 = opened(&first).grid.columns.iter().sum();
    assert_eq!(cells, 30, "the backward pass reads every value of the forward pass");
    assert_eq!(shown(&first).cells, "k".repeat(30));
    assert_eq!(shown(&first).kept, (30, 30));
    session.receive(Request::Describe { cell: 3 });
    let Some(Reply::Described(node)) = session.take() else { panic!("not described") };
    assert_eq!((node.name.as_str(), node.bytes, node.time), ("node_3", 1000, 1500.0));
    assert_eq!((node.times, node.inputs, node.readers, node.backward), (1, vec![2], vec![4], 1));
    session.receive(Request::Describe { cell: 99 });
    assert_eq!(session.take(), None);
}

#[test]
fn what_cannot_be_opened_is_said_and_another_seed_forgets_nothing() {
    let mut session = Session::default();
    session.open_file("x.json", b"{}");
    let Some(Reply::Failed { why }) = session.take() else { panic!("opened") };
    assert!(why.starts_with("x.json"), "{why}");
    session.receive(Request::Stage { plan: plan().to_json(), stage: 9 });
    let Some(Reply::Failed { why }) = session.take() else { panic!("opened") };
    assert!(why.contains("3 stages"), "{why}");

    session.open_file("chain.json", chain(40).as_bytes());
    let bytes = opened(&replies(&mut session)).base.peak / 3;
    session.receive(Request::Budget { bytes, search: true });
    let before = progress(&search(&mut session, 20_000)).clone();
    session.receive(Request::Reseed);
    session.report();
    let after = progress(&replies(&mut session)).clone();
    assert_eq!(after.best, before.best);
    assert!(after.moves >= before.moves);
}

#[test]
fn the_failure_that_the_script_writes_is_a_reply() {
    let script = include_str!("../worker.js");
    assert!(script.contains(r#"say({ failed: { why: "#), "{script}");
    let reply: Reply = serde_json::from_str(r#"{"failed":{"why":"out of memory"}}"#).unwrap();
    assert_eq!(reply, Reply::Failed { why: "out of memory".into() });
}
