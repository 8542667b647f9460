//! One rank's program: instructions, and every buffer at its place in the rank's arena.
//!
//! ```text
//! arena:  parameters, gradients, optimizer state | slots of stage a | outbox of stage a | ..
//!         | transient | encoded sums
//! ```
//! - a *slot* holds what one micro-batch keeps between its forward and its backward pass (the
//!   stash), and the activations that are sent; a stage has as many as micro-batches in flight;
//! - an *outbox* entry holds gradients on their way to earlier stages; there are two, so that the
//!   next backward pass can run while the last gradient travels;
//! - the *transient* area serves one action at a time, and all stages of the rank.

use super::Divided;
use crate::compress::{CodecKind, Reduction};
use crate::graph::autodiff::ComputationKind;
use crate::ids::{LaneId, MicroBatch, NodeId, ParamId, StageId};
use crate::schedule::{Action, ActionKind};
use crate::units::Bytes;
use std::ops::Range;

/// What one rank does in a step, and where everything lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The lane. Every replica has a rank that does this, or a tensor group of such ranks, with peers of its own
    /// replica and place in the group.
    pub lane: LaneId,
    /// The ranks that divide the lane's work.
    pub tensor: TensorGroup,
    /// The stages of this lane.
    pub stages: Vec<StageProgram>,
    /// One training step.
    pub train: Vec<Instruction>,
    /// Size of the arena: all memory that the rank uses for tensors.
    pub arena: Bytes,
    /// Part of it that lasts: parameters, their gradients, the optimizer's state, and what follows.
    pub persistent: Bytes,
    /// Part of it, at its end, for encoded sums of gradients: their messages, and what error feedback
    /// carries from step to step. Whoever sums keeps it.
    pub exchange: Region,
    /// Sends can be outstanding under this many handles.
    pub handles: u32,
    /// Collective calls can be outstanding in this many slots.
    pub collectives: u32,
    /// Parameters that are one in the model and several here.
    pub ties: Vec<Tie>,
    /// Samples whose gradients an update averages, over all replicas.
    pub batch: u64,
    /// Updates of a stage in a step.
    pub updates: u32,
}

/// The ranks that together execute a lane for a replica. They have one program: each names its twins' places in
/// memory, and its own groups by their first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// How many ranks.
    pub degree: u32,
    /// The group of the first replica; those of the others follow. Groups that sum gradients are as many in a
    /// row, one for each rank of a tensor group, and programs name the first.
    pub group: u32,
}

/// Gradients that are summed because their parameters are one.
#[derive(Clone, Debug, PartialEq)]
pub struct Tie {
    /// The gradients on this lane.
    pub gradients: Vec<Region>,
    /// The group of ranks that hold more of them.
    pub group: Option<u32>,
}

/// Gradients that travel together, while the backward pass goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Where they lie.
    pub region: Region,
    /// The kernel of this index is the first that adds to one of them.
    pub first: u32,
    /// They are complete once the kernel of this index has run for the last micro-batch.
    pub ready: u32,
    /// The group of ranks that sum them, see [`Self::group_of`].
    pub group: u32,
    /// Every so many-th replica sums them: 1, but for gradients of experts that so many replicas divide.
    pub apart: u32,
    /// The slot of the call.
    pub slot: u32,
    /// How they are summed.
    pub reduction: Reduction,
    /// What the group divides, where each of its ranks updates a part. Then plain sums are reduce-scattered.
    pub divided: Option<Divided>,
}

/// Copies of a stage's trained parameters, for schedules that update them while micro-batches are
/// under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// How many.
    pub count: u32,
    /// Bytes from a parameter in one to the same in the next.
    pub stride: Bytes,
    /// Whether the copies take turns: in step `s`, version `v` of the program is copy
    /// `(v + s) mod count`.
    pub rotate: bool,
}

impl Versions {
    /// Where version `version` of a trained parameter lies in step `step`.
    pub fn place(&self, weight: Region, version: u32, step: u64) -> Region {
        let turns = if self.rotate { step % u64::from(self.count) } else { 0 };
        let copy = (u64::from(version) + turns) % u64::from(self.count);
        Region { offset: weight.offset + self.stride * copy, ..weight }
    }
}

/// The kernels of one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageProgram {
    /// Which stage.
    pub stage: StageId,
    /// Its parameters.
    pub params: Vec<ParamPlace>,
    /// Its kernels in execution order.
    pub kernels: Vec<Kernel>,
    /// Kernels before this index are the forward pass.
    pub forward_end: u32,
    /// Kernels before this index, after the forward pass, are the input-gradient part.
    pub input_gradient_end: u32,
    /// What micro-batches in flight keep.
    pub slots: Pool,
    /// Gradients being sent.
    pub outbox: Pool,
    /// Scratch of the running action.
    pub transient: Region,
    /// Transient bytes that the forward pass uses.
    pub transient_forward: Bytes,
    /// Transient bytes that the backward pass uses.
    pub transient_backward: Bytes,
    /// Where the loss is after the forward pass.
    pub loss: Option<Operand>,
    /// Copies of its trained parameters.
    pub versions: Versions,
    /// Where buckets lie whose ranks keep parts of them: those in turn that are not summed at the same time. All stages
    /// of the rank share it.
    pub windows: Region,
    /// Gradients to sum with other ranks, in the order in which they are complete.
    pub buckets: Vec<Bucket>,
    /// Whether this lane is the first of those that hold the stage.
    pub first_copy: bool,
}

