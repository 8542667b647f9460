//! Survivors of a loss that go on in their processes: Open MPI 5 with ULFM. Losses are those of runs that
//! went on from the same steps with as many ranks, to the bit.

use crate::common::{losses, runner_in, scratch, write};
use crate::job::{Job, ledger, two_by_two};
use crate::members::Joined;
use crate::soak::{milliseconds, steps, tell};
use pipewright::mpirun::surviving;
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_core::elastic::{BatchRule, replan, reroute_to};
use pipewright_core::plan::Plan;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;

const STEPS: u64 = 20;

/// Generations with their ranks, and whether they began in new processes.
pub fn generations(job: &Job) -> Vec<(u64, u32)> {
    let of = |event: Event| match event {
        Event::Generation { generation, ranks, .. } => Some((generation, ranks)),
        _ => None,
    };
    job.journal().into_iter().filter_map(|line| of(line.event)).collect()
}

/// The plan of a job for so many ranks.
pub fn plan_of(plan: &Plan, ranks: u32, reroute: bool) -> Plan {
    let fewer = replan(plan, ranks, BatchRule::Keep).unwrap().plan;
    match reroute && fewer.ranks() < ranks {
        true => reroute_to(plan, ranks).unwrap().plan,
        false => fewer,
    }
}

/// The losses of a run without faults that has those ranks from those steps on.
fn reference(dir: &Path, plan: &Plan, reroute: bool, parts: &[(u64, u32)]) -> Vec<String> {
    let ends = parts.iter().skip(1).map(|(step, _)| *step).chain([plan.steps]);
    let mut all = vec![];
    let mut before: Option<String> = None;
    for ((from, ranks), end) in parts.iter().zip(ends) {
        let name = format!("{}-part-{from}-{ranks}", before.as_deref().unwrap_or("whole"));
        write(dir, "part.json", plan_of(plan, *ranks, reroute).to_json());
        let end = end.to_string();
        let mut args = vec!["run", "part.json", "--out", &name, "--steps", &end];
        args.extend(["--threads", "1", "--save-every", "0", "--overwrite"]);
        args.extend(before.iter().flat_map(|before| ["--resume", before]));
        runner_in(dir, &args).done();
        all.extend(losses(&dir.join(&name)));
        before = Some(name);
    }
    all
}

/// Every step once, each with the loss that it has with its generation's number of ranks.
#[track_caller]
pub fn trained(dir: &Path, job: &Job, plan: &Plan, reroute: bool) {
    let (generations, ledger) = (generations(job), ledger(&job.out));
    let ranks = |of: u64| generations.iter().find(|(number, _)| *number == of).unwrap().1;
    let mut parts: Vec<(u64, u32)> = vec![];
    for (step, generation) in &ledger {
        let ranks = ranks(*generation);
        if parts.last().is_none_or(|(_, before)| *before != ranks) {
            parts.push((*step, ranks));
        }
    }
    job.trained_like(&reference(dir, plan, reroute, &parts));
}

/// How a job with these faults went on: its generations and why they ended.
pub type Went = (Vec<(u64, u32)>, Vec<Cause>);

#[track_caller]
fn survive(name: &str, args: &[&str], faults: &str) -> Option<Went> {
    survive_with(two_by_two(STEPS), name, args, faults)
}

#[track_caller]
pub fn survive_with(plan: Plan, name: &str, args: &[&str], faults: &str) -> Option<Went> {
    let mpirun = surviving()?;
    let dir = scratch(&format!("shrink-{name}"));
    write(&dir, "plan.json", plan.to_json());
    let job = Job::survived(&mpirun, &dir, args, faults, |job| {
        trained(&dir, job, &plan, args.contains(&"--reroute"));
        assert!(!job.log().contains("find together"), "{}", job.log());
    });
    let seen = (generations(&job), job.causes());
    std::fs::remove_dir_all(dir).unwrap();
    Some(seen)
}

pub const SHRINK: [&str; 4] = ["--on-loss", "shrink", "--save-every", "5"];
pub const PLACES: [&str; 9] = [
    "forward",
    "backward",
    "send",
    "recv",
    "all-reduce",
    "optimizer",
    "checkpoint",
    "rename",
    "committed",
];

