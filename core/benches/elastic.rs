//! Time of a new plan for 64 ranks and fewer, and of another way around a lost one. `cargo bench -p pipewright-core --bench elastic`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::elastic::{BatchRule, Place, Rerouted, replan, reroute_to, sizes};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::ids::LaneId;
use pipewright_core::partition::balanced;
use pipewright_core::plan::{DataParallel, Draft, Model, Plan};
use pipewright_core::predict::predict;
use std::time::Instant;

fn plan(model: &str, stages: u32, replicas: u32) -> Plan {
    let model: Preset = model.parse().expect("a preset");
    let graph = model.graph().expect("a network");
    let cluster = Cluster::preset("dgx-a100").expect("a preset");
    let cuts = balanced(&graph, &Costs::new(&graph, &cluster, 4, Precision::F32), stages)
        .expect("enough layers");
    let mut draft = Draft::new(Model::Preset(model), cluster, cuts);
    draft.micro_batches = 2 * stages;
    draft.mini_batch = u64::from(replicas * draft.micro_batches) * 4;
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.plan().expect("a plan").0
}

/// In milliseconds.
fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_secs_f64() * 1e3
}

fn main() {
    for (model, stages, replicas) in [("gpt2", 8, 8), ("gpt2", 1, 64), ("fc32:256", 32, 2)] {
        let plan = plan(model, stages, replicas);
        let times = (1..=64).map(|ranks| (time(|| replan(&plan, ranks, BatchRule::Keep)), ranks));
        let (worst, at) = times.max_by(|a, b| a.0.total_cmp(&b.0)).expect("64 of them");
        println!(
            "{model}, {stages} stages x {replicas} replicas: a plan for 1 to 64 ranks takes at most \
             {worst:.0} ms (for {at}), all sizes for 64 together {:.0} ms",
            time(|| sizes(&plan, 64, BatchRule::Keep))
        );
        let mut tight = plan.clone();
        tight.cluster.device.memory = *plan.prediction.arena.iter().max().expect("lanes");
        if let Some(ranks) = stages.checked_sub(1).filter(|ranks| *ranks > 0) {
            let mut found = None;
            let ms = time(|| found = Some(replan(&tight, ranks, BatchRule::Keep)));
            let what = match found {
                Some(Ok(found)) => format!("{} lanes", found.plan.lanes()),
                _ => "nothing".into(),
            };
            println!("  with no memory to spare: {ms:.0} ms to find {what} for {ranks} ranks");
        }
        let prediction = predict(&plan).expect("a plan");
        let lost = Place { lane: LaneId(stages / 2), replica: 0 };
        if let Ok(found) = reroute_to(&plan, 61) {
            let ms = time(|| reroute_to(&plan, 61));
            println!("  for 61 ranks: {ms:.1} ms to find a step of {}", found.step);
        }
        match Rerouted::of(&plan, &prediction, &[lost]) {
            Ok(found) => println!(
                "  without a rank of stage {}: {:.1} ms to find a step of {} instead of {}",
                stages / 2,
                time(|| Rerouted::of(&plan, &prediction, &[lost])),
                found.step,
                found.healthy
            ),
            Err(error) => println!("  without a rank of stage {}: {error}", stages / 2),
        }
    }
}
