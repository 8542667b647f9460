//! Variations of the best choices: first every neighbour, then random ones.

use super::enumerate::Chains;
use super::{Choice, Front, Space};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// The state of the refinement.
pub(super) struct Refine {
    random: ChaCha8Rng,
    waiting: Vec<Choice>,
    /// What was looked around already, and what was tried.
    expanded: BTreeSet<String>,
    tried: BTreeSet<String>,
}

/// Choices of the front around which is searched, the fastest first.
const AROUND: usize = 16;

/// Random variations that are drawn before the space counts as exhausted.
const DRAWS: usize = 2000;

impl Refine {
    pub fn new(seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { random, waiting: vec![], expanded: BTreeSet::new(), tried: BTreeSet::new() }
    }

    /// Up to `most` choices that were not tried; none when there is nothing left.
    pub fn batch(
        &mut self,
        space: &Space<'_>,
        chains: &Chains,
        front: &Front,
        most: usize,
    ) -> Vec<Choice> {
        if self.waiting.is_empty() {
            self.expand(space, chains, front);
        }
        if self.waiting.is_empty() {
            self.draw(space, chains, front, most);
        }
        let rest = self.waiting.len().saturating_sub(most);
        self.waiting.split_off(rest)
    }

    /// All neighbours of the fastest choice that was not looked around yet.
    fn expand(&mut self, space: &Space<'_>, chains: &Chains, front: &Front) {
        for entry in front.entries().iter().take(AROUND) {
            if !self.expanded.insert(key(&entry.choice)) {
                continue;
            }
            for near in neighbours(space, chains, &entry.choice) {
                self.wait_for(near);
            }
            if !self.waiting.is_empty() {
                return;
            }
        }
    }

    /// Several random steps away from one of the best.
    fn draw(&mut self, space: &Space<'_>, chains: &Chains, front: &Front, most: usize) {
        let entries = front.entries();
        if entries.is_empty() {
            return;
        }
        for _ in 0..DRAWS {
            if self.waiting.len() == most {
                return;
            }
            let mut choice = entries[self.below(entries.len().min(AROUND))].choice.clone();
            for _ in 0..2 + self.below(3) {
                let near = neighbours(space, chains, &choice);
                if !near.is_empty() {
                    choice = near[self.below(near.len())].clone();
                }
            }
            self.wait_for(choice);
        }
    }

    fn wait_for(&mut self, choice: Choice) {
        if self.tried.insert(key(&choice)) {
            self.waiting.push(choice);
        }
    }

    /// A number below `n`, which is small: the bias of the remainder does not matter here.
    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }
}

fn key(choice: &Choice) -> String {
    format!("{choice:?}")
}

/// A cut moved by a block or two, recomputation of a stage turned, micro-batches of another size.
fn neighbours(space: &Space<'_>, chains: &Chains, choice: &Choice) -> Vec<Choice> {
    let Some(chain) = chains.get(&(choice.samples(space.mini_batch), choice.tensor)) else {
        return vec![];
    };
    let mut found = vec![];
    for (i, &start) in choice.starts.iter().enumerate() {
        let low = i.checked_sub(1).map_or(0, |before| choice.starts[before]);
        let high = choice.starts.get(i + 1).copied().unwrap_or(chain.len() as u32);
        for to in start.saturating_sub(2).max(low + 1)..=(start + 2).min(high - 1) {
            if to != start {
                let mut moved = choice.clone();
                moved.starts[i] = to;
                found.push(moved);
            }
        }
    }
    if space.fixed.recompute.is_none() {
        for stage in 0..choice.recompute.len() {
            let mut turned = choice.clone();
            turned.recompute[stage] = !turned.recompute[stage];
            found.push(turned);
        }
    }
    if space.fixed.micro_batches.is_none() {
        let each = space.mini_batch / u64::from(choice.replicas);
        let known = |m: &u32| {
            each.is_multiple_of(u64::from(*m))
                && chains.contains_key(&(each / u64::from(*m), choice.tensor))
        };
        let m = choice.micro_batches;
        let fewer = (1..m).rev().find(known);
        let more = (m + 1..=m.saturating_mul(4)).find(known);
        for micro_batches in fewer.into_iter().chain(more) {
            found.push(Choice { micro_batches, ..choice.clone() });
        }
    }
    found
}