/// Two losses at a place: of `first` with four ranks, of a rank with two ranks and one aside.
#[track_caller]
fn two_losses(place: &str, first: u32) {
    let faults = format!("{first}:{place}:4@1,{}:{place}:9@2", first % 2);
    let Some((generations, causes)) = survive(&format!("{place}-{first}"), &SHRINK, &faults) else {
        return;
    };
    // The one aside takes the place of the second.
    assert_eq!(generations, [(1, 4), (2, 2), (3, 2)], "{place} {first}");
    assert_eq!(causes, [Cause::RankLost, Cause::RankLost, Cause::Done], "{place} {first}");
}

#[test]
fn every_place_of_a_step() {
    for (at, place) in PLACES.iter().enumerate() {
        two_losses(place, at as u32 % 4);
    }
}

#[test]
#[ignore = "takes minutes; make soak"]
fn every_rank_at_every_place_of_a_step() {
    for place in PLACES {
        (0..4).for_each(|rank| two_losses(place, rank));
    }
}

#[test]
fn down_to_one_rank() {
    let faults = "3:forward:3@1,0:recv:6@2,1:optimizer:9@3";
    let Some((generations, _)) = survive("one", &SHRINK, faults) else { return };
    assert_eq!(generations, [(1, 4), (2, 2), (3, 2), (4, 1)]);
}

/// Sums of encoded gradients are calls of a thread of their own; what they carry over goes on with the
/// survivors.
#[test]
fn encoded_sums() {
    let mut plan = two_by_two(STEPS);
    plan.communication.gradients = Reduction::of(CodecKind::Bf16).with_feedback();
    for (place, victim) in [("all-reduce", 3), ("backward", 0), ("optimizer", 1), ("send", 2)] {
        let faults = format!("{victim}:{place}:6");
        let name = format!("encoded-{place}");
        let Some((generations, causes)) = survive_with(plan.clone(), &name, &SHRINK, &faults)
        else {
            return;
        };
        assert_eq!(generations, [(1, 4), (2, 2)], "{place}");
        assert_eq!(causes, [Cause::RankLost, Cause::Done], "{place}");
    }
}

