//! Jobs that end otherwise than by their last step, and ranks that stand still.

use crate::common::{losses, runner_in, scratch, write};
use crate::job::{Job, mpi, processes, ranks, signal, two_by_two, whole};
use pipewright_core::elastic::Verdict;
use pipewright_core::plan::{Data, Plan};
use pipewright_runner::checkpoint::newest;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;
use std::time::{Duration, Instant};

pub const LONG: &[&str] = &["--steps", "1000000", "--save-every", "1000000"];

fn begin(name: &str) -> Option<std::path::PathBuf> {
    if !mpi() {
        return None;
    }
    let dir = scratch(name);
    write(&dir, "plan.json", two_by_two(20).to_json());
    Some(dir)
}

/// The steps of the newest checkpoint on the disk.
fn on_disk(job: &Job) -> u64 {
    newest(&job.out.join("checkpoints")).unwrap().expect("a checkpoint")
}

/// A run that goes on from the disk makes the same steps as one without faults.
pub fn goes_on(dir: &Path, job: &Job) {
    let steps = on_disk(job) + 2;
    let (text, count) = (steps.to_string(), steps as usize);
    let mut again = Job::start(dir, "out", &["--steps", &text], "");
    again.ends(0);
    crate::common::mpirun_in(
        dir,
        4,
        &["plan.json", "--steps", &text, "--out", "whole", "--threads", "1"],
    );
    assert_eq!(losses(&dir.join("whole")).len(), count);
    again.trained_like(&losses(&dir.join("whole")));
}

#[test]
fn a_terminated_job_keeps_its_last_step_and_goes_on() {
    let Some(dir) = begin("elastic-term") else { return };
    let mut job = Job::start(&dir, "out", LONG, "");
    job.until_training(1);
    let begin = Instant::now();
    job.signal("-TERM");
    job.ends(0);
    println!("SIGTERM: left after {} ms", begin.elapsed().as_millis());
    assert_eq!(job.causes(), [Cause::Stopped]);
    goes_on(&dir, &job);
}

#[test]
fn a_killed_supervisor_takes_its_ranks_with_it_and_the_next_one_goes_on() {
    let Some(dir) = begin("elastic-supervisor") else { return };
    let mut job = Job::start(&dir, "out", LONG, "");
    job.until_training(1);
    job.signal("-KILL");
    assert_eq!(job.wait(), None);
    let begin = Instant::now();
    while !processes(&job.name).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "ranks train on");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("supervisor killed: no rank is left after {} ms", begin.elapsed().as_millis());
    // Nothing is on the disk, but the memory is still there.
    let mut again = Job::start(&dir, "out", LONG, "");
    again.until("a second training", |event| match event {
        Event::Generation { step, .. } if *step > 0 => Some(()),
        _ => None,
    });
    again.signal("-TERM");
    again.ends(0);
    goes_on(&dir, &again);
}

#[test]
fn a_rank_that_stands_still_is_dead_after_a_time() {
    let dir = scratch("elastic-still");
    let Some(losses) = whole(&dir, &two_by_two(20)) else { return };
    // For ever; its heart stands still as well. The limits are such that nobody else exceeds them, however
    // busy the machine is: those who wait for the others, and those who start.
    let mut job = Job::start(&dir, "out", &["--silent-after", "10"], "2:forward:7:stop");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::RankSilent, Cause::Done]);
    job.trained_like(&losses);
    // Its heart beats, and no rank comes on.
    let mut job = Job::start(&dir, "hangs", &["--hung-after", "20"], "2:forward:7:hang");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::Hung, Cause::Done]);
    job.trained_like(&losses);
}

#[test]
fn a_rank_that_stands_still_for_a_while_is_not_dead() {
    let Some(dir) = begin("elastic-pause") else { return };
    let mut job = Job::start(&dir, "out", &[LONG, &["--silent-after", "60"]].concat(), "");
    job.until_training(1);
    let (rank, process) = ranks(&job.name)[1];
    signal(process, "-STOP");
    let quiet = |event: &Event| match event {
        Event::Quiet { rank, .. } => Some(*rank),
        _ => None,
    };
    assert_eq!(job.until("warning", quiet), rank);
    signal(process, "-CONT");
    let step = job.journal().len();
    job.until("progress", |event| matches!(event, Event::Progress { .. }).then_some(()));
    assert!(job.journal().len() >= step);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::Stopped], "{}", job.log());
    assert!(job.log().contains(&format!("warning: rank {rank} has said nothing for ")));
}

