//! ZB-V (Qi et al. 2024, section 6): two stages a lane in the shape of a V, lane r holds stages r
//! and 2p - 1 - r. When F = I = W no lane waits after its first forward, and no lane holds more
//! than the 2p half-stage activations that 1F1B's first lane holds.
//!
//! The order is the paper's by hand, as in PyTorch's `ScheduleZBVZeroBubble`: made for
//! m >= 2p - 1; fewer micro-batches are the same order with the missing ones left out.

use crate::schedule::{Action, ActionKind};

/// One of the two stages of a lane, with its next micro-batch by kind.
struct Leg {
    stage: u32,
    next: [u32; 4],
}

struct Writer {
    micro_batches: u32,
    actions: Vec<Action>,
}

impl Writer {
    fn put(&mut self, leg: &mut Leg, kinds: &[ActionKind]) {
        for kind in kinds {
            let next = &mut leg.next[*kind as usize];
            if *next < self.micro_batches {
                self.actions.push(Action::new(leg.stage, *kind, *next));
            }
            *next += 1;
        }
    }
}

/// The order of `lane`.
pub(super) fn lane(lane: u32, lanes: u32, micro_batches: u32) -> Vec<Action> {
    use ActionKind::{BackwardInput as I, BackwardWeight as W, Forward as F};
    let leg = |stage| Leg { stage, next: [0; 4] };
    let (mut down, mut up) = (leg(lane), leg(2 * lanes - 1 - lane));
    let mut to = Writer { micro_batches, actions: Vec::with_capacity(6 * micro_batches as usize) };
    let passes = micro_batches.max(2 * lanes - 1);
    // Until the first micro-batch is back: forwards only, those of the way up as they arrive.
    for _ in 0..2 * (lanes - lane) - 1 {
        to.put(&mut down, &[F]);
    }
    for _ in 0..lane {
        to.put(&mut up, &[F]);
        to.put(&mut down, &[F]);
    }
    for _ in 0..lanes - lane {
        to.put(&mut up, &[F, I, W]);
    }
    // Memory is full: every forward has its backward.
    while up.next[F as usize] < passes {
        if down.next[F as usize] < passes {
            to.put(&mut down, &[F]);
        }
        to.put(&mut down, &[I, W]);
        to.put(&mut up, &[F, I, W]);
    }
    // What other lanes wait for first, weight gradients last.
    for _ in 0..lane {
        to.put(&mut down, &[I]);
        to.put(&mut up, &[I]);
    }
    for _ in 0..lanes - lane {
        to.put(&mut down, &[I, W]);
    }
    while up.next[W as usize] < passes {
        to.put(&mut up, &[W]);
    }
    while down.next[W as usize] < passes {
        to.put(&mut down, &[W]);
    }
    to.actions
}
