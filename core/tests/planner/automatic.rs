//! The automatic scheduler against exhaustive search, the named schedules and the golden tables.

use crate::in_order;
use pipewright_core::ids::LaneId;
use pipewright_core::schedule::{
    Action, ActionKind, Automatic, AutomaticError, Found, Schedule, ScheduleKind, StageLoad,
    automatic, check,
};
use pipewright_core::units::{Bytes, Nanos};
use std::path::PathBuf;

/// A generator of numbers, so that failures repeat.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn stage(&mut self) -> StageLoad {
        let stash = 1 + self.below(3);
        StageLoad {
            forward: Nanos(1 + self.below(12)),
            backward_input: Nanos(1 + self.below(12)),
            backward_weight: Nanos(self.below(12)),
            hop: Nanos(self.below(4)),
            stash: Bytes(stash),
            weight_stash: Bytes(self.below(stash + 1)),
        }
    }
}

fn time(input: &Automatic) -> impl Fn(&Action) -> u64 {
    |action| {
        let load = &input.stages[action.stage.index()];
        match action.kind {
            ActionKind::Forward => load.forward.0,
            ActionKind::Backward => load.backward_input.0 + load.backward_weight.0,
            ActionKind::BackwardInput => load.backward_input.0,
            ActionKind::BackwardWeight => load.backward_weight.0,
        }
    }
}

fn makespan(input: &Automatic, schedule: &Schedule) -> Option<u64> {
    in_order::makespan(schedule, time(input), |stage| input.stages[stage as usize].hop.0)
}

fn peaks(input: &Automatic, schedule: &Schedule) -> Vec<u64> {
    in_order::peaks(schedule, |stage| {
        let load = &input.stages[stage as usize];
        (load.stash.0, load.weight_stash.0)
    })
}

fn fits(input: &Automatic, schedule: &Schedule) -> bool {
    peaks(input, schedule).iter().zip(&input.memory).all(|(peak, memory)| *peak <= memory.0)
}

/// Schedules and checks everything that the answer says.
fn solve(input: &Automatic) -> Found {
    let found = automatic(input).unwrap();
    assert_eq!(check(&found.schedule), Ok(()), "{input:?}");
    assert_eq!(makespan(input, &found.schedule), Some(found.step.0), "{input:?}");
    assert!(fits(input, &found.schedule), "{input:?}");
    assert!(found.bound <= found.step, "{input:?}");
    found
}

fn lanes(placement: &[u32]) -> Vec<LaneId> {
    placement.iter().copied().map(LaneId).collect()
}

/// All orders of a lane's passes.
fn orders(stages: &[u32], m: u32) -> Vec<Vec<Action>> {
    fn extend(stages: &[u32], m: u32, so_far: &mut Vec<Action>, all: &mut Vec<Vec<Action>>) {
        if so_far.len() == 3 * stages.len() * m as usize {
            all.push(so_far.clone());
        }
        for stage in stages {
            let done = |kind| {
                so_far.iter().filter(|a| a.stage.0 == *stage && a.kind == kind).count() as u32
            };
            use ActionKind::{BackwardInput, BackwardWeight, Forward};
            let (f, i, w) = (done(Forward), done(BackwardInput), done(BackwardWeight));
            for (kind, n, limit) in [(Forward, f, m), (BackwardInput, i, f), (BackwardWeight, w, i)]
            {
                if n < limit {
                    so_far.push(Action::new(*stage, kind, n));
                    extend(stages, m, so_far, all);
                    so_far.pop();
                }
            }
        }
    }
    let mut all = vec![];
    extend(stages, m, &mut vec![], &mut all);
    all
}

