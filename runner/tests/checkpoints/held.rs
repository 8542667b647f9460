//! Stages that several ranks hold, and weights of several versions: what is one is saved once, what
//! is each rank's own is saved by each.

use crate::common::{few_samples, losses, mpirun_in, runner_in, scratch, write};
use crate::run::{STEPS, at, checkpoints, tensors};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::{Conv, Graph, GraphBuilder, Op};
use pipewright_core::partition;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Model};
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;

/// Two convolutions with batch normalisation and a linear layer, which make up to four stages.
fn network() -> Graph {
    let mut g = GraphBuilder::new("normalised");
    let shape = Conv { kernel: 3, stride: 1, padding: 1, bias: false };
    g.layer("conv1");
    let mut x = g.input(vec![1, 6, 6]);
    for number in 1..=3 {
        if number > 1 {
            g.layer(format!("conv{number}"));
        }
        x = g.conv(&format!("conv{number}"), x, 4, shape);
        let norm = Op::BatchNorm2d { eps: 1e-5, momentum: 0.1 };
        x = g.add(format!("bn{number}"), norm, &[x]);
        x = g.relu(&format!("relu{number}"), x);
    }
    g.layer("fc");
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("fc", x, 10);
    g.loss(x, 10);
    g.finish().unwrap()
}

/// Writes a plan of the network; returns its file and its ranks.
fn plan(dir: &Path, stages: u32, schedule: ScheduleKind, replicas: DataParallel) -> (String, u32) {
    let graph = network();
    let cuts = partition::uniform(&graph, stages).unwrap();
    let mut draft = Draft::new(Model::Graph(graph), Cluster::preset("laptop").unwrap(), cuts);
    (draft.schedule, draft.data_parallel, draft.data) = (schedule, replicas, few_samples());
    (draft.steps, draft.optimizer) = (STEPS, "adamw:lr=1e-3".parse().unwrap());
    let plan = draft.plan().unwrap().0;
    let mode = replicas.mode;
    let name = format!("{stages}-{schedule}-{}-{mode:?}.json", replicas.replicas);
    write(dir, &name, plan.to_json());
    (name, plan.ranks())
}

/// Interrupted after five steps and continued, a run is the uninterrupted one to the bit.
fn continues(dir: &Path, (plan, ranks): &(String, u32), over_mpi: bool) {
    let run = |out: &str, more: &[&str]| {
        let args = [&[&plan[..], "--out", out, "--save-every", "0"][..], more].concat();
        let ended = match over_mpi {
            true => mpirun_in(dir, *ranks, &args),
            false => Some(runner_in(dir, &args)),
        };
        if let Some(ended) = &ended {
            ended.done();
        }
        ended.is_some()
    };
    let (whole, cut) = (format!("{plan}-whole"), format!("{plan}-cut"));
    if !run(&whole, &["--overwrite"]) {
        return;
    }
    run(&cut, &["--steps", "5", "--overwrite"]);
    run(&cut, &["--resume"]);
    let (whole, cut) = (dir.join(whole), dir.join(cut));
    assert_eq!(losses(&cut), losses(&whole), "{plan}, mpirun: {over_mpi}");
    let (expected, found) = (tensors(&at(&whole, STEPS)), tensors(&at(&cut, STEPS)));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, bits) in &expected {
        assert!(found[name] == *bits, "{plan}, mpirun: {over_mpi}: {name} differs");
    }
}

