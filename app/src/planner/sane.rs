//! Sane starts: a mini-batch, and lanes where it takes more, with which another model fits its devices.

use super::engine::{self, Ground};
use super::inputs::Inputs;
use pipewright_core::units::Bytes;

/// Samples of a micro-batch that are tried, the most first.
const SAMPLES: [u64; 8] = [128, 64, 32, 16, 8, 4, 2, 1];

/// Lanes that are drawn at most.
const LANES: [u32; 4] = [8, 16, 32, 64];

/// Micro-batches of each lane where lanes are added: a pipeline that is mostly full.
const PER_LANE: u32 = 4;

/// Leaves inputs that fit as they are. Else the largest micro-batches that do; else as few more lanes as do,
/// with recomputation where nothing else helps; else one sample each, which needs least. Replicas stay.
pub fn settle(inputs: &mut Inputs) {
    if fits(inputs) == Some(true) {
        return;
    }
    let now = inputs.samples().unwrap_or(u64::MAX);
    for samples in SAMPLES.into_iter().filter(|samples| *samples <= now) {
        resize(inputs, samples);
        if fits(inputs) == Some(true) {
            return;
        }
    }
    let (lanes, first) = (inputs.lanes(), inputs.clone());
    let most = engine::most_lanes(&inputs.model.graph(), inputs.schedule);
    for again in [false, true] {
        for more in LANES.into_iter().filter(|more| (lanes + 1..=most).contains(more)) {
            engine::split(inputs, more);
            inputs.micro_batches = PER_LANE * more;
            resize(inputs, 1);
            if again {
                engine::recompute_all(inputs, &Ground::of(inputs));
            }
            if fits(inputs) == Some(true) {
                return;
            }
        }
    }
    *inputs = first;
}

/// Gives micro-batches so many samples.
pub fn resize(inputs: &mut Inputs, samples: u64) {
    let replicas = u64::from(inputs.rest.data_parallel.replicas);
    inputs.mini_batch = u64::from(inputs.micro_batches) * replicas * samples;
}

/// Whether every lane fits its device; none where the choices contradict each other.
fn fits(inputs: &Inputs) -> Option<bool> {
    let solved = engine::solve(inputs, &Ground::of(inputs)).ok()?;
    Some(solved.figures.peak <= solved.capacity || solved.capacity == Bytes::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::choices::ModelChoice;
    use crate::planner::presets::first;
    use pipewright_core::graph::presets::PRESETS;

    #[test]
    fn every_model_opens_with_a_plan_that_fits() {
        for preset in PRESETS {
            let mut inputs = first();
            inputs.model = ModelChoice::Preset(preset);
            engine::split(&mut inputs, 4);
            settle(&mut inputs);
            let solved = engine::solve(&inputs, &Ground::of(&inputs)).unwrap();
            let step = solved.figures.step.secs();
            assert!(solved.figures.peak <= solved.capacity, "{preset}: {}", solved.figures.peak);
            assert!(step < 600.0, "{preset}: {step} s");
        }
    }

    #[test]
    fn what_fits_stays() {
        let mut inputs = first();
        settle(&mut inputs);
        assert_eq!(inputs, first());
    }
}
