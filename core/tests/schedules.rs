//! GPipe and 1F1B against the tables of other systems, and their times against an independent
//! simulator. Sources and licences: `tests/data/schedules/README.md`.

use pipewright_core::cost::{Cluster, Link};
use pipewright_core::graph::{Graph, GraphBuilder};
use pipewright_core::plan::{Inputs, lower, training_graphs};
use pipewright_core::schedule::{CheckError, Schedule, ScheduleKind, check};
use pipewright_core::simulate::{StageCost, simulate};
use pipewright_core::timeline::Timeline;
use pipewright_core::units::Nanos;
use std::path::PathBuf;

const UNIT: u64 = 1_000_000;

fn data(file: &str) -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/schedules");
    std::fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn parse(file: &str) -> Schedule {
    Schedule::parse(&data(file).lines().collect::<Vec<_>>()).unwrap()
}

/// A chain with one layer a stage; only its edges matter here.
fn chain(stages: u32) -> (Graph, Vec<u32>) {
    let mut g = GraphBuilder::new("chain");
    g.layer("0");
    let mut x = g.input(vec![1]);
    let mut cuts = vec![];
    for i in 0..stages {
        if i > 0 {
            g.layer(i.to_string());
        }
        x = g.linear(&format!("fc{i}"), x, 1);
        if i > 0 {
            cuts.push(x.0);
        }
    }
    g.loss(x, 1);
    (g.finish().unwrap(), cuts)
}

/// Even stages with F = 1, B = 2 (or 2.25) units and messages of `hop` units.
fn run(schedule: &Schedule, backward: u64, hop: u64) -> Timeline {
    let (graph, cuts) = chain(schedule.stages());
    let inputs = Inputs { graph: &graph, cuts: &cuts, schedule, samples: 1, momentum: false };
    let programs = lower(&inputs, &training_graphs(&inputs));
    let cost = StageCost {
        forward: Nanos(UNIT),
        backward_input: Nanos(UNIT),
        backward_weight: Nanos(backward - UNIT),
        update: Nanos::ZERO,
    };
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    let link = Link { latency_ns: Nanos(hop), bytes_per_sec: 1e30 };
    (cluster.local, cluster.network) = (link, link);
    simulate(&programs, &vec![cost; schedule.stages() as usize], &cluster).unwrap()
}

#[test]
fn generated_schedules_are_those_of_pytorch() {
    let mut compared = 0;
    for row in data("expected.csv").lines().skip(1) {
        let file = row.split(',').next().unwrap();
        let golden = parse(file);
        let kind =
            if file.contains("GPipe") { ScheduleKind::GPipe } else { ScheduleKind::OneFOneB };
        assert_eq!(kind.generate(golden.stages(), golden.micro_batches).unwrap(), golden, "{file}");
        assert_eq!(check(&golden), Ok(()), "{file}");
        compared += 1;
    }
    assert_eq!(compared, 12);
}

#[test]
fn times_memory_and_messages_are_those_of_the_independent_simulator() {
    for row in data("expected.csv").lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let number = |i: usize| cells[i].parse::<f64>().unwrap();
        let units = |t: &Timeline| t.step.0 as f64 / UNIT as f64;
        let schedule = parse(cells[0]);
        let timeline = run(&schedule, 2 * UNIT, 0);
        assert_eq!(units(&timeline), number(5), "{}", cells[0]);
        assert!((timeline.bubble() - number(6)).abs() < 1e-6, "{}", cells[0]);
        assert_eq!(units(&run(&schedule, 2 * UNIT, UNIT / 4)), number(8), "{}", cells[0]);
        assert_eq!(units(&run(&schedule, 2 * UNIT + UNIT / 4, 0)), number(9), "{}", cells[0]);
        let live: Vec<u32> = cells[10].split(' ').map(|n| n.parse().unwrap()).collect();
        assert_eq!(slots(&schedule), live, "{}", cells[0]);
        assert_eq!(timeline.messages.len(), number(12) as usize, "{}", cells[0]);
    }
}

/// Micro-batches in flight by lane, as lowering counts them.
fn slots(schedule: &Schedule) -> Vec<u32> {
    let (graph, cuts) = chain(schedule.stages());
    let inputs = Inputs { graph: &graph, cuts: &cuts, schedule, samples: 1, momentum: false };
    let programs = lower(&inputs, &training_graphs(&inputs));
    programs.iter().map(|p| p.stages[0].slots.count).collect()
}

#[test]
fn the_order_that_pytorch_draws_for_its_last_rank_is_refused() {
    let schedule = parse("upstream-bug_torch-2.15.0_1F1B_p4_v1_m8.csv");
    let error = check(&schedule).unwrap_err();
    assert!(matches!(error, CheckError::Missing { .. }), "{error}");
    assert_eq!(error.to_string(), "lane 3 lacks 3F0");
}
