//! Places for the values of one stage.

use super::Inputs;
use super::fused::held;
use super::in_place::InPlace;
use super::packed::{is_packed, staged, stored};
use crate::graph::autodiff::{Computation, ComputationKind, TrainingGraph};
use crate::ids::ValueId;
use crate::plan::layout::{Block, aligned, pack};
use crate::plan::{Area, Kernel, Operand};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Where each value of a stage lies, and the sizes of the areas.
pub(super) struct Places {
    pub values: Vec<Operand>,
    /// Where the packed values of each computation lie while it runs: reads, then writes.
    unpacked: Vec<BTreeMap<ValueId, Operand>>,
    pub workspaces: Vec<Option<Operand>>,
    pub slot: Bytes,
    pub outbox: Bytes,
    pub transient: Bytes,
    pub transient_forward: Bytes,
    pub transient_backward: Bytes,
}

/// Sizes of a stage's areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaBytes {
    /// One slot.
    pub slot: Bytes,
    /// One outbox entry.
    pub outbox: Bytes,
    /// What an action needs while it runs.
    pub transient: Bytes,
}

/// Lays the values of a stage out. Quadratic in their number.
pub(crate) fn area_bytes(inputs: &Inputs, graph: &TrainingGraph) -> AreaBytes {
    let places = Places::new(inputs, graph);
    AreaBytes { slot: places.slot, outbox: places.outbox, transient: aligned(places.transient) }
}

/// Lifetime of a value in computations, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub first: u32,
    pub last: u32,
}

impl Places {
    pub fn new(inputs: &Inputs, graph: &TrainingGraph) -> Self {
        let samples = inputs.samples;
        let Unplaced { lives, areas, sizes, in_place } = Unplaced::new(inputs, graph);
        let precision = inputs.training.precision;
        let is_packed = |i: usize| is_packed(precision, inputs.graph, &graph.values[i]);
        let whole = |i: usize| graph.values[i].extent.bytes(samples);
        let unplaced = |(i, area): (usize, &Area)| {
            let halves = is_packed(i).then(|| whole(i).0 / 4);
            Operand { area: *area, offset: Bytes::ZERO, bytes: sizes[i], halves }
        };
        let mut values: Vec<Operand> = areas.iter().enumerate().map(unplaced).collect();
        let slot = stack(&mut values, Area::Slot);
        let outbox = stack(&mut values, Area::Outbox);

        let transient: Vec<usize> =
            (0..values.len()).filter(|i| areas[*i] == Area::Transient).collect();
        let living =
            |&i: &usize| Block { bytes: sizes[i], first: lives[i].first, last: lives[i].last };
        let mut blocks: Vec<Block> = transient.iter().map(living).collect();
        let scratch = scratch(graph, samples);
        blocks.extend(scratch.iter().map(|&(at, bytes)| during(at, bytes)));
        let mut staged = staged(graph, inputs.halves, |value| is_packed(value.index()));
        staged.retain(|&(at, value)| in_place.is_none_or(|own| !own.shares(at, value)));
        blocks.extend(staged.iter().map(|&(at, value)| during(at, whole(value.index()))));
        let (offsets, total) = pack(&blocks);

        let place = |offset: &Bytes, bytes| {
            let (area, offset) = (Area::Transient, *offset);
            Operand { area, offset, bytes, halves: None }
        };
        let (of_values, rest) = offsets.split_at(transient.len());
        let (of_scratch, of_staged) = rest.split_at(scratch.len());
        for (&i, offset) in transient.iter().zip(of_values) {
            values[i].offset = *offset;
        }
        let mut workspaces = vec![None; graph.computations.len()];
        for (&(at, bytes), offset) in scratch.iter().zip(of_scratch) {
            workspaces[at] = Some(place(offset, bytes));
        }
        let mut unpacked = vec![BTreeMap::new(); graph.computations.len()];
        for (&(at, value), offset) in staged.iter().zip(of_staged) {
            unpacked[at].insert(value, place(offset, whole(value.index())));
        }
        if let Some(InPlace { at, logits, gradient }) = in_place {
            values[gradient.index()] = values[logits.index()];
            if let Some(there) = unpacked[at].get(&logits).copied() {
                unpacked[at].insert(gradient, there);
            }
        }
        // Of the forward pass and of the backward pass.
        let mut ends = [Bytes::ZERO; 2];
        for (block, offset) in blocks.iter().zip(&offsets) {
            let end = &mut ends[usize::from(block.first >= graph.forward_end)];
            *end = (*end).max(*offset + aligned(block.bytes));
        }
        let [transient_forward, transient_backward] = ends;
        Self {
            values,
            unpacked,
            workspaces,
            slot,
            outbox,
            transient: total,
            transient_forward,
            transient_backward,
        }
    }

