//! Throughput and progress over time, as many points as can be seen.

use pipewright_core::elastic::life::{Generation, Life};

/// Samples a second from one moment to another, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// From.
    pub from: f64,
    /// Until.
    pub to: f64,
    /// Samples a second.
    pub rate: f64,
}

/// The throughput of all generations in pieces of at least `least` nanoseconds.
pub fn rates(life: &Life, least: f64) -> Vec<Rate> {
    life.generations.iter().flat_map(|generation| of(generation, least)).collect()
}

fn of(generation: &Generation, least: f64) -> Vec<Rate> {
    let Some(begin) = generation.training else { return vec![] };
    // The first point of a record is the end of its first step, which is when training is said to begin.
    let first = generation.points.first().filter(|(at, _)| *at == begin);
    let mut from = (begin.0 as f64, first.map_or(generation.first_step, |(_, step)| *step));
    let last = generation.points.len().saturating_sub(1);
    let mut found = vec![];
    for (number, (at, step)) in generation.points.iter().enumerate() {
        let length = at.0 as f64 - from.0;
        if length <= 0.0 || (length < least && number < last) {
            continue;
        }
        let samples = step.saturating_sub(from.1) * generation.mini_batch;
        found.push(Rate { from: from.0, to: at.0 as f64, rate: samples as f64 / length * 1e9 });
        from = (at.0 as f64, *step);
    }
    found
}

/// Samples over time: moments in nanoseconds and what was used until then, without points that lie
/// within `least` nanoseconds of the one before.
pub fn progress(life: &Life, least: f64) -> Vec<(f64, f64)> {
    let epoch = life.samples_epoch.max(1) as f64;
    let mut kept: Vec<(f64, f64)> = vec![];
    let line = life.epochs();
    for (number, (at, epochs)) in line.iter().enumerate() {
        let (at, samples) = (at.0 as f64, epochs * epoch);
        let near = kept.last().is_some_and(|(before, _)| at - before < least);
        // A line that turns from level to rising needs its corner.
        let corner = line.get(number + 1).is_some_and(|(next, _)| next.0 as f64 - at >= least);
        if !near || corner || number + 1 == line.len() {
            kept.push((at, samples));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life() -> Life {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        crate::screens::elastic::model::read("losses.jsonl", text).unwrap().life
    }

    #[test]
    fn pieces_together_are_what_was_trained() {
        let life = life();
        for least in [0.0, 1e9, 5e9] {
            let all = rates(&life, least);
            let samples: f64 = all.iter().map(|r| r.rate * (r.to - r.from) / 1e9).sum();
            // The first steps of generations, of which records know only the end, are missing.
            let missing = 40.0 * 32.0 * life.generations.len() as f64;
            let total = life.samples() as f64;
            assert!(samples <= total + 1.0 && samples > total - missing, "{samples} of {total}");
            assert!(all.windows(2).all(|w| w[0].to <= w[1].from + 1.0));
        }
        assert!(rates(&life, 5e9).len() < rates(&life, 0.0).len());
    }

    #[test]
    fn fewer_points_end_where_all_end() {
        let life = life();
        let (all, few) = (progress(&life, 0.0), progress(&life, 3e9));
        assert!(few.len() < all.len() && few.first() == all.first() && few.last() == all.last());
        assert!(few.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
    }
}
