//! The timeline of a plan, as text: `cargo run -p pipewright-core --example simulate_plan`.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::predict;
use pipewright_core::timeline::Work;
use std::error::Error;

/// Columns of the picture.
const WIDTH: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    // A plan file holds all that it needs: this is what `runner plan` writes and `runner simulate` reads.
    let cuts = vec![5, 10, 14];
    let draft = Draft::new(Model::Preset(Preset::Vgg16), Cluster::preset("dgx-a100")?, cuts);
    let json = draft.plan()?.0.to_json();

    let plan = Plan::from_json(&json)?;
    let prediction = predict(&plan)?;
    let timeline = &prediction.timeline;
    println!("step {}, bubble {:.1} %", timeline.step, 100.0 * timeline.bubble());
    for (index, lane) in timeline.lanes.iter().enumerate() {
        let mut row = vec!['.'; WIDTH as usize + 1];
        for span in &lane.spans {
            let place = |at: u64| (at * WIDTH / timeline.step.0.max(1)) as usize;
            let letter = match span.work {
                Work::Run(action) => action.kind.letter(),
                _ => 'U',
            };
            row[place(span.start.0)..=place(span.end.0)].fill(letter);
        }
        println!("lane {index}  {}", row.into_iter().collect::<String>());
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
