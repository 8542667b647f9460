//! Graphs with too many downsets, local search, and errors in words.

use pipewright_core::cost::{Edge, Item, Link, Workload};
use pipewright_core::partition::{
    Hybrid, PartitionError, Pipeline, Worker, chunks, exact, hybrid, refine,
};
use pipewright_core::units::{Bytes, Nanos};

fn workload(times: &[u64], edges: &[(u32, u32, u64)]) -> Workload {
    let item = |(at, time): (usize, &u64)| Item {
        name: format!("item {at}"),
        forward: Nanos(*time),
        state: Bytes(100),
        ..Item::default()
    };
    let edge =
        |(from, to, bytes): &(u32, u32, u64)| Edge { to: *to, from: *from, bytes: Bytes(*bytes) };
    let mut edges: Vec<Edge> = edges.iter().map(edge).collect();
    edges.sort_unstable();
    let items = times.iter().enumerate().map(item).collect();
    Workload { name: "graph".into(), samples: 1, items, edges, ..Workload::default() }
}

/// Blocks of three layers in a row with a connection around them, as in residual networks.
fn residual(count: u32) -> Workload {
    let mut edges = vec![];
    for block in 0..count {
        let at = block * 3;
        edges.extend([(at, at + 1, 10), (at + 1, at + 2, 10), (at, at + 2, 10)]);
        if block + 1 < count {
            edges.push((at + 2, at + 3, 10));
        }
    }
    workload(&vec![7; 3 * count as usize], &edges)
}

#[test]
fn too_many_downsets_become_blocks() {
    // 60 branches of three: 4^60 downsets.
    let edges: Vec<(u32, u32, u64)> =
        (0..60).flat_map(|b| [(b * 3, b * 3 + 1, 5), (b * 3 + 1, b * 3 + 2, 5)]).collect();
    let times: Vec<u64> = (0..180).map(|at| 50 + at * 37 % 91).collect();
    let work = workload(&times, &edges);
    let free = exact(&work, &Pipeline::of(8)).unwrap();
    let link = Some(Link { latency_ns: Nanos(1), bytes_per_sec: 1e9 });
    let linked = exact(&work, &Pipeline { link, ..Pipeline::of(8) }).unwrap();
    for placement in [free, linked] {
        let statistics = placement.statistics;
        assert!(statistics.blocks.is_some_and(|blocks| blocks > 1));
        assert!(statistics.states <= 100_000);
        assert!(statistics.lower_bound <= placement.bottleneck);
        let bound = statistics.lower_bound.0 as f64;
        assert!((placement.bottleneck.0 as f64) < 1.1 * bound, "{placement:?}");
        let stages = placement.stage_of_item(180);
        assert!(work.edges.iter().all(|e| stages[e.from as usize] <= stages[e.to as usize]));
        assert_eq!(placement.stages.iter().map(|stage| stage.items.len()).sum::<usize>(), 180);
    }
}

#[test]
fn cuts_are_first_items() {
    let work =
        workload(&[4, 4, 4, 4, 4, 4], &[(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 1)]);
    let placement = exact(&work, &Pipeline::of(3)).unwrap();
    assert_eq!(placement.cuts(), Some(vec![2, 4]));
    assert_eq!(placement.devices(), 3);
}

#[test]
fn errors_say_what_is_missing() {
    let work = residual(2);
    let error = exact(&work, &Pipeline::of(7)).unwrap_err().to_string();
    assert!(error.contains("7 stages need as many layers, `graph` has 6"), "{error}");
    assert_eq!(exact(&work, &Pipeline::of(0)), Err(PartitionError::NoStage));
    let small = Worker { memory: Some(Bytes(250)), ..Worker::default() };
    let line = Pipeline { workers: vec![small; 2], ..Pipeline::of(0) };
    let error = exact(&work, &line).unwrap_err();
    assert!(error.to_string().contains("each needs 50 B more"), "{error}");
    let line = Pipeline { any_order: true, ..line };
    assert_eq!(exact(&work, &line), Err(error));
    let on = Hybrid { devices: 2, memory: Bytes(250), micro_batches: 4, bytes_per_sec: 1e9 };
    let error = hybrid(&work, &on).unwrap_err().to_string();
    assert!(error.contains("each needs 50 B more"), "{error}");
    let mut work = work;
    work.items[1].rules.host_only = true;
    let error = exact(&work, &Pipeline::of(2)).unwrap_err().to_string();
    assert!(error.contains("`item 1` runs on a host only"), "{error}");
}

#[test]
fn local_search_finds_the_valley() {
    let target = [3u32, 11, 12, 40];
    let distance = |cuts: &[u32]| {
        Nanos(cuts.iter().zip(target).map(|(cut, target)| u64::from(cut.abs_diff(target))).sum())
    };
    let all: Vec<u32> = (1..64).collect();
    let found = refine(&[10, 20, 30, 50], &all, 10_000, distance);
    assert_eq!((found.cuts, found.time, found.settled), (target.to_vec(), Nanos(0), true));
    let short = refine(&[10, 20, 30, 50], &all, 3, distance);
    assert_eq!((short.evaluations, short.settled), (3, false));
    // Only where cuts are allowed.
    let few = refine(&[10, 20, 30, 50], &[4, 8, 12, 16, 40], 10_000, distance);
    assert!(few.cuts.iter().all(|cut| [4, 8, 12, 16, 40, 10, 20, 30, 50].contains(cut)));
}

#[test]
fn lanes_of_chunks_are_even() {
    // Twice as much work at the end: on a V the first lane has the last chunk too.
    let times: Vec<u64> = (0..40).map(|at| if at < 20 { 10 } else { 20 }).collect();
    let work = workload(&times, &[]);
    let lanes = [0, 1, 2, 3, 3, 2, 1, 0];
    let cuts = chunks(&work, &lanes).unwrap();
    let mut bounds = vec![0];
    bounds.extend(&cuts);
    bounds.push(40);
    let mut loads = [0; 4];
    for (range, lane) in bounds.windows(2).zip(&lanes) {
        assert!(range[0] < range[1]);
        loads[*lane as usize] += times[range[0] as usize..range[1] as usize].iter().sum::<u64>();
    }
    // 150 each is possible; a local search promises no more than to be off by an item.
    assert!(loads.iter().max() <= Some(&170), "{cuts:?} {loads:?}");
    assert_eq!(chunks(&workload(&[1, 1], &[]), &[0, 1, 0]), None);
}
