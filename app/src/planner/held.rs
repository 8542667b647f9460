//! Parts of a lane's memory, by what they are for: they add up to its arena.

use crate::base::texts::n;
use pipewright_core::plan::Program;
use pipewright_core::units::Bytes;

/// Parts of a lane's memory, in the order in which they are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held(pub [Bytes; 7]);

/// Names of the parts.
pub const PARTS: [&str; 7] = [
    n("weights"),
    n("gradients"),
    n("optimizer"),
    n("other weights kept"),
    n("activations in flight"),
    n("encoded gradients"),
    n("working memory"),
];

impl Held {
    /// Those of a lane's program. Linear in its parameters.
    pub fn of(program: &Program) -> Self {
        let params = || program.stages.iter().flat_map(|stage| &stage.params);
        let weights: Bytes = params().map(|p| p.weight.bytes).sum();
        let gradients = program.gradient_bytes();
        let optimizer = program.optimizer_state();
        let others = program.persistent.saturating_sub(weights + gradients + optimizer);
        let pools = program.stages.iter().map(|s| s.slots.total() + s.outbox.total());
        let activations: Bytes = pools.sum();
        let encoded = program.exchange.bytes;
        let known = weights + gradients + optimizer + others + activations + encoded;
        let working = program.arena.saturating_sub(known);
        Self([weights, gradients, optimizer, others, activations, encoded, working])
    }

    /// The parts that are not empty, with their names.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, Bytes)> {
        PARTS.into_iter().zip(self.0).filter(|(_, bytes)| *bytes > Bytes::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, programs, reschedule, solve, split};
    use crate::planner::presets::first;
    use pipewright_core::schedule::ScheduleKind;

    #[test]
    fn parts_add_up_to_what_is_reserved() {
        for kind in ScheduleKind::ALL {
            let mut inputs = first();
            split(&mut inputs, 2);
            reschedule(&mut inputs, kind);
            (inputs.rest.data_parallel.replicas, inputs.rest.data_parallel.zero) = (2, 1);
            inputs.rest.communication.gradients = "one-bit+feedback".parse().unwrap();
            let ground = Ground::of(&inputs);
            let solved = solve(&inputs, &ground).unwrap();
            let programs = programs(&inputs, &ground).unwrap();
            assert_eq!(programs.len(), inputs.lanes() as usize);
            for program in &programs {
                let (lane, held) =
                    (&solved.timeline.lanes[program.lane.index()], Held::of(program));
                let sum: Bytes = held.0.into_iter().sum();
                assert_eq!(sum, lane.arena, "{kind}: {held:?}");
                assert!(held.0[0] > Bytes::ZERO && held.0[0] == held.0[1], "{kind}: {held:?}");
                assert!(held.0[4] > held.0[0], "{kind}: activations of large images");
            }
        }
    }
}
