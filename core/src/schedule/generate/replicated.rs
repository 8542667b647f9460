//! 1F1B with replicated stages (PipeDream: Narayanan et al., SOSP 2019, section 3.2): stage s has
//! r(s) replicas, and micro-batch j runs on replica j mod r(s).
//!
//! ```text
//! replicas 2, 1
//! lane 0 (stage 0)  0F0    0F2    0B0 0F4 ...
//! lane 1 (stage 0)  0F1       0F3     0B1 0F5 ...
//! lane 2 (stage 1)     1F0 1B0 1F1 1B1 1F2 1B2 ...
//! ```
//! A replica of stage s takes ceil((r(s) + ... + r(last)) / r(s)) of its micro-batches before its
//! first backward; with one replica each that is 1F1B's p - s.

use super::{GenerateError, backward, forward};
use crate::ids::LaneId;
use crate::schedule::{Action, Schedule, ScheduleKind, Updates};

impl Schedule {
    /// 1F1B for `replicas[s]` lanes of stage s, numbered stage by stage.
    ///
    /// # Errors
    /// No stage, a stage without replica, no micro-batch, fewer micro-batches than replicas of a
    /// stage, or more than a schedule may have.
    pub fn replicated(
        replicas: &[u32],
        micro_batches: u32,
        updates: Updates,
    ) -> Result<Schedule, GenerateError> {
        let stages = replicas.len() as u32;
        ScheduleKind::OneFOneB.pipe(stages, micro_batches)?;
        let lacking = |(stage, count): (usize, &u32)| {
            let fits = (1..=micro_batches).contains(count);
            (!fits).then_some(GenerateError::Replicas { stage, count: *count, micro_batches })
        };
        if let Some(error) = replicas.iter().enumerate().find_map(lacking) {
            return Err(error);
        }
        let mut lanes = vec![];
        let mut first = vec![];
        let mut behind: u32 = replicas.iter().sum();
        for (stage, count) in (0..).zip(replicas) {
            first.push(lanes.len() as u32);
            let ahead = behind.div_ceil(*count);
            lanes.extend((0..*count).map(|r| lane(stage, (r, *count), ahead, micro_batches)));
            behind -= count;
        }
        // Micro-batches that take the same replicas of all stages share a route.
        let way = |j: u32| first.iter().zip(replicas).map(move |(at, r)| LaneId(at + j % r));
        let period = period(replicas, micro_batches);
        Ok(Schedule {
            overlaps: vec![vec![]; lanes.len()],
            lanes,
            routes: (0..period).map(|j| way(j).collect()).collect(),
            route_of: (0..micro_batches).map(|j| j % period).collect(),
            micro_batches,
            updates,
        })
    }
}

/// After how many micro-batches the routes repeat; at most `micro_batches`.
fn period(replicas: &[u32], micro_batches: u32) -> u32 {
    let mut period = 1u64;
    for r in replicas.iter().map(|r| u64::from(*r)) {
        let (mut a, mut b) = (period, r);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        period = (period / a * r).min(u64::from(micro_batches));
    }
    period as u32
}

/// The actions of replica `r` of `count`.
fn lane(stage: u32, (r, count): (u32, u32), ahead: u32, micro_batches: u32) -> Vec<Action> {
    let own: Vec<u32> = (r..micro_batches).step_by(count as usize).collect();
    let ahead = own.len().min(ahead as usize);
    let mut actions: Vec<Action> = own[..ahead].iter().map(|i| forward(stage, *i)).collect();
    for (n, i) in own.iter().enumerate() {
        actions.push(backward(stage, *i));
        actions.extend(own.get(ahead + n).map(|next| forward(stage, *next)));
    }
    actions
}
