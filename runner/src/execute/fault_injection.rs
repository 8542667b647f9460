//! Damage on purpose, for tests: what a fault does to a rank that lives on.

use super::rank::Rank;
use crate::transport::Transport;
use pipewright_core::plan::ParamPlace;
use std::time::Duration;

/// What happens to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A value of its gradient is not a number.
    NotFinite,
    /// A bit of its weights is another one.
    Flip,
    /// From now on it takes so many times as long to compute.
    Slow(u32),
}

/// The bit that changes: a value becomes another of its size.
const BIT: u32 = 1 << 20;

impl<T: Transport> Rank<'_, T> {
    pub(super) fn inject_fault(&mut self, injury: InjectedFault) {
        let program = self.program;
        let trained = |place: &&ParamPlace| place.gradient.is_some();
        let mut places = program.stages.iter().flat_map(|stage| {
            let weight = |place: &ParamPlace| stage.versions.place(place.weight, 0, self.step);
            stage.params.iter().filter(trained).map(move |place| (weight(place), place.gradient))
        });
        let own = self.division.pieces.iter().flatten().find_map(|piece| piece.gradient);
        match (injury, places.next()) {
            (InjectedFault::Slow(factor), _) => self.slow = factor.max(1),
            (InjectedFault::NotFinite, Some((_, Some(gradient)))) => {
                self.arena.floats(own.unwrap_or(gradient))[0] = f32::NAN;
            }
            (InjectedFault::Flip, Some((weight, _))) => {
                let value = &mut self.arena.floats(weight)[0];
                *value = f32::from_bits(value.to_bits() ^ BIT);
            }
            // A stage without parameters has nothing to damage.
            _ => {}
        }
    }

    /// Takes as long as a slow rank would that has worked since `start`.
    pub(super) fn dawdle(&self, start: u64) {
        if self.slow > 1 {
            let more = (self.transport.now_ns() - start) * u64::from(self.slow - 1);
            std::thread::sleep(Duration::from_nanos(more));
        }
    }
}
