//! Activations in two bytes: kernels take them as they lie, and parameters from copies in two bytes. Products
//! that may round to TF32.

use super::{Emulated, Make, Trained, emulated, emulator, train, train_and};
use crate::common::{draft, draft_of, networks};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{
    DataParallel, DataParallelMode, Draft, Plan, Precision, Program, Region,
};
use pipewright_core::schedule::ScheduleKind;
use pipewright_kernels::{Call, Rule, Update};
use pipewright_runner::data::SampleBuffer;
use pipewright_runner::device::cuda::Engine;
use pipewright_runner::device::{Accelerator, Coder, DeviceError, ParameterPlaces, Places};
use pipewright_runner::execute::{InjectedFault, ProgressHook, Rank, StepPhase};
use pipewright_runner::transport::local::LocalTransport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device whose copies of parameters are made again before every computation: it takes them for written
/// by the host.
struct Distrustful(Box<dyn Accelerator>);

impl Accelerator for Distrustful {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.upload(offset, bytes)
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.0.download(offset, bytes)
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        for region in places.params {
            let mut bytes = vec![0; region.bytes.0 as usize];
            self.0.download(region.offset.0, &mut bytes)?;
            self.0.upload(region.offset.0, &bytes)?;
        }
        self.0.launch(call, places)
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        precision: Precision,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        self.0.update(rule, update, precision, parameters)
    }

    fn copy(&mut self, from: Region, into: Region) -> Result<(), DeviceError> {
        self.0.copy(from, into)
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.0.zero(region)
    }

    fn moment(&mut self) -> Result<(), DeviceError> {
        self.0.moment()
    }

    fn ages(&mut self, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.0.ages(ages)
    }

    fn keep(&mut self, region: Region, at: u64) -> Result<(), DeviceError> {
        self.0.keep(region, at)
    }

    fn kept(&mut self, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.0.kept(bytes)
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DeviceError> {
        self.0.stage(place, bytes, fill)
    }

    fn take(&mut self, place: usize, into: Region) -> Result<(), DeviceError> {
        self.0.take(place, into)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn end_batch(&mut self) -> Result<(), DeviceError> {
        self.0.end_batch()
    }

    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError> {
        self.0.squares(regions, sums)
    }

    fn save(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.0.save(regions)
    }

    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.0.restore(regions)
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.0.mark(number)
    }

    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        self.0.coder()
    }
}

/// The step in which a gradient is not finite.
const BAD: u64 = 1;

/// The step before which the host writes parameters.
const SET: u64 = 3;

/// Makes a gradient no number in one step.
struct Bad;

impl ProgressHook for Bad {
    fn at(&self, place: StepPhase, step: u64) -> Option<InjectedFault> {
        (place == StepPhase::Forward && step == BAD).then_some(InjectedFault::NotFinite)
    }
}

/// What happens to a rank before a step: once a gradient is not finite, and once the host writes all
/// parameters, as when a checkpoint is loaded.
fn meddle(rank: &mut Rank<LocalTransport>, step: u64) {
    rank.progress_hook = Some(&Bad);
    if step == SET {
        for tensor in rank.persistent_state().iter().filter(|tensor| tensor.begins_as.is_some()) {
            rank.values_mut(tensor).iter_mut().for_each(|value| *value *= 0.875);
        }
    }
}

fn distrustful(program: &Program) -> Box<dyn Accelerator> {
    Box::new(Distrustful(emulated(program)))
}

/// The copies that updates write, and those that are made when somebody else has written a parameter, are
/// what the parameters round to at any time.
#[track_caller]
fn copies_are_right(what: &str, plan: &Plan) {
    let trained = |make: &Make| -> Trained { train_and(plan, Some(make), &meddle) };
    let (once, always) = (trained(&emulated), trained(&distrustful));
    for ((losses, persistent_state), (expected, of_expected)) in once.iter().zip(&always) {
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(losses), bits(expected), "{what}");
        for ((name, values), (_, expected)) in persistent_state.iter().zip(of_expected) {
            // Of what is no number the sign says nothing.
            let differ =
                |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
            let other = values.iter().zip(expected).find(differ);
            assert_eq!(other, None, "{what}: `{name}`");
        }
    }
}

const HALF: [Precision; 2] = [Precision::Bf16, Precision::F16];

fn with(precision: Precision, mut draft: Draft) -> Draft {
    (draft.mini_batch, draft.steps) = (8, 4);
    draft.training.precision = precision;
    draft
}

fn small(stages: u32) -> Draft {
    let network = "transformer:layers=2,hidden=16,heads=2,sequence=6,vocabulary=24";
    draft(network.parse().unwrap(), stages)
}

#[test]
fn copies_in_every_schedule() {
    if !emulator::is_there() {
        return;
    }
    let mut versions = 0;
    for kind in ScheduleKind::ALL {
        if kind.generate(2, 4).is_err() {
            continue;
        }
        let mut draft = with(Precision::Bf16, small(kind.placement().stages(2)));
        (draft.schedule, draft.micro_batches) = (kind, 4);
        let asynchronous = matches!(kind, ScheduleKind::PipeDream | ScheduleKind::PipeDream2Bw);
        versions += u32::from(asynchronous);
        draft.training.skip_nonfinite = (!asynchronous).then_some(3);
        copies_are_right(&kind.to_string(), &draft.plan().unwrap().0);
    }
    assert_eq!(versions, 2, "schedules that keep several versions of the parameters");
    for kind in [ScheduleKind::PipeDream, ScheduleKind::PipeDream2Bw] {
        let mut draft = with(Precision::Bf16, draft(Preset::DigitsCnn, 2));
        (draft.schedule, draft.micro_batches) = (kind, 4);
        copies_are_right(&format!("digits-cnn, {kind}"), &draft.plan().unwrap().0);
    }
}