/// The shortest step of all orders.
fn exhaustive(input: &Automatic) -> u64 {
    let like = solve(input).schedule;
    let of_lane = |lane: u32| {
        let stages: Vec<u32> = like.stages_of(LaneId(lane)).iter().map(|s| s.0).collect();
        let mut all = orders(&stages, input.micro_batches);
        let mut alone = like.clone();
        all.retain(|order| {
            alone.lanes[lane as usize].clone_from(order);
            peaks(input, &alone)[lane as usize] <= input.memory[lane as usize].0
        });
        all
    };
    let choices: Vec<Vec<Vec<Action>>> = (0..input.memory.len() as u32).map(of_lane).collect();
    let mut best = u64::MAX;
    let mut at = vec![0; choices.len()];
    let mut schedule = like;
    loop {
        for (lane, n) in at.iter().enumerate() {
            schedule.lanes[lane].clone_from(&choices[lane][*n]);
        }
        best = best.min(makespan(input, &schedule).unwrap_or(u64::MAX));
        let Some(lane) = (0..at.len()).find(|lane| at[*lane] + 1 < choices[*lane].len()) else {
            return best;
        };
        at[lane] += 1;
        at[..lane].fill(0);
    }
}

fn random(numbers: &mut Numbers, placement: &[u32], m: u32, spare: u64) -> Automatic {
    let stages: Vec<StageLoad> = placement.iter().map(|_| numbers.stage()).collect();
    let count = *placement.iter().max().unwrap() as usize + 1;
    let mut memory = vec![0; count];
    for (stage, lane) in stages.iter().zip(placement) {
        memory[*lane as usize] += stage.stash.0;
    }
    for memory in &mut memory {
        *memory += numbers.below(spare * *memory + 1);
    }
    let memory = memory.into_iter().map(Bytes).collect();
    Automatic { stages, lane_of: lanes(placement), micro_batches: m, memory }
}

#[test]
fn close_to_the_shortest_of_all_orders() {
    let mut numbers = Numbers(1);
    let (mut same, mut all, mut worst) = (0, 0, 1.0);
    let cases: [(&[u32], u32); 7] = [
        (&[0, 1], 1),
        (&[0, 1], 2),
        (&[0, 1], 3),
        (&[0, 1, 2], 2),
        (&[0, 1, 1, 0], 1),
        (&[0, 1, 0, 1], 1),
        (&[0, 1, 0], 1),
    ];
    for (placement, m) in cases {
        for _ in 0..24 {
            let input = random(&mut numbers, placement, m, u64::from(m));
            let (ours, exact) = (solve(&input).step.0, exhaustive(&input));
            assert!(ours >= exact, "better than everything? {input:?}");
            assert!(solve(&input).bound.0 <= exact, "{input:?}");
            same += u32::from(ours == exact);
            all += 1;
            worst = f64::max(worst, ours as f64 / exact as f64);
        }
    }
    println!("{same} of {all} are the shortest; the worst takes {worst:.3} of it");
    assert!(f64::from(same) >= 0.95 * f64::from(all) && worst <= 1.1, "{same} of {all}, {worst}");
}

#[test]
fn never_worse_than_named_schedules_that_fit() {
    let mut numbers = Numbers(2);
    let mut beaten = 0;
    let mut total = 0.0;
    let placements: [(&[u32], &[ScheduleKind]); 3] = [
        (&[0, 1, 2, 3, 4, 5], &[ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::ZbH2]),
        (&[0, 1, 2, 3, 3, 2, 1, 0], &[ScheduleKind::ZbV, ScheduleKind::VHalf, ScheduleKind::VMin]),
        (&[0, 1, 2, 0, 1, 2], &[ScheduleKind::InterleavedZb { chunks: 2 }]),
    ];
    for round in 0..40 {
        for (placement, kinds) in placements {
            let m = 1 + numbers.below(20) as u32;
            let input = random(&mut numbers, placement, m, 2 + 3 * (round % 6));
            let ours = solve(&input).step.0;
            for kind in kinds {
                let Ok(theirs) = kind.generate(placement.len() as u32, m) else { continue };
                if fits(&input, &theirs) {
                    let step = makespan(&input, &theirs).unwrap();
                    assert!(ours <= step, "{kind}: {ours} {step} {input:?}");
                    beaten += 1;
                    total += ours as f64 / step as f64;
                }
            }
        }
    }
    println!("{beaten} comparisons, on average {:.3} of their step", total / f64::from(beaten));
    assert!(beaten > 60);
}

