//! New sequences by least cuts at the peak of old ones.

use super::super::cut::{Cutter, Moment, rebuild};
use super::super::front::Front;
use super::super::state::Ticks;
use super::super::{Problem, memory};
use super::SAVING;
use super::rng::Rng;

/// Moves that take as long as a cut, for each node.
const MOVES_A_NODE: f64 = 0.03;

/// Makes cuts.
pub(super) struct Scatter<'p> {
    problem: &'p Problem,
    cutter: Cutter<'p>,
    ticks: Ticks,
    factors: Vec<f64>,
}

/// Prices of a byte, as multiples of all time for the peak: the lowest, the highest and how many.
struct Range {
    low: f64,
    high: f64,
    prices: u32,
}

impl<'p> Scatter<'p> {
    pub fn new(problem: &'p Problem, ticks: Ticks) -> Self {
        Self { problem, cutter: Cutter::new(problem, ticks.clone()), ticks, factors: vec![] }
    }

    /// Adds the sequences of `prices` prices, from next to nothing to more than anything is worth.
    /// Returns the moves that this was worth.
    pub fn sweep(&mut self, front: &mut Front, start: &[u32], prices: u32) -> u64 {
        self.cuts(front, start, &Range { low: 1e-2, high: 1e3, prices }, false)
    }

    /// Adds sequences of random prices.
    pub fn random(&mut self, front: &mut Front, start: &[u32], rng: &mut Rng) -> u64 {
        self.draw(rng);
        let low = 0.3 * rng.factor(10.0);
        self.cuts(front, start, &Range { low, high: 8.0 * low, prices: 3 }, true)
    }

    fn cuts(&mut self, front: &mut Front, start: &[u32], range: &Range, random: bool) -> u64 {
        let memory = memory(self.problem, start);
        let peak = memory.iter().copied().max().unwrap_or(0);
        let scale = self.ticks.base as f64 / peak.max(1) as f64;
        let mut moments: Vec<usize> = memory.iter().position(|m| *m == peak).into_iter().collect();
        // What lives across a mark counts everywhere.
        let is_mark = |at: &usize| self.problem.marks().contains(&start[*at]);
        moments.extend((0..start.len()).filter(is_mark));
        let saving = SAVING * self.problem.time();
        let mut cuts = 0;
        for at in moments {
            let moment = Moment::new(self.problem, start, at);
            let mut last = None;
            for i in 0..range.prices {
                let share = (f64::from(i) + 0.5) / f64::from(range.prices);
                let price = scale * range.low * libm::pow(range.high / range.low, share);
                let factors = random.then_some(&self.factors[..]);
                let kept = self.cutter.cut(&moment, price, factors);
                cuts += 1;
                if last.replace(kept.bytes) != Some(kept.bytes) {
                    let found = rebuild(self.problem, start, at, &moment, &kept);
                    front.add(self.problem, &found, saving);
                }
            }
        }
        (cuts as f64 * self.problem.len() as f64 * MOVES_A_NODE) as u64 + 1
    }

    /// Random factors for the prices of nodes: noise, and waves along the sequence, so that of many
    /// like values some are kept and some are not.
    fn draw(&mut self, rng: &mut Rng) {
        let noise = [0.0, 0.2, 0.6, 1.5][rng.below(4) as usize];
        let height = [0.0, 0.5, 1.5, 3.0][rng.below(4) as usize];
        let waves = 1.0 + 30.0 * rng.unit() * rng.unit();
        let phase = rng.unit();
        let n = self.problem.len();
        self.factors.clear();
        self.factors.extend((0..n).map(|node| {
            let along = (waves * node as f64 / n as f64 + phase).fract();
            let wave = if along < 0.25 { -height } else { height };
            libm::exp(noise * (2.0 * rng.unit() - 1.0) + wave)
        }));
    }
}
