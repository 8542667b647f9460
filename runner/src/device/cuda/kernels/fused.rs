//! Kernels of fused groups.
//!
//! | chain | kernels |
//! |---|---|
//! | norm of channels, then add, relu | the norm's, its value's tail being the rest |
//! | sums and masks, then the norm's gradient | the gradient's sums make what came on the way and leave it for the second pass; gradients of weights follow from the same sums |
//! | add, then norm of rows | the norm's, which adds and stores first |
//! | gradient of rows, then sum | the gradient's with a tail; gradients of weights before it |
//! | sum, gradient of a pooling, then relu or mask | the first one's with a tail |

use super::channels::{self, Incoming};
use super::{Buffers, DevicePtr, Plan, Storage, Tail, Then, elementwise, rows, steps};
use crate::device::FusedKind;
use pipewright_core::plan::Precision;
use pipewright_kernels::Call;
use smallvec::SmallVec;

/// A computation of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Computed<'a> {
    /// The computation.
    pub call: &'a Call<'a>,
    /// Where its tensors are.
    pub buffers: Buffers<'a>,
    /// Whether its value is to be written there.
    pub stored: bool,
}

impl Computed<'_> {
    fn value(&self) -> DevicePtr {
        self.buffers.writes.first().copied().unwrap_or_default()
    }

    /// Where its value is to be, if it is to be anywhere.
    fn own(&self) -> DevicePtr {
        if self.stored { self.value() } else { DevicePtr::NULL }
    }
}

/// What a chain becomes; with addresses of nothing it still says how much scratch is needed.
///
/// # Panics
/// On what is no chain.
pub fn fused(chain: &[Computed], storage: Storage) -> Plan {
    let first = &chain[0];
    let tf32 = first.call.precision == Precision::Tf32;
    let mut plan = Plan::new(storage, tf32, &first.buffers);
    let part = |link: &Computed| {
        FusedKind::of_call(link.call, link.buffers.reads.len()).expect("a chain's computation")
    };
    let parts: SmallVec<[FusedKind; 4]> = chain.iter().map(part).collect();
    match (&parts[..], chain) {
        ([FusedKind::NormChannels, ..], [_, rest @ ..]) => {
            let (tail, out) = tail(first, &parts[1..], rest);
            let writes = [out, first.buffers.writes[1]];
            let buffers = Buffers { writes: &writes, ..first.buffers };
            channels::batch_norm(first.call, &buffers, tail, &mut plan);
        }
        ([FusedKind::Add, FusedKind::NormRows], [_, norm]) => {
            let [a, b] = *first.buffers.reads else { unreachable!("two tensors are added") };
            rows::norm(norm.call, &norm.buffers, [a, b], &mut plan);
        }
        (
            [
                FusedKind::Add | FusedKind::SumGradients(_),
                FusedKind::Relu | FusedKind::ReluGradient,
            ],
            [_, rest @ ..],
        ) => {
            let (tail, out) = tail(first, &parts[1..], rest);
            elementwise::sum_and(first.call, first.buffers.reads, out, tail, &mut plan);
        }
        ([FusedKind::PoolGradient, ..], [_, rest @ ..]) => {
            let (tail, out) = tail(first, &parts[1..], rest);
            let buffers = Buffers { writes: &[out], ..first.buffers };
            channels::pool_gradient(first.call, &buffers, tail, &mut plan);
        }
        ([FusedKind::RowsGradient, between @ .., FusedKind::SumGradients(_)], [_, .., sum]) => {
            if !between.is_empty() {
                plan = steps(chain[1].call, &chain[1].buffers, storage);
            }
            let (tail, out) = tail(first, &parts[parts.len() - 1..], &[*sum]);
            let buffers = Buffers { writes: &[out], ..first.buffers };
            rows::norm_gradient(first.call, &buffers, tail, &mut plan);
        }
        _ => norm_gradient(&parts, chain, &mut plan),
    }
    plan
}

/// A gradient of channels with what comes before and behind it.
fn norm_gradient(parts: &[FusedKind], chain: &[Computed], plan: &mut Plan) {
    let at = parts.iter().position(|part| *part == FusedKind::NormGradient).expect("a known chain");
    let (norm, weights) = (&chain[at], chain.get(at + 1));
    let reads = chain[0].buffers.reads;
    let (terms, tail) = match parts[..at] {
        [] => (&[][..], Tail::default()),
        [FusedKind::SumGradients(_)] => (reads, Tail::default()),
        [FusedKind::SumGradients(_), _] => (reads, tail(&chain[0], &parts[1..at], &chain[1..at]).0),
        // A ReLU's: y, and what comes.
        _ => {
            let mask = Tail { other: reads[0], does: 1 << Then::Mask as u32, ..Tail::default() };
            (&reads[1..], mask)
        }
    };
    let weights = weights.map_or(&[][..], |weights| weights.buffers.gradients);
    let incoming = Incoming { terms, tail, weights };
    channels::batch_norm_gradient(norm.call, &norm.buffers, &incoming, plan);
}

/// What the links behind `first` do with its value, and where that is then.
fn tail(first: &Computed, parts: &[FusedKind], rest: &[Computed]) -> (Tail, DevicePtr) {
    let mut tail = Tail { own: first.own(), ..Tail::default() };
    let mut value = first.value();
    for (place, (part, link)) in parts.iter().zip(rest).enumerate() {
        let reads = link.buffers.reads;
        match part {
            FusedKind::Relu => tail.does |= 1 << Then::Relu as u32,
            FusedKind::ReluGradient => {
                tail.other = reads[0];
                tail.does |= 1 << Then::Mask as u32;
            }
            _ => {
                tail.other = if reads[0] == value { reads[1] } else { reads[0] };
                tail.does |= 1 << Then::Sum as u32;
                if place + 1 < rest.len() {
                    tail.between = link.own();
                }
            }
        }
        value = link.value();
    }
    (tail, value)
}
