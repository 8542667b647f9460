//! Every exact partitioner against trying everything, on small random graphs.

use pipewright_core::cost::{Edge, Item, Link, Rules, Shard, Workload};
use pipewright_core::partition::{
    Footprint, Hybrid, Level, PartitionError, Pipeline, Worker, exact, hybrid, replicated,
};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

/// A random graph: items of up to 20 us and 40 bytes, edges from earlier to later items.
fn graphs(most: usize) -> impl Strategy<Value = Workload> {
    let item = (0u64..20, 0u64..40, 0u64..10, 0u64..60);
    let items = prop::collection::vec(item, 1..=most);
    let edges = prop::collection::vec((0..most as u32, 0..most as u32, 0u64..8), 0..2 * most);
    (items, edges).prop_map(|(items, edges)| {
        let n = items.len() as u32;
        let item = |(at, (time, state, stash, host)): (usize, (u64, u64, u64, u64))| Item {
            name: at.to_string(),
            forward: Nanos(time * 1000),
            state: Bytes(state),
            stash: Bytes(stash),
            parameters: Bytes(state / 2),
            rules: Rules { host: (host < 40).then_some(Nanos(host * 1000)), ..Rules::default() },
            ..Item::default()
        };
        let edge = |(a, b, bytes): (u32, u32, u64)| {
            let (from, to) = (a.min(b) % n, a.max(b) % n);
            (from < to).then_some(Edge { to, from, bytes: Bytes(bytes * 500) })
        };
        let mut edges: Vec<Edge> = edges.into_iter().filter_map(edge).collect();
        edges.sort_unstable();
        edges.dedup_by_key(|edge| (edge.to, edge.from));
        // A producer sends one value, however many read it.
        for at in 0..edges.len() {
            let first = edges.iter().find(|e| e.from == edges[at].from).unwrap().bytes;
            edges[at].bytes = first;
        }
        let items = items.into_iter().enumerate().map(item).collect();
        Workload { name: "random".into(), samples: 1, items, edges, ..Workload::default() }
    })
}

