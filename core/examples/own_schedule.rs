//! An order of one's own, beside 1F1B: `cargo run -p pipewright-core --example own_schedule`.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition;
use pipewright_core::plan::{Draft, Model, ScheduleText};
use pipewright_core::predict::predict;
use pipewright_core::schedule::{Schedule, check};
use std::error::Error;

/// Three stages, four micro-batches: stage, F or B, micro-batch. As 1F1B, but the first lane is a forward pass
/// ahead of it, for which it keeps one more activation.
const EAGER: [&str; 3] = [
    "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3",
    "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
    "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Every action once, nothing waits for itself; a mistake is named with lane and place.
    check(&Schedule::parse(&EAGER)?)?;

    let model = Model::Preset(Preset::Vgg16);
    let cluster = Cluster::preset("8x-l4")?;
    let costs = Costs::new(&model.graph()?, &cluster, 8, Precision::F32);
    let cuts = partition::balanced(&model.graph()?, &costs, 3)?;
    let (mut plan, usual) = Draft::new(model, cluster, cuts).plan()?;
    plan.schedule =
        ScheduleText { name: "eager-1f1b".into(), lanes: EAGER.map(str::to_owned).to_vec() };
    let eager = predict(&plan)?;

    for (name, prediction) in [("1f1b", &usual), ("eager-1f1b", &eager)] {
        let timeline = &prediction.timeline;
        let peak = prediction.programs[0].arena;
        println!("{name:>10}: step {}, first lane {peak}", timeline.step);
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}

#[test]
fn a_mistake_is_named() {
    let mut wrong = EAGER;
    wrong[2] = "2B0 2F0 2F1 2B1 2F2 2B2 2F3 2B3";
    assert!(check(&Schedule::parse(&wrong).unwrap()).is_err());
}
