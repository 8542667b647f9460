//! States that are worth a look at once: the first one is drawn when the page opens.

use super::choices::{ClusterChoice, ModelChoice};
use super::engine;
use super::inputs::{Inputs, Rest};
use crate::base::texts::n;
use pipewright_core::graph::presets::Preset;
use pipewright_core::schedule::ScheduleKind;

/// A state to click.
pub struct Example {
    pub title: &'static str,
    /// What there is to see.
    pub why: &'static str,
    model: Preset,
    cluster: &'static str,
    stages: u32,
    pub mini_batch: u64,
    micro_batches: u32,
    schedule: ScheduleKind,
}

/// In the order in which they are offered; the first is the page's first picture.
pub const EXAMPLES: [Example; 4] = [
    Example {
        title: "VGG16",
        why: n("4 lanes of A100: unequal layers leave gaps, lane 0 is nearly full"),
        model: Preset::Vgg16,
        cluster: "dgx-a100",
        stages: 4,
        mini_batch: 3584,
        micro_batches: 8,
        schedule: ScheduleKind::OneFOneB,
    },
    Example {
        title: "Fig. 7",
        why: n("Takisawa 2022: 32 dense layers on 8 P100, measured speed-ups"),
        model: Preset::Fc32 { width: 5000 },
        cluster: "reedbush-l",
        stages: 8,
        mini_batch: 1200,
        micro_batches: 20,
        schedule: ScheduleKind::GPipe,
    },
    Example {
        title: "ResNet-50",
        why: n("8 lanes of H100, 64 micro-batches"),
        model: Preset::Resnet50,
        cluster: "dgx-h100",
        stages: 8,
        mini_batch: 2048,
        micro_batches: 64,
        schedule: ScheduleKind::OneFOneB,
    },
    Example {
        title: "Digits",
        why: n("trains in seconds on a laptop; export it and run it"),
        model: Preset::DigitsCnn,
        cluster: "laptop",
        stages: 4,
        mini_batch: 256,
        micro_batches: 8,
        schedule: ScheduleKind::OneFOneB,
    },
];

impl Example {
    pub fn inputs(&self) -> Inputs {
        let mut inputs = Inputs {
            model: ModelChoice::Preset(self.model),
            cluster: ClusterChoice::Preset(self.cluster),
            cuts: vec![],
            schedule: self.schedule,
            own: None,
            mini_batch: self.mini_batch,
            micro_batches: self.micro_batches,
            rest: Rest::default(),
            recompute: None,
            times: None,
            a: None,
        };
        engine::split(&mut inputs, self.stages);
        inputs
    }
}

/// The state of an empty link.
pub fn first() -> Inputs {
    EXAMPLES[0].inputs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_fits_its_devices() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            let solved = engine::solve(&inputs, &engine::Ground::of(&inputs)).unwrap();
            assert!(solved.figures.peak <= solved.capacity, "{}", example.title);
        }
    }
}
