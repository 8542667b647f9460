//! The ways to compute one stage at one tensor-parallel degree: with more or less recomputation.

use crate::cost::{Item, Shard, Sync, Workload};
use crate::units::Bytes;

/// A stage at one degree.
#[derive(Debug)]
pub(super) struct Ways {
    /// Ascending.
    pub items: Vec<u32>,
    /// Devices of a replica.
    pub degree: u32,
    /// Nanoseconds a sample without recomputation.
    pub time: f64,
    pub parameters: f64,
    /// Bytes of the edges that leave the stage, one way.
    pub crossing: f64,
    /// Micro-batches in flight with which nothing needs recomputation.
    free: u32,
    /// Nanoseconds that recomputation adds with `free + 1`, `free + 2`, .. micro-batches in
    /// flight, never less with more; as far as the stage fits at all.
    added: Vec<f64>,
    choices: Vec<Choice>,
    memory: f64,
}

/// One item that may recompute.
#[derive(Clone, Copy, Debug)]
struct Choice {
    item: u32,
    /// Nanoseconds more.
    time: f64,
    /// Bytes a micro-batch and bytes always, first without recomputation, then with.
    stash: [f64; 2],
    state: [f64; 2],
}

/// Time, stash, state, parameters and syncs of one way to compute an item.
struct Way<'a> {
    time: f64,
    stash: f64,
    state: f64,
    parameters: f64,
    syncs: &'a [Sync],
}

impl<'a> Way<'a> {
    fn of(item: &'a Item, degree: u32, recompute: bool) -> Option<Self> {
        let bytes = |bytes: Bytes| bytes.0 as f64;
        if degree == 1 && !recompute {
            return Some(Self {
                time: item.time().0 as f64,
                stash: bytes(item.stash),
                state: bytes(item.state),
                parameters: bytes(item.parameters),
                syncs: &item.syncs,
            });
        }
        let fits = |s: &&Shard| s.degree == degree && s.recompute == recompute;
        let shard = item.shards.iter().find(fits)?;
        Some(Self {
            time: (shard.forward + shard.backward).0 as f64,
            stash: bytes(shard.stash),
            state: bytes(shard.state),
            parameters: bytes(shard.parameters),
            syncs: &shard.syncs,
        })
    }
}

impl Ways {
    /// Stage of `items` (ascending) on `degree` devices with `memory`, for up to `most`
    /// micro-batches in flight. `None` if an item cannot be divided so, or one micro-batch does
    /// not fit.
    pub(super) fn of(
        work: &Workload,
        items: &[u32],
        degree: u32,
        memory: Bytes,
        most: u32,
    ) -> Option<Self> {
        let mut ways = Self {
            items: items.to_vec(),
            degree,
            time: 0.0,
            parameters: 0.0,
            crossing: 0.0,
            free: 0,
            added: vec![],
            choices: vec![],
            memory: memory.0 as f64,
        };
        for item in items {
            let own = &work.items[*item as usize];
            let plain = Way::of(own, degree, false)?;
            let again = Way::of(own, degree, true);
            ways.time += plain.time;
            ways.parameters += plain.parameters;
            // Every item holds something; those that cannot recompute have the same choice twice.
            let (time, stash, state) = again
                .map_or((plain.time, plain.stash, plain.state), |w| (w.time, w.stash, w.state));
            ways.choices.push(Choice {
                item: *item,
                time: time - plain.time,
                stash: [plain.stash, stash],
                state: [plain.state, state],
            });
        }
        ways.crossing = crossing(work, items, degree)?;
        let (stash, state) = ways.held();
        let room = ((ways.memory - state) / stash.max(1e-9)).clamp(-1.0, f64::from(most));
        if room >= 0.0 {
            ways.free = room as u32;
        }
        while ways.free + (ways.added.len() as u32) < most {
            let flight = ways.free + ways.added.len() as u32 + 1;
            let Some(chosen) = ways.choose(flight) else { break };
            let added: f64 = chosen.iter().map(|at| ways.choices[*at].time).sum();
            let last = ways.added.last().copied().unwrap_or(0.0);
            ways.added.push(added.max(last));
        }
        (ways.free + ways.added.len() as u32 > 0).then_some(ways)
    }

