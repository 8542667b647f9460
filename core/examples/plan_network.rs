//! Plans of one network under several schedules: `cargo run -p pipewright-core --example plan_network`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition;
use pipewright_core::plan::{Draft, Model};
use pipewright_core::schedule::ScheduleKind;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::Preset(Preset::Resnet50);
    let cluster = Cluster::preset("dgx-a100")?;
    let graph = model.graph()?;
    let (stages, mini_batch, micro_batches) = (4, 256, 16);
    let samples = mini_batch / u64::from(micro_batches);
    // Times of the network's nodes on this machine, and cuts that divide them evenly.
    let costs = Costs::new(&graph, &cluster, samples, Precision::F32);
    let cuts = partition::balanced(&graph, &costs, stages)?;

    println!("{:>8} {:>12} {:>8} {:>12}", "schedule", "step", "bubble", "memory");
    for schedule in [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        let mut draft = Draft::new(model.clone(), cluster.clone(), cuts.clone());
        (draft.schedule, draft.mini_batch, draft.micro_batches) =
            (schedule, mini_batch, micro_batches);
        // Checked, lowered to a program for each rank, simulated. `plan.to_json()` is what the runner executes.
        let (_, prediction) = draft.plan()?;
        let peak = prediction.programs.iter().map(|program| program.arena).max();
        println!(
            "{:>8} {:>12} {:>6.1} % {:>12}",
            schedule.to_string(),
            prediction.timeline.step.to_string(),
            100.0 * prediction.timeline.bubble(),
            peak.unwrap_or_default().to_string()
        );
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
