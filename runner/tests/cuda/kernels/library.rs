//! Convolutions as cuDNN is asked for them. Its calls are answered by `cudnn.cpp`, which computes what the
//! library's manual says, so that a descriptor or an argument in the wrong place shows without a GPU. A
//! process has one library of that name: these tests have one of their own.

use super::layers::convolutions;
use super::like_the_processor::compare_by;
use super::memory::{Tensor, on_the_emulator_by, run};
use crate::case::Noise;
use crate::common::own_process;
use crate::emulator;
use pipewright_core::units::Bytes;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::DeviceError;
use pipewright_runner::device::cuda::cache::Cache;
use pipewright_runner::device::cuda::kernels::{
    ConvolutionPass, ConvolutionStep, ImageOrder, Images, Step, Storage, reorder,
};
use pipewright_runner::device::cuda::{Choices, Convolutions, Stopwatch};
use std::cell::RefCell;
use std::sync::OnceLock;

/// Loads it for as long as the process lives: by its name it is found from then on.
fn load() -> &'static libloading::os::unix::Library {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        let text = include_str!("cudnn.cpp");
        let path = emulator::build("cudnn", text, &["-Wl,-soname,libcudnn.so"]);
        // SAFETY: nothing runs when it is loaded.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.expect("the library loads")
    })
}

/// The number of the algorithm that was used last.
fn last() -> i32 {
    // SAFETY: the stand-in has it, and it takes nothing.
    unsafe {
        let last = load().get::<unsafe extern "C" fn() -> i32>(b"cudnnLast").expect("it is there");
        last()
    }
}

type Perform = fn(&RefCell<Convolutions>, &Step, Storage);

/// A step by the library, but for those that are left to our own kernels.
fn perform(library: &RefCell<Convolutions>, step: &Step, storage: Storage) {
    let mut library = library.borrow_mut();
    match step {
        Step::Convolution(step) if !step.shape.is_depthwise() || storage != Storage::F32 => {
            let bytes = library.workspace(step, storage).unwrap().expect("it has this one");
            let mut workspace = Tensor::new(bytes as usize);
            let rest = library.convolve(step, storage, workspace.at()).unwrap();
            rest.expect("it has this one").iter().for_each(emulator::run);
            workspace.bytes();
        }
        step => {
            if let Step::Convolution(step) = step {
                assert_eq!(library.workspace(step, storage), Ok(None));
            }
            run(step, storage);
        }
    }
}

/// The same of images whose channels lie innermost: the step's tensors are copied so and back.
fn perform_last(library: &RefCell<Convolutions>, step: &Step, storage: Storage) {
    let step = match step {
        Step::Convolution(step) if !step.shape.is_depthwise() || storage != Storage::F32 => step,
        step => return run(step, storage),
    };
    let (ConvolutionStep { x, weight, y, pass, .. }, shape) = (*step, step.shape);
    let [of_x, of_y] = shape.images();
    let copy = |images: Images, from| {
        let mut copy = Tensor::new((images.elements() * storage.bytes()) as usize);
        emulator::run(&reorder(storage, images, ImageOrder::ChannelsLast, [from, copy.at()]));
        copy
    };
    let (mut last_x, mut last_y) = (copy(of_x, x), copy(of_y, y));
    let is_gradient = pass == ConvolutionPass::WeightGradient;
    let mut last_weight = (!is_gradient).then(|| copy(shape.windows(), weight));
    let last = ConvolutionStep {
        x: last_x.at(),
        weight: last_weight.as_mut().map_or(weight, Tensor::at),
        y: last_y.at(),
        channels_last: true,
        ..*step
    };
    let mut library = library.borrow_mut();
    let bytes = library.workspace(&last, storage).unwrap().expect("it has this one");
    let mut workspace = Tensor::new(bytes as usize);
    let rest = library.convolve(&last, storage, workspace.at()).unwrap();
    rest.expect("it has this one").iter().for_each(emulator::run);
    workspace.bytes();
    let back = |images, copy: &mut Tensor, to| {
        copy.bytes();
        emulator::run(&reorder(storage, images, ImageOrder::ChannelsFirst, [copy.at(), to]));
    };
    match pass {
        ConvolutionPass::Forward => back(of_y, &mut last_y, y),
        ConvolutionPass::InputGradient => back(of_x, &mut last_x, x),
        ConvolutionPass::WeightGradient => {}
    }
}