/// Equal entries in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Where the first begins in the arena.
    pub offset: Bytes,
    /// Size of one.
    pub bytes: Bytes,
    /// How many.
    pub count: u32,
}

impl Pool {
    /// All entries.
    pub fn total(&self) -> Bytes {
        self.bytes * u64::from(self.count)
    }
}

/// Bytes of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Where they begin.
    pub offset: Bytes,
    /// How many.
    pub bytes: Bytes,
}

/// A parameter's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamPlace {
    /// Which parameter.
    pub param: ParamId,
    /// Its values.
    pub weight: Region,
    /// Its gradient, summed over the step; none for running statistics.
    pub gradient: Option<Region>,
    /// What the optimizer keeps, in the order of [`Optimizer::state_names`](super::Optimizer); nothing where the
    /// bucket is [divided](Bucket::divided). For running statistics: those of the mini-batch so far, when they
    /// are deferred.
    pub state: [Option<Region>; 2],
}

/// Which memory an operand is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The micro-batch's slot.
    Slot,
    /// The action's outbox entry.
    Outbox,
    /// The transient area.
    Transient,
}

/// A tensor of a kernel, relative to its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The area.
    pub area: Area,
    /// Offset in the area.
    pub offset: Bytes,
    /// What it takes there.
    pub bytes: Bytes,
    /// Its elements, where each takes two bytes; else each takes four.
    pub halves: Option<u64>,
}

impl Operand {
    /// Numbers that it holds.
    pub fn elements(&self) -> u64 {
        self.halves.unwrap_or(self.bytes.0 / 4)
    }
}

/// One kernel call, see [`crate::graph::autodiff::Computation`] for what it reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The node.
    pub node: NodeId,
    /// Which part of it.
    pub kind: ComputationKind,
    /// Tensors read.
    pub reads: Vec<Operand>,
    /// Tensors written.
    pub writes: Vec<Operand>,
    /// Of an input gradient: bit `i` is set when the gradient of input `i` is written.
    pub wanted: u64,
    /// Scratch, where the kernel needs some.
    pub workspace: Option<Operand>,
    /// What is unpacked before: bf16 and the f32 that [`Self::reads`] names. Nothing where devices take it as it lies.
    pub unpack: Vec<(Operand, Operand)>,
    /// What is packed afterwards: the f32 that [`Self::writes`] names, and bf16. Else partial sums alone, which hosts may
    /// add up in f32.
    pub pack: Vec<(Operand, Operand)>,
    /// Indexes of the node's parameters in [`StageProgram::params`]: a consecutive range.
    pub params: Range<u32>,
    /// Whether the tensor group adds up the first value that it writes, after it was packed. Of a weight gradient: its
    /// parameters' gradients, when they are complete.
    pub reduces: bool,
    /// Whether it ran before for this micro-batch and its result was not kept.
    pub again: bool,
}

/// What a data set gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The samples.
    Input,
    /// Their classes.
    Target,
}

/// Values that travel in other bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoded {
    /// The codec; it keeps nothing from message to message.
    pub codec: CodecKind,
    /// Where the values lie, in single precision.
    pub values: Region,
}

