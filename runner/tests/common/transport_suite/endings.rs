//! Premature ends of runs. All ranks call a case; afterwards the transport is spent. With
//! MPI some ranks do not return: the job ends around them.

use super::{pattern, start};
use pipewright_runner::transport::{Transport, TransportError};
use std::time::Duration;

/// Exit code of the rank that aborts.
pub const ABORT_CODE: i32 = 7;

/// The reason it gives.
pub const WHY: &str = "the loss is not a number";

/// Messages longer and shorter than the receiver's room.
pub fn size_mismatch(t: &mut dyn Transport) {
    // With pieces of 64 KiB: within one piece, exactly one, and several.
    let sizes: [(usize, usize); 5] = [(8, 4), (4, 8), (0, 1), (65_536, 70_000), (65_536, 200_000)];
    match t.rank() {
        0 => {
            let sent: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(i, s)| pattern(0, i as u32, s.0)).collect();
            for (i, bytes) in sent.iter().enumerate() {
                start(t, 1, i as u32, bytes, i);
            }
            (0..sizes.len()).for_each(|slot| t.wait_send(slot).unwrap());
        }
        1 => {
            for (i, (there, room)) in sizes.into_iter().enumerate() {
                let error = t.recv(0, i as u32, &mut vec![0; room]).unwrap_err();
                let TransportError::Size { from, tag, expected, found } = error else {
                    panic!("{error}");
                };
                assert_eq!((from, tag, expected), (0, i as u32, room as u64));
                // MPI does not say how much more a longer message has.
                assert!(found == Some(there as u64) || (there > room && found.is_none()));
            }
        }
        _ => {}
    }
}

/// Rank 1 stops the run while the others wait in every way there is.
pub fn abort(t: &mut dyn Transport) {
    let large = vec![1; 8 << 20];
    let error = match t.rank() {
        1 => {
            std::thread::sleep(Duration::from_millis(100));
            t.abort(ABORT_CODE, WHY);
            t.recv(0, 0, &mut [0]).unwrap_err()
        }
        0 => t.recv(1, 0, &mut [0]).unwrap_err(),
        2 => t.barrier().unwrap_err(),
        _ => {
            start(t, 1, 0, &large, 0);
            t.wait_send(0).unwrap_err()
        }
    };
    assert_eq!(error, TransportError::Aborted { rank: 1, why: WHY.into() });
    // And it stays so.
    assert_eq!(t.barrier().unwrap_err(), error);
    assert_eq!(t.gather(&[]).unwrap_err(), error);
    // SAFETY: `large` outlives the call, which fails: nothing stays outstanding.
    assert_eq!(unsafe { t.start_send(0, 0, &large, 1) }.unwrap_err(), error);
}

/// Rank 1 panics; nobody may wait for it for ever.
pub fn panic(t: &mut dyn Transport) {
    if t.rank() == 1 {
        panic!("a bug, on purpose");
    }
    let error = t.recv(1, 0, &mut [0]).unwrap_err();
    assert_eq!(error, TransportError::Aborted { rank: 1, why: "it panicked".into() });
}
