//! Device `model`: spends the time that the plan's costs say, and computes nothing.
//!
//! Ranks, programs, messages and their bytes are real, so that many ranks on few cores test
//! scheduling, overlap and the simulator. Time is spent asleep:
//!
//! ```text
//! start(now)   the modelled processor begins, [1]
//! owe(kernel)  and has so much more to do
//! catch_up     is awake no earlier than that; called before what others may see
//! finish       the same; what it overslept is kept, [2]
//! waited       a lane that waits for others has made up for what it overslept, [3]
//! ```
//!
//! [1] at the moment at which it would have been free without [2]: errors of sleeping do not add up.

use crate::transport::Transport;
use pipewright_core::cost::Costs;
use pipewright_core::plan::{Kernel, StageProgram};
use pipewright_core::simulate::StageCost;
use std::time::Duration;

/// The end of each sleep is spent awake: threads wake late by about this much. Ranks of tensor groups sleep
/// for every sum, and what 16 of them spend awake they take from each other's cores.
const AWAKE_NS: u64 = 20_000;

/// Sleeps shorter than this are put off to the next kernel.
const WORTH_A_SLEEP_NS: u64 = 200_000;

/// A processor that has nothing but time.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    costs: &'a Costs,
    stages: &'a [StageCost],
    /// When it is done with what it owes, on the transport's clock.
    free: u64,
    /// How late the last sleep ended.
    overslept: u64,
}

impl<'a> Model<'a> {
    /// A device on which nodes and stages take what `costs` and `stages` say.
    pub fn new(costs: &'a Costs, stages: &'a [StageCost]) -> Self {
        Self { costs, stages, free: 0, overslept: 0 }
    }

    /// A step begins: ranks have just met, nothing is made up for across steps.
    pub fn begin(&mut self) {
        self.overslept = 0;
    }

    /// Work begins at `now`.
    pub fn start(&mut self, now: u64) {
        self.free = now - self.overslept;
    }

    /// A kernel is to be executed.
    pub fn owe(&mut self, kernel: &Kernel) {
        self.free += self.costs.node(kernel.node).of(kernel.kind).0;
    }

    /// The parameters of a stage are to be updated, or a rank's share of them.
    pub fn owe_update(&mut self, stage: &StageProgram) {
        self.free += stage.update_share(self.stages[stage.stage.index()].update).0;
    }

    /// Sleeps until what is owed is done, or nearly so.
    pub fn catch_up(&self, clock: &impl Transport) {
        if self.free.saturating_sub(clock.now_ns()) > WORTH_A_SLEEP_NS {
            sleep_until(self.free, clock);
        }
    }

    /// Sleeps until what is owed is done.
    pub fn finish(&mut self, clock: &impl Transport) {
        sleep_until(self.free, clock);
        self.overslept = clock.now_ns() - self.free;
    }

    /// It summed something with others within its work, which they all had to be there for.
    pub fn met(&mut self, clock: &impl Transport) {
        self.free = self.free.max(clock.now_ns());
    }

    /// The rank waited for others for `ns`.
    pub fn waited(&mut self, ns: u64) {
        self.overslept = self.overslept.saturating_sub(ns);
    }
}

fn sleep_until(moment: u64, clock: &impl Transport) {
    let left = moment.saturating_sub(clock.now_ns());
    if left > AWAKE_NS {
        std::thread::sleep(Duration::from_nanos(left - AWAKE_NS));
    }
    while clock.now_ns() < moment {
        std::hint::spin_loop();
    }
}