/// As if another supervisor had taken the job over: whoever is not meant any more writes nothing, and
/// the one who is meant goes on from what was written before.
#[test]
fn ranks_of_a_generation_that_was_replaced_write_nothing() {
    let Some(dir) = begin("elastic-fenced") else { return };
    let mut job = Job::start(&dir, "out", LONG, "");
    job.until_training(1);
    let before = crate::job::ledger(&job.out).len();
    std::fs::write(job.out.join("generation"), format!("{:020} open\n", 9)).unwrap();
    // Whoever led then tells no more of it, and leads again: nobody else does.
    job.until_training(10);
    assert!(job.log().contains("generation 1 was replaced by 9"), "{}", job.log());
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::Stopped]);
    assert!(crate::job::ledger(&job.out).len() > before);
    goes_on(&dir, &job);
}

#[test]
fn policies_end_jobs_and_have_them_wait() {
    let Some(dir) = begin("elastic-policy") else { return };
    let args = [LONG, &["--policy", "fixed-size:4", "--slots", "3"]].concat();
    let mut job = Job::start(&dir, "waits", &args, "");
    let waits = |event: &Event| match event {
        Event::Verdict { verdict: Verdict::Wait { why }, .. } => Some(why.clone()),
        _ => None,
    };
    let why = job.until("verdict", waits);
    assert!(why.contains("3 slots"), "{why}");
    // What it does before it waits may take its time on a busy machine; what waits comes to rest.
    let begin = Instant::now();
    while !rests(&job) {
        let late = begin.elapsed() > Duration::from_secs(120);
        assert!(!late, "a job that waits takes more than a hundredth of a processor");
    }
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), []);
}

#[test]
fn a_script_decides() {
    let Some(dir) = begin("elastic-script") else { return };
    write(&dir, "once.rhai", "if initial { run() } else { fail(`enough at ${step}`) }");
    let args = ["--policy", "once.rhai+min-max:2:4", "--save-every", "100"];
    let mut job = Job::start(&dir, "out", &args, "1:forward:5");
    job.ends(3);
    assert!(job.log().contains("enough at 5"), "{}", job.log());
    assert_eq!(on_disk(&job), 5, "the last step is on the disk");
    write(&dir, "broken.rhai", "if");
    let args = ["elastic", "plan.json", "--out", "broken", "--policy", "broken.rhai"];
    runner_in(&dir, &args).refused(2, "--policy");
}

/// Whether a supervisor takes at most a hundredth of a processor's time for three seconds.
fn rests(job: &Job) -> bool {
    let (begin, before) = (Instant::now(), cpu_ms(job));
    std::thread::sleep(Duration::from_secs(3));
    let (spent, passed) = (cpu_ms(job) - before, begin.elapsed().as_millis() as u64);
    println!("parked: {spent} ms of processor time in {passed} ms");
    spent * 100 <= passed
}

/// Processor time of a supervisor so far.
fn cpu_ms(job: &Job) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", job.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 10
}

#[test]
fn losses_without_progress_end_the_job() {
    let Some(dir) = begin("elastic-limit") else { return };
    let faults = ["0:begun:0@1", "1:begun:0@2", "2:begun:0@3", "3:begun:0@4", "0:begun:0@5"];
    let mut job = Job::start(&dir, "out", &[], &faults.join(","));
    job.ends(5);
    assert_eq!(job.causes(), [Cause::RankLost; 4]);
    assert!(job.log().contains("lost 4 times in 10 minutes without a step"), "{}", job.log());
}

#[test]
fn what_does_not_get_better_is_not_tried_again() {
    let Some(dir) = begin("elastic-refused") else { return };
    let plan = two_by_two(20);
    let optimizer = "sgd:lr=1e9,momentum=0.9".parse().unwrap();
    write(&dir, "plan.json", Plan { optimizer, steps: 500, ..plan.clone() }.to_json());
    let mut job = Job::start(&dir, "diverges", &[], "");
    job.ends(1);
    assert!(job.log().contains("lower the learning rate"), "{}", job.log());
    assert!(job.log().contains("starting again does not help"), "{}", job.log());
    assert_eq!(job.causes(), [Cause::Failed; 2]);
    // Refused before there is any rank, and by the ranks.
    let data = Data::Idx { dir: "nowhere".into() };
    write(&dir, "plan.json", Plan { data, ..plan.clone() }.to_json());
    let args = ["elastic", "plan.json", "--out", "nowhere"];
    runner_in(&dir, &args).refused(2, "data idx:nowhere");
    write(&dir, "plan.json", plan.to_json());
    runner_in(&dir, &[&args[..], &["--policy", "perhaps"]].concat()).refused(2, "--policy");
    runner_in(&dir, &[&args[..], &["--hosts", "a:b"]].concat()).refused(2, "is not like host1:2");
    runner_in(&dir, &["join", "--job", "nobody"]).refused(5, "no job runs there");
}
