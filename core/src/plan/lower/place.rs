//! Offsets in a lane's arena.
//!
//! ```text
//! stage a: trained weights, once a version | running statistics | gradients | optimizer state
//! ```
//! Gradients lie in the order in which the backward pass completes them, so that a bucket is one
//! piece of memory; weights too, where ranks divide the buckets.

use super::Inputs;
use super::exchange::exchange_bytes;
use super::groups::Groups;
use super::lane::LaneStage;
use super::windows;
use super::wires::Wires;
use crate::graph::autodiff::ComputationKind;
use crate::graph::{Node, Op};
use crate::ids::{LaneId, ParamId};
use crate::plan::layout::aligned;
use crate::plan::{BatchNorm, Bucket, Divided, ParamPlace, Region, StageProgram};
use crate::units::Bytes;
use std::collections::BTreeSet;

/// Hands out memory from the start of the arena.
#[derive(Default)]
struct Arena {
    end: Bytes,
}

impl Arena {
    fn take(&mut self, bytes: Bytes) -> Region {
        let offset = self.end;
        self.end += aligned(bytes);
        Region { offset, bytes }
    }
}

/// How large a lane's arena is.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub arena: Bytes,
    /// What lasts, encoded sums included.
    pub persistent: Bytes,
    /// For encoded sums, at the end.
    pub exchange: Region,
}

/// Gives everything its offset.
pub(super) fn place(
    inputs: &Inputs,
    groups: &Groups,
    lane: LaneId,
    stages: &mut [LaneStage],
) -> Sizes {
    let mut arena = Arena::default();
    for stage in stages.iter_mut() {
        place_parameters(inputs, groups, lane, &mut stage.program, &mut arena);
    }
    windows::place(stages, |bytes| arena.take(bytes).offset);
    let mut received = Bytes::ZERO;
    for stage in stages.iter_mut() {
        let wires = Wires::new(inputs, lane, stage);
        received = received.max(wires.received);
        stage.wires = wires.sent.into_iter().map(|bytes| arena.take(bytes)).collect();
    }
    // One message is decoded at a time.
    let received = arena.take(received).offset;
    stages.iter_mut().for_each(|stage| stage.received = received);
    let persistent = arena.end;
    for stage in stages.iter_mut() {
        let program = &mut stage.program;
        program.slots.offset = arena.take(program.slots.total()).offset;
        program.outbox.offset = arena.take(program.outbox.total()).offset;
    }
    let transients = stages.iter().map(|s| s.program.transient.bytes);
    let transient = transients.max().unwrap_or_default().max(staging(inputs, stages));
    let shared = arena.take(transient).offset;
    for stage in stages.iter_mut() {
        stage.program.transient.offset = shared;
    }
    let exchange = arena.take(exchange_bytes(inputs, groups, lane, stages));
    let persistent = persistent + (arena.end - exchange.offset);
    Sizes { arena: arena.end, persistent, exchange }
}

/// Room for the samples of another replica, on their way: nothing else is transient then.
fn staging(inputs: &Inputs, stages: &[LaneStage]) -> Bytes {
    if !inputs.data_parallel.through_first() {
        return Bytes::ZERO;
    }
    let loads = stages.iter().flat_map(|s| s.graph.loads.iter().map(|v| s.places.value(*v).bytes));
    loads.max().unwrap_or_default()
}

fn place_parameters(
    inputs: &Inputs,
    groups: &Groups,
    lane: LaneId,
    program: &mut StageProgram,
    arena: &mut Arena,
) {
    let bytes = |param: ParamId| Bytes(4) * inputs.graph.param(param).elements();
    let trained = |place: &ParamPlace| inputs.graph.param(place.param).trainable;
    let order = gradient_order(inputs, groups, program);
    let sums = [groups.of_stage(program.stage), groups.experts_of_stage(inputs, program.stage)];
    let divides = inputs.data_parallel.divides_updates() && sums[0].is_some();
    let start = arena.end;
    let mut weights: Vec<usize> = order.iter().map(|gradient| gradient.index).collect();
    if !divides {
        weights.sort_unstable();
    }
    for index in weights {
        let place = &mut program.params[index];
        place.weight = arena.take(bytes(place.param));
    }
    program.versions.stride = arena.end - start;
    arena.end = start + program.versions.stride * u64::from(program.versions.count);
    for place in program.params.iter_mut().filter(|place| !trained(place)) {
        place.weight = arena.take(bytes(place.param));
    }
    let like = |group: u32| {
        let (ranks, first) = groups.members(inputs, group, lane);
        Divided { ranks, first, weights: Region::default(), state: [None; 2], gradient: None }
    };
    let sums = sums.map(|group| Some((group?, group.filter(|_| divides).map(like))));
    // Where ranks keep parts, buckets are told apart as if each had a place of its own; then they share some.
    let shares = divides && inputs.data_parallel.divides_gradients();
    let mut own = Arena::default();
    let summed = if shares { &mut own } else { &mut *arena };
    place_gradients(inputs, sums, &order, program, summed);
    for place in program.params.iter_mut().filter(|place| trained(place)) {
        if place.gradient.is_none() {
            place.gradient = Some(arena.take(bytes(place.param)));
        }
    }
    let deferred = deferred_statistics(inputs);
    let StageProgram { params, buckets, .. } = program;
    for place in params {
        let is_divided = || buckets.iter().filter_map(|b| b.divided).any(|d| d.holds(place));
        let kept = match trained(place) {
            true if is_divided() => 0,
            true => inputs.optimizer.state_tensors(),
            false => usize::from(deferred.contains(&place.param)),
        };
        let state = place.state.iter_mut().take(kept);
        state.for_each(|state| *state = Some(arena.take(bytes(place.param))));
    }
    for divided in program.buckets.iter_mut().filter_map(|bucket| bucket.divided.as_mut()) {
        let part = divided.bytes();
        let state = divided.state.iter_mut().take(inputs.optimizer.state_tensors());
        state.for_each(|state| *state = Some(arena.take(part)));
    }
    if shares {
        windows::share(program, own.end, &mut |bytes| arena.take(bytes));
    }
}

