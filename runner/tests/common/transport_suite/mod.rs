//! Conformance of transports. A case is run by all ranks at once and panics on the rank that
//! sees something wrong. `training/transport_local.rs` and `mpi/transport.rs` run the same cases.

pub mod endings;
mod nonblocking;

use pipewright_runner::transport::{Collective, PartCollective, REDUCE_MAX, ReduceOp, Transport};
use std::time::Duration;

/// A case: all ranks call it, and all return.
pub type Case = fn(&mut dyn Transport);

/// Slots that the cases need.
pub const SLOTS: usize = 16;

/// Cases that leave the transport fit for the next one.
pub const CASES: &[(&str, Case)] = &[
    ("ring", ring),
    ("tags_out_of_order", tags_out_of_order),
    ("one_tag_in_order", one_tag_in_order),
    ("large_and_empty", large_and_empty),
    ("slots_reused", slots_reused),
    ("everybody_to_everybody", everybody_to_everybody),
    ("all_reduce_joins", all_reduce_joins),
    ("all_reduce_has_equal_bits", all_reduce_has_equal_bits),
    ("collectives_in_groups", collectives_in_groups),
    ("parts_in_groups", parts_in_groups),
    ("links_do_not_block", nonblocking::do_not_block),
    ("links_call_together", nonblocking::call_together),
    ("hosts_are_numbered", nonblocking::hosts_are_numbered),
    ("gather_of_different_sizes", gather_of_different_sizes),
    ("barrier_waits_for_all", barrier_waits_for_all),
    ("clocks_agree", clocks_agree),
    ("names", names),
];

/// A safe send, for buffers that the caller visibly keeps until `wait_send(slot)`.
fn start(t: &mut dyn Transport, to: u32, tag: u32, bytes: &[u8], slot: usize) {
    // SAFETY: every case below waits for its slots before its buffers go, and a panic in between
    // ends the process (MPI) or the test (local, where the buffers of a failed test may be read
    // late by a peer that fails as well).
    unsafe { t.start_send(to, tag, bytes, slot) }.unwrap();
}

fn neighbours(t: &dyn Transport) -> (u32, u32) {
    let (rank, ranks) = (t.rank(), t.ranks());
    ((rank + ranks - 1) % ranks, (rank + 1) % ranks)
}

/// Bytes that depend on everything that could be mixed up.
fn pattern(from: u32, tag: u32, len: usize) -> Vec<u8> {
    let start = from.wrapping_mul(0x9e37_79b9) ^ tag.wrapping_mul(0x85eb_ca6b);
    (0..len as u32).map(|i| (start.wrapping_add(i).wrapping_mul(0xc2b2_ae35) >> 24) as u8).collect()
}

fn ring(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    // A token that went around has been touched by every rank, in order.
    let mut token = vec![t.rank()];
    for round in 0..t.ranks() {
        let bytes: Vec<u8> = token.iter().flat_map(|r| r.to_le_bytes()).collect();
        start(t, next, round, &bytes, 0);
        let mut into = vec![0; bytes.len()];
        t.recv(previous, round, &mut into).unwrap();
        t.wait_send(0).unwrap();
        token = into.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        token.push(t.rank());
    }
    let expected: Vec<u32> = (0..=t.ranks()).map(|i| (t.rank() + i) % t.ranks()).collect();
    assert_eq!(token, expected);
}

/// Everybody, pairs of neighbours, and each rank alone; several calls under way at a time.
fn collectives_in_groups(t: &mut dyn Transport) {
    let ranks = t.ranks();
    let mut groups = vec![(0..ranks).collect::<Vec<u32>>()];
    groups.extend((0..ranks).step_by(2).map(|rank| (rank..(rank + 2).min(ranks)).collect()));
    groups.extend((0..ranks).map(|rank| vec![rank]));
    t.connect(&groups, 6).unwrap();
    let mine: Vec<usize> =
        (0..groups.len()).filter(|group| groups[*group].contains(&t.rank())).collect();
    const CALLS: [Collective; 3] =
        [Collective::AllReduce, Collective::Broadcast, Collective::Reduce];
    let value =
        |rank: u32, group: usize, i: usize| (rank + 1) as f32 + (group * 10 + i % 97) as f32;
    // Fewer elements than ranks, and more than a cache block.
    for len in [1, 5000] {
        for group in mine.iter().copied() {
            let mut values: Vec<Vec<f32>> = (CALLS.iter())
                .map(|_| (0..len).map(|i| value(t.rank(), group, i)).collect())
                .collect();
            for (slot, call) in CALLS.into_iter().enumerate() {
                // SAFETY: `values` stay until all slots were waited for.
                unsafe { t.start_collective(call, group, &mut values[slot], slot) }.unwrap();
            }
            t.progress().unwrap();
            (0..CALLS.len()).for_each(|slot| t.wait_collective(slot).unwrap());
            let members = &groups[group];
            let of = |rank: u32| -> Vec<f32> { (0..len).map(|i| value(rank, group, i)).collect() };
            let add = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect();
            let sum = members.iter().copied().map(of).reduce(add).unwrap();
            assert_eq!(values[0], sum, "sum of {members:?}");
            assert_eq!(values[1], of(members[0]), "root of {members:?}");
            if members[0] == t.rank() {
                assert_eq!(values[2], sum, "reduced over {members:?}");
            }
        }
    }
}

