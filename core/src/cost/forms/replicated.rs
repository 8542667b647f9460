//! Forms whose devices all hold the whole network.

use super::{Case, Doing, Form, FormCost, Part, share};
use crate::cost::collective::Collective;
use crate::cost::memory::{Sharding, States};
use crate::units::{Bytes, Nanos};

/// DDP's first bucket is small so that communication begins early (`_DEFAULT_FIRST_BUCKET_BYTES`).
const FIRST_BUCKET: Bytes = Bytes(1 << 20);
/// DDP's other buckets (`bucket_cap_mb = 25`).
const BUCKET: Bytes = Bytes(25 << 20);

/// Totals of a workload.
struct Totals {
    forward: Nanos,
    backward: Nanos,
    parameters: Bytes,
    stash: Bytes,
    input: Bytes,
    output: Bytes,
}

impl Totals {
    fn of(case: &Case) -> Self {
        let items = &case.work.items;
        let mut has_input = vec![false; items.len()];
        let mut has_reader = vec![false; items.len()];
        for edge in &case.work.edges {
            has_input[edge.to as usize] = true;
            has_reader[edge.from as usize] = true;
        }
        let ends = |inner: &[bool]| {
            items.iter().zip(inner).filter(|(_, inner)| !**inner).map(|(i, _)| i.output).sum()
        };
        Self {
            forward: items.iter().map(|i| i.forward).sum(),
            backward: items.iter().map(|i| i.backward()).sum(),
            parameters: case.work.parameters(),
            stash: items.iter().map(|i| i.stash).sum(),
            input: ends(&has_input),
            output: ends(&has_reader),
        }
    }
}

/// Appends pieces one after the other.
pub(super) struct Line {
    device: u32,
    pub now: Nanos,
    pub parts: Vec<Part>,
}

impl Line {
    pub fn new(device: u32) -> Self {
        Self { device, now: Nanos::ZERO, parts: vec![] }
    }

    /// What is done without a pause is one piece.
    pub fn then(&mut self, doing: Doing, time: Nanos) {
        let end = self.now + time;
        match self.parts.last_mut() {
            Some(last) if last.doing == doing && doing != Doing::Communication => last.end = end,
            _ => self.parts.push(Part { device: self.device, doing, start: self.now, end }),
        }
        self.now = end;
    }
}

/// One device.
pub(super) fn alone(case: &Case) -> FormCost {
    let all = Totals::of(case);
    let mut line = Line::new(0);
    line.then(Doing::Forward, all.forward);
    line.then(Doing::Backward, all.backward);
    line.then(Doing::Update, case.update(all.parameters, 1));
    FormCost {
        form: Form::Alone,
        devices: 1,
        step: line.now,
        peak: case.state_bytes(all.parameters, 1, Sharding::Whole) + all.stash,
        traffic: Bytes(0),
        communications: 0,
        parts: line.parts,
    }
}

/// One process: device 0 holds weights and optimizer; the others get the weights anew every step.
pub(super) fn data_parallel(case: &Case) -> FormCost {
    if case.devices == 1 {
        // PyTorch calls the network itself where there is one device.
        return FormCost { form: Form::DataParallel, ..alone(case) };
    }
    let (all, n) = (Totals::of(case), case.devices);
    let travel = |what, bytes| case.collective(what, n, 1, bytes);
    let (forward, backward) = (share(all.forward, n), share(all.backward, n));
    let mut first = Line::new(0);
    first.then(Doing::Communication, travel(Collective::Scatter, all.input));
    first.then(Doing::Communication, travel(Collective::Broadcast, all.parameters));
    let forward_at = first.now;
    first.then(Doing::Forward, forward);
    first.then(Doing::Communication, travel(Collective::Gather, all.output));
    let backward_at = first.now;
    first.then(Doing::Backward, backward);
    first.then(Doing::Communication, travel(Collective::Reduce, all.parameters));
    first.then(Doing::Update, case.update(all.parameters, 1));
    let mut parts = first.parts;
    for device in 1..n {
        let part = |doing, start, time| Part { device, doing, start, end: start + time };
        parts.push(part(Doing::Forward, forward_at, forward));
        parts.push(part(Doing::Backward, backward_at, backward));
    }
    let others = u64::from(n - 1);
    let parted = |bytes: Bytes| Bytes(bytes.0 * others / u64::from(n));
    FormCost {
        form: Form::DataParallel,
        devices: n,
        step: first.now,
        // Device 0 has the gathered outputs of all besides its own part's stash.
        peak: case.state_bytes(all.parameters, 1, Sharding::Whole)
            + Bytes(all.stash.0.div_ceil(u64::from(n)))
            + all.output,
        traffic: parted(all.input) + parted(all.output) + all.parameters * 2 * others,
        communications: 4,
        parts,
    }
}