    pub fn value(&self, id: ValueId) -> Operand {
        self.values[id.index()]
    }

    /// The kernels of the stage; `first_param` is the stage's first parameter in the graph.
    pub fn kernels(&self, inputs: &Inputs, graph: &TrainingGraph, first_param: u32) -> Vec<Kernel> {
        let kernel = |(i, c): (usize, &Computation)| {
            // A sum of gradients belongs to the value's producer, which may stand on an earlier stage
            // and whose parameters it does not touch.
            let params = match c.kind {
                ComputationKind::SumGradients => &[][..],
                kind if kind.is_exchange() => &[],
                _ => &inputs.graph.node(c.node).params,
            };
            let unpacked = &self.unpacked[i];
            let operand = |id: &ValueId| unpacked.get(id).copied().unwrap_or(self.value(*id));
            let staged = |id: &ValueId| unpacked.get(id).map(|f32| (self.value(*id), *f32));
            let mut unpack: Vec<(Operand, Operand)> = vec![];
            for pair in c.reads.iter().filter_map(staged) {
                // What is read twice is unpacked once.
                if !unpack.contains(&pair) {
                    unpack.push(pair);
                }
            }
            let start = params.first().map_or(0, |p| p.0 - first_param);
            Kernel {
                node: c.node,
                kind: c.kind,
                reads: c.reads.iter().map(operand).collect(),
                writes: c.writes.iter().map(operand).collect(),
                wanted: c.wanted,
                workspace: self.workspaces[i],
                unpack,
                pack: c.writes.iter().filter_map(staged).map(|(to, from)| (from, to)).collect(),
                params: start..start + params.len() as u32,
                reduces: c.reduces,
                again: c.again,
            }
        };
        graph.computations.iter().enumerate().map(kernel).collect()
    }
}

/// What is known of a stage's values before they have places, by value.
struct Unplaced {
    lives: Vec<Life>,
    areas: Vec<Area>,
    sizes: Vec<Bytes>,
    in_place: Option<InPlace>,
}

impl Unplaced {
    fn new(inputs: &Inputs, graph: &TrainingGraph) -> Self {
        let mut lives = lives(graph);
        let areas = areas_of(graph, &lives);
        for (at, value) in held(inputs, graph) {
            let last = &mut lives[value.index()].last;
            *last = (*last).max(at as u32);
        }
        let mut sizes: Vec<Bytes> = graph.values.iter().map(|v| stored(inputs, v)).collect();
        let in_place = InPlace::of(inputs.graph, graph, &sizes, &lives);
        let fits = |own: &InPlace| {
            let area = |value: ValueId| areas[value.index()];
            area(own.logits) == Area::Slot || area(own.gradient) == Area::Transient
        };
        let in_place = in_place.filter(fits);
        if let Some(InPlace { logits, gradient, .. }) = in_place {
            lives[logits.index()].last = lives[gradient.index()].last;
            sizes[gradient.index()] = Bytes::ZERO;
        }
        Self { lives, areas, sizes, in_place }
    }
}

/// The scratch of each computation that needs some.
fn scratch(graph: &TrainingGraph, samples: u64) -> Vec<(usize, Bytes)> {
    let bytes = graph.computations.iter().map(|c| match c.kind {
        // Two packed slices fill whole words each.
        kind if kind == ComputationKind::ReduceScatter || kind.is_all_to_all() => {
            aligned(c.workspace.bytes(samples))
        }
        _ => c.workspace.bytes(samples),
    });
    bytes.enumerate().filter(|(_, bytes)| *bytes > Bytes::ZERO).collect()
}

