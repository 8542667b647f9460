//! Kernel fusion: groups of a stage's computations that a device does together, found once, from the program alone.
//!
//! A value that only the next link reads is not stored. Who else reads it is read from the kernels' operands:
//! transient memory is one action's, so its last reader is in the same action, and what lies there later
//! ends its life. All other values are stored: they are sent, or somebody reads them in another action.
//!
//! What a tensor group adds up ends a chain: the sum is made where the value is stored.
//!
//! Memory is laid out for computations that come one after the other: a later one may write where an earlier
//! one has read for the last time. Done together, that is right where both are at one place at a time.

use crate::device::{FusedKind, can_join, worthwhile};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, TensorSpec};
use pipewright_core::ids::StageId;
use pipewright_core::plan::{Area, Kernel, Operand, Program, StageProgram};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// The chains of a rank's stages; none where its device does one computation after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fusion {
    /// By stage and first kernel: of each kernel whether its value is stored.
    groups: BTreeMap<(StageId, usize), Vec<bool>>,
}

impl Fusion {
    /// All chains of a program.
    pub fn of(graph: &Graph, program: &Program) -> Self {
        let groups = program.stages.iter().flat_map(|stage| {
            let own = Finder::new(graph, stage).groups();
            own.into_iter().map(|(first, stored)| ((stage.stage, first), stored))
        });
        Self { groups: groups.collect() }
    }

    /// Of the kernels that begin with this one and are done together, which values are stored. One that is
    /// done alone stores its own.
    pub fn at(&self, stage: StageId, kernel: usize) -> &[bool] {
        self.groups.get(&(stage, kernel)).map_or(&[true], |stored| stored)
    }
}

/// Where a value lies: packed, where it is.
pub(super) fn lies(kernel: &Kernel, operand: &Operand) -> Operand {
    kernel.packed(operand).unwrap_or(*operand)
}

fn overlap(a: &Operand, b: &Operand) -> bool {
    a.area == b.area && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

/// Looks for the chains of a stage.
struct Finder<'a> {
    stage: &'a StageProgram,
    parts: Vec<Option<FusedKind>>,
}

impl<'a> Finder<'a> {
    fn new(graph: &Graph, stage: &'a StageProgram) -> Self {
        let part = |kernel: &Kernel| {
            let node = graph.node(kernel.node);
            // Samples are f32 whatever the precision: who reads them converts them first.
            let size = |value: &Operand| lies(kernel, value).bytes;
            let are_alike =
                || kernel.reads.iter().all(|read| size(read) == size(&kernel.writes[0]));
            if kernel.kind == ComputationKind::Forward && !are_alike() {
                return None;
            }
            let inputs: SmallVec<[&TensorSpec; 8]> =
                node.inputs.iter().map(|id| graph.operand(kernel.node, *id)).collect();
            let shapes = (&inputs[..], graph.result(kernel.node));
            FusedKind::of(&node.op, kernel.kind, shapes, kernel.reads.len())
        };
        Self { stage, parts: stage.kernels.iter().map(part).collect() }
    }

    /// First kernels of chains, and what their links store.
    fn groups(&self) -> Vec<(usize, Vec<bool>)> {
        let (forward, input) = (self.stage.forward_end, self.stage.input_gradient_end);
        let marks = [0, forward as usize, input as usize, self.stage.kernels.len()];
        let mut found = vec![];
        for mark in marks.windows(2) {
            let mut at = mark[0];
            while at < mark[1] {
                let count = self.longest(at..mark[1]);
                if count > 1 {
                    let last = at + count - 1;
                    // The last value is there to be read, if not by this stage.
                    let stored = (at..last).map(|link| self.is_stored(link, at..last + 1));
                    found.push((at, stored.chain([true]).collect()));
                }
                at += count;
            }
        }
        found
    }

    /// How many of these kernels, from the first on, are a chain.
    fn longest(&self, kernels: Range<usize>) -> usize {
        let (first, mut until) = (kernels.start, kernels.start + 1);
        let Some(part) = self.parts[first] else { return 1 };
        let mut chain: SmallVec<[FusedKind; 4]> = SmallVec::from_slice(&[part]);
        while until < kernels.end
            && let Some(next) = self.parts[until]
            && can_join(&chain, next)
            && !self.is_added_up(until - 1)
            && self.hands_on(first..until)
            && self.may_overlap(first..until)
        {
            chain.push(next);
            until += 1;
        }
        worthwhile(&chain)
    }

    /// Whether the tensor group adds up what a link gives, before anybody reads it. Gradients of weights nobody reads.
    fn is_added_up(&self, link: usize) -> bool {
        let kernel = &self.stage.kernels[link];
        kernel.reduces && !kernel.writes.is_empty()
    }

