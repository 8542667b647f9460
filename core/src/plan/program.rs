//! One rank's program: instructions, and every buffer at its place in the rank's arena.
//!
//! ```text
//! arena:  parameters, gradients, momentum | slots of stage a | outbox of stage a | .. | transient
//! ```
//! - a *slot* holds what one micro-batch keeps between its forward and its backward pass (the
//!   stash), and the activations that are sent; a stage has as many as micro-batches in flight;
//! - an *outbox* entry holds gradients on their way to earlier stages; there are two, so that the
//!   next backward pass can run while the last gradient travels;
//! - the *transient* area serves one action at a time, and all stages of the rank.

use crate::graph::autodiff::ComputationKind;
use crate::ids::{LaneId, MicroBatch, NodeId, ParamId, StageId};
use crate::schedule::Action;
use crate::units::Bytes;

/// What one rank does in a step, and where everything lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The lane, which is the rank while there are no replicas.
    pub lane: LaneId,
    /// The stages of this lane.
    pub stages: Vec<StageProgram>,
    /// One training step.
    pub train: Vec<Instruction>,
    /// Size of the arena: all memory that the rank uses for tensors.
    pub arena: Bytes,
    /// Part of it that lasts: parameters, their gradients, the optimizer's state.
    pub persistent: Bytes,
    /// Sends can be outstanding under this many handles.
    pub handles: u32,
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
    /// The optimizer's momentum, when it has one.
    pub momentum: Option<Region>,
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
    /// Size.
    pub bytes: Bytes,
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
    /// Indexes of the node's parameters in [`StageProgram::params`]: a consecutive range.
    pub params: std::ops::Range<u32>,
}

/// What a data set gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The samples.
    Input,
    /// Their classes.
    Target,
}

/// One step of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    },
    /// Executes an action's kernels.
    Run {
        /// The action.
        action: Action,
        /// The micro-batch's slot.
        slot: u32,
        /// The outbox entry for its gradients.
        outbox: u32,
    },
    /// Starts sending; the region stays as it is until the handle was waited for.
    Send {
        /// To which lane.
        to: LaneId,
        /// The message's tag.
        tag: u32,
        /// From where.
        region: Region,
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
    /// Updates the parameters of a stage and clears their gradients.
    Optimizer {
        /// The stage.
        stage: StageId,
    },
}

impl StageProgram {
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
    /// The program of one of this lane's stages.
    pub fn stage(&self, stage: StageId) -> Option<&StageProgram> {
        self.stages.iter().find(|s| s.stage == stage)
    }
}