/// Gradient buckets in the order in which they become full: the moment, counted from the start of
/// the backward pass, and the bytes. `items` are backward times and parameter bytes in forward
/// order.
///
/// As in PyTorch's reducer a bucket takes whole gradients and is full when it has reached its cap,
/// 1 MiB the first, 25 MiB the others. O(items).
pub fn buckets(items: &[(Nanos, Bytes)]) -> Vec<(Nanos, Bytes)> {
    let (mut full, mut open, mut now) = (vec![], Bytes(0), Nanos::ZERO);
    let mut ready = Nanos::ZERO;
    for (time, bytes) in items.iter().rev() {
        now += *time;
        open += *bytes;
        if *bytes > Bytes(0) {
            ready = now;
        }
        let cap = if full.is_empty() { FIRST_BUCKET } else { BUCKET };
        if open >= cap {
            full.push((now, std::mem::take(&mut open)));
        }
    }
    if open > Bytes(0) {
        // The last bucket is ready with the last gradient; what follows has no parameters.
        full.push((ready, open));
    }
    full
}

/// Start and end of each bucket's collective: one after the other, none before its bucket is full,
/// `end_k = max(full_k, end_(k - 1)) + time_k`.
pub fn bucket_ends(
    buckets: &[(Nanos, Bytes)],
    time: impl Fn(Bytes) -> Nanos,
) -> Vec<(Nanos, Nanos)> {
    let mut free = Nanos::ZERO;
    let mut reduce = |(full, bytes): &(Nanos, Bytes)| {
        let start = free.max(*full);
        free = start + time(*bytes);
        (start, free)
    };
    buckets.iter().map(&mut reduce).collect()
}

/// One process a device; with the optimizer state divided for ZeRO-1, gradients too for ZeRO-2.
pub(super) fn distributed(case: &Case, sharding: Sharding) -> FormCost {
    let case = Case { states: States { sharding, ..case.states }, ..*case };
    let (all, n) = (Totals::of(&case), case.devices);
    let zero = sharding != Sharding::Whole;
    let items: Vec<(Nanos, Bytes)> =
        case.work.items.iter().map(|i| (share(i.backward(), n), i.parameters)).collect();
    let forward = share(all.forward, n);
    let backward: Nanos = items.iter().map(|(time, _)| *time).sum();
    let full = if n == 1 { vec![] } else { buckets(&items) };
    let what = if zero { Collective::ReduceScatter } else { Collective::AllReduce };
    let ends = bucket_ends(&full, |bytes| case.collective(what, n, 1, bytes));
    let reduced = ends.last().map_or(Nanos::ZERO, |(_, end)| *end);
    let update_at = forward + backward.max(reduced);
    let updated = update_at + case.update(all.parameters, n);
    let gather = if zero && n > 1 {
        case.collective(Collective::AllGather, n, 1, all.parameters)
    } else {
        Nanos::ZERO
    };
    let mut parts = vec![];
    for device in 0..n {
        let mut part = |doing, start, end| parts.push(Part { device, doing, start, end });
        part(Doing::Forward, Nanos::ZERO, forward);
        part(Doing::Backward, forward, forward + backward);
        for (start, end) in &ends {
            part(Doing::Communication, forward + *start, forward + *end);
        }
        part(Doing::Update, update_at, updated);
        if gather > Nanos::ZERO {
            part(Doing::Communication, updated, updated + gather);
        }
    }
    FormCost {
        form: match sharding {
            Sharding::Whole => Form::DistributedDataParallel,
            Sharding::Optimizer => Form::Zero1,
            _ => Form::Zero2,
        },
        devices: n,
        step: updated + gather,
        peak: case.state_bytes(all.parameters, n, sharding)
            + Bytes(all.stash.0.div_ceil(u64::from(n))),
        // A reduce-scatter and an all-gather are an all-reduce.
        traffic: Case::ring_traffic(n, all.parameters),
        communications: full.len() as u64 + u64::from(gather > Nanos::ZERO),
        parts,
    }
}
