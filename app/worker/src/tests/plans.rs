//! Questions for plans.

use super::{plan, replies};
use crate::Session;
use crate::protocol::{FoundPlan, Plans, Reply, Request};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model, Plan, ScheduleText};
use pipewright_core::predict::predict;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::collections::BTreeSet;

/// Everything that a search says until it rests.
fn search(session: &mut Session, asked: &Plan, devices: u32) -> Vec<Plans> {
    session.receive(Request::Plans { plan: asked.to_json(), devices });
    session.receive(Request::Run { on: true });
    while session.step(1000) {
        session.report();
    }
    session.report();
    let said = replies(session).into_iter().map(|reply| match reply {
        Reply::Plans(plans) => plans,
        other => panic!("{other:?}"),
    });
    said.collect()
}

/// The plan that a point stands for.
fn taken(asked: &Plan, found: &FoundPlan) -> Plan {
    let stages = found.cuts.len() as u32 + 1;
    let kind = found.schedule.parse().unwrap();
    let mut plan = Plan {
        cuts: found.cuts.clone(),
        schedule: ScheduleText::of(kind, stages, found.micro_batches).unwrap(),
        recompute: found.recompute.iter().map(|text| text.parse().unwrap()).collect(),
        micro_batches: found.micro_batches,
        tensor: found.tensor,
        sequence_parallel: found.sequence_parallel,
        ..asked.clone()
    };
    plan.data_parallel.replicas = found.replicas;
    plan
}

#[test]
fn what_is_found_is_better_and_exactly_what_it_says() {
    let asked = plan();
    let mut session = Session::default();
    let said = search(&mut session, &asked, 3);
    let last = said.last().unwrap();
    assert!(last.done && last.tried > 100, "{last:?}");
    let found: Vec<&FoundPlan> = said.iter().flat_map(|plans| &plans.found).collect();
    let straight = ScheduleKind::STRAIGHT.map(|kind| kind.to_string());
    assert!(found.iter().any(|f| !straight.contains(&f.schedule)), "no other schedule is tried");
    let front: Vec<&FoundPlan> = last.front.iter().map(|n| found[*n as usize]).collect();
    assert!(front.windows(2).all(|two| two[0].step <= two[1].step));
    let now = predict(&asked).unwrap();
    assert!(front[0].step < now.timeline.step.0, "{} and {}", front[0].step, now.timeline.step.0);
    assert!(front.iter().any(|f| !f.recompute.is_empty()), "none trades time for memory");
    for point in front {
        let plan = taken(&asked, point);
        assert!(plan.ranks() <= 3 && plan.mini_batch == asked.mini_batch);
        let exact = predict(&plan).unwrap().timeline;
        let peak = exact.peak().unwrap().1;
        assert_eq!((exact.step.0, peak.0), (point.step, point.peak));
        assert_eq!(exact.traffic().0, point.traffic);
        assert!(peak <= asked.cluster.device.memory);
    }
}

#[test]
fn tensor_groups_are_among_the_answers_and_what_they_say() {
    let cluster = Cluster::preset("dgx-a100").unwrap();
    let draft = Draft::new(Model::Preset(Preset::Gpt2), cluster, vec![]);
    let asked = draft.plan().unwrap().0;
    // Of eight devices a node six are asked for: groups of three would be on two nodes.
    let said = search(&mut Session::default(), &asked, 6);
    let last = said.last().unwrap();
    let found: Vec<&FoundPlan> = said.iter().flat_map(|plans| &plans.found).collect();
    let groups: BTreeSet<u32> = found.iter().map(|plan| plan.tensor).collect();
    assert_eq!(
        groups.into_iter().collect::<Vec<_>>(),
        [1, 2, 4],
        "heads divide among 2 and 4 of 12"
    );
    for number in &last.front {
        let point = found[*number as usize];
        let plan = taken(&asked, point);
        assert!(plan.ranks() <= 6, "{point:?}");
        let exact = predict(&plan).unwrap().timeline;
        assert_eq!(
            (exact.step.0, exact.peak().unwrap().1.0),
            (point.step, point.peak),
            "{point:?}"
        );
    }
    let best = last.front.iter().any(|n| found[*n as usize].tensor > 1);
    assert!(best, "none of them is best in anything");
}

#[test]
fn it_rests_when_told_and_says_when_nothing_fits() {
    let mut asked = plan();
    let mut session = Session::default();
    session.receive(Request::Plans { plan: asked.to_json(), devices: 3 });
    assert!(!session.step(1000), "nobody said that it should begin");
    session.receive(Request::Run { on: true });
    assert!(session.step(1000));
    session.receive(Request::Run { on: false });
    assert!(!session.step(1000));
    session.report();
    let Some(Reply::Plans(rest)) = session.take() else { panic!("no report") };
    assert!(rest.done && rest.tried > 0);

    asked.cluster.device.memory = Bytes(1 << 20);
    let mut session = Session::default();
    session.receive(Request::Plans { plan: asked.to_json(), devices: 3 });
    session.receive(Request::Run { on: true });
    while session.step(1000) {}
    session.report();
    let Some(Reply::Failed { why }) = session.take() else { panic!("it fits") };
    assert!(why.starts_with("nothing fits"), "{why}");
    session.receive(Request::Plans { plan: "{}".into(), devices: 3 });
    assert_eq!(session.take(), None, "a worker has one question");
    let mut session = Session::default();
    session.receive(Request::Plans { plan: "{}".into(), devices: 3 });
    assert!(matches!(session.take(), Some(Reply::Failed { .. })));
}
