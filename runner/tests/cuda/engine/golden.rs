//! PyTorch's results, computed again by a device: operations in single precision and in bf16, and whole
//! training runs; ranks that share a device train as one does.

use super::{Emulated, Make, emulated, emulator, on_gpu, train_and};
use crate::common::golden::{Golden, NAMES};
use crate::vectors;
use pipewright_core::plan::{Plan, Precision, Region};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::Operand;
use pipewright_runner::device::cuda::{Backend, Driver, Engine};
use pipewright_runner::device::{Accelerator, Image, Place, Places};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::local::LocalTransport;
use pipewright_runner::weights;
use std::path::Path;

/// Places in an arena, one behind the other.
#[derive(Default)]
struct Layout {
    end: u64,
}

impl Layout {
    fn put(&mut self, values: &[f32]) -> Region {
        let region = Region { offset: Bytes(self.end), bytes: Bytes(4 * values.len() as u64) };
        self.end = (self.end + region.bytes.0).next_multiple_of(256);
        region
    }

    fn all<'a>(&mut self, list: impl IntoIterator<Item = &'a [f32]>) -> Vec<Region> {
        list.into_iter().map(|values| self.put(values)).collect()
    }
}

/// A computation on a device whose arena has these operands alone.
pub fn compute<B: Backend>(
    make: impl Fn() -> B,
    precision: Precision,
    call: &Call,
    operands: Operands,
) {
    compute_images(make, precision, call, operands, &|_| None);
}

/// The same of images that lie as they are said to.
pub fn compute_images<B: Backend>(
    make: impl Fn() -> B,
    precision: Precision,
    call: &Call,
    operands: Operands,
    image: &dyn Fn(Operand) -> Option<Image>,
) {
    let Operands { reads, writes, params, gradients, deferred, workspace } = operands;
    let mut layout = Layout::default();
    let places = |regions: &[Region], operand: fn(usize) -> Operand| -> Vec<Place> {
        let lies = |(at, region): (usize, &Region)| Place {
            region: *region,
            elements: region.bytes.0 / 4,
            packed: false,
            image: image(operand(at)),
        };
        regions.iter().enumerate().map(lies).collect()
    };
    let read = layout.all(reads.iter().copied());
    let written = layout.all(writes.iter().map(|values| &**values));
    let of_params = layout.all(params.iter().map(|values| &**values));
    let of_gradients = layout.all(gradients.iter().map(|values| &**values));
    let of_deferred = layout.all(deferred.iter().map(|values| &**values));
    let scratch = layout.put(workspace);
    let mut engine = Engine::new(make(), Bytes(layout.end.max(256)), "a computation").unwrap();
    let mut upload = |regions: &[Region], list: &[&[f32]]| {
        for (region, values) in regions.iter().zip(list) {
            engine.upload(region.offset.0, bytemuck::cast_slice(values)).unwrap();
        }
    };
    upload(&read, reads);
    let inputs = [(&of_params, &*params), (&of_gradients, &*gradients), (&of_deferred, &*deferred)];
    for (regions, list) in inputs {
        upload(regions, &list.iter().map(|values| &**values).collect::<Vec<_>>());
    }
    let (reads, all_writes) = (places(&read, Operand::Read), places(&written, Operand::Write));
    let places = Places {
        reads: &reads,
        writes: &all_writes,
        params: &of_params,
        gradients: &of_gradients,
        deferred: &of_deferred,
        workspace: (!workspace.is_empty()).then_some(scratch),
    };
    engine.launch(&Call { precision, ..*call }, &places).unwrap();
    let outputs = [(&written, writes), (&of_params, params), (&of_gradients, gradients)];
    for (regions, list) in outputs {
        for (region, values) in regions.iter().zip(list) {
            engine.download(region.offset.0, bytemuck::cast_slice_mut(values)).unwrap();
        }
    }
}

fn operations<B: Backend>(make: impl Fn() -> B, precision: Precision, tolerance: f32) {
    vectors::within(tolerance, &mut |call, operands| compute(&make, precision, call, operands));
}

#[test]
fn operations_on_the_emulator() {
    if emulator::is_there() {
        operations(Emulated::default, Precision::F32, 1e-4);
        operations(Emulated::default, Precision::Bf16, 1e-2);
    }
}

#[test]
fn operations_on_a_gpu() {
    let Some(gpu) = super::first_gpu() else { return };
    operations(|| Driver::open(&gpu).unwrap(), Precision::F32, 1e-4);
    operations(|| Driver::open(&gpu).unwrap(), Precision::Bf16, 1e-2);
}

/// Mean losses of all steps, begun with PyTorch's weights.
fn losses(golden: &Golden, plan: &Plan, make: &Make) -> Vec<f64> {
    let begin = |rank: &mut Rank<LocalTransport>, step: u64| {
        if let Some(weights) = plan.weights.as_ref().filter(|_| step == 0) {
            let source = weights::open(Path::new(weights), &golden.graph).unwrap();
            weights::load(rank, source.as_ref()).unwrap();
        }
    };
    let ranks = train_and(plan, Some(make), &begin);
    let step = |step: usize| ranks.iter().map(|(losses, _)| losses[step]).sum::<f64>();
    (0..plan.steps as usize).map(|number| step(number) / plan.mini_batch as f64).collect()
}

/// PyTorch's double precision is as near as where processors compute.
fn run_again(name: &str, make: &Make, steps: u64) {
    let golden = Golden::open(name);
    let mut plan = golden.plan(ScheduleKind::GPipe, 1, 4, 1);
    plan.steps = plan.steps.min(steps);
    let expected = &golden.expected.runs[&4].loss_f64;
    for (step, (found, expected)) in losses(&golden, &plan, make).iter().zip(expected).enumerate() {
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-4, "{name}, step {step}: {found} instead of {expected}");
    }
}

/// Ranks on one device, as so many stages and replicas, for so many steps.
fn shared(make: &Make, ways: &[(u32, u32)], steps: u64) {
    let golden = Golden::open("mlp4");
    let plan = |kind, stages, replicas| Plan { steps, ..golden.plan(kind, stages, 4, replicas) };
    let alone = losses(&golden, &plan(ScheduleKind::GPipe, 1, 1), make);
    let plan = |stages, replicas| plan(ScheduleKind::OneFOneB, stages, replicas);
    for (stages, replicas) in ways.iter().copied() {
        let found = losses(&golden, &plan(stages, replicas), make);
        for (step, (found, alone)) in found.iter().zip(&alone).enumerate() {
            let off = (found / alone - 1.0).abs();
            let what = format!("{stages} stages, {replicas} replicas, step {step}");
            assert!(off < 1e-5, "{what}: {found} instead of {alone}");
        }
    }
}

#[test]
fn runs_on_the_emulator() {
    if emulator::is_there() {
        run_again("mlp4", &emulated, 4);
        shared(&emulated, &[(4, 1), (2, 2)], 3);
    }
}

#[test]
fn runs_on_a_gpu() {
    let Some(gpu) = super::first_gpu() else { return };
    let make = on_gpu(gpu);
    NAMES.iter().for_each(|name| run_again(name, &make, u64::MAX));
}

#[test]
fn ranks_share_on_a_gpu() {
    let Some(gpu) = super::first_gpu() else { return };
    shared(&on_gpu(gpu), &[(2, 1), (4, 1), (1, 2), (1, 4), (2, 2)], 20);
}