/// Bytes that only each computation uses, by computation: its scratch, and packed values unpacked.
pub(in crate::plan) fn working_bytes(inputs: &Inputs, graph: &TrainingGraph) -> Vec<u64> {
    let mut bytes = vec![0; graph.computations.len()];
    for (at, own) in scratch(graph, inputs.samples) {
        bytes[at] += aligned(own).0;
    }
    let precision = inputs.training.precision;
    let is_packed =
        |value: ValueId| is_packed(precision, inputs.graph, &graph.values[value.index()]);
    let in_place = in_place(inputs, graph);
    for (at, value) in staged(graph, inputs.halves, is_packed) {
        if in_place.is_some_and(|own| own.shares(at, value)) {
            continue;
        }
        bytes[at] += aligned(graph.values[value.index()].extent.bytes(inputs.samples)).0;
    }
    bytes
}

/// Memory that only computation `at` uses.
fn during(at: usize, bytes: Bytes) -> Block {
    let at = at as u32;
    Block { bytes, first: at, last: at }
}

/// Lays the values of one area in a row; returns its size.
fn stack(values: &mut [Operand], area: Area) -> Bytes {
    let mut end = Bytes::ZERO;
    for value in values.iter_mut().filter(|v| v.area == area) {
        value.offset = end;
        end += aligned(value.bytes);
    }
    end
}

fn lives(graph: &TrainingGraph) -> Vec<Life> {
    let mut lives: Vec<Option<Life>> = vec![None; graph.values.len()];
    let mut touch = |value: ValueId, at: u32| {
        let life = lives[value.index()].get_or_insert(Life { first: at, last: at });
        life.last = at;
    };
    // What is loaded or received is there before the first computation of its pass.
    for value in graph.loads.iter().chain(graph.receives.iter().map(|p| &p.value)) {
        touch(*value, 0);
    }
    let mut gradients = graph.gradient_receives.iter();
    for (at, computation) in (0..).zip(&graph.computations) {
        if at == graph.forward_end {
            gradients.by_ref().for_each(|port| touch(port.value, at));
        }
        for value in computation.reads.iter().chain(&computation.writes) {
            touch(*value, at);
        }
    }
    // A stage without backward computations may still hand a gradient through.
    gradients.for_each(|port| touch(port.value, graph.forward_end));
    let never = Life { first: 0, last: 0 };
    lives.into_iter().map(|life| life.unwrap_or(never)).collect()
}

/// Whose gradient lies in its place.
pub(in crate::plan) fn in_place(inputs: &Inputs, graph: &TrainingGraph) -> Option<InPlace> {
    Unplaced::new(inputs, graph).in_place
}

/// The area of each value.
pub(super) fn areas(graph: &TrainingGraph) -> Vec<Area> {
    areas_of(graph, &lives(graph))
}

fn areas_of(graph: &TrainingGraph, lives: &[Life]) -> Vec<Area> {
    (0..).zip(lives).map(|(i, life)| area(graph, ValueId(i), *life)).collect()
}

fn area(graph: &TrainingGraph, id: ValueId, life: Life) -> Area {
    let crosses = |mark: u32| life.first < mark && life.last >= mark;
    let sent = graph.sends.iter().any(|port| port.value == id);
    let gradient_sent = graph.gradient_sends.iter().any(|port| port.value == id);
    // It arrives before the input-gradient part, even where that part has nothing to compute.
    let received = graph.gradient_receives.iter().any(|port| port.value == id);
    let kept_for_weights = received && life.last >= graph.input_gradient_end;
    let is_loss = graph.loss == Some(id);
    // An outbox entry may be reused before the weight part runs, so what that part reads of a
    // sent gradient stays in the slot.
    if sent
        || is_loss
        || kept_for_weights
        || crosses(graph.forward_end)
        || crosses(graph.input_gradient_end)
    {
        Area::Slot
    } else if gradient_sent {
        Area::Outbox
    } else {
        Area::Transient
    }
}
