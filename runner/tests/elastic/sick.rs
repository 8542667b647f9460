//! Ranks that live on and are not as before: gradients that are no numbers, a bit of the weights that is
//! another one, a processor that is slow.

use crate::common::{losses, scratch, write};
use crate::job::{Job, mpi, two_by_two, whole};
use pipewright_core::plan::DataParallel;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;

/// The steps that a rank's metrics call skipped.
fn skipped(out: &Path, rank: u32) -> Vec<u64> {
    let text = std::fs::read_to_string(out.join(format!("rank-{rank:03}.jsonl"))).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .filter(|line| line["skipped"] == true)
        .map(|line| line["step"].as_u64().unwrap())
        .collect()
}

#[test]
fn gradients_that_are_no_numbers_are_skipped_by_all_ranks() {
    let dir = scratch("elastic-nan");
    if !mpi() {
        return;
    }
    let mut plan = two_by_two(20);
    plan.training.skip_nonfinite = Some(10);
    write(&dir, "plan.json", plan.to_json());
    // One rank each, and one that dies when steps have been skipped: the count goes on.
    let faults = "1:forward:5:nan,3:forward:8:nan:2,2:forward:12,0:backward:15:nan@2";
    let mut job = Job::start(&dir, "out", &[], faults);
    job.ends(0);
    assert_eq!(job.causes(), [Cause::RankLost, Cause::Done]);
    for rank in 0..4 {
        assert_eq!(skipped(&job.out, rank), [5, 8, 9, 15], "rank {rank}");
    }
    assert_eq!(crate::common::result(&job.out)["skipped"], 4);
    assert_eq!(losses(&job.out).len(), 20, "each step once");
    assert!(job.log().contains("step 5 is skipped: the gradient of `"), "{}", job.log());
    assert!(job.log().contains("4 steps skipped: gradients were not finite"), "{}", job.log());
}

/// Ten in a row are too many, whoever counted the first of them.
#[test]
fn too_many_skipped_steps_end_the_job() {
    let dir = scratch("elastic-nan-row");
    if !mpi() {
        return;
    }
    let mut plan = two_by_two(100);
    plan.training.skip_nonfinite = Some(10);
    write(&dir, "plan.json", plan.to_json());
    let faults = "1:forward:5:nan:40,2:forward:10,3:forward:0:nan:40@2,3:forward:0:nan:40@3";
    let mut job = Job::start(&dir, "out", &[], faults);
    job.ends(1);
    assert_eq!(job.causes(), [Cause::RankLost, Cause::Failed, Cause::Failed]);
    assert!(job.log().contains("is not finite, for 10 steps in a row"), "{}", job.log());
    assert!(job.log().contains("starting again does not help"), "{}", job.log());
    assert_eq!(skipped(&job.out, 0), (5..14).collect::<Vec<u64>>());
}

/// What replicas had differently: ranks, tensor, and from where it goes on.
fn differences(job: &Job) -> Vec<(Vec<u32>, String, u64)> {
    let lines = job.journal().into_iter();
    lines
        .filter_map(|line| match line.event {
            Event::ReplicasDiffer { ranks, tensor, left, .. } => Some((ranks, tensor, left)),
            _ => None,
        })
        .collect()
}

/// A bit of the weights of one rank is another one: found at the next comparison. What was trained from
/// then on is trained again, so it is as if it had not been.
#[test]
fn a_bit_that_flips_is_found_and_forgotten() {
    let dir = scratch("elastic-flip");
    let plan = two_by_two(20);
    let Some(losses) = whole(&dir, &plan) else { return };
    let args = ["--check-replicas", "4", "--save-every", "100"];
    for rank in [1, 2] {
        // Before the first comparison there is nothing to go back to but the begin.
        for (step, left) in [(9, 8), (2, 0)] {
            let out = format!("flip-{rank}-{step}");
            let mut job = Job::start(&dir, &out, &args, &format!("{rank}:forward:{step}:flip"));
            job.ends(0);
            assert_eq!(job.causes(), [Cause::Failed, Cause::Done]);
            let (lane, _) = plan.mesh().place(rank);
            let peers = (0..4).filter(|peer| plan.mesh().place(*peer).0 == lane);
            let [(ranks, tensor, from)] = &differences(&job)[..] else { panic!("{}", job.log()) };
            assert_eq!((ranks, *from), (&peers.collect(), left), "two cannot tell whose is wrong");
            assert!(tensor.ends_with("weight"), "{tensor}");
            job.trained_like(&losses);
        }
    }
}

