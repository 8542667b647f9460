//! From a repeating block to a schedule (Qi et al. 2024, "Pipeline Parallelism with Controllable
//! Memory", section 4): unroll the block, put W into the idle slots, then move passes of the
//! warm-up and the cool-down forward in time where memory allows, and squeeze.
//!
//! A slot is one F, I or W. A lane has four passes with neighbours, by *kind*: 0 F of the stage on
//! the way down the V, 1 F on the way up, 2 I of the way up, 3 I of the way down; 4 is W, of
//! whichever I is oldest. Kind k of lane r needs k - 1 of the same lane at the turns of the V, and
//! its neighbour's k elsewhere. Time and memory are linear in actions but for O(p) micro-batches
//! at both ends, whose moves are O(p) each.

use crate::schedule::{Action, ActionKind};
use std::ops::Range;

/// By lane: the first slot of each kind.
pub(super) type Pattern = Vec<[u32; 4]>;

/// Slots between two micro-batches: two each of F, I and W.
const PERIOD: u32 = 6;
const WEIGHT: u8 = 4;

/// One pass of a lane: kind and number within its kind (the micro-batch, except for W).
type Pass = (u8, u32);

/// What a lane does in each slot, and the inverse.
#[derive(Clone)]
struct Lane {
    grid: Vec<Option<Pass>>,
    slots: [Vec<u32>; 5],
}

impl Lane {
    fn put(&mut self, slot: usize, pass: Pass) {
        if self.grid.len() <= slot {
            self.grid.resize(slot + 1, None);
        }
        self.grid[slot] = Some(pass);
        let of_kind = &mut self.slots[pass.0 as usize];
        match of_kind.get_mut(pass.1 as usize) {
            Some(old) => *old = slot as u32,
            None => of_kind.push(slot as u32),
        }
    }

    /// The slot behind a pass.
    fn behind(&self, kind: u8, n: u32) -> usize {
        self.slots[kind as usize][n as usize] as usize + 1
    }

    fn drop_weights(&mut self) {
        for slot in self.slots[WEIGHT as usize].drain(..) {
            self.grid[slot as usize] = None;
        }
        let end = self.grid.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.grid.truncate(end);
    }

    /// W in the idle slots as soon as there is one to do.
    fn put_weights(&mut self) {
        let mut state = State::default();
        for slot in 0.. {
            let idle = self.grid.get(slot).is_none_or(|pass| pass.is_none());
            if slot >= self.grid.len() && state.pending == 0 {
                break;
            }
            if idle && state.pending > 0 {
                self.put(slot, (WEIGHT, self.slots[WEIGHT as usize].len() as u32));
            }
            state = state.after(self.grid[slot]);
        }
    }
}

/// What a lane holds after a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// Half-stage activations from F to W.
    held: u32,
    /// I without their W.
    pending: u32,
}

impl State {
    fn after(mut self, pass: Option<Pass>) -> Self {
        match pass {
            Some((0 | 1, _)) => self.held += 1,
            Some((2 | 3, _)) => self.pending += 1,
            Some(_) => (self.held, self.pending) = (self.held - 1, self.pending - 1),
            None => {}
        }
        self
    }

    /// The same where idle slots are for W that have not been placed.
    fn after_lazily(self, pass: Option<Pass>) -> Self {
        match pass {
            None if self.pending > 0 => self.after(Some((WEIGHT, 0))),
            pass => self.after(pass),
        }
    }
}

/// The orders of all lanes for `micro_batches` repetitions of `pattern`.
pub(super) fn unroll(lanes: u32, micro_batches: u32, pattern: Pattern) -> Vec<Vec<Action>> {
    let mut all: Vec<Lane> = pattern
        .into_iter()
        .map(|starts| {
            let mut lane = Lane { grid: vec![], slots: Default::default() };
            for n in 0..micro_batches {
                for (kind, start) in (0..).zip(starts) {
                    lane.put((start + PERIOD * n) as usize, (kind, n));
                }
            }
            lane
        })
        .collect();
    // Moving W along with the rest tidies the warm-up. A second round moves the cool-down only
    // and gives W what idle slots are left.
    all.iter_mut().for_each(Lane::put_weights);
    for with_weights in [true, false] {
        tighten(&mut all, micro_batches, with_weights);
        if !with_weights {
            all.iter_mut().for_each(Lane::put_weights);
        }
        squeeze(&mut all);
        all.iter_mut().for_each(Lane::drop_weights);
    }
    (0..lanes).zip(&all).map(|(r, lane)| actions(lane, r, 2 * lanes - 1 - r)).collect()
}

/// The earliest slot of `pass` of lane `r` that what it needs allows. `inputs`: the lane's slots
/// of I so far, ascending.
fn earliest(all: &[Lane], inputs: &[u32], r: usize, (kind, n): Pass) -> usize {
    let mut after = 0;
    let neighbour = if kind % 2 == 0 { r.checked_sub(1) } else { Some(r + 1) };
    if kind < WEIGHT {
        if let Some(lane) = neighbour.and_then(|r| all.get(r)) {
            after = after.max(lane.behind(kind, n));
        }
        if kind > 0 {
            after = after.max(all[r].behind(kind - 1, n));
        }
    } else {
        after = inputs[n as usize] as usize + 1;
    }
    if n > 0 {
        after = after.max(all[r].behind(kind, n - 1));
    }
    after
}