#[test]
fn no_worse_than_the_golden_tables_for_their_memory() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/schedules");
    let expected = std::fs::read_to_string(dir.join("expected.csv")).unwrap();
    println!("{:42} ours, theirs (in units), each for its own costs", "file");
    for row in expected.lines().skip(1).filter(|row| row.starts_with("sail-sg")) {
        let cells: Vec<&str> = row.split(',').collect();
        let lines = std::fs::read_to_string(dir.join(cells[0])).unwrap();
        let theirs = Schedule::parse(&lines.lines().collect::<Vec<_>>()).unwrap();
        for (times, hop, cell) in [([4, 4, 4], 0, 5), ([4, 4, 4], 1, 8), ([4, 6, 3], 0, 9)] {
            let [forward, backward_input, backward_weight] = times.map(Nanos);
            let (hop, stash, weight_stash) = (Nanos(hop), Bytes(1), Bytes(1));
            let stage =
                StageLoad { forward, backward_input, backward_weight, hop, stash, weight_stash };
            let found = solve(&Automatic {
                stages: vec![stage; theirs.stages() as usize],
                lane_of: theirs.placement().unwrap().to_vec(),
                micro_batches: theirs.micro_batches,
                memory: in_order::peaks(&theirs, |_| (1, 1)).into_iter().map(Bytes).collect(),
            });
            let ours = found.step.0 as f64 / 4.0;
            println!(
                "{:42} {ours} {} (bound {})",
                cells[0],
                cells[cell],
                found.bound.0 as f64 / 4.0
            );
            assert!(ours <= cells[cell].parse().unwrap(), "{}", cells[0]);
        }
    }
}

#[test]
fn any_placement_and_the_least_memory() {
    let mut numbers = Numbers(3);
    let placements: [&[u32]; 5] =
        [&[0], &[0, 0, 0], &[1, 0, 1, 2, 0], &[0, 1, 2, 2, 1, 0, 0, 1, 2], &[2, 2, 0, 1]];
    for placement in placements {
        for m in [1, 2, 7, 30] {
            for spare in [0, 1, 4] {
                let input = random(&mut numbers, placement, m, spare);
                let found = solve(&input);
                assert_eq!(automatic(&input), Ok(found), "deterministic");
            }
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let good = random(&mut Numbers(4), &[0, 1], 4, 1);
    let refused = |change: &dyn Fn(&mut Automatic)| {
        let mut bad = good.clone();
        change(&mut bad);
        automatic(&bad).unwrap_err()
    };
    let error = refused(&|input| input.micro_batches = 0);
    assert_eq!(error, AutomaticError::Empty { what: "micro-batch" });
    let error = refused(&|input| input.memory[1] = Bytes(0));
    assert!(error.to_string().starts_with("lane 1 may hold 0 B of stashes"), "{error}");
    assert!(matches!(refused(&|i| i.lane_of[1] = LaneId(0)), AutomaticError::Lengths { .. }));
    assert!(matches!(refused(&|i| i.lane_of[1] = LaneId(9)), AutomaticError::Lengths { .. }));
    assert!(matches!(refused(&|i| i.memory.truncate(1)), AutomaticError::Lengths { .. }));
    let error = refused(&|input| input.stages[1].weight_stash = Bytes(100));
    assert!(matches!(error, AutomaticError::Stash { stage: 1, .. }));
    assert!(matches!(refused(&|i| i.micro_batches = u32::MAX), AutomaticError::TooMany { .. }));
    // Absurd numbers stop at the largest one instead of beginning again at zero.
    let mut absurd = good.clone();
    absurd.stages[0].forward = Nanos(u64::MAX);
    absurd.stages[1].hop = Nanos(u64::MAX);
    absurd.memory = vec![Bytes(u64::MAX); 2];
    assert!(check(&automatic(&absurd).unwrap().schedule).is_ok());
}