/// Of each group's sums every rank has one part, then all have all.
fn parts_in_groups(t: &mut dyn Transport) {
    // Groups of another case may still be in use.
    t.barrier().unwrap();
    let ranks = t.ranks();
    let groups = [(0..ranks).collect::<Vec<u32>>(), (0..ranks).rev().take(2).rev().collect()];
    t.connect(&groups, 2).unwrap();
    let value = |rank: u32, i: usize| (rank + 1) as f32 * (1 + i % 97) as f32;
    for (at, group) in groups.iter().enumerate() {
        let Some(own) = group.iter().position(|rank| *rank == t.rank()) else { continue };
        // Parts that are nothing, and more than a cache block.
        for len in [0, 1, 40, 5000] {
            let mut values: Vec<f32> = (0..len).map(|i| value(t.rank(), i)).collect();
            let sum = |i: usize| group.iter().map(|rank| value(*rank, i)).sum::<f32>();
            let sums: Vec<f32> = (0..len).map(sum).collect();
            let part = pipewright_core::plan::part(len, group.len(), own);
            for call in [PartCollective::ReduceScatter, PartCollective::AllGather] {
                // SAFETY: `values` stay until the slot was waited for.
                unsafe { t.start_part_collective(call, at, &mut values, 1) }.unwrap();
                t.progress().unwrap();
                t.wait_collective(1).unwrap();
                assert_eq!(values[part.clone()], sums[part.clone()], "{call:?} of {len}");
            }
            assert_eq!(values, sums, "{len} values of {group:?}");
        }
    }
}

fn tags_out_of_order(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    let sent: Vec<Vec<u8>> = (0..8).map(|tag| pattern(t.rank(), tag, 100)).collect();
    for (tag, bytes) in sent.iter().enumerate() {
        start(t, next, tag as u32, bytes, tag);
    }
    for tag in [7, 0, 6, 1, 5, 2, 4, 3] {
        let mut into = [0; 100];
        t.recv(previous, tag, &mut into).unwrap();
        assert_eq!(into[..], pattern(previous, tag, 100), "tag {tag}");
    }
    (0..8).for_each(|slot| t.wait_send(slot).unwrap());
}

fn one_tag_in_order(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    let sent: Vec<Vec<u8>> = (0..8).map(|i| pattern(t.rank(), i, i as usize * 1000)).collect();
    // Slots do not say anything about the order.
    for (bytes, slot) in sent.iter().zip([5, 1, 7, 0, 2, 6, 4, 3]) {
        start(t, next, 3, bytes, slot);
    }
    for i in 0..8 {
        let mut into = vec![0; i as usize * 1000];
        t.recv(previous, 3, &mut into).unwrap();
        assert_eq!(into, pattern(previous, i, into.len()), "message {i}");
    }
    (0..8).for_each(|slot| t.wait_send(slot).unwrap());
}

fn large_and_empty(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    // 8 MiB, and one that is a whole number of the pieces that an MPI message is cut into.
    for (tag, len) in [(0, 8 << 20), (1, 0), (2, 1 << 16), (3, 1)] {
        let sent = pattern(t.rank(), tag, len);
        start(t, next, tag, &sent, 0);
        let mut into = vec![0; len];
        t.recv(previous, tag, &mut into).unwrap();
        t.wait_send(0).unwrap();
        assert!(into == pattern(previous, tag, len), "{len} bytes");
    }
}

fn slots_reused(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    let mut buffers = vec![vec![0u8; 3000]; SLOTS];
    for message in 0..20 * SLOTS {
        let slot = message % SLOTS;
        t.wait_send(slot).unwrap();
        // The buffer may change now: if a peer still read it, it would see the wrong message.
        buffers[slot] = pattern(t.rank(), message as u32, 3000);
        start(t, next, (message % 5) as u32, &buffers[slot], slot);
        // Half the slots stay in flight before the neighbour's messages are taken.
        if let Some(due) = message.checked_sub(SLOTS / 2) {
            receive(t, previous, due);
        }
    }
    (20 * SLOTS - SLOTS / 2..20 * SLOTS).for_each(|due| receive(t, previous, due));
    (0..SLOTS).for_each(|slot| t.wait_send(slot).unwrap());
    t.wait_send(0).unwrap();

    fn receive(t: &mut dyn Transport, previous: u32, due: usize) {
        let mut into = [0; 3000];
        t.recv(previous, (due % 5) as u32, &mut into).unwrap();
        assert_eq!(into[..], pattern(previous, due as u32, 3000), "message {due}");
    }
}

