//! Products as cuBLASLt is asked for them, answered by `cublaslt.cpp` as its manual says, so that a description or an
//! argument in the wrong place shows without a GPU.

use super::like_the_processor::compare_by;
use super::memory::{Tensor, on_the_emulator_by, run};
use crate::case::{Case, Noise};
use crate::common::own_process;
use crate::emulator;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::DeviceError;
use pipewright_runner::device::cuda::cache::Cache;
use pipewright_runner::device::cuda::kernels::{Step, Storage};
use pipewright_runner::device::cuda::{Choices, Products, Stopwatch};
use std::cell::RefCell;
use std::sync::OnceLock;

/// Loads it for as long as the process lives: by its name it is found from then on.
fn load() -> &'static libloading::os::unix::Library {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        let text = include_str!("cublaslt.cpp");
        let path = emulator::build("cublaslt", text, &["-Wl,-soname,libcublasLt.so"]);
        // SAFETY: nothing runs when it is loaded.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.expect("the library loads")
    })
}

/// The number of the algorithm that was used last.
fn last() -> u64 {
    // SAFETY: the stand-in has it, and it takes nothing.
    unsafe {
        let last =
            load().get::<unsafe extern "C" fn() -> u64>(b"cublasLtLast").expect("it is there");
        last()
    }
}

/// The library, with a workspace.
struct Multiplies {
    products: Products,
    _workspace: Tensor,
}

fn library() -> Multiplies {
    load();
    let mut workspace = Tensor::new(256);
    let mut products = Products::new("a test").unwrap();
    products.workspace = workspace.at();
    Multiplies { products, _workspace: workspace }
}

/// A step by the library; the number of the algorithm, of a product that it took.
fn perform(library: &RefCell<Multiplies>, step: &Step, storage: Storage) -> Option<u64> {
    if let Step::Product(product) = step {
        let products = &mut library.borrow_mut().products;
        if products.multiply(product, storage, std::ptr::null_mut()).unwrap() {
            return Some(last());
        }
    }
    run(step, storage);
    None
}

/// Rows and columns of whole accesses and of one element more, weights transposed and not, with biases and without,
/// batches of two axes.
fn products() -> Vec<Case> {
    let linear = |inputs: u64, out_features, bias| {
        Case::new(Op::Linear { out_features, bias }, vec![TensorSpec::f32(vec![5, inputs])], 3)
    };
    let matmul = |a: &[u64], b: &[u64], transpose_b| {
        let specs = vec![TensorSpec::f32(a.to_vec()), TensorSpec::f32(b.to_vec())];
        Case::new(Op::MatMul { transpose_b }, specs, 2)
    };
    vec![
        linear(16, 24, true),
        linear(16, 24, false),
        linear(7, 9, true),
        linear(1, 9, true),
        linear(9, 1, true),
        matmul(&[3, 5, 8], &[3, 8, 6], false),
        matmul(&[3, 5, 8], &[3, 6, 8], true),
        matmul(&[2, 3, 5, 4], &[2, 3, 4, 7], false),
    ]
}

#[test]
fn every_pass_by_the_library() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    for storage in [Storage::F32, Storage::Bf16] {
        let (library, mut count) = (RefCell::new(library()), 0);
        for (seed, case) in (1..).zip(products()) {
            let run = &mut |call: &Call, operands: Operands| {
                let taken = RefCell::new(0);
                on_the_emulator_by(storage, call, operands, &|step| {
                    let number = perform(&library, step, storage);
                    assert!(number.is_none_or(|number| number == 7), "the first that is expected");
                    *taken.borrow_mut() += u32::from(number.is_some());
                });
                count += taken.into_inner();
            };
            compare_by(storage, case, seed, run);
        }
        assert!(count >= 3 * 8, "{count} products by the library");
    }
}

/// A device on which the library's last algorithm is quicker than it expects.
struct LastIsQuicker;

impl Stopwatch for LastIsQuicker {
    fn time(
        &mut self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<u64, DeviceError> {
        work()?;
        Ok(if last() == 9 { 50 } else { 100 })
    }
}

/// What was measured in a rehearsal is taken from then on, and by the next run; what is refused is not.
#[test]
fn the_quickest_by_its_time() {
    if !emulator::is_there() || !own_process::is_own([]) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("measured-products-{}", std::process::id()));
    let storage = Storage::Bf16;
    let begun = || {
        let choices = Choices::new("a".into(), Cache::at(&folder), Box::new(LastIsQuicker));
        let mut library = library();
        library.products.choose_by(choices);
        RefCell::new(library)
    };
    let library = begun();
    let rehearse = &mut |call: &Call, operands: Operands| {
        on_the_emulator_by(storage, call, operands, &|step| {
            perform(&library, step, storage);
        });
    };
    for (seed, mut case) in (1..).zip(products()) {
        case.fill(seed);
        let forward = case.forward(rehearse);
        let gradient = Noise(seed).vec(forward.output.len());
        case.backward(rehearse, &forward, &gradient);
    }
    let told = library.borrow_mut().products.choices().unwrap().told().concat();
    assert!(told.contains("bf16: 3 of 3, 0.1 us, the first 0.1 us"), "{told}");
    for library in [library, begun()] {
        library.borrow_mut().products.choices().unwrap().end();
        for (seed, case) in (1..).zip(products()) {
            let run = &mut |call: &Call, operands: Operands| {
                on_the_emulator_by(storage, call, operands, &|step| {
                    let number = perform(&library, step, storage);
                    assert!(number.is_none_or(|number| number == 9), "{step:?}");
                });
            };
            compare_by(storage, case, seed, run);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
