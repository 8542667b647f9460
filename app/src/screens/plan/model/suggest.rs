//! One suggestion at a time: the move of one cut that helps most, or what makes the plan fit.
//!
//! Candidates are ranked by their slowest stage, which the layer times give for free; only the
//! best few are simulated, by `advise`.

use crate::base::format;
use crate::base::texts::{t, tr};
use crate::planner::engine::{self, Figures, Ground, LayerTime, Solved};
use crate::planner::inputs::Inputs;
use pipewright_core::partition;
use pipewright_core::units::Nanos;

/// A change worth a click.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub title: String,
    pub figures: Figures,
    pub inputs: Inputs,
    /// Whether it was looked for because the plan does not fit.
    pub to_fit: bool,
}

/// Candidates that are simulated.
const TRIED_MAX: usize = 10;

/// The most promising moves of one cut, best first: title and inputs.
pub fn moves(inputs: &Inputs, layers: &[LayerTime]) -> Vec<(String, Inputs)> {
    let times: Vec<Nanos> = layers.iter().map(|l| l.time).collect();
    let change = |(cut, to): (usize, usize)| {
        let mut moved = inputs.clone();
        moved.cuts[cut] = layers[to].first_node;
        (tr!("Move cut {cut} after {layer}", cut = cut + 1, layer = layers[to - 1].name), moved)
    };
    let ranked = partition::moves(&bounds(inputs, layers), &times);
    ranked.into_iter().take(TRIED_MAX).map(change).collect()
}

/// Layer indexes at which stages begin, and the number of layers.
fn bounds(inputs: &Inputs, layers: &[LayerTime]) -> Vec<usize> {
    let at = |cut: &u32| layers.partition_point(|l| l.first_node < *cut);
    let cuts = inputs.cuts.iter().map(at);
    std::iter::once(0).chain(cuts).chain([layers.len()]).collect()
}

/// Ways to need less memory: smaller micro-batches, one lane more, the schedule that keeps less.
pub fn fits(inputs: &Inputs, layers: usize) -> Vec<(String, Inputs)> {
    let mut found = vec![];
    let divides = |m: &u64| inputs.mini_batch.is_multiple_of(*m);
    let more = (u64::from(inputs.micro_batches) + 1..=inputs.mini_batch.min(4096)).filter(divides);
    // An order from a file has its own number of micro-batches and lanes.
    let named = inputs.own.is_none();
    for m in more.take(if named { 3 } else { 0 }) {
        let smaller = Inputs { micro_batches: m as u32, ..inputs.clone() };
        found.push((tr!("Use {m} micro-batches", m), smaller));
    }
    use pipewright_core::schedule::ScheduleKind::{GPipe, OneFOneB};
    if inputs.schedule == GPipe && inputs.own.is_none() {
        found.push((t("Use 1F1B").into(), Inputs { schedule: OneFOneB, ..inputs.clone() }));
    }
    for lanes in [inputs.lanes() + 1, inputs.lanes() * 2] {
        if named && inputs.schedule.placement().stages(lanes) as usize <= layers && lanes <= 64 {
            let mut wider = inputs.clone();
            engine::split(&mut wider, lanes);
            found.push((tr!("Use {lanes} lanes", lanes), wider));
        }
    }
    found
}

/// What one candidate is worth.
pub fn consider(title: String, inputs: Inputs, now: &Solved, ground: &Ground) -> Option<Advice> {
    let ground = ground.with_samples(engine::samples(&inputs));
    let figures = engine::solve(&inputs, &ground).ok()?.figures;
    let to_fit = now.figures.peak > now.capacity;
    let better = if to_fit {
        figures.peak <= now.capacity
    } else {
        // Under 0.1 % a suggestion is noise.
        figures.peak <= now.capacity && figures.step.0 * 1000 < now.figures.step.0 * 999
    };
    better.then_some(Advice { title, figures, inputs, to_fit })
}

/// The words under the title: `▼ 6 % step time · same memory`.
pub fn price(advice: &Advice, now: &Figures) -> (String, String) {
    let time = format::signed_percent(advice.figures.step.secs(), now.step.secs());
    let memory = format::relative(advice.figures.peak.0 as f64, now.peak.0 as f64);
    if advice.to_fit {
        let peak = format::bytes_text(advice.figures.peak);
        return (tr!("fits with {peak}", peak), tr!("{change} time", change = time));
    }
    let first = time.replace('−', "▼ ").replace('+', "▲ ");
    let second = match memory {
        format::Delta::Same => t("same memory").into(),
        _ => {
            let change = format::signed_percent(advice.figures.peak.0 as f64, now.peak.0 as f64);
            tr!("{change} memory", change)
        }
    };
    (tr!("{change} step time", change = first), second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;

    /// The best of what would be tried for `inputs`.
    fn best(
        inputs: &Inputs,
        now: &Solved,
        ground: &Ground,
        layers: &[LayerTime],
    ) -> Option<Advice> {
        moves(inputs, layers)
            .into_iter()
            .filter_map(|(title, inputs)| consider(title, inputs, now, ground))
            .min_by_key(|a| a.figures.step)
    }

    /// Every push of every cut of every example, as far as undoing it would be worth suggesting.
    #[test]
    fn the_best_move_repairs_a_cut_that_was_pushed_away() {
        for example in &EXAMPLES {
            let home = example.inputs();
            let ground = Ground::of(&home);
            let layers = engine::layer_times(&ground.graph, &ground.costs);
            let home_bounds = bounds(&home, &layers);
            let mut repaired = 0;
            for (cut, around) in home_bounds.windows(3).enumerate() {
                for to in around[0] + 1..around[2] {
                    let mut pushed = home.clone();
                    pushed.cuts[cut] = layers[to].first_node;
                    let now = engine::solve(&pushed, &ground).unwrap();
                    let Some(undo) = consider("Undo".into(), home.clone(), &now, &ground) else {
                        continue;
                    };
                    let found = best(&pushed, &now, &ground, &layers);
                    let found = found.map(|f| f.figures.step);
                    let at_least = Some(undo.figures.step);
                    let place = format!("{}: cut {cut} before layer {to}", example.title);
                    assert!(found.is_some() && found <= at_least, "{place}: {found:?}");
                    repaired += 1;
                }
            }
            assert!(repaired > 0, "{}: no push made it slower", example.title);
        }
    }
}
