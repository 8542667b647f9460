//! Outputs of a network, kept while samples are evaluated.

use super::Rank;
use super::compute::Pass;
use pipewright_core::plan::{Kernel, StageProgram};

/// What the loss was told of a micro-batch: the network's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Place of its first sample in the mini-batch.
    pub first_sample: u64,
    /// The values of all its samples, row-major.
    pub values: Vec<f32>,
}

impl<T> Rank<'_, T> {
    /// From here on keeps what the loss reads, of this processor's passes: nothing on ranks that have
    /// no loss. A device with memory of its own keeps none.
    pub fn keep_outputs(&mut self) {
        self.outputs = Some(vec![]);
    }

    /// What was kept since somebody asked.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.outputs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps what `kernel` has just read, where it is the loss and somebody wants it.
    pub(super) fn keep_output(&mut self, stage: &StageProgram, kernel: &Kernel, pass: &Pass) {
        let is_loss = self.graph.node(kernel.node).op.is_loss();
        let Some(outputs) = self.outputs.as_mut().filter(|_| is_loss) else { return };
        let region = stage.region(&kernel.reads[0], pass.slot, pass.outbox);
        let values = self.arena.floats(region).to_vec();
        let first_sample = self.replica.first_sample(self.replica.index, pass.micro_batch);
        outputs.push(Output { first_sample, values });
    }
}
