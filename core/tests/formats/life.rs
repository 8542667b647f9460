//! The record of a job whose supervisor was killed, started again, stopped, and started once more, as the
//! runner wrote it.

use pipewright_core::elastic::life::{Cause, End, Life};

#[test]
fn a_runners_record_is_a_life() {
    let text = include_str!("../../../tests/data/elastic/run.jsonl");
    let life = Life::read(text, 8192).expect("a record");
    let rows: Vec<(u64, u32, u64, u64, Option<Cause>)> = life
        .generations
        .iter()
        .map(|g| (g.number, g.ranks, g.first_step, g.last_step(), g.ended.map(|(_, cause)| cause)))
        .collect();
    let expected = [
        (1, 4, 0, 5, None), // its supervisor could not write how it ended
        (2, 4, 6, 1356, Some(Cause::Stopped)),
        (3, 4, 1356, 1358, Some(Cause::Done)),
    ];
    assert_eq!(rows, expected);
    assert_eq!((life.end.clone(), life.samples()), (Some(End::Done), 1358 * 32));
    assert_eq!(life.samples_total, life.samples());
    // Three supervisors, one course of time.
    let line = life.epochs();
    assert!(line.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1), "{line:?}");
    // Both clocks of the record are cut to whole milliseconds.
    let between = 1_795_376_143_514 - 1_795_376_135_013;
    assert!((life.until.0 / 1_000_000).abs_diff(between) <= 3, "{}", life.until);
    assert!(life.goodput() > 0.75, "{}", life.goodput());
    let rate = life.generations[1].throughput().expect("it trained");
    assert!((6000.0..7000.0).contains(&rate), "{rate} samples a second");
}
