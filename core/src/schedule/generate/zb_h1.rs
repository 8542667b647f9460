//! ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 3.1): 1F1B with the backward
//! pass split, where weight gradients wait and fill what would be bubbles of the cool-down.
//!
//! With even stages the step takes `m (F + I + W) + (p - 1) (F + I - W)`, a third of 1F1B's bubble
//! for F = I = W, and no lane holds more than the `p` micro-batches of 1F1B's first lane.

use crate::schedule::{Action, ActionKind};

/// Lane r forwards p - 1 - r micro-batches, then alternates F and I; its first W comes after
/// r + 1 of the I.
pub(super) fn lane(lane: u32, lanes: u32, micro_batches: u32) -> Vec<Action> {
    let one = |op| (lane, op);
    delayed(micro_batches, lanes - 1 - lane, lane, one, one)
}

/// The shape that ZB-H1, ZB-H2 and the interleaved form share: of `passes` forwards `warm_up`
/// first, then F and I in turn, a W behind every I but the first `delay`, and the rest of the W
/// at the end. `forward` and `backward` give stage and micro-batch of the n-th F and of the n-th
/// I or W.
pub(super) fn delayed(
    passes: u32,
    warm_up: u32,
    delay: u32,
    forward: impl Fn(u32) -> (u32, u32),
    backward: impl Fn(u32) -> (u32, u32),
) -> Vec<Action> {
    let act = |kind, (stage, micro_batch)| Action::new(stage, kind, micro_batch);
    let warm_up = warm_up.min(passes);
    let mut actions = Vec::with_capacity(3 * passes as usize);
    actions.extend((0..warm_up).map(|op| act(ActionKind::Forward, forward(op))));
    for op in 0..passes {
        if warm_up + op < passes {
            actions.push(act(ActionKind::Forward, forward(warm_up + op)));
        }
        actions.push(act(ActionKind::BackwardInput, backward(op)));
        if op >= delay {
            actions.push(act(ActionKind::BackwardWeight, backward(op - delay)));
        }
    }
    let rest = passes.saturating_sub(delay)..passes;
    actions.extend(rest.map(|op| act(ActionKind::BackwardWeight, backward(op))));
    actions
}
