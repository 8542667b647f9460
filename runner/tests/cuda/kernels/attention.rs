//! Attention on the matrix units: on the emulator, which has some of its own, beside the processor.

use super::like_the_processor::compare_within;
use super::memory::{on_blocks_of, run};
use crate::case::Case;
use crate::emulator;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::{Launch, Step, Storage};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Shared memory of a block of an H100's.
const H100: u32 = 227 << 10;

/// Queries, keys and values side by side: heads of queries, of keys, their width, positions.
fn together(heads: u64, kv_heads: u64, width: u64, positions: u64, causal: bool) -> Case {
    let op = Op::Attention { heads, kv_heads, causal };
    let wide = (heads + 2 * kv_heads) * width;
    Case::new(op, vec![TensorSpec::f32(vec![positions, wide])], 2)
}

/// Separate: queries, keys, their width and that of values.
fn separate([n, s, d, e]: [u64; 4], causal: bool) -> Case {
    let op = Op::ScaledDotProduct { scale: 0.2, causal };
    let shapes = [vec![2, n, d], vec![2, s, d], vec![2, s, e]];
    Case::new(op, shapes.map(TensorSpec::f32).into(), 2)
}

/// How far numbers may be off, of a tensor's largest: TF32 has the bits of an IEEE half.
fn tolerance(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => 2e-5,
        Precision::Bf16 | Precision::Fp8 => 2e-2,
        Precision::F16 | Precision::Tf32 => 3e-3,
    }
}

/// Names of the kernels that a case was computed by, which give the processor's numbers.
fn kernels(precision: Precision, case: Case, seed: u64, most_shared: u32) -> Vec<String> {
    let storage = Storage::from(precision);
    let names = RefCell::new(vec![]);
    let see = |step: &Step| {
        if let Step::Kernel(launch) = step {
            assert!(launch.shared <= most_shared);
            if launch.kernel.starts_with("attention_matrix") {
                names.borrow_mut().push(launch.kernel.clone());
            }
        }
        run(step, storage);
    };
    let run = &mut |call: &Call, operands: Operands| {
        on_blocks_of(most_shared, storage, &Call { precision, ..*call }, operands, &see);
    };
    compare_within(tolerance(precision), storage, case, seed, run);
    names.into_inner()
}

/// Every width, all of a tile and none of it, rows past the last one of a warp, of a block, of a tile; heads
/// that share keys; keys that nobody sees.
#[test]
fn on_matrix_units() {
    if !emulator::is_there() {
        return;
    }
    let cases = [
        (32, together(3, 3, 32, 70, true)),
        (32, separate([17, 130, 24, 32], false)),
        (64, together(2, 1, 64, 150, true)),
        (64, together(1, 1, 40, 129, false)),
        (64, separate([200, 60, 64, 48], true)),
        (64, separate([60, 200, 64, 64], true)),
        (128, together(4, 2, 128, 70, true)),
        (128, separate([65, 33, 72, 128], false)),
        (256, together(1, 1, 256, 70, true)),
        (256, separate([33, 70, 136, 256], false)),
        (256, separate([33, 70, 256, 120], true)),
    ];
    for (seed, (wide, case)) in (1..).zip(cases) {
        for precision in [Precision::Bf16, Precision::F16, Precision::Tf32] {
            let names = kernels(precision, case.clone(), seed, H100);
            if precision == Precision::Tf32 && wide == 256 {
                assert_eq!(names, Vec::<String>::new());
                continue;
            }
            for kernel in ["", "queries_", "keys_"] {
                let name = format!(
                    "attention_matrix_{kernel}{wide}_{}",
                    Storage::from(precision).suffix()
                );
                assert!(names.contains(&name), "{name} of {names:?}");
            }
        }
    }
}

/// What they do not take: all bits of single precision, widths of odd bytes, and tiles that a block has no room for.
#[test]
fn elsewhere_on_plain_cores() {
    if !emulator::is_there() {
        return;
    }
    for (precision, case, most_shared) in [
        (Precision::F32, together(2, 2, 64, 40, true), H100),
        (Precision::Bf16, together(2, 2, 20, 40, true), H100),
        (Precision::F16, together(1, 1, 256, 40, true), 99 << 10),
    ] {
        assert_eq!(kernels(precision, case, 3, most_shared), Vec::<String>::new());
    }
}

/// A kernel that uses more shared memory than its launch asks for: the emulator says so, which a GPU may not.
#[test]
fn shared_memory_that_nobody_asked_for() {
    if !emulator::is_there() {
        return;
    }
    let mut case = together(1, 1, 64, 70, true);
    case.fill(2);
    let too_little = |step: &Step| {
        let Step::Kernel(launch) = step else { unreachable!("attention is kernels") };
        emulator::run(&Launch { shared: launch.shared - 256, ..launch.clone() });
    };
    let forward = || {
        case.clone().forward(&mut |call: &Call, operands: Operands| {
            on_blocks_of(H100, Storage::Bf16, call, operands, &too_little);
        })
    };
    let said = catch_unwind(AssertUnwindSafe(forward)).expect_err("it is noticed");
    let said = said.downcast_ref::<String>().expect("a sentence");
    assert!(said.ends_with("wrote behind the shared memory that it asked for"), "{said}");
}