#[test]
fn who_joins_later_has_all_started_anew() {
    let Some(mpirun) = surviving() else { return };
    let dir = scratch("shrink-join");
    write(&dir, "plan.json", two_by_two(1).to_json());
    let args = ["--on-loss", "shrink", "--steps", "1000000"];
    let mut job = Job::start_with(Some(&mpirun), &dir, "out", &args, "3:forward:30");
    job.until_training(2);
    let more = Joined::new(&dir, &job.name, "more", 1);
    job.until_training(3);
    assert_eq!(generations(&job), [(1, 4), (2, 2), (3, 4)]);
    assert_eq!(job.causes(), [Cause::RankLost, Cause::Reconfigured]);
    job.signal("-TERM");
    job.ends(0);
    drop(more);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn two_at_a_time() {
    let Some((generations, _)) = survive("two", &SHRINK, "1:forward:6,2:recv:6") else { return };
    // Whether the second one is a loss of its own, or comes while survivors begin: then all are
    // started anew.
    assert!((2..=3).contains(&generations.len()), "{generations:?}");
}

/// The rank that stands still is the last to begin: its peer waits for it.
#[test]
fn a_loss_while_survivors_begin_is_a_relaunch() {
    let args = [&SHRINK[..], &["--silent-after", "2"]].concat();
    let Some((generations, causes)) = survive("begin", &args, "3:forward:6,1:start:0:stop@2")
    else {
        return;
    };
    assert_eq!(generations, [(1, 4), (2, 2), (3, 4)], "with all places again");
    assert_eq!(causes, [Cause::RankLost, Cause::RankSilent, Cause::Done]);
}

#[test]
fn a_death_while_survivors_begin_ends_in_either_way() {
    let Some((generations, causes)) = survive("begin-death", &SHRINK, "3:forward:6,0:start:0@2")
    else {
        return;
    };
    // Its peer may not have read that there is a second generation: then it goes on as a survivor of
    // the first.
    let relaunched = [(1, 4), (2, 2), (3, 4)];
    let survived = [(1, 4), (2, 2), (3, 2)];
    assert!(generations == relaunched || generations == survived, "{generations:?}");
    assert_eq!(causes, [Cause::RankLost, Cause::RankLost, Cause::Done]);
}

#[test]
fn losses_at_the_end() {
    for rank in 0..4 {
        let faults = format!("{rank}:exit:0");
        let Some((generations, _)) = survive(&format!("exit-{rank}"), &SHRINK, &faults) else {
            return;
        };
        assert!(generations.len() <= 2, "{generations:?}");
    }
}

#[test]
fn a_rank_that_stands_still_is_ended_and_survived() {
    let args = [&SHRINK[..], &["--silent-after", "0.5"]].concat();
    let Some((generations, causes)) = survive("silent", &args, "1:backward:6:stop") else { return };
    assert_eq!(generations, [(1, 4), (2, 2)]);
    assert_eq!(causes, [Cause::RankSilent, Cause::Done]);
}

#[test]
fn auto_starts_anew_where_that_fills_the_place() {
    let Some((generations, _)) = survive("auto", &["--on-loss", "auto"], "2:recv:6") else {
        return;
    };
    assert_eq!(generations, [(1, 4), (2, 4)]);
    // Two ranks are wanted of four places: three survivors are enough.
    let args = ["--on-loss", "auto", "--policy", "min-max:2:2"];
    let Some((generations, _)) = survive("auto-enough", &args, "1:recv:6") else { return };
    assert_eq!(generations, [(1, 2), (2, 2)], "one survivor is not enough for two");
}

#[test]
fn an_mpi_that_cannot_is_said() {
    let Some(mpirun) = pipewright::tools::find("", &["mpirun"]) else { return };
    let version = std::process::Command::new(&mpirun).arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).contains("(Open MPI) 4") {
        return;
    }
    let dir = scratch("shrink-cannot");
    write(&dir, "plan.json", two_by_two(2).to_json());
    let mut job = Job::start_with(Some(&mpirun), &dir, "out", &["--on-loss", "shrink"], "");
    assert_eq!(job.wait(), Some(4));
    assert!(job.log().contains("Open MPI 5 or newer is needed"), "{}", job.log());
}

/// Kills, one a job, and what they cost: from the last step before to the first one after.
fn pauses(mpirun: Option<&Path>, way: &str, count: u64) -> Vec<u64> {
    let dir = scratch(&format!("pauses-{way}"));
    write(&dir, "plan.json", two_by_two(60).to_json());
    let mut all = vec![];
    for kill in 0..count {
        let faults = format!("{}:{}:{}", kill % 4, PLACES[kill as usize % 6], 20 + kill % 7);
        let args = ["--on-loss", way, "--overwrite"];
        let mut job = Job::start_with(mpirun, &dir, "out", &args, &faults);
        job.ends(0);
        let steps = steps(&job.out);
        let at = steps.windows(2).find(|pair| pair[0].generation < pair[1].generation);
        let [before, after] = at.expect("a loss") else { unreachable!("windows of two") };
        all.push(after.unix_ms - before.unix_ms - after.ns / 1_000_000);
    }
    std::fs::remove_dir_all(dir).unwrap();
    all
}

#[test]
#[ignore = "takes minutes; make soak"]
fn a_loss_by_either_way() {
    let Some(mpirun) = surviving() else { return };
    const KILLS: u64 = 20;
    let ways = [
        (None, "relaunch", "relaunch, the system's MPI"),
        (Some(mpirun.as_path()), "relaunch", "relaunch, Open MPI 5"),
        (Some(mpirun.as_path()), "shrink", "shrink, Open MPI 5"),
    ];
    for (mpirun, way, what) in ways {
        let figure = milliseconds(pauses(mpirun, way, KILLS));
        tell(&format!("{KILLS} losses by {what}: last step before to first step after"), &figure);
    }
}