/// All ways to put items on stages so that edges never lead back.
fn placements(work: &Workload, stages: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for item in 0..work.items.len() as u32 {
        let needs = work.edges.iter().filter(|edge| edge.to == item);
        let needs: Vec<usize> = needs.map(|edge| edge.from as usize).collect();
        let longer = |placed: &Vec<usize>| {
            let first = needs.iter().map(|need| placed[*need]).max().unwrap_or(0);
            let placed = placed.clone();
            (first..stages).map(move |stage| [&placed[..], &[stage]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn items<'a>(
    work: &'a Workload,
    placed: &'a [usize],
    stage: usize,
) -> impl Iterator<Item = &'a Item> {
    work.items.iter().zip(placed).filter(move |(_, on)| **on == stage).map(|(item, _)| item)
}

/// Time on `worker` of what `placed` puts on `stage`; none where it cannot run or does not fit.
fn load(
    work: &Workload,
    line: &Pipeline,
    placed: &[usize],
    stage: usize,
    worker: &Worker,
    later: u64,
) -> Option<u64> {
    let own = || items(work, placed, stage);
    let scaled = |time: u64| (time * u64::from(worker.per_mille)).div_ceil(1000);
    let bytes: u64 = own()
        .map(|i| {
            let kept = (later + 1).min(u64::from(line.footprint.micro_batches));
            i.state.0
                + i.parameters.0 * u64::from(line.footprint.optimizer_copies)
                + i.stash.0 * kept
        })
        .sum();
    if worker.memory.is_some_and(|memory| bytes > memory.0) {
        return None;
    }
    if worker.host {
        let times: Option<Vec<u64>> = own().map(|item| Some(item.rules.host?.0)).collect();
        return Some(scaled(times?.into_iter().sum()));
    }
    let mut time = scaled(own().map(|item| item.time().0).sum());
    for from in 0..work.items.len() {
        let readers = || work.edges.iter().filter(|edge| edge.from as usize == from);
        let here = placed[from] == stage;
        let there = |edge: &Edge| placed[edge.to as usize] == stage;
        let sent = here && readers().any(|edge| !there(edge));
        let received = !here && readers().any(there);
        if let Some(link) = line.link.as_ref().filter(|_| sent || received) {
            time +=
                link.time(readers().next().unwrap().bytes).0 * if line.gradients { 2 } else { 1 };
        }
    }
    Some(time)
}

fn all_orders(workers: usize) -> Vec<Vec<usize>> {
    if workers == 0 {
        return vec![vec![]];
    }
    let mut orders = vec![];
    for order in all_orders(workers - 1) {
        for at in 0..workers {
            let mut order = order.clone();
            order.insert(at, workers - 1);
            orders.push(order);
        }
    }
    orders
}

fn workers() -> impl Strategy<Value = Vec<Worker>> {
    let worker =
        (prop::sample::select(vec![700u32, 1000, 1500]), prop::option::of(30u64..200)).prop_map(
            |(per_mille, memory)| Worker { per_mille, memory: memory.map(Bytes), host: false },
        );
    prop::collection::vec(worker, 1..4)
}

/// Unlike devices that must all be used: the slow one gets an item without work, which must not be
/// kept with its neighbour.
#[test]
fn an_idle_item_may_be_all_that_a_slow_device_has() {
    let item =
        |name: &str, time| Item { name: name.into(), forward: Nanos(time), ..Item::default() };
    let items = vec![item("a", 0), item("b", 8000), item("c", 0)];
    let edge = |to| Edge { to, from: to - 1, bytes: Bytes(0) };
    let work = Workload { items, edges: vec![edge(1), edge(2)], ..Workload::default() };
    let worker = |per_mille| Worker { per_mille, memory: None, host: false };
    let line = Pipeline { workers: vec![worker(1000), worker(700)], ..Pipeline::of(0) };
    assert_eq!(exact(&work, &line).unwrap().bottleneck, Nanos(5600));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn free_transfers(work in graphs(7), workers in workers(), micro_batches in 1u32..4) {
        let footprint = Footprint { optimizer_copies: 1, micro_batches };
        let line = Pipeline { workers, footprint, ..Pipeline::of(0) };
        let count = line.workers.len();
        let full = |placed: &Vec<usize>| (0..count).all(|stage| placed.contains(&stage));
        let value = |placed: Vec<usize>| {
            let load = |stage: usize| {
                let later = (count - 1 - stage) as u64;
                load(&work, &line, &placed, stage, &line.workers[stage], later)
            };
            (0..count).map(load).collect::<Option<Vec<u64>>>()?.into_iter().max()
        };
        let best = placements(&work, count).into_iter().filter(full).filter_map(value).min();
        match exact(&work, &line) {
            Ok(ours) => {
                prop_assert_eq!(Some(ours.bottleneck.0), best);
                let stages = ours.stage_of_item(work.items.len());
                let placed: Vec<usize> = stages.into_iter().map(|stage| stage as usize).collect();
                prop_assert_eq!(value(placed), best);
            }
            // Idle items without bytes may share a unit, so fewer stages than items can be full.
            Err(PartitionError::TooManyStages { .. }) => {
                let idle = work.items.iter().any(|item| item.time().0 == 0);
                prop_assert!(best.is_none() || idle);
            }
            Err(error) => {
                prop_assert_eq!(best, None);
                let PartitionError::Memory { missing, .. } = error else { panic!("{error}") };
                let more = |extra: u64| {
                    let mut line = line.clone();
                    for memory in line.workers.iter_mut().filter_map(|w| w.memory.as_mut()) {
                        *memory += Bytes(extra);
                    }
                    exact(&work, &line).is_ok()
                };
                prop_assert!(more(missing.0) && !more(missing.0 - 1));
            }
        }
    }

    #[test]
    fn transfers_hosts_and_any_order(
        work in graphs(6),
        mut workers in workers(),
        host in any::<bool>(),
        any_order in any::<bool>(),
        gradients in any::<bool>(),
    ) {
        workers.truncate(2);
        if host {
            workers.push(Worker { host: true, ..Worker::default() });
        }
        let link = Some(Link { latency_ns: Nanos(300), bytes_per_sec: 1e9 });
        let line = Pipeline { workers, any_order, link, gradients, ..Pipeline::of(0) };
        let count = line.workers.len();
        let mut orders = all_orders(count);
        if !any_order {
            orders = vec![(0..count).collect()];
        }
        let mut best = None;
        for placed in placements(&work, count) {
            for order in &orders {
                let load = |stage: usize| {
                    load(&work, &line, &placed, stage, &line.workers[order[stage]], 0)
                };
                let value = (0..count).map(load).collect::<Option<Vec<u64>>>();
                let value = value.and_then(|loads| loads.into_iter().max());
                best = best.into_iter().chain(value).min();
            }
        }
        match exact(&work, &line) {
            Ok(ours) => {
                prop_assert_eq!(Some(ours.bottleneck.0), best);
                let slowest = ours.stages.iter().map(|stage| stage.time).max();
                prop_assert_eq!(slowest, Some(ours.bottleneck));
            }
            Err(_) => prop_assert_eq!(best, None),
        }
    }

    #[test]
    fn replicas(work in graphs(6), machines in 1u32..5) {
        let level = Level { machines, bytes_per_sec: 1e8 };
        let ours = replicated(&work, &[level]).unwrap();
        let mut best = f64::INFINITY;
        for stages in 1..=machines as usize {
            let full = |placed: &Vec<usize>| (0..stages).all(|stage| placed.contains(&stage));
            for placed in placements(&work, stages).iter().filter(|placed| full(placed)) {
                best = best.min(replicas_of(&work, placed, stages, 0, machines, level));
            }
        }
        let ours = ours.bottleneck.0 as f64;
        prop_assert!((ours - best).abs() <= 1.0 + best * 1e-9, "{} {}", ours, best);
    }

    #[test]
    fn hybrids(
        work in graphs(5),
        memory in 40u64..400,
        devices in 1u32..5,
        ways in any::<bool>(),
    ) {
        let mut work = work;
        for item in work.items.iter_mut().filter(|_| ways) {
            let shard = Shard {
                degree: 2,
                forward: Nanos(item.forward.0 * 6 / 10),
                stash: Bytes(item.stash.0 / 2),
                state: Bytes(item.state.0 / 2),
                parameters: Bytes(item.parameters.0 / 2),
                ..Shard::default()
            };
            item.shards = vec![shard];
        }
        let memory = Bytes(memory);
        let on = Hybrid { devices, memory, micro_batches: 12, bytes_per_sec: 1e8 };
        let mut best = f64::INFINITY;
        for stages in 1..=devices as usize {
            let full = |placed: &Vec<usize>| (0..stages).all(|stage| placed.contains(&stage));
            for placed in placements(&work, stages).iter().filter(|placed| full(placed)) {
                best = best.min(hybrid_of(&work, placed, stages, devices, 0, &on));
            }
        }
        match hybrid(&work, &on) {
            Ok(ours) => {
                let ours = ours.bottleneck.0 as f64;
                prop_assert!((ours - best).abs() <= 2.0 + best * 1e-6, "{} {}", ours, best);
            }
            Err(_) => prop_assert!(best.is_infinite()),
        }
    }
}

/// Best replicas of stages 0..stages of `placed`, from the last stage on.
fn replicas_of(
    work: &Workload,
    placed: &[usize],
    stages: usize,
    done: usize,
    machines: u32,
    level: Level,
) -> f64 {
    if done == stages {
        return 0.0;
    }
    let stage = stages - 1 - done;
    let time: f64 = items(work, placed, stage).map(|item| item.time().0 as f64).sum();
    let parameters: f64 = items(work, placed, stage).map(|item| item.parameters.0 as f64).sum();
    let cut = |boundary: usize| {
        let crosses = |edge: &&Edge| {
            placed[edge.from as usize] < boundary && placed[edge.to as usize] >= boundary
        };
        let mut values: Vec<(u32, u64)> =
            work.edges.iter().filter(crosses).map(|e| (e.from, e.bytes.0)).collect();
        values.sort_unstable();
        values.dedup_by_key(|value| value.0);
        values.iter().map(|value| value.1 as f64).sum::<f64>()
    };
    let later = (stages - 1 - stage) as u32;
    (1..=machines.saturating_sub(stages as u32 - 1 - later))
        .map(|r| {
            let replicas = f64::from(r);
            let sync = 4.0 * (replicas - 1.0) * parameters / (level.bytes_per_sec * replicas) * 1e9;
            let mut own = (time + sync) / replicas;
            if stage > 0 {
                let bytes = cut(stage).max(cut(stage + 1));
                own = own.max(2.0 * bytes / (level.bytes_per_sec * replicas) * 1e9);
            }
            own.max(replicas_of(work, placed, stages, done + 1, machines - r, level))
        })
        .fold(f64::INFINITY, f64::min)
}

/// Best degrees of stages 0..stages of `placed`, from the last stage on.
fn hybrid_of(
    work: &Workload,
    placed: &[usize],
    left: usize,
    devices: u32,
    later: u32,
    on: &Hybrid,
) -> f64 {
    let Some(stage) = left.checked_sub(1) else { return 0.0 };
    let mut best = f64::INFINITY;
    for (data, tensor) in (1..=devices).flat_map(|d| [(d, 1u32), (d, 2)]) {
        if data * tensor > devices || !on.micro_batches.is_multiple_of(data) {
            continue;
        }
        let shard = |item: &Item| match tensor {
            1 => Some((item.time().0, item.stash.0, item.state.0, item.parameters.0)),
            _ => item
                .shards
                .first()
                .map(|s| ((s.forward + s.backward).0, s.stash.0, s.state.0, s.parameters.0)),
        };
        let own: Option<Vec<_>> = items(work, placed, stage).map(shard).collect();
        let Some(own) = own else { continue };
        let flight = u64::from((later + data).div_ceil(data));
        if own.iter().map(|w| w.1 * flight + w.2).sum::<u64>() > on.memory.0 {
            continue;
        }
        let crosses =
            |e: &&Edge| (placed[e.from as usize] == stage) != (placed[e.to as usize] == stage);
        let bytes: u64 = work.edges.iter().filter(crosses).map(|edge| edge.bytes.0).sum();
        let parameters: u64 = own.iter().map(|w| w.3).sum();
        let d = f64::from(data);
        let sync = 4.0 * (d - 1.0) / d * parameters as f64 / f64::from(on.micro_batches);
        let time = own.iter().map(|w| w.0 as f64).sum::<f64>() / d
            + (2.0 * bytes as f64 / d + sync) / on.bytes_per_sec * 1e9;
        let rest = hybrid_of(work, placed, stage, devices - data * tensor, later + data, on);
        best = best.min(time.max(rest));
    }
    best
}
