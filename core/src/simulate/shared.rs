//! Lanes that share devices: as on a laptop with more ranks than cores.
//!
//! Processor sharing: on a node with c devices and k > c lanes at work, each advances at c/k of
//! its speed. Time moves from one event to the next; O(events x lanes). Rates are computed with
//! plain float arithmetic, so the result is the same on every platform.

use super::machine::{Machine, Next, Stuck};
use crate::cost::Cluster;
use crate::ids::LaneId;
use crate::timeline::{Timeline, Work};
use crate::units::Nanos;

/// What a lane is doing.
enum State {
    /// Nanoseconds of work left at full speed.
    Working { left: f64, work: Work },
    /// Waiting for a moment.
    Until(Nanos),
    /// Waiting for another lane, or at its end.
    Idle,
}

pub(super) fn run(mut machine: Machine, cluster: &Cluster) -> Result<Timeline, Stuck> {
    let lanes = machine.lanes.len();
    let mut states: Vec<State> = (0..lanes).map(|_| State::Idle).collect();
    let mut now = 0.0f64;
    loop {
        // Lanes that may go on do so until they compute or wait.
        while let Some(lane) = machine.woken.pop() {
            if !matches!(states[lane.index()], State::Idle) {
                continue;
            }
            let moment = Nanos(now as u64);
            let state = &mut machine.lanes[lane.index()];
            state.now = state.now.max(moment);
            states[lane.index()] = match machine.step(lane) {
                Next::Compute(time, work) => State::Working { left: time.0 as f64, work },
                Next::Until(moment) => State::Until(moment),
                Next::Blocked | Next::Done => State::Idle,
            };
        }
        let rates = rates(&states, cluster);
        let Some(end) = next_event(&states, &rates, now) else { break };
        advance(&mut machine, &mut states, &rates, now, end);
        now = end;
    }
    machine.into_timeline()
}

/// Speed of each lane, 0 for those that do not work.
fn rates(states: &[State], cluster: &Cluster) -> Vec<f64> {
    let mut working = std::collections::BTreeMap::<u32, u32>::new();
    let node = |lane: usize| cluster.node_of(LaneId(lane as u32));
    for (lane, state) in states.iter().enumerate() {
        if let State::Working { .. } = state {
            *working.entry(node(lane)).or_default() += 1;
        }
    }
    let rate = |(lane, state): (usize, &State)| match state {
        State::Working { .. } => {
            let busy = working[&node(lane)];
            f64::from(cluster.devices_per_node.min(busy)) / f64::from(busy)
        }
        State::Until(_) | State::Idle => 0.0,
    };
    states.iter().enumerate().map(rate).collect()
}

/// The earliest moment at which a lane is done with what it does.
fn next_event(states: &[State], rates: &[f64], now: f64) -> Option<f64> {
    let end = |(state, rate): (&State, &f64)| match state {
        State::Working { left, .. } => Some(now + left / rate),
        State::Until(moment) => Some((moment.0 as f64).max(now)),
        State::Idle => None,
    };
    states.iter().zip(rates).filter_map(end).reduce(f64::min)
}

fn advance(machine: &mut Machine, states: &mut [State], rates: &[f64], now: f64, end: f64) {
    for (index, state) in states.iter_mut().enumerate() {
        let lane = LaneId(index as u32);
        let done = match state {
            State::Working { left, work } => {
                // The lane whose end this is must be done whatever the rounding: far from zero a
                // moment cannot tell a few nanoseconds, and the loop would turn for ever.
                let ends = now + *left / rates[index] <= end;
                *left -= (end - now) * rates[index];
                // Half a nanosecond absorbs the rounding of the subtraction.
                (ends || *left < 0.5).then_some(Some(*work))
            }
            State::Until(moment) => (moment.0 as f64 <= end).then_some(None),
            State::Idle => None,
        };
        if let Some(work) = done {
            *state = State::Idle;
            if let Some(work) = work {
                machine.finish(lane, work, Nanos(end as u64));
            }
            machine.woken.push(lane);
        }
    }
}
