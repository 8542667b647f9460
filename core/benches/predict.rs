//! Time of one change in the explorer: every arrow from plan to timeline, and its parts, at
//! 64 lanes x 512 micro-batches. `cargo bench -p pipewright-core`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::{Graph, GraphBuilder, Precision};
use pipewright_core::plan::{Draft, Inputs, Model, lower, training_graphs};
use pipewright_core::predict::predict;
use pipewright_core::schedule::{ScheduleKind, check};
use pipewright_core::simulate::{Copies, StageCost, simulate};
use std::time::Instant;

fn chain(layers: u32) -> (Graph, Vec<u32>) {
    let mut g = GraphBuilder::new("chain");
    g.layer("0");
    let mut x = g.input(vec![1024]);
    let mut cuts = vec![];
    for i in 0..layers {
        if i > 0 {
            g.layer(i.to_string());
        }
        x = g.linear(&format!("fc{i}"), x, 1024);
        if i > 0 {
            cuts.push(x.0);
        }
        x = g.relu(&format!("relu{i}"), x);
    }
    g.loss(x, 1024);
    (g.finish().expect("a chain"), cuts)
}

/// Best of several, in milliseconds.
fn best<T>(mut work: impl FnMut() -> T) -> f64 {
    let time = |work: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        std::hint::black_box(work());
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..7).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let cluster = Cluster::preset("dgx-a100").expect("a preset");
    for kind in ScheduleKind::STRAIGHT {
        let (graph, cuts) = chain(64);
        let mut draft = Draft::new(Model::Graph(graph.clone()), cluster.clone(), cuts.clone());
        draft.schedule = kind;
        (draft.mini_batch, draft.micro_batches) = (2048, 512);
        let plan = draft.plan().expect("a plan").0;
        let schedule = kind.generate(64, 512).expect("any numbers");
        let inputs = Inputs {
            graph: &graph,
            cuts: &cuts,
            schedule: &schedule,
            samples: 4,
            data_parallel: plan.data_parallel,
            communication: &plan.communication,
            cluster: &plan.cluster,
            optimizer: plan.optimizer,
            training: plan.training,
            halves: plan.cluster.device.halves(),
        };
        let graphs = training_graphs(&inputs);
        let programs = lower(&inputs, &graphs);
        let costs = Costs::new(&graph, &cluster, 4, Precision::F32);
        let stages: Vec<StageCost> = graphs.iter().map(|g| StageCost::new(g, &costs)).collect();
        println!(
            "{kind}: generate {:.2} ms, check {:.2}, autodiff {:.2}, lower {:.2}, simulate {:.2}; \
             parse and everything {:.2}",
            best(|| kind.generate(64, 512)),
            best(|| check(&schedule)),
            best(|| training_graphs(&inputs)),
            best(|| lower(&inputs, &graphs)),
            best(|| simulate(&programs, &stages, &cluster, Copies::default())),
            best(|| predict(&plan)),
        );
    }
}