/// The running statistics whose update waits for the mini-batch.
fn deferred_statistics(inputs: &Inputs) -> BTreeSet<ParamId> {
    if inputs.training.batch_norm != BatchNorm::Deferred {
        return BTreeSet::new();
    }
    let normalised = |node: &&Node| matches!(node.op, Op::BatchNorm2d { .. });
    let params = inputs.graph.nodes().iter().filter(normalised).flat_map(|node| &node.params);
    params.copied().filter(|id| !inputs.graph.param(*id).trainable).collect()
}

/// A gradient in the order of its stage.
struct Gradient {
    /// Whether a tie sums it.
    tied: bool,
    /// Whether replicas of an expert group have different ones.
    of_experts: bool,
    /// Which of the stage's parameters.
    index: usize,
    /// The kernels that first add to it, and that complete it.
    kernels: [u32; 2],
}

/// Gradients in the order in which a backward pass without recomputation completes them, from the
/// last node to the first; those of experts that replicas divide apart behind them, and of tied parameters at the end. So a
/// sum over ranks adds the
/// same numbers in the same pieces in whatever sequence a stage computes.
fn gradient_order(inputs: &Inputs, groups: &Groups, program: &StageProgram) -> Vec<Gradient> {
    // The kernels that first add to each gradient, and that complete it.
    let mut ready: Vec<Option<[u32; 2]>> = vec![None; program.params.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        if kernel.kind == ComputationKind::WeightGradient {
            for param in kernel.params.clone() {
                ready[param as usize].get_or_insert([at as u32; 2])[1] = at as u32;
            }
        }
    }
    // Tied ones last, those of experts before them; then the last nodes first, those without a kernel before all.
    let mut order: Vec<[u64; 3]> = vec![];
    for (index, place) in program.params.iter().enumerate() {
        if inputs.graph.param(place.param).trainable {
            let node = ready[index].map(|[_, at]| program.kernels[at as usize].node);
            let node = node.map_or(0, |node| u64::from(u32::MAX - node.0) + 1);
            let class = match inputs.graph.is_of_experts(place.param) {
                _ if groups.is_tied(place.param) => 2,
                of_experts => of_experts.into(),
            };
            order.push([class, node, index as u64]);
        }
    }
    order.sort_unstable();
    let gradient = |[class, _, index]: [u64; 3]| {
        let (index, kernels) = (index as usize, ready[index as usize].unwrap_or([0; 2]));
        Gradient { tied: class == 2, of_experts: class == 1, index, kernels }
    };
    order.into_iter().map(gradient).collect()
}

/// Gradients that ranks sum one behind the other, those of experts behind the others, and their buckets, each of the group
/// and divided as is said; where ranks divide nothing, those of ties behind them.
fn place_gradients(
    inputs: &Inputs,
    sums: [Option<(u32, Option<Divided>)>; 2],
    order: &[Gradient],
    program: &mut StageProgram,
    arena: &mut Arena,
) {
    let bytes = |param: ParamId| Bytes(4) * inputs.graph.param(param).elements();
    let summed = order.iter().filter(|gradient| !gradient.tied);
    let all: Bytes = summed.map(|gradient| bytes(program.params[gradient.index].param)).sum();
    let most = windows::bucket(inputs.data_parallel, all);
    let mut open: Option<Bucket> = None;
    for &Gradient { tied, of_experts, index, kernels: [first, ready] } in order {
        if tied && inputs.data_parallel.divides_gradients() {
            continue;
        }
        let place = &mut program.params[index];
        let region = arena.take(bytes(place.param));
        place.gradient = Some(region);
        let offset = place.weight.offset;
        let apart = if of_experts { inputs.data_parallel.expert_parallel } else { 1 };
        if open.is_some_and(|bucket| bucket.apart != apart) {
            close(program, open.take());
        }
        let sum = sums[usize::from(of_experts)].filter(|_| !tied);
        let Some((group, like)) = sum else { continue };
        let at = program.buckets.len();
        let reduction = inputs.communication.bucket(program.stage, at);
        let weights = Region { offset, bytes: Bytes::ZERO };
        let divided = like.map(|like| Divided { weights, ..like });
        let bucket = Bucket { region, first, ready, group, apart, slot: 0, reduction, divided };
        let bucket = open.get_or_insert(bucket);
        bucket.region.bytes = arena.end - bucket.region.offset;
        bucket.first = bucket.first.min(first);
        bucket.ready = bucket.ready.max(ready);
        if let Some(divided) = &mut bucket.divided {
            divided.weights.bytes = bucket.region.bytes;
        }
        if bucket.region.bytes >= most {
            close(program, open.take());
        }
    }
    close(program, open);
}

/// A bucket is full. Those of experts, which lie behind all others, are summed when they are complete.
fn close(program: &mut StageProgram, bucket: Option<Bucket>) {
    let Some(bucket) = bucket else { return };
    let later = program.buckets.iter().position(|b| bucket.apart > 1 && b.ready > bucket.ready);
    program.buckets.insert(later.unwrap_or(program.buckets.len()), bucket);
}