    /// The link before `until` that has a value.
    fn giver(&self, chain: Range<usize>) -> usize {
        let has_value = |link: &usize| self.parts[*link].is_some_and(|part| !part.is_weights());
        chain.rev().find(has_value).expect("the first has one")
    }

    /// Whether the kernel behind a chain reads once what the chain's value is, and gradients of weights what
    /// the link before them reads.
    fn hands_on(&self, chain: Range<usize>) -> bool {
        let next = &self.stage.kernels[chain.end];
        let before = &self.stage.kernels[self.giver(chain.clone())];
        let reads = |kernel: &Kernel| -> Vec<Operand> {
            kernel.reads.iter().map(|read| lies(kernel, read)).collect()
        };
        if self.parts[chain.end].is_some_and(FusedKind::is_weights) {
            return next.node == before.node && reads(next) == reads(before);
        }
        let value = lies(before, &before.writes[0]);
        let all = reads(next);
        let takers: Vec<usize> = (0..all.len()).filter(|read| all[*read] == value).collect();
        match self.parts[chain.end] {
            // The gradient, not what it is a gradient of.
            Some(FusedKind::ReluGradient | FusedKind::NormGradient) => takers == [1],
            Some(FusedKind::SumGradients(_)) | Some(FusedKind::Add) => takers.len() == 1,
            _ => takers == [0],
        }
    }

    /// Whether the kernel behind a chain may write while the links of the chain read and write.
    fn may_overlap(&self, chain: Range<usize>) -> bool {
        let next = &self.stage.kernels[chain.end];
        // The gradient of channels is written when all that came has been summed and stored, and the
        // gradients of weights are nobody's place.
        if let Some(FusedKind::NormGradient | FusedKind::NormWeights | FusedKind::RowsWeights) =
            self.parts[chain.end]
        {
            return true;
        }
        let behind: Vec<Operand> = next.writes.iter().map(|write| lies(next, write)).collect();
        let is_right = |link: usize| {
            let kernel = &self.stage.kernels[link];
            let in_place = self.parts[link].map_or(0, FusedKind::in_place);
            let mut reads = kernel.reads.iter().map(|read| lies(kernel, read)).enumerate();
            let reads_first = reads.all(|(place, read)| {
                // A value may lie exactly where an input lay.
                let apart = |(which, write): (usize, &Operand)| {
                    !overlap(&read, write) || which == 0 && read == *write && place < in_place
                };
                behind.iter().enumerate().all(apart)
            });
            let from = usize::from(!self.is_stored(link, chain.start..chain.end + 1));
            let mut stored = kernel.writes.iter().skip(from).map(|write| lies(kernel, write));
            reads_first && stored.all(|own| behind.iter().all(|write| !overlap(&own, write)))
        };
        chain.clone().all(is_right)
    }

    /// Whether anybody reads the value of a link but the next one that takes values.
    fn is_stored(&self, link: usize, chain: Range<usize>) -> bool {
        let kernels = &self.stage.kernels;
        let Some(value) = kernels[link].writes.first() else { return true };
        let value = lies(&kernels[link], value);
        // Normalisations of rows and gradients of channels go over their input twice.
        let taker =
            (link + 1..chain.end).find(|at| !self.parts[*at].is_some_and(FusedKind::is_weights));
        let Some(taker) = taker else { return true };
        let takes_once = self.parts[taker].is_some_and(FusedKind::is_pointwise);
        if value.area != Area::Transient || !takes_once || self.stage.loss == Some(value) {
            return true;
        }
        let end = self.end_of_action(link);
        for (at, kernel) in kernels.iter().enumerate().take(end).skip(link + 1) {
            let reads = kernel.reads.iter().map(|read| lies(kernel, read));
            let unpacked = kernel.unpack.iter().map(|(_, f32)| *f32);
            if at != taker && reads.into_iter().any(|read| overlap(&read, &value)) {
                return true;
            }
            let packed = kernel.pack.iter().flat_map(|(f32, packed)| [*f32, *packed]);
            let written = kernel.writes.iter().copied().chain(packed).chain(unpacked);
            if written.chain(kernel.workspace).any(|write| overlap(&write, &value)) {
                return false;
            }
        }
        false
    }

    /// The first kernel behind the action that runs this one: a backward pass in one piece goes on.
    fn end_of_action(&self, kernel: usize) -> usize {
        match kernel < self.stage.forward_end as usize {
            true => self.stage.forward_end as usize,
            false => self.stage.kernels.len(),
        }
    }
}
