//! The least cut of several moments at once.
//!
//! At each moment values are kept, at the moment's price for a byte, or computed later, as in
//! `cut.rs`. What is computed again after several of the moments may be one and the same computation,
//! so its time counts once: a further decision `c` of each node, which every `r` of it demands. That
//! is a closure problem still.

use super::super::Problem;
use super::super::flow::{Network, UNBOUNDED};
use super::super::state::Ticks;
use super::first::First;

const SOURCE: u32 = 0;
const SINK: u32 = 1;

/// Vertices before those of the first node.
const ENDS: u32 = 2;

/// Makes the cuts.
pub(in super::super) struct Joint<'p> {
    pub problem: &'p Problem,
    ticks: &'p Ticks,
    network: Network,
    /// By node: what not keeping it saves at all moments together.
    saved: Vec<u64>,
}

/// What is decided.
#[derive(Clone, Debug)]
pub(in super::super) struct Decision {
    /// Of what is computed again.
    pub ticks: f64,
    /// By moment: bytes that are kept, beyond its room.
    pub excess: Vec<f64>,
}

impl Decision {
    /// What it costs, in ticks. The least cost is a bound on the time of what is computed again, whatever
    /// the prices are.
    pub fn at(&self, prices: &[f64]) -> f64 {
        let room: f64 = self.excess.iter().zip(prices).map(|(excess, price)| excess * price).sum();
        self.ticks + room
    }
}

impl<'p> Joint<'p> {
    pub fn new(problem: &'p Problem, ticks: &'p Ticks) -> Self {
        Self { problem, ticks, network: Network::default(), saved: vec![0; problem.len()] }
    }

    /// The decision of least cost when a byte costs so many ticks at each of the moments.
    pub fn cut(&mut self, firsts: &[&First], prices: &[f64]) -> Decision {
        self.build(firsts, prices);
        self.network.flow(SOURCE, SINK);
        let vertices = (ENDS..).zip(0..self.problem.len() as u32);
        let again = vertices.filter(|(vertex, _)| self.network.on_source_side(*vertex));
        let again: u64 = again.map(|(_, node)| self.ticks.of(node)).sum();
        let mut vertex = ENDS + self.problem.len() as u32;
        let mut excess = vec![];
        let mut count = 0;
        for first in firsts {
            let mut bytes = 0;
            for value in &first.values {
                let there = value.wanted || self.network.on_source_side(vertex);
                if there && !self.network.on_source_side(vertex + 1) {
                    bytes += self.problem.node(value.node).bytes;
                }
                vertex += 2;
            }
            count += first.values.len();
            excess.push(bytes as f64 - first.room);
        }
        // Prices were rounded to whole ticks, up to one a value.
        Decision { ticks: again as f64 - 2.0 * count as f64, excess }
    }

    fn build(&mut self, firsts: &[&First], prices: &[f64]) {
        let nodes = self.problem.len() as u32;
        let values: u32 = firsts.iter().map(|first| first.values.len() as u32).sum();
        self.network.reset((ENDS + nodes + 2 * values) as usize);
        // A bit more than nothing, so that nothing is kept for no reason.
        let keep =
            |node: u32, price: f64| (price * self.problem.node(node).bytes as f64) as u64 + 1;
        self.saved.fill(0);
        for (first, price) in firsts.iter().zip(prices) {
            first.values.iter().for_each(|v| self.saved[v.node as usize] += keep(v.node, *price));
        }
        for node in 0..nodes {
            let ticks = self.ticks.of(node);
            if self.saved[node as usize] > ticks {
                self.network.edge(ENDS + node, SINK, ticks);
            }
        }
        let mut base = ENDS + nodes;
        for (first, price) in firsts.iter().zip(prices) {
            // What is wanted is there in any case and needs no vertex.
            let decided = |node: u32| {
                let place = first.places[node as usize].checked_sub(1)?;
                (!first.values[place as usize].wanted).then_some(base + 2 * place)
            };
            for value in &first.values {
                let computed = base + 2 * (first.places[value.node as usize] - 1) + 1;
                let keep = keep(value.node, *price);
                if let Some(there) = decided(value.node) {
                    self.network.edge(there, SINK, keep);
                }
                let Some(again) = value.again else { continue };
                if again > 0 {
                    if self.saved[value.node as usize] <= again {
                        continue;
                    }
                    self.network.edge(computed, ENDS + value.node, UNBOUNDED);
                }
                self.network.edge(SOURCE, computed, keep);
                let inputs = self.problem.inputs(value.node).iter();
                for there in inputs.chain([&value.node]).filter_map(|needed| decided(*needed)) {
                    self.network.edge(computed, there, UNBOUNDED);
                }
            }
            base += 2 * first.values.len() as u32;
        }
    }
}
