//! Ranks that are killed, at every place, each of them: at most the step under way is lost, and the
//! losses are those of a run without faults, to the bit.

use crate::common::{losses as job_losses, scratch, write};
use crate::job::{Job, expert_groups, groups, two_by_two, whole};
use pipewright_core::elastic::Verdict;
use pipewright_core::plan::Plan;
use pipewright_runner::elastic::journal::{Cause, Event, Line};

const STEPS: u64 = 20;

/// What the journal says of losses: detected and recovered in milliseconds.
fn times(job: &Job) -> String {
    let mut text = String::new();
    for line in job.journal() {
        match line.event {
            Event::Ended { rank: Some(rank), step, detect_ms, .. } => {
                let detect = detect_ms.map_or("?".into(), |ms| ms.to_string());
                text += &format!(" rank {rank} after step {step}: detected in {detect} ms,");
            }
            Event::Training { recover_ms: Some(ms), .. } => text += &format!(" trains in {ms} ms;"),
            _ => {}
        }
    }
    text
}

/// A job that is hit by `faults`, and ends as if nothing had been; its losses, in that order.
#[track_caller]
fn survives(place: &str, faults: &str, losses: &[String]) -> Vec<(u32, u64)> {
    survives_in(&two_by_two(STEPS), place, faults, losses)
}

#[track_caller]
fn survives_in(plan: &Plan, place: &str, faults: &str, losses: &[String]) -> Vec<(u32, u64)> {
    let dir = scratch(&format!("killed-{place}"));
    crate::common::write(&dir, "plan.json", plan.to_json());
    let mut job = Job::start(&dir, "out", &["--save-every", "5"], faults);
    job.ends(0);
    job.trained_like(losses);
    println!("{place}:{}", times(&job));
    let lost = job.journal().into_iter().filter_map(|line| match line.event {
        Event::Ended { cause: Cause::RankLost, rank, step, .. } => Some((rank?, step)),
        _ => None,
    });
    let lost = lost.collect();
    std::fs::remove_dir_all(dir).unwrap();
    lost
}

/// The four ranks of a plan, each at every place where groups do something together.
#[track_caller]
fn survives_everywhere(plan: &Plan, losses: &[String]) {
    for place in ["forward", "all-reduce", "checkpoint"] {
        let lost = survives_in(plan, place, &one_by_one(place), losses);
        assert_eq!(lost.len(), 4, "{place}: {lost:?}");
    }
}

/// One rank after the other, each in a generation of its own.
fn one_by_one(place: &str) -> String {
    let fault = |rank: u64| format!("{rank}:{place}:{}@{}", 3 + 4 * rank, rank + 1);
    (0..4).map(fault).collect::<Vec<_>>().join(",")
}

#[test]
fn every_rank_at_every_place_of_a_step() {
    let dir = scratch("killed");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    for place in ["forward", "backward", "send", "recv", "all-reduce", "optimizer"] {
        let lost = survives(place, &one_by_one(place), &losses);
        // Before step s nothing of it is kept, and everything before it is, but for the last
        // agreement: a rank may be past it when another dies in it.
        for ((rank, step), expected) in lost.iter().zip(0..) {
            let at = 3 + 4 * u64::from(expected);
            assert!(*rank == expected && (*step == at || *step + 1 == at), "{place}: {lost:?}");
        }
        assert_eq!(lost.len(), 4, "{place}");
    }
}

/// Of what the optimizer keeps each replica has a part, and every step's checkpoint all of them.
#[test]
fn every_rank_of_replicas_that_divide_updates() {
    let dir = scratch("killed-zero");
    let mut plan = two_by_two(STEPS);
    (plan.data_parallel.zero, plan.optimizer) = (1, "adamw:lr=0.003".parse().unwrap());
    let Some(losses) = whole(&dir, &plan) else { return };
    for place in ["all-reduce", "checkpoint"] {
        let lost = survives_in(&plan, place, &one_by_one(place), &losses);
        assert_eq!(lost.len(), 4, "{place}: {lost:?}");
    }
}

/// Each replica has some experts, every step's checkpoint all of them, and one replica goes on alone.
#[test]
fn every_rank_of_expert_groups() {
    let dir = scratch("killed-experts");
    let plan = expert_groups(STEPS);
    let Some(losses) = whole(&dir, &plan) else { return };
    survives_everywhere(&plan, &losses);
    write(&dir, "plan.json", plan.to_json());
    // One replica alone has all experts.
    let mut job = Job::start(&dir, "three", &["--slots", "3"], "1:forward:6");
    job.ends(0);
    let ranks = job.journal().into_iter().filter_map(|line| match line.event {
        Event::Generation { ranks, replicas, .. } => Some((ranks, replicas)),
        _ => None,
    });
    assert_eq!(ranks.collect::<Vec<_>>(), [(2, 1); 2], "{}", job.log());
    nearly(&job, &losses);
}

/// Losses but for the rounding of sums in another order.
#[track_caller]
fn nearly(job: &Job, losses: &[String]) {
    let trained: Vec<f64> = job_losses(&job.out).iter().map(|loss| loss.parse().unwrap()).collect();
    for (ours, whole) in trained.iter().zip(losses) {
        let whole: f64 = whole.parse().unwrap();
        assert!((ours - whole).abs() < 1e-5 * whole, "{ours} beside {whole}");
    }
    assert_eq!(trained.len(), losses.len());
}

