//! Things to look at, each with a line that says what.

use super::choice::Choice;
use super::data::Set;
use super::network::Activation;
use crate::base::texts::n;
use pipewright_core::schedule::ScheduleKind;

/// A choice with a name.
pub struct Preset {
    /// What stands on its button.
    pub title: &'static str,
    /// What to look at.
    pub look: &'static str,
    /// How it differs from what all have in common.
    change: fn(&mut Choice),
    ways: &'static [&'static str],
}

/// In the order of their buttons; the first is what the page opens with.
pub const ALL: [Preset; 5] = [
    Preset {
        title: n("One bit needs error feedback"),
        look: n(
            "One bit per value drops small gradients, and learning crawls. With error feedback, \
             which adds what was lost to the next step, the same bits follow single precision: \
             the two curves coincide.",
        ),
        change: |choice| (choice.momentum, choice.layers, choice.rate) = (0.0, 2, 0.2),
        ways: &["fp32", "one-bit", "one-bit+feedback"],
    },
    Preset {
        title: n("table(1) leads, then stalls"),
        look: n("table(1) doubles every step: it learns faster at first, and then cannot settle. \
             Feedback makes it worse, since the error grows from step to step. Means instead of \
             percentiles keep it small."),
        change: |choice| (choice.set, choice.noise, choice.layers) = (Set::Moons, 10, 2),
        ways: &["fp32", "table:1", "table:1+feedback", "table-mean:1+feedback"],
    },
    Preset {
        title: n("16 ranks, fp8"),
        look: n(
            "Two roundings cost next to nothing, however many ranks there are. Codes added rank \
             by rank are rounded fifteen times: truncation shrinks the gradient, and learning \
             slows down.",
        ),
        change: |choice| {
            (choice.set, choice.layers) = (Set::Circles, 2);
            (choice.momentum, choice.rate) = (0.0, 0.2);
        },
        ways: &["fp32", "fp8-e5m2", "fp8-e5m2:truncate+operator"],
    },
    Preset {
        title: n("Pipelining changes nothing"),
        look: n(
            "Four stages, eight micro-batches, and next to each network the same one trained on \
             one device: after every step all their weights are bit-identical, with every codec.",
        ),
        change: |choice| {
            (choice.set, choice.ranks) = (Set::Circles, 2);
            (choice.stages, choice.micro_batches) = (4, 8);
        },
        ways: &["fp32", "fp8-e5m2", "one-bit+feedback"],
    },
    Preset {
        title: n("Without a flush"),
        look: n("PipeDream updates while micro-batches are in flight: once the pipeline is full \
             there are hardly any gaps, but gradients come from weights up to three updates old. \
             The result differs from training on one device."),
        change: |choice| {
            (choice.set, choice.ranks, choice.schedule) =
                (Set::Circles, 2, ScheduleKind::PipeDream);
            (choice.stages, choice.micro_batches, choice.rate) = (4, 8, 0.03);
        },
        ways: &["fp32", "fp8-e5m2"],
    },
];

impl Preset {
    /// The whole choice.
    pub fn choice(&self) -> Choice {
        let mut choice = Choice {
            set: Set::Xor,
            noise: 4,
            seed: 3,
            layers: 3,
            width: 8,
            activation: Activation::Tanh,
            rate: 0.1,
            momentum: 0.9,
            batch: 64,
            ranks: 16,
            stages: 1,
            micro_batches: 1,
            schedule: ScheduleKind::OneFOneB,
            slowness: 8,
            ways: self.ways.iter().filter_map(|way| way.parse().ok()).collect(),
        };
        (self.change)(&mut choice);
        choice
    }
}
