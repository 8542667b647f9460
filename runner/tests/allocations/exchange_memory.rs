//! From the third step on, sums of encoded gradients allocate nothing, on any thread.

use crate::allocator::of_all;
use crate::common::own_process;
use pipewright_core::compress::{Algorithm, CodecKind, Method, Reduction, Rounding, Scale};
use pipewright_runner::exchange::{BucketSpec, Exchange};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local_on_hosts};
use std::sync::Barrier;

const LEN: usize = 300_000;

const REDUCTIONS: usize = 6;

fn reductions() -> Vec<Reduction> {
    let fp8 = CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo };
    let one_bit = CodecKind::OneBit { threshold: Default::default() };
    let top_k = CodecKind::TopK { one_in: 100, momentum: None };
    let table = CodecKind::Table { bits: 4 };
    let method = Method { codec: fp8, feedback: true };
    let operator = Reduction { method, algorithm: Algorithm::Operator };
    let two_shot = [fp8, one_bit, table, top_k].map(|c| Reduction::of(c).with_feedback());
    let all: Vec<_> = two_shot.into_iter().chain([operator, Reduction::default()]).collect();
    assert_eq!(all.len(), REDUCTIONS);
    all
}

/// Two buckets at a time, by each reduction.
fn step(exchange: &mut Exchange, values: &mut [Vec<f32>; 2]) {
    for reduction in 0..REDUCTIONS {
        for (bucket, values) in values.iter_mut().enumerate() {
            // SAFETY: waited for in the next lines.
            unsafe { exchange.start(bucket, reduction, values) }.unwrap();
        }
        (0..2).for_each(|bucket| exchange.wait(bucket).unwrap());
    }
}

fn rank(t: &mut LocalTransport, hierarchical: bool, all: &Barrier) -> u64 {
    let group = (0..t.ranks()).collect();
    let tensors = vec![0..LEN / 3, LEN / 3..LEN];
    let spec = BucketSpec { group, tensors, len: LEN, reductions: reductions() };
    let mut exchange = Exchange::new(t, &[spec.clone(), spec], hierarchical).unwrap();
    let mut values = [0, 1].map(|bucket: u32| {
        (0..LEN).map(|at| ((at * 7919) % 1000) as f32 * 1e-9 + (t.rank() + bucket) as f32).collect()
    });
    (0..2).for_each(|_| step(&mut exchange, &mut values));
    all.wait();
    let before = of_all::count();
    all.wait();
    (0..3).for_each(|_| step(&mut exchange, &mut values));
    all.wait();
    let allocated = of_all::count() - before;
    all.wait();
    allocated
}

#[test]
fn sums_allocate_nothing() {
    if !own_process::is_own([]) {
        return;
    }
    for (hosts, hierarchical) in [([0, 0, 1, 1], true), ([0, 0, 0, 0], false)] {
        let all = Barrier::new(hosts.len());
        std::thread::scope(|scope| {
            let ranks: Vec<_> = local_on_hosts(&hosts, 1)
                .into_iter()
                .map(|mut t| {
                    let all = &all;
                    scope.spawn(move || rank(&mut t, hierarchical, all))
                })
                .collect();
            for rank in ranks {
                assert_eq!(rank.join().unwrap(), 0, "hierarchical: {hierarchical}");
            }
        });
    }
}
