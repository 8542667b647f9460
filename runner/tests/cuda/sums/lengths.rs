//! Gradient norms on the device; copies for steps that are undone.

use super::emulated::Emulated;
use super::training::{On, Run, plan, train};
use crate::common::exchange_suite::gradient;
use crate::emulator;
use pipewright_core::compress::Reduction;
use pipewright_core::plan::{DataParallel, Plan, Region};
use pipewright_core::units::Bytes;
use pipewright_kernels::cpu::squares;
use pipewright_runner::device::Accelerator;
use pipewright_runner::device::cuda::Engine;

/// Values of regions: more than a chunk, one, a chunk.
const SIZES: [usize; 5] = [9001, 1, 4096, 333, 70_000];

/// Regions of these sizes with places between them, and what lies there.
fn regions() -> (Vec<Region>, Vec<Vec<f32>>) {
    let mut at = 64;
    let region = |size: usize| {
        let region = Region { offset: Bytes(at), bytes: Bytes(4 * size as u64) };
        at += region.bytes.0.next_multiple_of(64) + 128;
        region
    };
    let regions = SIZES.into_iter().map(region).collect();
    (regions, (0..).zip(SIZES).map(|(number, size)| gradient(number, 7, size)).collect())
}

fn engine(regions: &[Region], values: &[Vec<f32>]) -> (Engine<Emulated>, Emulated) {
    let device = Emulated::default();
    let mut engine = Engine::new(device.clone(), Bytes(1 << 19), "a rank").unwrap();
    for (region, values) in regions.iter().zip(values) {
        engine.upload(region.offset.0, bytemuck::cast_slice(values)).unwrap();
    }
    (engine, device)
}

#[test]
fn squares_are_those_of_the_processor() {
    if !emulator::is_there() {
        return;
    }
    let (regions, mut values) = regions();
    let (mut engine, device) = engine(&regions, &values);
    let look = |engine: &mut Engine<Emulated>| {
        let mut sums = vec![0.0; regions.len()];
        let before = device.traffic[0].bytes()[1];
        engine.squares(&regions, &mut sums).unwrap();
        assert_eq!(device.traffic[0].bytes()[1] - before, 8 * regions.len() as u64);
        sums
    };
    let sums = look(&mut engine);
    for (sum, values) in sums.iter().zip(&values) {
        let expected = squares(1, values);
        assert!((sum - expected).abs() <= 1e-12 * expected, "{sum}, expected {expected}");
    }
    assert_eq!(look(&mut engine), sums, "the same bits every time");
    values[3][300] = f32::NEG_INFINITY;
    engine.upload(regions[3].offset.0, bytemuck::cast_slice(&values[3])).unwrap();
    let finite: Vec<bool> = look(&mut engine).iter().map(|sum| sum.is_finite()).collect();
    assert_eq!(finite, [true, true, true, false, true]);
    engine.squares(&[], &mut []).unwrap();
}

#[test]
fn what_is_kept_comes_back() {
    if !emulator::is_there() {
        return;
    }
    let (regions, values) = regions();
    let (mut engine, device) = engine(&regions, &values);
    let read = |engine: &mut Engine<Emulated>, region: &Region| {
        let mut found = vec![0.0_f32; region.bytes.0 as usize / 4];
        engine.download(region.offset.0, bytemuck::cast_slice_mut(&mut found)).unwrap();
        found
    };
    let travelled = device.traffic[0].bytes();
    engine.save(&regions[..2]).unwrap();
    engine.save(&regions[1..]).unwrap();
    for region in &regions {
        engine.zero(*region).unwrap();
    }
    engine.restore(&regions[1..]).unwrap();
    assert_eq!(device.traffic[0].bytes(), travelled, "nothing goes through the host");
    assert!(read(&mut engine, &regions[0]).iter().all(|value| *value == 0.0), "kept before");
    for (region, values) in regions.iter().zip(&values).skip(1) {
        assert_eq!(read(&mut engine, region), *values);
    }
}

fn alone(clip: Option<f32>, skip: Option<u32>) -> Plan {
    let mut plan = plan(1, DataParallel::default(), Reduction::default());
    plan.training.clip_norm = clip;
    plan.training.skip_nonfinite = skip;
    plan
}

/// A number for each parameter, and nothing else, is what clipping and skipping cost.
#[test]
fn gradients_stay_where_they_are() {
    if !emulator::is_there() {
        return;
    }
    let down = |clip, skip| {
        let run = &train(&alone(clip, skip), &On::Device, false)[0];
        (run.travelled[0][1], run.parameters)
    };
    let ((plain, parameters), (judged, _)) = (down(None, None), down(Some(0.1), Some(3)));
    assert_eq!(judged - plain, 8 * parameters * alone(None, None).steps);
}

/// Norms are those of the processor, up to what the kernels differ by.
#[test]
fn clipping_like_the_processor() {
    if !emulator::is_there() {
        return;
    }
    let plan = alone(Some(0.05), None);
    let [here, there] = [On::Processor, On::Device].map(|on| train(&plan, &on, false).remove(0));
    let norms = |run: &Run| -> Vec<f64> { run.steps.iter().map(|step| step.norm).collect() };
    for (here, there) in norms(&here).iter().zip(norms(&there)) {
        assert!(*here > 0.05, "{here} is clipped");
        assert!((here - there).abs() < 1e-3 * here, "{there} is not {here}");
    }
    for (here, there) in here.steps.iter().zip(&there.steps) {
        assert!((here.loss - there.loss).abs() < 1e-4 * here.loss.abs());
    }
    let again = train(&plan, &On::Device, false).remove(0);
    assert_eq!(norms(&again), norms(&there), "the same bits every time");
}