    /// Stash and state without recomputation.
    fn held(&self) -> (f64, f64) {
        let sum = |of: fn(&Choice) -> f64| self.choices.iter().map(of).sum();
        (sum(|c| c.stash[0]), sum(|c| c.state[0]))
    }

    /// Nanoseconds that recomputation adds with `flight` micro-batches in flight; `None` if the
    /// stage does not fit.
    pub(super) fn added(&self, flight: u32) -> Option<f64> {
        match flight.checked_sub(self.free + 1) {
            None => Some(0.0),
            Some(at) => self.added.get(at as usize).copied(),
        }
    }

    /// Most micro-batches in flight for which recomputation adds at most `time`.
    pub(super) fn most_in_flight(&self, time: f64) -> u32 {
        self.free + self.added.partition_point(|added| *added <= time) as u32
    }

    /// Items that recompute with `flight` micro-batches in flight.
    pub(super) fn recomputed(&self, flight: u32) -> Vec<u32> {
        if flight <= self.free {
            return vec![];
        }
        let chosen = self.choose(flight).unwrap_or_default();
        let mut items: Vec<u32> = chosen.iter().map(|at| self.choices[*at].item).collect();
        items.sort_unstable();
        items
    }

    /// Which choices recompute so that the stage fits: the least time a byte first, then the last
    /// one exchanged for the cheapest that suffices, then those given up that are not needed.
    fn choose(&self, flight: u32) -> Option<Vec<usize>> {
        let flight = f64::from(flight);
        let saved = |c: &Choice| flight * (c.stash[0] - c.stash[1]) + c.state[0] - c.state[1];
        let (stash, state) = self.held();
        let need = flight * stash + state - self.memory;
        let mut order: Vec<usize> = (0..self.choices.len()).collect();
        order.retain(|at| saved(&self.choices[*at]) > 0.0);
        let rate = |at: &usize| self.choices[*at].time / saved(&self.choices[*at]);
        order.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then(a.cmp(b)));
        let (mut sum, mut count) = (0.0, 0);
        while sum < need {
            sum += saved(&self.choices[*order.get(count)?]);
            count += 1;
        }
        let rest = order.split_off(count);
        if let Some(last) = order.pop() {
            sum -= saved(&self.choices[last]);
            let enough = |at: &&usize| sum + saved(&self.choices[**at]) >= need;
            let time = |at: &usize| self.choices[*at].time;
            let cheaper = rest.iter().filter(enough).filter(|at| time(at) < time(&last));
            let last = *cheaper.min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(&last);
            order.push(last);
            sum += saved(&self.choices[last]);
        }
        order
            .sort_by(|a, b| self.choices[*b].time.total_cmp(&self.choices[*a].time).then(a.cmp(b)));
        order.retain(|at| {
            let own = saved(&self.choices[*at]);
            let needed = sum - own < need;
            sum -= if needed { 0.0 } else { own };
            needed
        });
        Some(order)
    }
}

/// Bytes of the edges that leave `items`, with what the collectives of `degree` add.
fn crossing(work: &Workload, items: &[u32], degree: u32) -> Option<f64> {
    let inside = |item: u32| items.binary_search(&item).is_ok();
    let mut bytes = 0.0;
    for edge in work.edges.iter().filter(|edge| inside(edge.from) != inside(edge.to)) {
        let (own, other) =
            if inside(edge.to) { (edge.to, edge.from) } else { (edge.from, edge.to) };
        let way = Way::of(&work.items[own as usize], degree, false)?;
        let sync = way.syncs.iter().find(|sync| sync.other == other);
        bytes += (edge.bytes + sync.map_or(Bytes(0), |sync| sync.bytes)).0 as f64;
    }
    Some(bytes)
}
