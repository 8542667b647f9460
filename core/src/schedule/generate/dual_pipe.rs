//! DualPipe and DualPipeV (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1;
//! Sea AI Lab's "cut in half" form for V): two flows through the same lanes in opposite
//! directions, a forward of one overlapped with a backward of the other.
//!
//! ```text
//! DualPipeV on 2 lanes, 4 micro-batches ([a b] overlap)
//! lane 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 [0F3 3B1] [3F2 0B0] 3B2 [3F3 0B1] 3B3 0I2 0W2 0I3 0W3
//! lane 1      1F0 2F0 1F1 2F1 1F2 2B0 [2F2 1B0] [1F3 2B1] [2F3 1B1] 2B2 1B2 2I3 1I3 2W3 1W3
//! ```
//! | | DualPipe | DualPipeV |
//! |---|---|---|
//! | lane r holds | stages r and p-1-r | stages r and 2p-1-r |
//! | flows | m/2 micro-batches down, m/2 up | each micro-batch down and then up |
//! | weights | twice | once |
//! | needs | p even, m even, m >= 2p | m >= 2p |
//! | even stages, F&B a pair's time | m(F+B) + (p/2-1)(F&B+B-3W) at most | 2m(F+B) + (p-1)(F&B+B-3W) at most |
//! | at most in flight | p + 1 | 2p + 1 |
//!
//! Both are one pattern on half of the lanes of DualPipe or on all of DualPipeV's.

use super::{GenerateError, Order, Pipe, backward, forward};
use crate::schedule::{Action, ActionKind};
use std::collections::VecDeque;

pub(super) fn two_way(pipe: Pipe) -> Result<Order, GenerateError> {
    let Pipe { lanes: p, micro_batches: m, .. } = pipe;
    if !m.is_multiple_of(2) || m < 2 * p {
        return Err(
            pipe.micro_batches_must(format!("it needs an even number of at least {}", 2 * p))
        );
    }
    let lane = |lane: u32| {
        let half = lane.min(p - 1 - lane);
        // What moves away from this end of the pipeline, and what comes from the other one.
        let (away, back) = if lane < p / 2 { (0, m / 2) } else { (m / 2, 0) };
        let flows = [Flow::new(half, away), Flow::new(p - 1 - half, back)];
        Lane::new(flows).all(half, p / 2, m / 2)
    };
    Ok((0..p).map(lane).collect())
}

pub(super) fn v(pipe: Pipe) -> Result<Order, GenerateError> {
    let Pipe { lanes: p, micro_batches: m, .. } = pipe;
    if m < 2 * p {
        return Err(pipe.micro_batches_must(format!("it needs at least {}", 2 * p)));
    }
    let lane = |lane: u32| {
        let flows = [Flow::new(lane, 0), Flow::new(2 * p - 1 - lane, 0)];
        Lane::new(flows).all(lane, p, m)
    };
    Ok((0..p).map(lane).collect())
}

/// The micro-batches that pass one stage of a lane.
struct Flow {
    stage: u32,
    next_forward: u32,
    next_backward: u32,
}

impl Flow {
    fn new(stage: u32, first: u32) -> Self {
        Self { stage, next_forward: first, next_backward: first }
    }
}

/// A lane with two flows: 0 goes away from its end of the pipeline, 1 comes back or from the other
/// end.
struct Lane {
    flows: [Flow; 2],
    /// Weight parts put off.
    weights: VecDeque<Action>,
    actions: Vec<Action>,
    overlaps: Vec<u32>,
}

impl Lane {
    fn new(flows: [Flow; 2]) -> Self {
        Self { flows, weights: VecDeque::new(), actions: vec![], overlaps: vec![] }
    }

    /// The eight steps of the published order for the lane at distance `r` from its end, with
    /// `half` lanes to the turning point and `m` micro-batches in each flow.
    fn all(mut self, r: u32, half: u32, m: u32) -> (Vec<Action>, Vec<u32>) {
        let to_turn = half - r - 1;
        // 1: fill.
        (0..2 * to_turn).for_each(|_| self.forward(0));
        // 2: fill both ways.
        for _ in 0..=r {
            self.forward(0);
            self.forward(1);
        }
        // 3: the first to come back, with its weight part at once.
        for _ in 0..to_turn {
            self.backward(1, true);
            self.weight();
            self.forward(1);
        }
        // 4: the main part. The very first pair of the lane at the turn is not overlapped, so that
        // its backward need not wait.
        for i in 0..m + r + 1 - 2 * half {
            if i == 0 && to_turn == 0 {
                self.forward(0);
                self.backward(1, false);
            } else {
                self.pair(0, 1);
            }
            self.pair(1, 0);
        }
        // 5: no forwards of flow 0 left.
        for _ in 0..to_turn {
            self.backward(1, false);
            self.pair(1, 0);
        }
        // 6: no forwards left; from the middle on weight parts are put off.
        for i in 0..=r {
            let (middle, odd) = (r.div_ceil(2), !r.is_multiple_of(2));
            self.backward(1, i > middle || (i == middle && odd));
            self.backward(0, i >= middle);
        }
        // 7 and 8: the weight parts that were put off.
        for _ in 0..to_turn {
            self.weight();
            self.backward(0, true);
        }
        (0..=r).for_each(|_| self.weight());
        (self.actions, self.overlaps)
    }

    fn forward(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        self.actions.push(forward(flow.stage, flow.next_forward));
        flow.next_forward += 1;
    }

    fn backward(&mut self, flow: usize, split: bool) {
        let flow = &mut self.flows[flow];
        let whole = backward(flow.stage, flow.next_backward);
        flow.next_backward += 1;
        if split {
            self.actions.push(Action { kind: ActionKind::BackwardInput, ..whole });
            self.weights.push_back(Action { kind: ActionKind::BackwardWeight, ..whole });
        } else {
            self.actions.push(whole);
        }
    }

    /// A forward of one flow and a backward of the other, overlapped.
    fn pair(&mut self, forward: usize, backward: usize) {
        self.overlaps.push(self.actions.len() as u32);
        self.forward(forward);
        self.backward(backward, false);
    }

    fn weight(&mut self) {
        self.actions.extend(self.weights.pop_front());
    }
}