fn everybody_to_everybody(t: &mut dyn Transport) {
    let (rank, ranks) = (t.rank(), t.ranks());
    assert!(ranks as usize <= SLOTS);
    for round in 0..10 {
        let sent: Vec<Vec<u8>> = (0..ranks).map(|to| pattern(rank, to, 500)).collect();
        for to in 0..ranks {
            start(t, to, round, &sent[to as usize], to as usize);
        }
        for from in (0..ranks).rev() {
            let mut into = [0; 500];
            t.recv(from, round, &mut into).unwrap();
            assert_eq!(into[..], pattern(from, rank, 500));
        }
        (0..ranks as usize).for_each(|slot| t.wait_send(slot).unwrap());
    }
}

fn all_reduce_joins(t: &mut dyn Transport) {
    let (rank, ranks) = (f64::from(t.rank()), f64::from(t.ranks()));
    for len in [0, 1, 7, REDUCE_MAX] {
        let mine: Vec<f64> = (0..len).map(|i| rank + i as f64).collect();
        let mut joined = |op| {
            let mut values = mine.clone();
            t.all_reduce(&mut values, op).unwrap();
            values
        };
        let expected = |f: &dyn Fn(f64) -> f64| (0..len).map(|i| f(i as f64)).collect::<Vec<_>>();
        let sum = |i| ranks * (ranks - 1.0) / 2.0 + i * ranks;
        assert_eq!(joined(ReduceOp::Sum), expected(&sum));
        assert_eq!(joined(ReduceOp::Max), expected(&|i| ranks - 1.0 + i));
        assert_eq!(joined(ReduceOp::Min), expected(&|i| i));
    }
    // A rank that diverged must not be hidden by the others.
    for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min] {
        for diverged in 0..t.ranks() {
            let mut values = [if t.rank() == diverged { f64::NAN } else { 1.0 }];
            t.all_reduce(&mut values, op).unwrap();
            assert!(values[0].is_nan(), "{op:?}");
        }
    }
}

fn all_reduce_has_equal_bits(t: &mut dyn Transport) {
    // Values whose sum depends on the order of additions.
    let of_rank = |rank: u32| 0.1 * 7f64.powi(rank as i32) + 1.0 / 3.0;
    let mut sum = [of_rank(t.rank())];
    t.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    let expected = (1..t.ranks()).fold(of_rank(0), |sum, rank| sum + of_rank(rank));
    assert_eq!(sum[0].to_bits(), expected.to_bits());
}

fn gather_of_different_sizes(t: &mut dyn Transport) {
    for round in 0..3 {
        let len = |rank: u32| ((rank + round) % t.ranks() * 70_000) as usize;
        let mine = pattern(t.rank(), round, len(t.rank()));
        let all: Option<Vec<Vec<u8>>> =
            (t.rank() == 0).then(|| (0..t.ranks()).map(|r| pattern(r, round, len(r))).collect());
        assert!(t.gather(&mine).unwrap() == all);
    }
}

fn barrier_waits_for_all(t: &mut dyn Transport) {
    for late in 0..t.ranks().min(3) {
        let mut arrived = [0.0];
        if t.rank() == late {
            std::thread::sleep(Duration::from_millis(30));
            arrived[0] = t.now_ns() as f64;
        }
        t.barrier().unwrap();
        let left = t.now_ns() as f64;
        t.all_reduce(&mut arrived, ReduceOp::Max).unwrap();
        assert!(left >= arrived[0], "left before rank {late} came");
    }
}

/// All ranks run on one machine here, where clocks are the same and not merely close.
fn clocks_agree(t: &mut dyn Transport) {
    let (previous, next) = neighbours(t);
    for round in 0..20 {
        let sent = t.now_ns().to_le_bytes();
        start(t, next, round, &sent, 0);
        let mut into = [0; 8];
        t.recv(previous, round, &mut into).unwrap();
        let received = t.now_ns();
        t.wait_send(0).unwrap();
        // Nothing arrives before it was sent.
        assert!(received >= u64::from_le_bytes(into));
    }
    let mut latest = [t.now_ns() as f64];
    t.all_reduce(&mut latest, ReduceOp::Max).unwrap();
    assert!(t.now_ns() as f64 >= latest[0]);
}

fn names(t: &mut dyn Transport) {
    assert!(["local", "mpi"].contains(&t.name()));
    assert!(!t.host().is_empty() && t.rank() < t.ranks());
}
