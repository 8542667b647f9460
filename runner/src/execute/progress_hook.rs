//! A hook that hears a rank's phase within a step.

use super::fault_injection::InjectedFault;
use pipewright_core::elastic::Origin;
use pipewright_core::plan::Instruction;
use pipewright_core::schedule::ActionKind;

/// A place in a rank's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPhase {
    /// Connected to the other ranks, without weights.
    Start,
    /// Its tensors are set: training begins at the step.
    Begun,
    /// Before a forward pass.
    Forward,
    /// Before a backward pass, or a part of one.
    Backward,
    /// Before a message is sent.
    Send,
    /// Before a message is waited for.
    Recv,
    /// Before a sum over ranks is waited for.
    AllReduce,
    /// Before parameters change.
    Optimizer,
    /// Between two files of a checkpoint, or before the first.
    Checkpoint,
    /// Before a checkpoint is made to exist.
    Rename,
    /// All ranks have made the step, and its state is kept where it is to be.
    Committed,
    /// Trained and tested; nothing of it has been told.
    Exit,
}

impl StepPhase {
    /// The place before an instruction, where somebody may want to know of it.
    pub(super) fn before(instruction: &Instruction) -> Option<Self> {
        match instruction {
            Instruction::Run { action, .. } if action.kind == ActionKind::Forward => {
                Some(StepPhase::Forward)
            }
            Instruction::Run { .. } => Some(StepPhase::Backward),
            Instruction::Send { .. } => Some(StepPhase::Send),
            Instruction::Recv { .. } => Some(StepPhase::Recv),
            Instruction::WaitReduce { .. } => Some(StepPhase::AllReduce),
            Instruction::Optimizer { .. } => Some(StepPhase::Optimizer),
            _ => None,
        }
    }
}

/// Hears where a rank is. Called by the rank's thread, some times a micro-batch: it must be quick.
pub trait ProgressHook: Send + Sync {
    /// The rank is at a place of step `step`, or of a later one's beginning. What is to happen to it
    /// there, in a test.
    fn at(&self, place: StepPhase, step: u64) -> Option<InjectedFault>;

    /// The rank's tensors are those after so many steps, and it is about to train.
    fn begun(&self, _trained: Origin) {}

    /// The rank has computed for so long in the step that it has just made.
    fn computed(&self, _busy_ns: u64) {}
}
