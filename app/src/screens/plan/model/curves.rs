//! Computes the speed-up curves, a few milliseconds of points per turn of the event loop.

use super::speedup::{Curve, Curves, Key, MICRO_BATCHES_MAX, Point, STAGES};
use crate::base::stops::divisors;
use crate::planner::engine::{self, Ground};
use crate::planner::inputs::Inputs;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::units::Nanos;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Counts starts: an older computation stops.
    static NEWEST: Cell<u64> = const { Cell::new(0) };
}

/// Computes the curves whenever their key changes.
pub fn start(state: State, own: PlanState) {
    let key = Memo::new(move |_| state.inputs.with(Key::of));
    Effect::new(move |_| {
        let key = key.get();
        let mine = NEWEST.get() + 1;
        NEWEST.set(mine);
        let begin = move || {
            if NEWEST.get() != mine {
                return;
            }
            let alone = key.alone();
            let ground = Ground::of(&alone);
            let Ok(alone) = engine::solve(&alone, &ground) else { return };
            // A shard's, where a tensor group divides the network.
            let ground = key.divided(1).map_or(ground.clone(), |one| Ground::near(&one, &ground));
            let most = engine::most_lanes(&ground.graph, key.schedule());
            let ds: Vec<u32> = STAGES.into_iter().filter(|d| *d <= most).collect();
            let curves = ds.iter().map(|d| Curve { d: *d, points: vec![] }).collect();
            let alone = alone.figures.step;
            own.curves.set(Curves { key: Some(key.clone()), alone, curves, done: false });
            // Few micro-batches first: these points are quick and show the shape.
            let ms = divisors(key.mini_batch(), MICRO_BATCHES_MAX);
            let jobs = ms.iter().flat_map(|m| (0..ds.len()).map(|curve| (*m, curve)));
            let mut jobs: Vec<(u64, usize)> = jobs.collect();
            jobs.reverse();
            work((own, key), mine, ground, alone, jobs);
        };
        set_timeout(begin, Duration::from_millis(250));
    });
}

/// A few milliseconds of points, then the rest in later turns.
fn work(
    (own, key): (PlanState, Key),
    mine: u64,
    ground: Ground,
    alone: Nanos,
    mut jobs: Vec<(u64, usize)>,
) {
    if NEWEST.get() != mine {
        return;
    }
    let from = crate::base::meter::now();
    let mut ready = vec![];
    while let Some((m, curve)) = jobs.pop() {
        let d = own.curves.with_untracked(|c| c.curves[curve].d);
        let Some(base) = key.divided(m) else { continue };
        let ground = Ground::near(&base, &ground);
        let cuts = engine::lane_cuts(&ground, base.schedule, d);
        let inputs = Inputs { cuts, ..base };
        if let Ok(solved) = engine::solve(&inputs, &ground) {
            let speedup = alone.secs() / solved.figures.step.secs();
            ready.push((curve, Point { m, speedup }));
        }
        if crate::base::meter::now() - from > 6.0 {
            break;
        }
    }
    let done = jobs.is_empty();
    own.curves.update(|c| {
        for (curve, point) in ready {
            c.curves[curve].points.push(point);
        }
        c.done = done;
    });
    if !done {
        set_timeout(move || work((own, key), mine, ground, alone, jobs), Duration::from_millis(4));
    }
}
