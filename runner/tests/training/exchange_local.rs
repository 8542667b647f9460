//! Sums of encoded gradients among threads: the conformance suite, and how they end early.

use crate::common::exchange_suite::{CASES, FP8, LEN, everybody, gradient};
use crate::common::ranks::on_ranks;
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_runner::exchange::Exchange;
use pipewright_runner::transport::local::local_on_hosts;
use pipewright_runner::transport::{Transport, TransportError};

#[test]
fn the_conformance_suite_passes() {
    let hosts: [&[u32]; 7] = [
        &[0],
        &[0, 0],
        &[0, 1, 2],
        &[0, 0, 1, 1],
        &[0, 1, 0, 1],
        &[0, 0, 1, 2, 2],
        &[0, 0, 0, 1, 1],
    ];
    for hosts in hosts {
        for &(name, case) in CASES {
            let panicked = on_ranks(local_on_hosts(hosts, 4), move |t| case(t));
            assert!(panicked.is_empty(), "{name} on hosts {hosts:?}: {panicked:?} failed");
        }
    }
}

#[test]
fn a_rank_that_ends_ends_the_sums_of_the_others() {
    // Before it starts, and while its sum is under way.
    for early in [true, false] {
        let panicked = on_ranks(local_on_hosts(&[0, 0, 0], 4), move |t| {
            let spec = everybody(t, vec![Reduction::of(FP8)]);
            let mut values = gradient(t.rank(), 0, LEN);
            let mut exchange = Exchange::new(t, &[spec], false).unwrap();
            if t.rank() == 1 && early {
                return;
            }
            // SAFETY: `values` are waited for, or outlive the exchange that is dropped here.
            unsafe { exchange.start(0, 0, &mut values) }.unwrap();
            if t.rank() == 1 {
                drop(exchange);
                values.fill(0.0);
                return;
            }
            let ended = exchange.wait(0);
            let is_end = |error| {
                use TransportError::{Aborted, Gone};
                matches!(error, Gone { .. } | Aborted { .. })
            };
            // Rank 1 may have done its part before it left.
            assert!(ended.clone().map_or_else(is_end, |()| !early), "{ended:?}");
        });
        assert!(panicked.is_empty(), "{panicked:?}");
    }
}

#[test]
fn a_message_of_another_codec_is_an_error_that_names_it() {
    let panicked = on_ranks(local_on_hosts(&[0, 0], 4), |t| {
        // The rank 1 of a run that was put together wrongly.
        let codec = if t.rank() == 0 { CodecKind::Bf16 } else { FP8 };
        let spec = everybody(t, vec![Reduction::of(codec)]);
        let mut values = gradient(t.rank(), 0, LEN);
        let mut exchange = Exchange::new(t, &[spec], false).unwrap();
        // SAFETY: they are waited for.
        unsafe { exchange.start(0, 0, &mut values) }.unwrap();
        let error = exchange.wait(0).unwrap_err();
        assert_eq!(exchange.wait(0), Err(error.clone()), "it stays so");
        match (t.rank(), error) {
            (0, TransportError::Codec { bucket: 0, rank: 1, source }) => {
                assert!(source.to_string().starts_with("bf16: "), "{source}");
            }
            (1, TransportError::Size { from: 0, .. } | TransportError::Gone { rank: 0, .. }) => {}
            (0, TransportError::Gone { rank: 1, .. }) => {}
            (rank, other) => panic!("rank {rank}: {other}"),
        }
    });
    assert!(panicked.is_empty(), "{panicked:?}");
}

#[test]
fn a_reduction_with_a_fault_is_refused() {
    let panicked = on_ranks(local_on_hosts(&[0], 4), |t| {
        let bad = Reduction::of(CodecKind::PowerSgd { rank: 2 });
        let error = Exchange::new(t, &[everybody(t, vec![bad])], false).err().unwrap();
        assert!(error.to_string().contains("bucket 0"), "{error}");
    });
    assert!(panicked.is_empty());
}
