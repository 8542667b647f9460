//! Convolutions as cuDNN is asked for them. Its calls are answered by `cudnn.cpp`, which computes what the
//! library's manual says, so that a descriptor or an argument in the wrong place shows without a GPU.

use crate::emulator;
use crate::layers::convolutions;
use crate::like_the_processor::compare_by;
use crate::memory::{Tensor, on_the_emulator_by, run};
use pipewright_core::units::Bytes;
use pipewright_runner::device::cpu::{Call, Operands};
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

#[test]
fn every_pass_by_the_library() {
    if !emulator::is_there() {
        return;
    }
    load();
    for storage in [Storage::F32, Storage::Bf16] {
        let library =
            RefCell::new(Convolutions::new("a test", Bytes(1 << 30), std::ptr::null_mut()));
        let perform = |step: &Step| match step {
            // Others are left to our own kernels.
            Step::Convolution(step) if !step.shape.is_depthwise() || storage != Storage::F32 => {
                let mut library = library.borrow_mut();
                let bytes = library.workspace(step, storage).unwrap().expect("it has this one");
                let mut workspace = Tensor::new(bytes as usize);
                let rest = library.convolve(step, storage, workspace.at()).unwrap();
                rest.expect("it has this one").iter().for_each(emulator::run);
                workspace.bytes();
            }
            step => {
                if let Step::Convolution(step) = step {
                    assert_eq!(library.borrow_mut().workspace(step, storage), Ok(None));
                }
                run(step, storage);
            }
        };
        for (seed, case) in (1..).zip(convolutions()) {
            let run = &mut |call: &Call, operands: Operands| {
                on_the_emulator_by(storage, call, operands, &perform);
            };
            compare_by(storage, case, seed, run);
        }
    }
}
