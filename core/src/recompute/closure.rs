//! Giving a value up between two of its uses: what must be computed again for the second.

use super::state::State;

/// Nodes that one search looks at, at most.
const EFFORT: u32 = 1500;

/// Share of its time that a computation costs which only takes the place of a later one.
const MOVED: f64 = 0.05;

/// What is to be computed again.
#[derive(Clone, Debug, Default)]
pub(super) struct Closure {
    /// In order; the last is the one that is asked for.
    pub nodes: Vec<u32>,
    /// Their ticks, and what keeping others longer costs.
    pub price: f64,
}

/// What memory costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    /// Ticks for a byte where there is none to spare.
    pub byte: f64,
    /// Bytes that may be used.
    pub limit: i64,
    /// A slot where there are none to spare.
    pub at: u32,
}

/// Finds closures.
pub(super) struct Closures {
    /// The search that visited a node last.
    visited: Vec<u32>,
    search: u32,
    /// Whether that search computes it again.
    again: Vec<bool>,
    effort: u32,
}

impl Closures {
    /// For problems of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self { visited: vec![0; nodes], search: 0, again: vec![false; nodes], effort: 0 }
    }

    /// How to compute `node` right before the item at `slot`: each input that is not there is
    /// either kept until then or computed again too, whichever costs less, where inputs shared by
    /// several are paid for once. Returns whether there is a way. O(nodes looked at x readers).
    pub fn find(
        &mut self,
        state: &State,
        node: u32,
        slot: u32,
        prices: Prices,
        found: &mut Closure,
    ) -> bool {
        self.search = self.search.wrapping_add(1);
        self.effort = EFFORT;
        found.nodes.clear();
        found.price = own_price(state, node, slot, prices.limit);
        for &input in state.problem.inputs(node) {
            found.price += self.price(state, input, slot, prices);
        }
        if !found.price.is_finite() {
            return false;
        }
        for &input in state.problem.inputs(node) {
            self.collect(state, input, &mut found.nodes);
        }
        found.nodes.push(node);
        true
    }

    /// What having `node` at `slot` costs.
    fn price(&mut self, state: &State, node: u32, slot: u32, prices: Prices) -> f64 {
        let i = node as usize;
        if self.visited[i] == self.search {
            // Whoever asked first pays.
            return 0.0;
        }
        self.visited[i] = self.search;
        self.again[i] = false;
        let Some(born) = state.before(node, slot) else { return f64::INFINITY };
        let keep = keep_price(state, node, state.end(born), slot, prices);
        if keep == 0.0 || state.problem.node(node).once || self.effort == 0 {
            return keep;
        }
        self.effort -= 1;
        let mut again = own_price(state, node, slot, prices.limit);
        for &input in state.problem.inputs(node) {
            if again >= keep {
                return keep;
            }
            again += self.price(state, input, slot, prices);
        }
        if again >= keep {
            return keep;
        }
        self.again[i] = true;
        again
    }

    fn collect(&mut self, state: &State, node: u32, nodes: &mut Vec<u32>) {
        let i = node as usize;
        if self.visited[i] != self.search || !std::mem::take(&mut self.again[i]) {
            return;
        }
        for &input in state.problem.inputs(node) {
            self.collect(state, input, nodes);
        }
        nodes.push(node);
    }
}

/// Keeping a value from its last use to a later slot.
fn keep_price(state: &State, node: u32, end: u32, slot: u32, prices: Prices) -> f64 {
    if end >= slot {
        return 0.0;
    }
    let bytes = state.bytes(node);
    let scarce = (end < prices.at && prices.at < slot)
        || (end + 1 < slot && state.most(end + 1, slot) + bytes > prices.limit);
    if scarce { prices.byte * bytes as f64 } else { 0.0 }
}

/// Computing `node` before `slot`, which may make a later computation superfluous.
fn own_price(state: &State, node: u32, slot: u32, limit: i64) -> f64 {
    let time = state.ticks.of(node) as f64;
    match state.after(node, slot) {
        Some(again) if state.most(slot, again) + state.bytes(node) <= limit => MOVED * time,
        _ => time,
    }
}