#[test]
fn every_way_of_holding_a_stage() {
    let dir = scratch("held");
    let alone = DataParallel::default();
    let dp = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    let cases = [
        (1, ScheduleKind::OneFOneB, DataParallel::ddp(2)),
        (1, ScheduleKind::OneFOneB, dp),
        (2, ScheduleKind::OneFOneB, DataParallel::ddp(2)),
        (2, ScheduleKind::Chimera, alone),
        (2, ScheduleKind::PipeDream, alone),
        (2, ScheduleKind::PipeDream2Bw, alone),
    ];
    for (stages, schedule, replicas) in cases {
        let plan = plan(&dir, stages, schedule, replicas);
        continues(&dir, &plan, false);
        continues(&dir, &plan, true);
    }
    let folder = |name: &str| at(&dir.join(format!("{name}.json-whole")), STEPS);
    let own = |name: &str| {
        let names = tensors(&folder(name)).into_keys();
        names.filter(|name| name.contains("@rank-")).collect::<Vec<_>>()
    };
    // Each rank but the first has seen other samples; through the first, nobody has statistics.
    let of_hybrid = own("2-1f1b-2-Ddp");
    assert!(of_hybrid.contains(&"bn1.running_mean@rank-1".to_owned()), "{of_hybrid:?}");
    assert_eq!(of_hybrid.len(), 6, "{of_hybrid:?}");
    assert_eq!(own("2-chimera-1-Ddp").len(), 6);
    assert!(own("1-1f1b-2-Dp").is_empty());
    let both = tensors(&folder("2-pipedream-2bw-1-Ddp"));
    assert!(both["fc.weight"] != both["fc.weight@version-1"], "two versions are two");
}

#[test]
fn another_grid_goes_on() {
    let dir = scratch("held-grid");
    let ddp = DataParallel::ddp;
    let (hybrid, _) = plan(&dir, 2, ScheduleKind::OneFOneB, ddp(2));
    runner_in(&dir, &[&hybrid, "--out", "hybrid", "--save-every", "5"]).done();
    assert_eq!(checkpoints(&dir.join("hybrid")), [5, STEPS]);
    let expected = losses(&dir.join("hybrid"));
    for (stages, replicas) in [(1, 1), (4, 1), (1, 4)] {
        let (plan, _) = plan(&dir, stages, ScheduleKind::OneFOneB, ddp(replicas));
        let out = format!("{stages}x{replicas}");
        let from = ["--resume", "hybrid/checkpoints/step-5"];
        runner_in(&dir, &[&[&plan[..], "--out", &out][..], &from].concat()).done();
        // The first loss sums what the checkpoint's weights give, in another order; batches that
        // are normalised in other pieces make the rest differ a little more.
        let number = |text: &String| -> f64 { text.parse().unwrap() };
        let found = losses(&dir.join(&out));
        assert_eq!(found.len(), 3);
        for (found, expected) in found.iter().map(number).zip(expected[5..].iter().map(number)) {
            assert!((found / expected - 1.0).abs() < 0.2, "{out}: {found} for {expected}");
        }
    }
    let (asynchronous, _) = plan(&dir, 2, ScheduleKind::PipeDream, DataParallel::default());
    let run = runner_in(&dir, &[&asynchronous, "--resume", "hybrid/checkpoints/step-5"]);
    run.refused(2, "the way of updating is synchronous in the checkpoint, pipedream with cuts");
}

#[test]
fn statistics_go_on_under_another_division() {
    let dir = scratch("held-statistics");
    let alone = DataParallel::default();
    let (four, _) = plan(&dir, 4, ScheduleKind::ZbH1, alone);
    let (two, _) = plan(&dir, 2, ScheduleKind::OneFOneB, alone);
    let run = |plan: &str, out: &str, more: &[&str]| {
        let args = [&[plan, "--out", out, "--save-every", "0"][..], more].concat();
        runner_in(&dir, &args).done();
    };
    run(&four, "whole", &[]);
    run(&two, "cut", &["--steps", "5"]);
    run(&four, "cut", &["--resume"]);
    let [expected, found] = ["whole", "cut"].map(|out| tensors(&at(&dir.join(out), STEPS)));
    assert!(expected.contains_key("bn2.running_var"), "{:?}", expected.keys());
    assert!(found == expected);
    assert_eq!(losses(&dir.join("cut")), losses(&dir.join("whole")));
}