/// Moves passes to earlier idle slots, in the order of their slots: those before the first
/// micro-batch is done (only with W placed) and those after the last one has begun. No lane holds
/// more afterwards than the worst lane did before.
fn tighten(all: &mut [Lane], micro_batches: u32, with_weights: bool) {
    let step: Step = if with_weights { State::after } else { State::after_lazily };
    let walk = |lane: &Lane| {
        let states = lane.grid.iter().scan(State::default(), |state, pass| {
            *state = step(*state, *pass);
            Some(*state)
        });
        states.collect::<Vec<State>>()
    };
    let mut states: Vec<Vec<State>> = all.iter().map(walk).collect();
    let limit = states.iter().flatten().map(|state| state.held).max().unwrap_or(0);
    let end = all.iter().map(|lane| lane.grid.len()).max().unwrap_or(0);
    let mut inputs = vec![vec![]; all.len()];
    let mut change = vec![];
    let (mut first_done, mut last_begun) = (false, false);
    for slot in 0..end {
        for r in 0..all.len() {
            let Some(pass) = all[r].grid.get(slot).copied().flatten() else { continue };
            first_done |= pass.0 == 3 && r == 0;
            let steady = first_done && !last_begun;
            last_begun |= steady && pass == (0, micro_batches - 1);
            let moves = if first_done { !steady } else { with_weights };
            let mut to = slot;
            if moves {
                let from = earliest(all, &inputs[r], r, pass);
                to = target(&all[r], &states[r], from..slot, limit, step, &mut change);
                if to < slot {
                    states[r][to..to + change.len()].copy_from_slice(&change);
                    all[r].grid[slot] = None;
                    all[r].put(to, pass);
                }
            }
            if let 2 | 3 = pass.0 {
                let at = inputs[r].partition_point(|other| *other < to as u32);
                inputs[r].insert(at, to as u32);
            }
        }
    }
}

type Step = fn(State, Option<Pass>) -> State;

/// The first idle slot of `slots` to which the pass at its end can move without more than `limit`
/// being held, or that end; `change` gets the states from there on, as far as they differ.
fn target(
    lane: &Lane,
    states: &[State],
    slots: Range<usize>,
    limit: u32,
    step: Step,
    change: &mut Vec<State>,
) -> usize {
    let mut to = slots.start;
    while to < slots.end {
        if lane.grid[to].is_some() {
            to += 1;
            continue;
        }
        match shift(lane, states, slots.end, to, limit, step, change) {
            None => return to,
            // Slots up to the one that holds too much would make it hold as much.
            Some(over) => to = over + 1,
        }
    }
    slots.end
}

/// The states from slot `to` on if the pass at `slot` moved there, into `change`; the first slot
/// that would hold more than `limit`.
fn shift(
    lane: &Lane,
    states: &[State],
    slot: usize,
    to: usize,
    limit: u32,
    step: Step,
    change: &mut Vec<State>,
) -> Option<usize> {
    let mut state = to.checked_sub(1).map_or(State::default(), |before| states[before]);
    change.clear();
    for (at, &here) in lane.grid.iter().enumerate().skip(to) {
        let pass = match at {
            _ if at == to => lane.grid[slot],
            _ if at == slot => None,
            _ => here,
        };
        state = step(state, pass);
        if at > slot && state == states[at] {
            break;
        }
        if state.held > limit {
            return Some(at);
        }
        change.push(state);
    }
    None
}

/// Starts every pass as soon as its lane and what it needs allow, in the same order.
fn squeeze(all: &mut [Lane]) {
    // Every pass moves to its own slot or an earlier one, so what is ahead stays as it was.
    let mut free = vec![0; all.len()];
    let end = all.iter().map(|lane| lane.grid.len()).max().unwrap_or(0);
    for slot in 0..end {
        for r in 0..all.len() {
            let Some(pass) = all[r].grid.get_mut(slot).and_then(Option::take) else { continue };
            // A W stands behind its I in the lane's order already.
            let needs = if pass.0 == WEIGHT { 0 } else { earliest(all, &[], r, pass) };
            let to = needs.max(free[r]);
            all[r].put(to, pass);
            free[r] = to + 1;
        }
    }
}

/// The lane's passes in order, W in the idle slots, those of the way up first.
fn actions(lane: &Lane, down: u32, up: u32) -> Vec<Action> {
    let mut actions = Vec::with_capacity(lane.slots[0].len() * PERIOD as usize);
    let (mut pending, mut done) = ([0u32; 2], [0u32; 2]);
    let weight = |pending: &mut [u32; 2], done: &mut [u32; 2]| {
        let way = (0..2).find(|way| pending[*way] > 0)?;
        pending[way] -= 1;
        done[way] += 1;
        Some(Action::new([up, down][way], ActionKind::BackwardWeight, done[way] - 1))
    };
    for pass in &lane.grid {
        let Some((kind, n)) = pass else {
            actions.extend(weight(&mut pending, &mut done));
            continue;
        };
        let stage = if matches!(kind, 0 | 3) { down } else { up };
        let what = if *kind < 2 { ActionKind::Forward } else { ActionKind::BackwardInput };
        if *kind >= 2 {
            pending[*kind as usize - 2] += 1;
        }
        actions.push(Action::new(stage, what, *n));
    }
    actions.extend(std::iter::from_fn(|| weight(&mut pending, &mut done)));
    actions
}
