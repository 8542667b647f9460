//! Kernels allocate nothing: memory is planned, not discovered.
//!
//! `gemm` makes a packing buffer and a list of flags in every call; the allocator below knows both
//! by their layout and leaves them out. Threads are left out too: rayon's queue of jobs grows by
//! a block now and then, when the caller is not one of its threads.

use crate::case::{Case, Noise};
use crate::nodes;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::{Optimizer, Precision};
use pipewright_kernels::cpu::launch;
use pipewright_kernels::{Call, Operands, Parameter, Phase, Rule, Update};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Allocations of this thread, while it counts.
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn count(layout: Layout) {
    // Packing buffers are aligned to two cache lines; nothing of ours asks for that.
    if layout.align() < 128 {
        COUNT.set(COUNT.get().map(|n| n + 1));
    }
}

// SAFETY: all work is `System`'s; counting does not allocate (a `const` thread-local of a type
// without drop).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Flags: one byte per panel of rows. Tensors have words, hence a larger alignment.
        if layout.align() > 1 {
            count(layout);
        }
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout);
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    work();
    COUNT.take().unwrap_or(0)
}

fn cases() -> Vec<Case> {
    let target = TensorSpec { shape: vec![], dtype: DType::U32 };
    let loss = Op::SoftmaxCrossEntropy { label_smoothing: 0.0 };
    let loss = Case::new(loss, vec![TensorSpec::f32(vec![10]), target], 8);
    let cases =
        [nodes::every(nodes::SMALL), nodes::every(nodes::LARGE), nodes::in_tiles(), vec![loss]]
            .concat();
    cases.into_iter().filter(|case| !case.op.is_view()).collect()
}

#[test]
fn kernels_do_not_allocate() {
    let is_linear = |case: &Case| matches!(case.op, Op::Linear { .. });
    let eight = cases().into_iter().filter(is_linear).map(|case| (case, Precision::Fp8));
    let all = cases().into_iter().map(|case| (case, Precision::F32)).chain(eight);
    for (mut case, precision) in all {
        case.fill(3);
        let mut counts = vec![];
        let mut counted = |call: &Call, operands: Operands| {
            let call = Call { precision, ..*call };
            counts.push((call.kind, allocations(|| launch(&call, operands))));
        };
        // The first round may set up `gemm`'s thread-local buffer, and that of factors in eight bits.
        let forward = case.forward(&mut counted);
        let gradient = Noise(4).vec(forward.output.len());
        case.backward(&mut counted, &forward, &gradient);
        let first = counts.len();
        let mut counted = |call: &Call, operands: Operands| {
            let call = Call { precision, ..*call };
            counts.push((call.kind, allocations(|| launch(&call, operands))));
        };
        for phase in [Phase::Train, Phase::Recompute, Phase::Evaluate] {
            case.phase = phase;
            let forward = case.forward(&mut counted);
            case.backward(&mut counted, &forward, &gradient);
        }
        assert!(counts.len() > first);
        for (kind, count) in &counts[first..] {
            assert_eq!(*count, 0, "{kind:?} of {:?}", case.op);
        }
    }
}

#[test]
fn the_optimizer_does_not_allocate() {
    for text in ["sgd:momentum=0", "sgd:nesterov=true", "adamw", "lars"] {
        let optimizer: Optimizer = text.parse().expect(text);
        let rule = Rule::new(optimizer);
        let (mut weight, mut gradient) = (vec![1.0; 999], vec![2.0; 999]);
        let mut states = vec![vec![0.0; 999]; optimizer.state_tensors()];
        let mut state: Vec<&mut [f32]> = states.iter_mut().map(|s| &mut s[..]).collect();
        let update = Update { rate: 0.1, number: 1, scale: 0.5, threads: 1 };
        let (weight, gradient, state) = (&mut weight[..], &mut gradient[..], &mut state[..]);
        let parameter = Parameter { weight, gradient, state, axes: 2 };
        assert_eq!(allocations(|| rule.update(&update, parameter)), 0, "{text}");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1.0f32; 9]))), 1);
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0.0f32; 9]))), 1);
}
