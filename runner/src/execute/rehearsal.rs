//! Rehearsal of a step on a device: its computations once, over zeros, before there is anything to lose.
//!
//! What a device allocates as it goes (scratch, workspaces of libraries, parameters in 16 bits, places of
//! samples) it has afterwards, so that a run that does not fit ends before its first step; and libraries
//! have loaded their kernels, which may wait for all work of the device: also for a message, whose sender
//! may wait for this rank.

use super::compute::Pass;
use super::rank::{Batch, Rank};
use crate::transport::Transport;
use pipewright_core::plan::Instruction;
use pipewright_kernels::Turn;

impl<T: Transport> Rank<'_, T> {
    /// Has the device do each action of each stage once: of other micro-batches it has the same sizes.
    /// Afterwards its memory is zero again. What goes wrong is an error of the first step.
    pub(super) fn rehearse(&mut self) {
        if !self.arena.rehearses() {
            return;
        }
        self.rehearse_input();
        let (program, mut seen) = (self.program, vec![]);
        for instruction in &program.train {
            let Instruction::Run { action, slot, outbox, version, .. } = *instruction else {
                continue;
            };
            if seen.contains(&(action.stage, action.kind)) {
                continue;
            }
            seen.push((action.stage, action.kind));
            let stage = program.stage(action.stage).expect("lowering put the action on this lane");
            let (batch, turn) = (Batch::Train(0), Turn { index: 0, count: 1 });
            let micro_batch = action.micro_batch;
            let pass = Pass { batch, micro_batch, turn, slot, outbox, version };
            let range = stage.range(action.kind);
            let mut next = range.start;
            while next < range.end {
                next += match stage.kernels[next].kind.is_exchange() {
                    // Ranks do not know each other yet: nothing is sent, nothing added up.
                    true => 1,
                    false => self.computation(stage, next, &pass),
                };
            }
        }
        self.arena.end_batch();
        self.arena.forget();
        self.arena.flush();
        self.arena.rehearsed();
    }
}
