//! Ranks as threads: the conformance suite, and what only threads can do to each other.

use crate::common::ranks::on_ranks;
use crate::common::transport_suite::{CASES, SLOTS, endings};
use pipewright_runner::transport::local::local;
use pipewright_runner::transport::{ReduceOp, Transport, TransportError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

#[test]
fn the_conformance_suite_passes() {
    for ranks in [1, 2, 3, 4, 8] {
        for &(name, case) in CASES {
            let panicked = on_ranks(local(ranks, SLOTS), move |t| case(t));
            assert!(panicked.is_empty(), "{name} on {ranks} ranks: {panicked:?} failed");
        }
    }
}

#[test]
fn cases_can_follow_each_other_on_one_transport() {
    assert!(on_ranks(local(4, SLOTS), |t| CASES.iter().for_each(|(_, case)| case(t))).is_empty());
}

#[test]
fn a_message_of_another_size_is_an_error() {
    assert!(on_ranks(local(3, SLOTS), |t| endings::size_mismatch(t)).is_empty());
}

#[test]
fn abort_wakes_everyone() {
    assert!(on_ranks(local(4, SLOTS), |t| endings::abort(t)).is_empty());
}

#[test]
fn a_panic_wakes_everyone() {
    assert_eq!(on_ranks(local(4, SLOTS), |t| endings::panic(t)), [1]);
}

#[test]
fn ranks_that_have_ended_are_not_waited_for() {
    for call in ["recv", "wait_send", "barrier", "all_reduce"] {
        let panicked = on_ranks(local(3, SLOTS), move |t| {
            if t.rank() == 1 {
                return;
            }
            let bytes = [0; 4];
            let ended = match call {
                "recv" => t.recv(1, 0, &mut [0; 4]),
                "barrier" => t.barrier(),
                "all_reduce" => t.all_reduce(&mut [1.0], ReduceOp::Sum),
                // SAFETY: `bytes` outlives the wait.
                _ => unsafe { t.start_send(1, 0, &bytes, 0) }.and_then(|()| t.wait_send(0)),
            };
            // Rank 0 may also find that rank 2 has left, having found that rank 1 has.
            assert!(matches!(ended, Err(TransportError::Gone { .. })), "{ended:?}");
        });
        assert!(panicked.is_empty(), "{call}: {panicked:?}");
    }
}

#[test]
fn different_collective_calls_are_told_apart() {
    let panicked = on_ranks(local(2, SLOTS), |t| {
        let ended =
            if t.rank() == 0 { t.barrier() } else { t.all_reduce(&mut [0.0], ReduceOp::Max) };
        let text = ended.unwrap_err().to_string();
        assert!(text.contains("calls Barrier") && text.contains("AllReduce"), "{text}");
    });
    assert!(panicked.is_empty());
}

#[test]
fn nobody_reads_the_buffers_of_a_rank_that_left() {
    // The sender posts, leaves at once, and then overwrites what it had posted. Receivers race
    // with it: each must get the whole message or none of it.
    for round in 0..200 {
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let panicked = on_ranks(local(3, SLOTS), move |t| {
            let len = 1 << 18;
            if t.rank() > 0 {
                let mut into = vec![0; len];
                begun.fetch_add(1, Relaxed);
                let received = t.recv(0, 0, &mut into);
                ended.fetch_add(1, Relaxed);
                match received {
                    Ok(()) => assert!(into.iter().all(|&b| b == 1), "round {round}"),
                    Err(error) => assert!(matches!(error, TransportError::Gone { rank: 0, .. })),
                }
                return;
            }
            let mut bytes = vec![1u8; len];
            for to in 1..3 {
                // SAFETY: `bytes` is kept and left alone until the abandoned transport is dropped.
                unsafe { t.start_send(to, 0, &bytes, to as usize) }.unwrap();
            }
            // At once, when one begins to read, when both do, when one has read; and somewhat later.
            let until = |there: &AtomicU32, count| {
                while there.load(Relaxed) < count {
                    thread::yield_now();
                }
            };
            match round % 4 {
                0 => {}
                1 => until(&begun, 1),
                2 => until(&begun, 2),
                _ => until(&ended, 1),
            }
            (0..round / 4 * 200).for_each(|_| std::hint::spin_loop());
            // Dropping needs the transport itself: put a spare one in its place.
            drop(std::mem::replace(t, local(1, 0).remove(0)));
            bytes.fill(2);
            std::hint::black_box(&bytes);
        });
        assert!(panicked.is_empty(), "round {round}: {panicked:?}");
    }
}

#[test]
fn a_failed_call_frees_all_buffers() {
    let panicked = on_ranks(local(2, SLOTS), |t| {
        if t.rank() == 0 {
            let mut bytes = vec![1u8; 1000];
            // SAFETY: `bytes` is kept until a call returns an error.
            unsafe { t.start_send(1, 5, &bytes, 3) }.unwrap();
            assert!(t.recv(1, 0, &mut [0; 2]).is_err());
            bytes.fill(2);
            // Still there, so that only the withdrawal keeps rank 1 from reading the twos.
            thread::sleep(Duration::from_millis(100));
        } else {
            // SAFETY: the array is kept until it was waited for.
            let byte = [0u8; 1];
            unsafe { t.start_send(0, 0, &byte, 0) }.unwrap();
            t.wait_send(0).unwrap();
            thread::sleep(Duration::from_millis(50));
            let mut into = [0; 1000];
            match t.recv(0, 5, &mut into) {
                // Taken before rank 0 saw its error: then rank 0 waited for the copy.
                Ok(()) => assert_eq!(into, [1; 1000]),
                Err(error) => assert!(matches!(error, TransportError::Gone { rank: 0, .. })),
            }
        }
    });
    assert!(panicked.is_empty());
}

#[test]
fn a_slot_in_use_is_a_bug() {
    let panicked = on_ranks(local(1, SLOTS), |t| {
        let bytes = [1u8];
        for _ in 0..2 {
            // SAFETY: `bytes` outlives the transport's use: the panic drops the transport's
            // thread, and no other rank exists.
            unsafe { t.start_send(0, 0, &bytes, 0) }.unwrap();
        }
    });
    assert_eq!(panicked, [0]);
}