/// Parts of the same parameters lie on the ranks of a group, and checkpoints have them whole.
#[test]
fn every_rank_of_tensor_groups() {
    let dir = scratch("killed-tensor");
    let plan = groups(STEPS);
    let Some(losses) = whole(&dir, &plan) else { return };
    survives_everywhere(&plan, &losses);
    // The last of three slots has no group: one replica trains what two would.
    write(&dir, "plan.json", plan.to_json());
    let mut job =
        Job::start(&dir, "three", &["--slots", "3", "--check-replicas", "3"], "1:forward:6");
    job.ends(0);
    let ranks = job.journal().into_iter().filter_map(|line| match line.event {
        Event::Generation { ranks, replicas, .. } => Some((ranks, replicas)),
        _ => None,
    });
    assert_eq!(ranks.collect::<Vec<_>>(), [(2, 1); 2], "{}", job.log());
    nearly(&job, &losses);
    // None of one slot.
    let mut alone = Job::start(&dir, "one", &["--slots", "1"], "");
    let why = alone.until("wait", |event| match event {
        Event::Verdict { verdict: Verdict::Wait { why }, .. } => Some(why.clone()),
        _ => None,
    });
    assert_eq!(why, "1 slots are not enough for 2 ranks");
    alone.signal("-TERM");
    alone.wait();
}

#[test]
fn every_rank_while_state_is_kept() {
    let dir = scratch("killed-keeping");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    // At steps 5, 10, .. the disk is written as well as the memory.
    let at = |place: &str, step: fn(u64) -> u64| {
        let fault = |rank: u64| format!("{rank}:{place}:{}@{}", step(rank), rank + 1);
        (0..4).map(fault).collect::<Vec<_>>().join(",")
    };
    for place in ["checkpoint", "rename", "committed"] {
        let lost = survives(place, &at(place, |rank| 3 + 4 * rank), &losses);
        assert_eq!(lost.len(), 4, "{place}: {lost:?}");
        let lost = survives(place, &at(place, |rank| 4 + 5 * rank), &losses);
        assert!(lost.len() >= 3, "{place}: {lost:?}");
    }
}

#[test]
fn every_rank_at_the_begin_and_at_the_end() {
    let dir = scratch("killed-ends");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    // A loss between, so that there is progress between the others.
    for place in ["start", "begun"] {
        let faults =
            format!("0:{place}:0@1,1:{place}:0@2,3:forward:5@3,2:{place}:0@4,3:{place}:0@5");
        let lost = survives(place, &faults, &losses);
        assert_eq!(lost.len(), 5, "{place}: {lost:?}");
    }
    for rank in 0..4 {
        // Everything is trained; whether the result is written already decides what follows.
        let lost = survives("exit", &format!("{rank}:exit:0"), &losses);
        assert!(lost.iter().all(|(_, step)| *step == STEPS), "{lost:?}");
    }
}

#[test]
fn two_at_a_time_and_one_while_it_begins_again() {
    let dir = scratch("killed-twice");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    let lost = survives("two", "1:forward:6,2:recv:6", &losses);
    assert_eq!(lost.len(), 1, "one loss of two ranks: {lost:?}");
    let lost = survives("recovery", "1:forward:6,2:start:0@2,3:begun:0@3", &losses);
    assert_eq!(lost.len(), 3, "{lost:?}");
}

#[test]
fn states_that_are_rarer_than_steps() {
    let dir = scratch("killed-rare");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    let mut job = Job::start(&dir, "out", &["--state-every", "4"], "1:forward:11,2:recv:14@2");
    job.ends(0);
    job.trained_like(&losses);
    let kept = job.journal().into_iter().filter_map(|line| match line.event {
        Event::Ended { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), [8, 12, 20]);
}

#[test]
fn memory_that_is_lost() {
    let dir = scratch("killed-memory");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    let mut job = Job::start(&dir, "out", &["--save-every", "5"], "1:forward:12:stop");
    // What is in memory goes with the machine; here somebody removes it while a rank stands still.
    let quiet = |event: &Event| matches!(event, Event::Quiet { .. }).then_some(());
    job.until("silence", quiet);
    let state = pipewright_runner::elastic::Session::of(&job.name).state();
    std::fs::remove_dir_all(state).unwrap();
    job.ends(0);
    let lost = job.until_lost();
    assert_eq!(lost, (12, 10), "back to the disk's");
    assert!(job.log().contains("the state of step 12 is lost with everybody"), "{}", job.log());
    job.trained_like(&losses);
    assert_eq!(job.causes(), [Cause::RankSilent, Cause::Done]);
}

#[test]
fn memory_that_is_damaged_where_the_disk_has_the_same_step() {
    let dir = scratch("killed-damaged");
    let Some(losses) = whole(&dir, &two_by_two(STEPS)) else { return };
    let mut job = Job::start(&dir, "out", &["--save-every", "5"], "1:forward:10:stop");
    job.until("silence", |event| matches!(event, Event::Quiet { .. }).then_some(()));
    let state = pipewright_runner::elastic::Session::of(&job.name).state();
    let file = state.join("step-10/stage-000.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    job.ends(0);
    assert!(job.log().contains("step-10/stage-000.safetensors: damaged"), "{}", job.log());
    let lost = |line: &Line| matches!(line.event, Event::StateLost { .. });
    assert!(!job.journal().iter().any(lost), "{:#?}", job.journal());
    job.trained_like(&losses);
}

impl Job {
    /// The newest step that was lost with its state, and the one that was left.
    fn until_lost(&self) -> (u64, u64) {
        let lost = self.journal().into_iter().find_map(|line| match line.event {
            Event::StateLost { step, left } => Some((step, left)),
            _ => None,
        });
        lost.unwrap_or_else(|| panic!("nothing was lost: {:#?}", self.journal()))
    }
}
