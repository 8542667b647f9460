//! The zero-bubble generators against the tables of PyTorch and of the papers' authors
//! (`tests/data/schedules`, licences in its README): the same order, or a time and a memory
//! that are no worse.

use crate::in_order;
use pipewright_core::schedule::{ActionKind, Schedule, ScheduleKind, check};
use proptest::prelude::*;
use std::path::PathBuf;

fn golden(file: &str) -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/schedules");
    std::fs::read_to_string(dir.join(file)).unwrap()
}

/// Which generator a file is for, and whether it has to be exact.
fn kind_of(file: &str) -> Option<(ScheduleKind, bool)> {
    let kinds = [
        ("torch-2.15.0_InterleavedZeroBubble", ScheduleKind::InterleavedZb { chunks: 2 }, true),
        ("torch-2.15.0_ZBVZeroBubble", ScheduleKind::ZbV, true),
        ("pytorch-test-artifact_zb1p", ScheduleKind::InterleavedZb { chunks: 2 }, true),
        ("sail-sg_ZB-H1", ScheduleKind::ZbH1, true),
        ("sail-sg_ZB-H2", ScheduleKind::ZbH2, false),
        ("sail-sg_ZB-2p", ScheduleKind::ZbH2, false),
        ("sail-sg_ZB-V", ScheduleKind::ZbV, false),
        ("sail-sg_V-half", ScheduleKind::VHalf, true),
        ("sail-sg_V-min", ScheduleKind::VMin, true),
    ];
    kinds
        .into_iter()
        .find(|(name, ..)| file.starts_with(name))
        .map(|(_, kind, exact)| (kind, exact))
}

/// In quarters of a unit.
fn makespan(schedule: &Schedule, [f, i, w]: [u64; 3], hop: u64) -> u64 {
    let time = |action: &pipewright_core::schedule::Action| match action.kind {
        ActionKind::Forward => f,
        ActionKind::Backward => i + w,
        ActionKind::BackwardInput => i,
        ActionKind::BackwardWeight => w,
    };
    in_order::makespan(schedule, time, |_| hop).expect("no deadlock")
}

/// Makespans under the three costs of the table, then peaks to W and to I.
fn figures(schedule: &Schedule) -> ([u64; 3], [Vec<u64>; 2]) {
    let times = [
        makespan(schedule, [4, 4, 4], 0),
        makespan(schedule, [4, 4, 4], 1),
        makespan(schedule, [4, 6, 3], 0),
    ];
    (times, [in_order::peaks(schedule, |_| (1, 1)), in_order::peaks(schedule, |_| (1, 0))])
}

#[test]
fn no_worse_than_the_golden_tables() {
    let expected = golden("expected.csv");
    let mut compared = 0;
    println!("{:52} ours, theirs: three makespans, peak to W, peak to I by lane", "file");
    for row in expected.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let Some((kind, exact)) = kind_of(cells[0]) else { continue };
        let lines = golden(cells[0]);
        let theirs = Schedule::parse(&lines.lines().collect::<Vec<_>>()).unwrap();
        let ours = kind.generate(theirs.stages(), theirs.micro_batches).unwrap();
        assert_eq!(check(&ours), Ok(()), "{}", cells[0]);
        let quarters = |at: usize| (cells[at].parse::<f64>().unwrap() * 4.0) as u64;
        let lanes = |at: usize| cells[at].split(' ').map(|n| n.parse().unwrap()).collect();
        let (want_times, want_peaks): ([u64; 3], [Vec<u64>; 2]) =
            ([5, 8, 9].map(quarters), [10, 11].map(lanes));
        assert_eq!(figures(&theirs), (want_times, want_peaks.clone()), "{}", cells[0]);
        let (times, peaks) = figures(&ours);
        let units = |times: [u64; 3]| times.map(|t| t as f64 / 4.0);
        let same = if ours.lanes == theirs.lanes { "same order" } else { "" };
        println!(
            "{:52} {:?} {:?}, {:?} {:?} {same}",
            cells[0],
            units(times),
            peaks,
            units(want_times),
            want_peaks
        );
        assert!(!exact || ours.lanes == theirs.lanes, "{}", cells[0]);
        for (ours, theirs) in times.iter().zip(&want_times) {
            assert!(ours <= theirs, "{}: {times:?} {want_times:?}", cells[0]);
        }
        for (ours, theirs) in peaks.iter().flatten().zip(want_peaks.iter().flatten()) {
            assert!(ours <= theirs, "{}: {peaks:?} {want_peaks:?}", cells[0]);
        }
        compared += 1;
    }
    assert_eq!(compared, 49);
}

