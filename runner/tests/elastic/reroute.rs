//! Jobs that go on with ranks that make no whole replica: their plan re-routes the work of those that are
//! missing.

use crate::common::{losses, mpirun_in, scratch, write};
use crate::job::{Job, ledger, mpi, two_by_two};
use crate::members::Joined;
use crate::shrink::{PLACES, SHRINK, generations, survive_with, trained};
use pipewright_core::plan::{DataParallel, Plan, ScheduleText};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;

const STEPS: u64 = 20;

/// Generations with their ranks, and whether they ran re-routed.
fn ways(job: &Job) -> Vec<(u32, bool)> {
    let way = |event: Event| match event {
        Event::Generation { ranks, rerouted, .. } => Some((ranks, rerouted.is_some())),
        _ => None,
    };
    job.journal().into_iter().filter_map(|line| way(line.event)).collect()
}

/// Every step once, with the losses of a run on all ranks up to the order of sums.
#[track_caller]
fn trained_like_whole(dir: &Path, job: &Job, ranks: u32) {
    let steps = ledger(&job.out);
    assert!(steps.iter().zip(0..).all(|((step, _), expected)| *step == expected), "{steps:?}");
    let count = steps.len().to_string();
    let args = ["plan.json", "--steps", &count, "--out", "whole", "--threads", "1", "--overwrite"];
    mpirun_in(dir, ranks, &args).unwrap().done();
    let [found, expected] = [&job.out, &dir.join("whole")]
        .map(|out| -> Vec<f64> { losses(out).iter().map(|loss| loss.parse().unwrap()).collect() });
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / expected[0]);
    let off = off.fold(0.0, f64::max);
    assert!(off < 1e-3, "{off:e}");
}

#[test]
fn three_of_four_until_a_spare_comes() {
    if !mpi() {
        return;
    }
    let dir = scratch("reroute-members");
    // Slow enough that no unit is on for one order of sums and off for another.
    let optimizer = "sgd:lr=1e-4,momentum=0.9".parse().unwrap();
    write(&dir, "plan.json", Plan { optimizer, ..two_by_two(1) }.to_json());
    let args = ["--steps", "1000000", "--slots", "3", "--save-every", "1000000", "--reroute"];
    let mut job = Job::start(&dir, "out", &args, "");
    job.until_training(1);
    let more = Joined::new(&dir, &job.name, "more", 1);
    job.until_training(2);
    drop(more);
    job.until_training(3);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(ways(&job), [(3, true), (4, false), (3, true)]);
    assert_eq!(job.causes(), [Cause::Reconfigured, Cause::Reconfigured, Cause::Stopped]);
    trained_like_whole(&dir, &job, 4);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn each_of_three_ranks_is_lost() {
    if !mpi() {
        return;
    }
    let dir = scratch("reroute-killed");
    write(&dir, "plan.json", two_by_two(STEPS).to_json());
    let faults = "0:backward:3@1,1:send:6@2,2:all-reduce:9@3,0:optimizer:12@4";
    let args = ["--slots", "3", "--reroute", "--on-loss", "relaunch", "--save-every", "5"];
    let mut job = Job::start(&dir, "out", &args, faults);
    job.ends(0);
    assert_eq!(ways(&job), [(3, true); 5]);
    trained(&dir, &job, &two_by_two(STEPS), true);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Every rank of the whole job, each at another place; then one of those that are left.
#[test]
fn survivors_take_over_the_work_of_each_rank() {
    let args = [&SHRINK[..], &["--reroute"]].concat();
    for victim in 0..4 {
        let (place, next) = (PLACES[2 * victim], PLACES[2 * victim + 1]);
        let faults = format!("{victim}:{place}:4@1,{}:{next}:9@2", victim % 3);
        let name = format!("reroute-{victim}");
        let Some((generations, causes)) = survive_with(two_by_two(STEPS), &name, &args, &faults)
        else {
            return;
        };
        assert_eq!(generations, [(1, 4), (2, 3), (3, 2)], "{faults}");
        assert_eq!(causes, [Cause::RankLost, Cause::RankLost, Cause::Done], "{faults}");
    }
}

#[test]
fn six_ranks_become_three_one_by_one() {
    let Some(mpirun) = pipewright::mpirun::surviving() else { return };
    let dir = scratch("reroute-2x3");
    let mut plan = two_by_two(STEPS);
    plan.data_parallel = DataParallel::ddp(3);
    (plan.mini_batch, plan.micro_batches) = (96, 4);
    plan.schedule = ScheduleText::of(ScheduleKind::OneFOneB, 2, 4).unwrap();
    // A device for each, or ranks take turns in the prediction.
    plan.cluster.devices_per_node = 8;
    plan.optimizer = "sgd:lr=1e-4,momentum=0.9".parse().unwrap();
    plan.prediction = pipewright_core::predict::predict(&plan).unwrap().expectation();
    write(&dir, "plan.json", plan.to_json());
    let args = [&SHRINK[..], &["--reroute"]].concat();
    let faults = "5:forward:4@1,0:recv:8@2,2:all-reduce:12@3";
    let whole = |job: &Job| trained_like_whole(&dir, job, 6);
    let job = Job::survived(&mpirun, &dir, &args, faults, whole);
    assert_eq!(ways(&job), [(6, false), (5, true), (4, false), (3, true)]);
    assert_eq!(generations(&job).len(), 4);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn where_nobody_holds_the_stage_that_is_said() {
    if !mpi() {
        return;
    }
    let dir = scratch("reroute-refused");
    let mut plan = two_by_two(3);
    plan.data_parallel = DataParallel::ddp(1);
    write(&dir, "plan.json", plan.to_json());
    let mut job = Job::start(&dir, "out", &["--slots", "1", "--reroute"], "");
    job.ends(0);
    assert_eq!(ways(&job), [(1, false)], "both stages on one rank, as without the option");
    let said = "1 ranks do not run re-routed: all 1 replicas of lane ";
    assert!(job.log().contains(said), "{}", job.log());
    std::fs::remove_dir_all(dir).unwrap();
}
