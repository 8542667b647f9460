//! Structure of every named schedule, and the closed forms of the papers.
//!
//! | symbol | meaning |
//! |---|---|
//! | p, m, v | lanes, micro-batches, stages of a lane |
//! | f, b, w | forward, whole backward and weight part of a stage for one micro-batch |

use pipewright_core::ids::LaneId;
use pipewright_core::schedule::{Schedule, ScheduleKind, Updates, check};
use pipewright_core::simulate::{Estimate, Footprint, Sends, StageCost, estimate};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

fn cost(forward: u64, input: u64, weight: u64) -> StageCost {
    let [forward, backward_input, backward_weight] = [forward, input, weight].map(Nanos);
    StageCost { forward, backward_input, backward_weight, update: Nanos::ZERO }
}

fn run(schedule: &Schedule, costs: &[StageCost]) -> Estimate {
    let footprints = vec![Footprint { stash: Bytes(1), ..Footprint::default() }; costs.len()];
    estimate(schedule, costs, &footprints, Sends::Free, |_| Nanos::ZERO).unwrap()
}

/// Even stages.
fn even(kind: ScheduleKind, stages: u32, m: u32, cost: StageCost) -> Estimate {
    run(&kind.generate(stages, m).unwrap(), &vec![cost; stages as usize])
}

fn peaks(estimate: &Estimate) -> Vec<u64> {
    estimate.lanes.iter().map(|lane| lane.peak.0).collect()
}

proptest! {
    #[test]
    fn what_is_generated_can_run(
        kind in prop::sample::select(ScheduleKind::ALL.to_vec()),
        chunks in 1u32..4,
        lanes in 1u32..9,
        m in 1u32..33,
    ) {
        let kind: ScheduleKind = match kind.to_string().split_once(':') {
            Some((name, _)) => format!("{name}:{chunks}").parse().unwrap(),
            None => kind,
        };
        let stages = (1..=48).filter(|s| kind.lanes(*s) == Ok(lanes)).max();
        if let Some(Ok(schedule)) = stages.map(|stages| kind.generate(stages, m)) {
            prop_assert_eq!(check(&schedule), Ok(()));
            prop_assert_eq!(schedule.lanes.len() as u32, lanes);
            // Read back it is the same: routes are in the order of their first micro-batch.
            let read = Schedule::parse(&schedule.lines()).unwrap();
            let updates = Updates::Synchronous;
            prop_assert_eq!(read, Schedule { updates, ..schedule });
        }
    }

    #[test]
    fn replicas_take_turns(replicas in prop::collection::vec(1u32..5, 1..6), m in 8u32..40) {
        let schedule = Schedule::replicated(&replicas, m, Updates::Synchronous).unwrap();
        prop_assert_eq!(check(&schedule), Ok(()));
        prop_assert_eq!(schedule.lanes.len() as u32, replicas.iter().sum::<u32>());
        prop_assert_eq!(Schedule::parse(&schedule.lines()).unwrap(), schedule.clone());
        let mut first = 0;
        for (stage, count) in replicas.iter().enumerate() {
            for j in 0..m {
                let route = &schedule.routes[schedule.route_of[j as usize] as usize];
                prop_assert_eq!(route[stage], LaneId(first + j % count));
            }
            first += count;
        }
    }
}

#[test]
fn even_stages_take_the_published_time() {
    let c = cost(3, 4, 2);
    let both = 9;
    for (p, m) in [(1u64, 3u64), (2, 4), (4, 8), (8, 16), (6, 24)] {
        let (p32, m32) = (p as u32, m as u32);
        let of = |kind, chunks: u32| even(kind, p32 * chunks, m32, c).makespan.0;
        for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
            assert_eq!(of(kind, 1), (m + p - 1) * both, "{kind}");
        }
        assert_eq!(of(ScheduleKind::Naive, 1), m * p * both);
        for chunks in [2u32, 4] {
            let wanted = (m * u64::from(chunks) + p - 1) * both;
            for kind in [ScheduleKind::Interleaved { chunks }, ScheduleKind::LoopedBfs { chunks }] {
                assert_eq!(of(kind, chunks), wanted, "{kind} {p} {m}");
            }
        }
    }
}

#[test]
fn dual_pipes_take_the_published_time() {
    // F = I = W = 1, and a pair takes as long as its parts: F&B + B - 3 W = 2.
    let c = cost(1, 1, 1);
    for (p, m) in [(2u64, 4u64), (4, 8), (4, 12), (8, 20), (16, 32)] {
        let (p32, m32) = (p as u32, m as u32);
        let two_way = even(ScheduleKind::DualPipe, p32, m32, c);
        assert_eq!(two_way.makespan.0, 3 * m + (p / 2 - 1) * 2, "{p} {m}");
        assert_eq!(peaks(&two_way), vec![p + 1; p as usize]);
        let v = even(ScheduleKind::DualPipeV, 2 * p32, m32, c);
        assert_eq!(v.makespan.0, 6 * m + (p - 1) * 2, "{p} {m}");
        assert_eq!(peaks(&v), vec![2 * p + 1; p as usize]);
    }
    for (p, m, must) in [(4, 6, "at least 8"), (4, 9, "even"), (4, 2, "at least 8")] {
        let error = ScheduleKind::DualPipe.generate(p, m).unwrap_err().to_string();
        assert!(error.contains(must), "{error}");
    }
    let odd = ScheduleKind::DualPipe.generate(3, 8).unwrap_err().to_string();
    assert_eq!(odd, "dualpipe cannot have 3 stages: it needs an even number");
}

