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
use pipewright_runner::device::cuda::Convolutions;
use pipewright_runner::device::cuda::kernels::{Step, Storage};
use std::cell::RefCell;
use std::sync::OnceLock;

/// Loads it for as long as the process lives: by its name it is found from then on.
fn load() {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        let text = include_str!("cudnn.cpp");
        let path = emulator::build("cudnn", text, &["-Wl,-soname,libcudnn.so"]);
        // SAFETY: nothing runs when it is loaded.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.expect("the library loads")
    });
}

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

fn library() -> RefCell<Convolutions> {
    load();
    RefCell::new(Convolutions::new("a test", Bytes(1 << 30), std::ptr::null_mut()))
}

#[test]
fn every_pass_by_the_library() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    for storage in [Storage::F32, Storage::Bf16] {
        let library = library();
        for (seed, case) in (1..).zip(convolutions()) {
            let run = &mut |call: &Call, operands: Operands| {
                let perform = |step: &Step| perform(&library, step, storage);
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
    for (own, storage) in [(true, Storage::F32), (false, Storage::F32), (false, Storage::Bf16)] {
        for (seed, mut case) in (1..).zip(convolutions()) {
            case.fill(seed);
            let run = &mut |call: &Call, operands: Operands| {
                let perform = |step: &Step| match own {
                    true => run(step, storage),
                    false => perform(&library, step, storage),
                };
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