/// Tables that two stages share, statistics, every optimizer, replicas that are handed their parameters.
#[test]
fn copies_in_every_network() {
    if !emulator::is_there() {
        return;
    }
    let optimizers = ["sgd:lr=0.002,momentum=0.9", "adamw:lr=0.001", "lars:lr=0.1"];
    for (graph, optimizer) in (0..networks::all().len()).zip(optimizers.into_iter().cycle()) {
        let first = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
        for (stages, precision, data_parallel) in
            [(3, Precision::F16, DataParallel::ddp(1)), (1, Precision::Bf16, first)]
        {
            let network = networks::all().swap_remove(graph);
            let mut draft = with(precision, draft_of(network, stages));
            (draft.micro_batches, draft.data_parallel) = (2, data_parallel);
            draft.optimizer = optimizer.parse().unwrap();
            draft.training.skip_nonfinite = Some(3);
            let what = format!("network {graph}, {stages} stages, {optimizer}");
            copies_are_right(&what, &draft.plan().unwrap().0);
        }
    }
}

/// Where all that kernels take lies in two bytes, nothing is converted: only each parameter once, and samples,
/// which are what a file of samples has.
#[test]
fn conversions() {
    if !emulator::is_there() {
        return;
    }
    // Tokens are no numbers; the first convolution and its gradient read the image of a micro-batch.
    let digits = draft(Preset::DigitsCnn, 2);
    let networks = [("transformer", small(2), 0), ("cnn", digits, 2)];
    let cases = networks.iter().flat_map(|network| HALF.map(|precision| (network, precision)));
    for ((name, draft, of_samples), precision) in cases {
        let mut draft = with(precision, draft.clone());
        draft.micro_batches = 2;
        let plan = draft.plan().unwrap().0;
        let converted = Arc::new(AtomicU64::new(0));
        train(
            &plan,
            Some(&|program| {
                let mut backend = Emulated::default();
                backend.converted = converted.clone();
                Box::new(Engine::new(backend, program.tensors(), "a rank").unwrap())
            }),
        );
        let graph = plan.model.graph().unwrap();
        let trained = graph.params().iter().filter(|param| param.trainable).count() as u64;
        let of_samples = *of_samples * u64::from(plan.micro_batches) * plan.steps;
        assert_eq!(
            converted.load(Ordering::Relaxed),
            trained + of_samples,
            "{name} in {precision:?}"
        );
    }
}

/// Losses of some steps in every kind of schedule, beside the processor's, which multiplies with parameters
/// that are not rounded.
#[test]
fn schedules_in_half_like_the_processor() {
    if !emulator::is_there() {
        return;
    }
    let plain = [ScheduleKind::OneFOneB, ScheduleKind::GPipe, ScheduleKind::ZbH1];
    let plain = plain.into_iter().flat_map(|kind| HALF.map(|precision| (kind, precision, 5e-3)));
    // Four updates a step, each by two samples: what is rounded grows as fast as in twelve steps. That it is
    // rounding alone is seen in single precision.
    let often = [(Precision::F32, 1e-4), (Precision::Bf16, 2e-2)];
    let often = often.map(|(precision, most)| (ScheduleKind::PipeDream, precision, most));
    for (kind, precision, far_at_most) in plain.chain(often) {
        for draft in [small(2), draft(Preset::DigitsCnn, 2)] {
            let mut draft = with(precision, draft);
            (draft.schedule, draft.micro_batches, draft.steps) = (kind, 4, 3);
            draft.optimizer = "sgd:lr=0.0002,momentum=0.9".parse().unwrap();
            let plan = draft.plan().unwrap().0;
            let what = format!("{}, {kind}, {precision:?}", plan.model.graph().unwrap().name());
            let (here, there) = (train(&plan, None), train(&plan, Some(&emulated)));
            for ((losses, _), (found, _)) in here.iter().zip(&there) {
                for (step, (loss, found)) in losses.iter().zip(found).enumerate() {
                    let far = (loss - found).abs() / loss.abs().max(1e-3);
                    assert!(far < far_at_most, "{what}, step {step}: {found} is not {loss}");
                }
            }
        }
    }
}

/// TF32 is asked for where the plan says it, for products and, where there are matrix units, attention alone: the
/// emulator's products, which do not round, give what they give in f32.
#[test]
fn products_alone_may_round_to_tf32() {
    if !emulator::is_there() {
        return;
    }
    let trained = |precision: Precision| {
        let mut draft = with(precision, small(2));
        (draft.micro_batches, draft.steps) = (2, 2);
        let rounded = Arc::new(AtomicU64::new(0));
        let trained = train(
            &draft.plan().unwrap().0,
            Some(&|program| {
                let mut backend = Emulated::default();
                (backend.rounded, backend.plain) = (rounded.clone(), true);
                Box::new(Engine::new(backend, program.tensors(), "a rank").unwrap())
            }),
        );
        (trained, rounded.load(Ordering::Relaxed))
    };
    let [f32, tf32, bf16] = [Precision::F32, Precision::Tf32, Precision::Bf16].map(trained);
    assert_eq!(tf32.0, f32.0);
    assert!(tf32.1 > 0, "products are asked for");
    assert_eq!((f32.1, bf16.1), (0, 0));
}