#[test]
fn chimera_has_the_published_bubble_and_memory() {
    // F = B, whole units of p micro-batches.
    let c = cost(2, 1, 1);
    for (p, m) in [(2u64, 4u64), (4, 4), (4, 12), (6, 12), (8, 32), (16, 64)] {
        let chimera = even(ScheduleKind::Chimera, p as u32, m as u32, c);
        assert_eq!(chimera.makespan.0, 2 * (2 * m + p - 2), "{p} {m}");
        let bubble = (p - 2) as f64 / (2 * m + p - 2) as f64;
        assert!((chimera.bubble() - bubble).abs() < 1e-12);
        let peak = |r: u64| p / 2 + 1 + r.min(p - 1 - r);
        assert_eq!(peaks(&chimera), (0..p).map(peak).collect::<Vec<_>>());
        assert_eq!(chimera.messages, 2 * (p - 1) * m);
    }
}

#[test]
fn hanayo_keeps_below_the_published_bubble_and_memory() {
    for (p, waves) in [(2u64, 1u64), (4, 1), (8, 1), (4, 2), (8, 2), (8, 3), (16, 2)] {
        let kind = ScheduleKind::Hanayo { waves: waves as u32 };
        let hanayo = even(kind, (2 * waves * p) as u32, p as u32, cost(1, 1, 1));
        let published = (2 * p - 2) as f64 / (3 * p * waves + p - 1) as f64;
        assert!(hanayo.bubble() <= published, "{p} {waves}: {}", hanayo.bubble());
        // Chunks: 2 W of a micro-batch on a lane, of p micro-batches.
        assert!(peaks(&hanayo).iter().all(|n| *n <= 2 * waves * p));
    }
}

#[test]
fn asynchronous_pipelines_run_at_the_pace_of_the_slowest_stage() {
    let costs = [cost(3, 2, 2), cost(5, 4, 3), cost(2, 2, 2), cost(1, 1, 1)];
    for kind in [ScheduleKind::PipeDream, ScheduleKind::PipeDream2Bw] {
        let schedule = kind.generate(4, 64).unwrap();
        assert_eq!(run(&schedule, &costs).steady, Some(Nanos(12)), "{kind}");
        let versions: Vec<u32> = (0..4).map(|lane| schedule.versions(LaneId(lane))).collect();
        let wanted = if kind == ScheduleKind::PipeDream { [4, 3, 2, 1] } else { [2; 4] };
        assert_eq!(versions, wanted, "{kind}");
    }
    assert_eq!(even(ScheduleKind::OneFOneB, 4, 64, costs[0]).steady, None);
    // Two replicas halve the pace of the slowest stage; then the first one is slowest.
    let hybrid = Schedule::replicated(&[1, 2, 1, 1], 64, Updates::Stashed).unwrap();
    assert_eq!(run(&hybrid, &costs).steady, Some(Nanos(7)));
    let error = ScheduleKind::PipeDream2Bw.generate(4, 3).unwrap_err().to_string();
    assert!(error.contains("4 or more"), "{error}");
}

#[test]
fn numbers_that_make_no_schedule_are_refused() {
    let error = |kind: ScheduleKind, s, m| kind.generate(s, m).unwrap_err().to_string();
    let two = ScheduleKind::Interleaved { chunks: 2 };
    assert_eq!(
        error(two, 7, 4),
        "interleaved:2 cannot have 7 stages: every lane has 2, so it needs a multiple of 2"
    );
    assert!(error(two, 8, 9).contains("needs a multiple of 2; a multiple of 4 always fits"));
    assert!(error(ScheduleKind::GPipe, 0, 1).contains("at least one"));
    assert!(error(ScheduleKind::GPipe, 1, 0).contains("at least one"));
    assert!(error(ScheduleKind::GPipe, u32::MAX, u32::MAX).contains("fewer micro-batches"));
    assert!(error(ScheduleKind::Chimera, 4, 3).contains("even number"));
    let replicas = Schedule::replicated(&[2, 9], 8, Updates::Stashed).unwrap_err().to_string();
    assert!(replicas.contains("stage 1 cannot have 9 replicas"), "{replicas}");
    assert!(Schedule::replicated(&[], 8, Updates::Stashed).is_err());
    assert!(Schedule::replicated(&[0], 8, Updates::Stashed).is_err());
}