/// One step of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// Copies a micro-batch of the data set into the arena.
    Load {
        /// Which micro-batch.
        micro_batch: MicroBatch,
        /// Samples or classes.
        source: Source,
        /// To where.
        region: Region,
    },
    /// Waits for a message.
    Recv {
        /// From which lane.
        from: LaneId,
        /// Its tag.
        tag: u32,
        /// To where.
        region: Region,
        /// What is decoded from it then.
        decode: Option<Encoded>,
    },
    /// Executes an action's kernels, and the tensor group's sums behind those that [`Kernel::reduces`] says.
    Run {
        /// The action.
        action: Action,
        /// The micro-batch's slot.
        slot: u32,
        /// The outbox entry for its gradients.
        outbox: u32,
        /// The version of the parameters that it uses.
        version: u32,
        /// Whether it completes the stage's gradients: its buckets start to be summed.
        reduces: bool,
    },
    /// Starts sending; the region stays as it is until the handle was waited for.
    Send {
        /// To which lane.
        to: LaneId,
        /// The message's tag.
        tag: u32,
        /// From where.
        region: Region,
        /// What is encoded into it before.
        encode: Option<Encoded>,
        /// To wait for it.
        handle: u32,
        /// The stage that sends.
        stage: StageId,
        /// Which micro-batch it belongs to.
        micro_batch: MicroBatch,
        /// Whether it is a gradient.
        gradient: bool,
    },
    /// Waits until what was sent under the handle has been received.
    WaitSend {
        /// The handle.
        handle: u32,
    },
    /// Adds up the squares of all gradients of all ranks; updates that follow in this step shorten
    /// theirs so that the gradient is no longer than the plan allows, or leave everything as it is
    /// where the plan skips what is not finite. Every rank waits for all.
    CheckGradients,
    /// Waits until the buckets of a stage are summed.
    WaitReduce {
        /// The stage.
        stage: StageId,
    },
    /// Sums the gradients of parameters that are one.
    Tie {
        /// Which of [`Program::ties`].
        index: u32,
    },
    /// The first replica hands its parameters of a stage to the others.
    Broadcast {
        /// The stage.
        stage: StageId,
    },
    /// The first replica loads a micro-batch for every replica and sends the others theirs.
    Scatter {
        /// Which micro-batch.
        micro_batch: MicroBatch,
        /// Samples or targets.
        source: Source,
        /// To where.
        region: Region,
        /// Where the first replica puts what it sends.
        staging: Region,
        /// The messages' tag.
        tag: u32,
        /// The handle of a message.
        handle: u32,
    },
    /// Updates the parameters of a stage and clears their gradients. Where ranks divide them, each updates its part,
    /// and they gather the others'.
    Optimizer {
        /// The stage.
        stage: StageId,
        /// The version that is updated.
        from: u32,
        /// The version that the result becomes.
        to: u32,
        /// Which of the stage's updates in this step.
        index: u32,
    },
}

impl Kernel {
    /// Where the value lies in two bytes an element that [`Self::reads`] or [`Self::writes`] names; none where it does not.
    pub fn packed(&self, operand: &Operand) -> Option<Operand> {
        let itself = || operand.halves.map(|_| *operand);
        let read = self.unpack.iter().find(|(_, f32)| f32 == operand).map(|(packed, _)| *packed);
        let written = || self.pack.iter().find(|(f32, _)| f32 == operand);
        read.or_else(|| written().map(|(_, packed)| *packed)).or_else(itself)
    }
}

impl StageProgram {
    /// The kernels of an action, as indexes.
    pub fn range(&self, kind: ActionKind) -> Range<usize> {
        let (forward, input) = (self.forward_end as usize, self.input_gradient_end as usize);
        match kind {
            ActionKind::Forward => 0..forward,
            ActionKind::Backward => forward..self.kernels.len(),
            ActionKind::BackwardInput => forward..input,
            ActionKind::BackwardWeight => input..self.kernels.len(),
        }
    }

    /// The kernels of an action.
    pub fn pass(&self, kind: ActionKind) -> &[Kernel] {
        &self.kernels[self.range(kind)]
    }

    /// Bytes that a kernel has its tensor group exchange, in units of those that a rank sends of each gathered byte but
    /// its own: twice those of a sum. `last`: it completes the gradients of a step.
    pub fn exchanged(&self, kernel: &Kernel, last: bool) -> f64 {
        let bytes = |operand: Option<&Operand>| operand.map_or(0.0, |o| o.bytes.0 as f64);
        let partial = kernel.writes.first();
        match kernel.kind {
            ComputationKind::AllGather => bytes(kernel.writes.first()),
            ComputationKind::ReduceScatter => bytes(kernel.reads.first()),
            _ if !kernel.reduces => 0.0,
            ComputationKind::WeightGradient if last => {
                2.0 * self.gradients(kernel).map(|region| region.bytes.0 as f64).sum::<f64>()
            }
            _ => 2.0 * bytes(partial.map(|value| kernel.packed(value).unwrap_or(*value)).as_ref()),
        }
    }

    /// The gradients of a kernel's parameters.
    pub fn gradients(&self, kernel: &Kernel) -> impl Iterator<Item = Region> {
        let range = kernel.params.start as usize..kernel.params.end as usize;
        self.params[range].iter().filter_map(|place| place.gradient)
    }

    /// Where an operand lies, for a micro-batch in `slot` and an action with outbox entry
    /// `outbox`.
    pub fn region(&self, operand: &Operand, slot: u32, outbox: u32) -> Region {
        let base = match operand.area {
            Area::Slot => self.slots.offset + self.slots.bytes * u64::from(slot),
            Area::Outbox => self.outbox.offset + self.outbox.bytes * u64::from(outbox),
            Area::Transient => self.transient.offset,
        };
        Region { offset: base + operand.offset, bytes: operand.bytes }
    }
}

impl Program {
    /// Bytes of the arena that its kernels and messages use; behind them lies [`Self::exchange`].
    pub fn tensors(&self) -> Bytes {
        self.exchange.offset
    }

    /// The program of one of this lane's stages.
    pub fn stage(&self, stage: StageId) -> Option<&StageProgram> {
        self.stages.iter().find(|s| s.stage == stage)
    }
}
