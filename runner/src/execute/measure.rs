//! Steps of a lone rank with every kernel timed, for `runner profile`.
//!
//! Kernels run in the order of the program, on the data that the kernels before them wrote: their
//! operands are in the caches, or not, as they are in training. A kernel in a loop of its own
//! would find everything there.

use super::compute::Pass;
use super::error::RunError;
use super::rank::{Batch, Rank};
use crate::transport::Transport;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::ids::{NodeId, StageId};
use pipewright_core::plan::{Instruction, StageProgram};
use pipewright_kernels::cpu::thread_pool;
use std::ops::Range;

/// What [`Rank::measure_step`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// One computation of a node.
    Kernel(NodeId, ComputationKind),
    /// The update of a node's parameters.
    Update(NodeId),
}

impl<T: Transport> Rank<'_, T> {
    /// One training step of a lone rank, with every kernel timed, on a device by its own clock; samples
    /// are not read ahead.
    ///
    /// # Errors
    /// When a sample cannot be read, or the device has failed.
    pub fn measure_step(
        &mut self,
        step: u64,
        mut tell: impl FnMut(Measured, u64),
    ) -> Result<(), RunError> {
        let batch = Batch::Train(step);
        let program = self.program;
        self.begin_step(step);
        self.input.begin(batch);
        // Moments, two for each of these that has a time: on the device's clock they are known when all is
        // done.
        let (mut measured, mut moments) = (vec![], vec![]);
        for (index, instruction) in program.train.iter().enumerate() {
            match *instruction {
                Instruction::Load { micro_batch, source, region } => {
                    self.load(batch, micro_batch, (source, region))
                        .map_err(|source| RunError::Data { step, source })?;
                }
                Instruction::Run { action, slot, outbox, version, .. } => {
                    let stage = program.stage(action.stage).expect("its lane");
                    let pass = self.pass(action, slot, outbox, version, batch);
                    let kernels = stage.range(action.kind);
                    thread_pool::awake(self.threads, || {
                        self.measure_pass((stage, kernels), &pass, (&mut measured, &mut moments));
                    });
                }
                Instruction::Optimizer { stage, .. } => thread_pool::awake(self.threads, || {
                    self.measure_update(stage, (&mut measured, &mut moments));
                }),
                // A lone rank has nobody to talk to.
                _ => {}
            }
            let done = self.arena.check();
            done.map_err(|source| RunError::Device { step, instruction: index, source })?;
        }
        if self.arena.is_distant() {
            self.arena.end_batch();
            self.arena.ages(&mut moments);
            let instruction = program.train.len();
            let done = self.arena.check();
            done.map_err(|source| RunError::Device { step, instruction, source })?;
        }
        let mut times = moments.chunks_exact(2).map(|pair| pair[0].abs_diff(pair[1]));
        for (what, has_time) in measured {
            tell(what, if has_time { times.next().unwrap_or(0) } else { 0 });
        }
        Ok(())
    }

    fn moment(&mut self, moments: &mut Vec<u64>) {
        match self.arena.is_distant() {
            true => self.arena.moment(),
            false => moments.push(self.transport.now_ns()),
        }
    }

    fn measure_pass(
        &mut self,
        (stage, kernels): (&StageProgram, Range<usize>),
        pass: &Pass,
        (measured, moments): (&mut Vec<(Measured, bool)>, &mut Vec<u64>),
    ) {
        let Range { start: mut next, end } = kernels;
        while next < end {
            self.moment(moments);
            let done = self.computation(stage, next, pass);
            self.moment(moments);
            // Of those that a device does together the first takes all the time.
            for (at, kernel) in stage.kernels[next..][..done].iter().enumerate() {
                measured.push((Measured::Kernel(kernel.node, kernel.kind), at == 0));
            }
            next += done;
        }
    }

    fn measure_update(
        &mut self,
        stage: StageId,
        (measured, moments): (&mut Vec<(Measured, bool)>, &mut Vec<u64>),
    ) {
        let stage = self.program.stage(stage).expect("its lane");
        for (node, owner) in (0..).map(NodeId).zip(self.graph.nodes()) {
            if owner.params.is_empty() {
                continue;
            }
            self.moment(moments);
            let of_node = stage.params.iter().filter(|p| owner.params.contains(&p.param));
            self.update_all(of_node.map(|place| (place, place.weight)), 0);
            self.moment(moments);
            measured.push((Measured::Update(node), true));
        }
    }
}
