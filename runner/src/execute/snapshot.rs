//! Snapshot: the state of a rank between two steps, to come back to.

use super::rank::Rank;
use crate::transport::Transport;
use pipewright_core::plan::{Program, Region};
use pipewright_core::units::Bytes;

/// All that a rank carries from step to step.
#[derive(Default)]
pub struct Snapshot {
    /// What lasts of its arena.
    pub arena: Vec<u8>,
    /// What its codecs carry over.
    pub carried: Vec<f32>,
}

impl<T: Transport> Rank<'_, T> {
    /// The part of the arena that lasts from step to step.
    fn lasting_region(&self) -> Region {
        let Program { persistent, arena, exchange, .. } = self.program;
        Region { offset: Bytes::ZERO, bytes: *persistent - (*arena - exchange.offset) }
    }

    /// Writes down in `state` all that it carries.
    pub fn save_into(&mut self, state: &mut Snapshot) {
        let region = self.lasting_region();
        state.arena.clear();
        state.arena.extend_from_slice(self.arena.raw(region));
        state.carried.clear();
        self.gradients.carried(|carried| state.carried.extend_from_slice(carried.values));
    }

    /// Goes back to a state.
    pub fn restore(&mut self, state: &Snapshot) {
        let region = self.lasting_region();
        self.arena.raw_mut(region).copy_from_slice(&state.arena);
        let mut rest = &state.carried[..];
        self.gradients.carried(|carried| {
            let (own, behind) = rest.split_at(carried.values.len());
            carried.values.copy_from_slice(own);
            rest = behind;
        });
    }
}