/// Three replicas tell whose weights are wrong.
#[test]
fn most_replicas_say_who_is_wrong() {
    let dir = scratch("elastic-flip-three");
    let mut draft = crate::common::draft(pipewright_core::graph::presets::Preset::DigitsCnn, 1);
    (draft.data, draft.steps) = (crate::common::digits(), 16);
    (draft.mini_batch, draft.data_parallel) = (48, DataParallel::ddp(3));
    let Some(losses) = whole(&dir, &draft.plan().unwrap().0) else { return };
    for rank in 0..3 {
        // Going to the disk is a reason to look as well.
        let args = ["--check-replicas", "100", "--save-every", "5"];
        let fault = format!("{rank}:forward:7:flip");
        let mut job = Job::start(&dir, &format!("flip-{rank}"), &args, &fault);
        job.ends(0);
        let [(ranks, _, from)] = &differences(&job)[..] else { panic!("{}", job.log()) };
        assert_eq!((&ranks[..], *from), (&[rank][..], 5));
        assert!(job.log().contains("is not what the other replicas have"), "{}", job.log());
        job.trained_like(&losses);
    }
}

/// A slow rank is no dead one, and it is named. What others do on the machine is part of what ranks
/// take, so the job trains until it happens: [`slow_ranks_are_named_within_twenty_steps`] asks when, and
/// `elastic::straggler` has tests with times of its own.
#[test]
fn slow_ranks_are_named_and_live() {
    slow_ranks("elastic-slow", |_| true);
}

#[test]
#[ignore = "needs a machine that does nothing else; make soak"]
fn slow_ranks_are_named_within_twenty_steps() {
    slow_ranks("elastic-slow-soon", |step| (SLOW_FROM..=SLOW_FROM + 20).contains(&step));
}

/// The first slow step.
const SLOW_FROM: u64 = 30;

fn slow_ranks(folder: &str, in_time: fn(u64) -> bool) {
    let dir = scratch(folder);
    if !mpi() {
        return;
    }
    // Larger batches than elsewhere: what others do on the machine is less of a step.
    let mut plan = two_by_two(1_000_000);
    plan.mini_batch = 128;
    write(&dir, "plan.json", plan.to_json());
    for (rank, factor) in [(1, 3), (2, 10)] {
        let out = format!("slow-{factor}");
        let fault = format!("{rank}:forward:{SLOW_FROM}:slow:{factor}");
        let mut job = Job::start(&dir, &out, &["--silent-after", "2"], &fault);
        let (stages, times, step) = job.until("name of the slow rank", |event| match event {
            Event::Straggler { rank: who, stages, factor, step, .. } if *who == rank => {
                Some((stages.clone(), *factor, *step))
            }
            _ => None,
        });
        job.signal("-TERM");
        job.ends(0);
        assert_eq!(job.causes(), [Cause::Stopped], "nobody died");
        println!(
            "reliability: | slow {factor} times from step {SLOW_FROM} on: rank {rank} computes \
             {times:.1} times as long | named at step {step} |"
        );
        assert_eq!(stages, [plan.mesh().place(rank).0.0]);
        assert!(in_time(step), "after {step} steps");
        // Said at once of the first that was found; on a busy machine that may be another rank.
        assert!(job.log().contains(" times as long as others would; all wait"), "{}", job.log());
    }
}