fn library() -> RefCell<Convolutions> {
    load();
    RefCell::new(Convolutions::new("a test", Bytes(1 << 30), std::ptr::null_mut()))
}

#[test]
fn every_pass_by_the_library() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    let ways: [(Perform, Storage); 4] = [
        (perform, Storage::F32),
        (perform, Storage::Bf16),
        (perform_last, Storage::F32),
        (perform_last, Storage::Bf16),
    ];
    for (by, storage) in ways {
        let library = library();
        for (seed, case) in (1..).zip(convolutions()) {
            let run = &mut |call: &Call, operands: Operands| {
                let perform = |step: &Step| by(&library, step, storage);
                on_the_emulator_by(storage, call, operands, &perform);
            };
            compare_by(storage, case, seed, run);
        }
    }
}

/// The second backward pass adds to what the first one left, by the library and by our own kernels.
#[test]
fn gradients_are_added_to() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    let library = library();
    let own: Perform = |_, step, storage| run(step, storage);
    let all: [(Perform, Storage); 5] = [
        (own, Storage::F32),
        (perform, Storage::F32),
        (perform, Storage::Bf16),
        (perform_last, Storage::F32),
        (perform_last, Storage::Bf16),
    ];
    for (by, storage) in all {
        for (seed, mut case) in (1..).zip(convolutions()) {
            case.fill(seed);
            let run = &mut |call: &Call, operands: Operands| {
                let perform = |step: &Step| by(&library, step, storage);
                on_the_emulator_by(storage, call, operands, &perform);
            };
            let forward = case.forward(run);
            let gradient = Noise(seed).vec(forward.output.len());
            let once = case.backward(run, &forward, &gradient);
            let mut twice = once.clone();
            case.backward_into(run, &forward, &gradient, &mut twice);
            for (once, twice) in once.params.iter().zip(&twice.params) {
                let largest = once.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                assert!(largest > 0.0, "{:?} has a gradient", case.op);
                let far = once.iter().zip(twice).map(|(x, y)| (2.0 * x - y).abs());
                assert!(far.fold(0.0, f32::max) < 1e-6 * largest, "{:?}, {storage:?}", case.op);
            }
        }
    }
}

/// A device on which the second algorithm is quicker than the library expects.
struct SecondIsQuicker;

impl Stopwatch for SecondIsQuicker {
    fn time(
        &mut self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<u64, DeviceError> {
        work()?;
        Ok(if last() == 2 { 50 } else { 100 })
    }
}

/// What was measured in a rehearsal is taken from then on, with its own math type and workspace, and by the next run.
#[test]
fn the_quickest_by_its_time() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("measured-ways-{}", std::process::id()));
    let begun = || {
        let (who, watch) = ("a stand-in".into(), Box::new(SecondIsQuicker));
        let choices = Choices::new(who, Cache::at(&folder), watch);
        let library = library();
        library.borrow_mut().choose_by(choices);
        library
    };
    for (by, storage) in [(perform as Perform, Storage::F32), (perform_last, Storage::Bf16)] {
        let library = begun();
        let rehearse = &mut |call: &Call, operands: Operands| {
            on_the_emulator_by(storage, call, operands, &|step| by(&library, step, storage));
        };
        for (seed, mut case) in (1..).zip(convolutions()) {
            case.fill(seed);
            let forward = case.forward(rehearse);
            let gradient = Noise(seed).vec(forward.output.len());
            case.backward(rehearse, &forward, &gradient);
        }
        assert!(!library.borrow_mut().choices().unwrap().told().is_empty());
        let next = begun();
        for library in [library, next] {
            library.borrow_mut().choices().unwrap().end();
            for (seed, case) in (1..).zip(convolutions()) {
                let run = &mut |call: &Call, operands: Operands| {
                    let perform = |step: &Step| {
                        by(&library, step, storage);
                        if let Step::Convolution(step) = step
                            && !step.shape.is_depthwise()
                        {
                            assert_eq!(last(), 2, "{step:?}");
                        }
                    };
                    on_the_emulator_by(storage, call, operands, &perform);
                };
                compare_by(storage, case, seed, run);
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