#[test]
fn closed_forms() {
    for (p, m) in [(2, 4), (4, 8), (8, 24), (16, 48)] {
        let (p64, m64) = (u64::from(p), u64::from(m));
        let [f, i, w] = [4, 6, 3];
        let h1 = ScheduleKind::ZbH1.generate(p, m).unwrap();
        assert_eq!(makespan(&h1, [f, i, w], 0), m64 * (f + i + w) + (p64 - 1) * (f + i - w));
        let interleaved = ScheduleKind::InterleavedZb { chunks: 2 }.generate(2 * p, m).unwrap();
        let lane = 2 * m64 * (f + i + w) + (p64 - 1) * (f + i - w);
        assert_eq!(makespan(&interleaved, [f, i, w], 0), lane);
        let h2 = ScheduleKind::ZbH2.generate(p, m).unwrap();
        let v = ScheduleKind::ZbV.generate(2 * p, m).unwrap();
        // No lane waits after its first action: the last one starts p - 1 forwards late.
        assert_eq!(makespan(&h2, [4; 3], 0), 12 * m64 + 4 * (p64 - 1));
        assert_eq!(makespan(&v, [4; 3], 0), 24 * m64 + 4 * (p64 - 1));
        let most =
            |schedule: &Schedule| *in_order::peaks(schedule, |_| (1, 1)).iter().max().unwrap();
        assert_eq!(most(&h1), p64);
        assert_eq!(most(&h2), (2 * p64 - 1).min(m64));
        assert_eq!(most(&v), (2 * p64).min(2 * m64));
    }
}

fn zero_bubble_kinds() -> impl Strategy<Value = (ScheduleKind, u32)> {
    let v = |kind| (Just(kind), Just(2));
    let chunks = (1..5u32).prop_map(|chunks| (ScheduleKind::InterleavedZb { chunks }, chunks));
    prop_oneof![
        Just((ScheduleKind::ZbH1, 1)),
        Just((ScheduleKind::ZbH2, 1)),
        chunks,
        v(ScheduleKind::ZbV),
        v(ScheduleKind::VHalf),
        v(ScheduleKind::VMin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Valid for any number of lanes and micro-batches, or refused with a reason.
    #[test]
    fn valid_or_refused((kind, chunks) in zero_bubble_kinds(), p in 1..24u32, m in 1..64u32) {
        match kind.generate(chunks * p, m) {
            Ok(schedule) => {
                prop_assert_eq!(check(&schedule), Ok(()));
                prop_assert!(in_order::makespan(&schedule, |_| 1, |_| 0).is_some());
                let most = *in_order::peaks(&schedule, |_| (1, 1)).iter().max().unwrap();
                let (p, m, chunks) = (u64::from(p), u64::from(m), u64::from(chunks));
                let limit = match kind {
                    ScheduleKind::ZbH1 => p,
                    ScheduleKind::ZbH2 => 2 * p - 1,
                    ScheduleKind::ZbV => 2 * p,
                    ScheduleKind::VHalf => p + 4,
                    ScheduleKind::VMin => (2 * p).div_ceil(3) + 4,
                    _ => u64::MAX,
                };
                prop_assert!(most <= limit.min(chunks * m), "{kind} p {p} m {m}: {most}");
            }
            Err(error) => {
                let interleaved = matches!(kind, ScheduleKind::InterleavedZb { .. });
                prop_assert!(interleaved && m % (m / p).max(1) != 0, "{error}");
            }
        }
    }
}

#[test]
fn stages_that_do_not_divide_are_refused() {
    for kind in [ScheduleKind::ZbV, ScheduleKind::VHalf, ScheduleKind::VMin] {
        let error = kind.generate(7, 8).unwrap_err().to_string();
        assert!(error.contains("multiple of 2"), "{error}");
        assert!(kind.generate(0, 8).is_err() && kind.generate(8, 0).is_err());
    }
}
