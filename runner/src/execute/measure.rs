//! Steps of a lone rank with every kernel timed, for `runner profile`.
//!
//! Kernels run in the order of the program, on the data that the kernels before them wrote: their
//! operands are in the caches, or not, as they are in training. A kernel in a loop of its own
//! would find everything there.

use super::compute::kernels;
use super::error::RunError;
use super::rank::{Batch, Rank};
use crate::transport::Transport;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::{NodeId, StageId};
use pipewright_core::plan::Instruction;

/// What [`Rank::measure_step`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// One computation of a node.
    Kernel(NodeId, ComputationKind),
    /// The update of a node's parameters.
    Update(NodeId),
}

impl<T: Transport> Rank<'_, T> {
    /// One training step of a lone rank, with every kernel timed; samples are not read ahead.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn measure_step(
        &mut self,
        step: u64,
        mut tell: impl FnMut(Measured, u64),
    ) -> Result<(), RunError> {
        let batch = Batch::Train(step);
        let program = self.program;
        self.begin_step(step);
        self.input.begin(batch);
        for instruction in &program.train {
            match *instruction {
                Instruction::Load { micro_batch, source, region } => {
                    self.load(batch, micro_batch, (source, region))
                        .map_err(|source| RunError::Data { step, source })?;
                }
                Instruction::Run { action, slot, outbox, version, .. } => {
                    let stage = program.stage(action.stage).expect("its lane");
                    let pass = self.pass(action, (slot, outbox, version), batch);
                    for kernel in &stage.kernels[kernels(stage, action.kind)] {
                        let start = self.transport.now_ns();
                        self.kernel(stage, kernel, &pass);
                        let time = self.transport.now_ns() - start;
                        tell(Measured::Kernel(kernel.node, kernel.kind), time);
                    }
                }
                Instruction::Optimizer { stage, .. } => self.measure_update(stage, &mut tell),
                // A lone rank has nobody to talk to.
                _ => {}
            }
        }
        Ok(())
    }

    fn measure_update(&mut self, stage: StageId, tell: &mut impl FnMut(Measured, u64)) {
        let stage = self.program.stage(stage).expect("its lane");
        for (node, owner) in (0..).map(NodeId).zip(self.graph.nodes()) {
            let start = self.transport.now_ns();
            for place in stage.params.iter().filter(|p| owner.params.contains(&p.param)) {
                self.update_param(place, place.weight, 0);
            }
            if !owner.params.is_empty() {
                tell(Measured::Update(node), self.transport.now_ns() - start);
            }
        }
    }
}
