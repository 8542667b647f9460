//! Graph replay of sequences of commands.

use super::lazy::Lazy;
use pipewright_runner::device::cuda::kernels::DevicePtr;
use pipewright_runner::device::cuda::{Backend, GraphReplay};
use pipewright_runner::device::{DeviceError, Graphs};

/// A recorder and some words of its device's memory.
fn recorder() -> (GraphReplay<Lazy>, [DevicePtr; 3]) {
    let mut recorder = GraphReplay::new(Lazy::default());
    let words = [(); 3].map(|()| recorder.allocate(8, "a word").unwrap());
    (recorder, words)
}

fn word(recorder: &mut GraphReplay<Lazy>, at: DevicePtr) -> u64 {
    let mut bytes = [0; 8];
    recorder.download(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn counts(recorder: &GraphReplay<Lazy>) -> (u64, u64, u64) {
    let Graphs { captured, replayed, one_by_one, .. } = recorder.graphs().unwrap();
    (captured, replayed, one_by_one)
}

/// Uploads a number to the first word; the other two have those before it.
fn shift(
    recorder: &mut GraphReplay<Lazy>,
    [a, b, c]: [DevicePtr; 3],
    number: u64,
) -> Result<(), DeviceError> {
    recorder.copy(b, c, 8)?;
    recorder.copy(a, b, 8)?;
    recorder.upload(a, &number.to_le_bytes())?;
    recorder.flush()
}

/// Seen, captured and replayed, replayed. The device begins with the first when the last is asked for:
/// every upload has the bytes that it had then.
#[test]
fn uploads_keep_their_bytes() {
    let (mut recorder, words) = recorder();
    let expected = [(0, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)];
    for (number, expected) in (11..).zip(expected) {
        shift(&mut recorder, words, number).unwrap();
        assert_eq!(counts(&recorder), expected, "after {number}");
    }
    assert_eq!(words.map(|at| word(&mut recorder, at)), [14, 13, 12]);
}

/// One size, one address, one more command: another sequence.
#[test]
fn what_differs_is_not_replayed() {
    let (mut recorder, [a, b, c]) = recorder();
    type Ask = fn(&mut GraphReplay<Lazy>, [DevicePtr; 3]) -> Result<(), DeviceError>;
    let all: [Ask; 6] = [
        |r, [a, b, _]| r.copy(a, b, 8),
        |r, [a, b, _]| r.copy(a, b, 4),
        |r, [a, _, c]| r.copy(a, c, 8),
        |r, [a, b, c]| r.copy(a, b, 8).and_then(|()| r.copy(a, c, 8)),
        |r, [a, ..]| r.zero(a, 8),
        |r, [a, ..]| r.upload(a, &7_u64.to_le_bytes()),
    ];
    for (number, ask) in (1..).zip(all) {
        ask(&mut recorder, [a, b, c]).unwrap();
        recorder.flush().unwrap();
        assert_eq!(counts(&recorder), (0, 0, number));
    }
    // Nothing was asked for: there is nothing to hand over.
    recorder.flush().unwrap();
    assert_eq!(counts(&recorder), (0, 0, 6));
}

/// Sequences that never come again make no graphs, and those that do are not forgotten for them.
#[test]
fn sequences_that_change_each_time() {
    let (mut recorder, words) = recorder();
    let many = recorder.allocate(8 * 4096, "words").unwrap();
    for number in 0..1000 {
        recorder.zero(many.after(8 * number), 8).unwrap();
        recorder.flush().unwrap();
        shift(&mut recorder, words, number).unwrap();
    }
    assert_eq!(counts(&recorder), (1, 999, 1001));
    assert_eq!(words.map(|at| word(&mut recorder, at)), [999, 998, 997]);
    // The first of the others was forgotten: it is new again.
    recorder.zero(many, 8).unwrap();
    recorder.flush().unwrap();
    assert_eq!(counts(&recorder), (1, 999, 1002));
}

/// A device that the host has waited for begins before all is collected; one that has work does not.
#[test]
fn the_first_commands_go_ahead() {
    let (mut recorder, [a, ..]) = recorder();
    let many = recorder.allocate(8 * 100, "words").unwrap();
    let handed_over = |recorder: &GraphReplay<Lazy>| {
        let (_, replayed, one_by_one) = counts(recorder);
        replayed + one_by_one
    };
    for _ in 0..4 {
        let before = handed_over(&recorder);
        for number in 0..100 {
            recorder.zero(many.after(8 * number), 8).unwrap();
            let ahead = u64::from(number >= 31);
            assert_eq!(handed_over(&recorder), before + ahead, "command {number}");
        }
        recorder.flush().unwrap();
        assert_eq!(handed_over(&recorder), before + 2);
        for number in 0..100 {
            recorder.zero(many.after(8 * number), 4).unwrap();
            assert_eq!(handed_over(&recorder), before + 2, "command {number}");
        }
        // It waits.
        word(&mut recorder, a);
        assert_eq!(handed_over(&recorder), before + 3);
    }
    assert_eq!(counts(&recorder), (3, 9, 3));
}

/// What is large goes at once, behind what was asked for before.
#[test]
fn large_uploads() {
    let (mut recorder, [_, b, c]) = recorder();
    let large = recorder.allocate(1 << 20, "a tensor").unwrap();
    for number in 1..=3 {
        recorder.copy(large, b, 8).unwrap();
        recorder.upload(large, &[number; 1 << 20]).unwrap();
        recorder.copy(large, c, 8).unwrap();
        recorder.flush().unwrap();
    }
    assert_eq!(word(&mut recorder, b), u64::from_le_bytes([2; 8]));
    assert_eq!(word(&mut recorder, c), u64::from_le_bytes([3; 8]));
    assert_eq!(counts(&recorder), (2, 4, 2));
}

/// Bytes of one place that are staged anew before anybody asked the device to begin with what reads them.
#[test]
fn a_place_is_written_over_when_it_was_read() {
    let (mut recorder, [a, b, c]) = recorder();
    let mut go = |number: u8, into: DevicePtr| {
        let at = recorder
            .stage(0, 8, &mut |buffer| {
                buffer.words().fill(u32::from_ne_bytes([number; 4]));
            })
            .unwrap();
        recorder.arrived(0).unwrap();
        recorder.copy(at, into, 8).unwrap();
        recorder.taken(0).unwrap();
    };
    go(1, a);
    go(2, b);
    go(3, c);
    let found = [a, b, c].map(|at| word(&mut recorder, at));
    assert_eq!(found, [1, 2, 3].map(|number| u64::from_le_bytes([number; 8])));
}

#[test]
fn a_replay_that_fails_is_an_error_and_none_after_it() {
    let lazy = Lazy { fails_after: Some(1), ..Lazy::default() };
    let mut recorder = GraphReplay::new(lazy);
    let words = [(); 3].map(|()| recorder.allocate(8, "a word").unwrap());
    let done: Vec<_> = (0..3).map(|number| shift(&mut recorder, words, number)).collect();
    assert_eq!((&done[0], &done[1]), (&Ok(()), &Ok(())));
    let error = done[2].as_ref().unwrap_err().to_string();
    assert_eq!(error, "lazy: replay: it is meant to");
    // Nothing of the sequence that failed is left for the next one.
    recorder.upload(words[0], &[5; 8]).unwrap();
    assert_eq!(word(&mut recorder, words[0]), u64::from_le_bytes([5; 8]));
}
