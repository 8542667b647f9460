//! Members that come and go while a job runs.

use crate::common::{RUNNER, losses, mpirun_in, runner_in, scratch, write};
use crate::job::{Job, ledger, mpi, two_by_two};
use pipewright_core::elastic::Verdict;
use pipewright_core::plan::Plan;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A member of a job.
pub struct Joined(Child);

impl Joined {
    pub fn new(dir: &Path, job: &str, name: &str, slots: u32) -> Self {
        let mut command = Command::new(RUNNER);
        let slots = slots.to_string();
        command.args(["join", "--job", job, "--name", name, "--slots", &slots]);
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        crate::job::signal(self.0.id(), name);
    }

    fn code(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn waits(event: &Event) -> Option<()> {
    matches!(event, Event::Verdict { verdict: Verdict::Wait { .. }, .. }).then_some(())
}

/// Generations with their number of members.
fn generations(job: &Job) -> Vec<usize> {
    let members = |event: Event| match event {
        Event::Generation { members, .. } => Some(members.len()),
        _ => None,
    };
    job.journal().into_iter().filter_map(|line| members(line.event)).collect()
}

/// Generations with their ranks and replicas.
fn shapes(job: &Job) -> Vec<(u32, u32)> {
    let shape = |event: Event| match event {
        Event::Generation { ranks, replicas, .. } => Some((ranks, replicas)),
        _ => None,
    };
    job.journal().into_iter().filter_map(|line| shape(line.event)).collect()
}

#[test]
fn replicas_follow_the_members() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-scale");
    // Slow enough that no unit is on for one order of sums and off for another.
    let optimizer = "sgd:lr=1e-4,momentum=0.9".parse().unwrap();
    write(&dir, "plan.json", Plan { optimizer, ..two_by_two(20) }.to_json());
    let args = ["--steps", "1000000", "--slots", "2", "--save-every", "1000000"];
    let mut job = Job::start(&dir, "out", &args, "");
    job.until_training(1);
    let more = Joined::new(&dir, &job.name, "more", 2);
    job.until_training(2);
    more.signal("-KILL");
    job.until_training(3);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(shapes(&job), [(2, 1), (4, 2), (2, 1)]);
    assert_eq!(job.causes(), [Cause::Reconfigured, Cause::Reconfigured, Cause::Stopped]);
    // The mini-batch is the same, so a step takes the same samples whatever the size: each is used
    // once where each step is made once. Sums are in another order.
    let steps = ledger(&job.out);
    let count = steps.len().to_string();
    assert!(steps.iter().zip(0..).all(|((step, _), expected)| *step == expected), "{steps:?}");
    let whole = ["plan.json", "--steps", &count, "--out", "whole", "--threads", "1"];
    mpirun_in(&dir, 4, &whole).unwrap().done();
    let [found, expected] = ["out", "whole"].map(|out| -> Vec<f64> {
        losses(&dir.join(out)).iter().map(|loss| loss.parse().unwrap()).collect()
    });
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / expected[0]);
    let off = off.fold(0.0, f64::max);
    println!("{count} steps in three sizes: losses differ by {off:e} of the first");
    assert!(off < 1e-3, "{off:e}");
}

#[test]
fn a_policy_that_gives_up_keeps_the_state() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-gives-up");
    write(&dir, "plan.json", two_by_two(20).to_json());
    let long = ["--steps", "1000000", "--slots", "2", "--save-every", "1000000"];
    let args = [&long[..], &["--policy", "fail-stop:4"]].concat();
    let mut job = Job::start(&dir, "out", &args, "");
    job.until("wait", waits);
    let more = Joined::new(&dir, &job.name, "more", 2);
    job.until_training(1);
    more.signal("-KILL");
    job.ends(3);
    assert!(job.log().contains("error: fail-stop:4: 2 slots "), "{}", job.log());
    let kept = pipewright_runner::checkpoint::newest(&job.out.join("checkpoints")).unwrap();
    assert_eq!(kept, Some(ledger(&job.out).len() as u64), "all that was trained is on the disk");
}

#[test]
fn a_job_waits_for_members_and_lets_them_go() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-members");
    write(&dir, "plan.json", two_by_two(20).to_json());
    let long = ["--steps", "1000000", "--slots", "2", "--settle", "0.5"];
    let args = [&long[..], &["--save-every", "1000000", "--policy", "fixed-size:4"]].concat();
    let mut job = Job::start(&dir, "out", &args, "");
    job.until("wait", waits);
    // A burst of them is one change.
    let many: Vec<Joined> =
        (0..8).map(|i| Joined::new(&dir, &job.name, &format!("node{i}"), 1)).collect();
    job.until_training(1);
    assert_eq!(generations(&job), [9], "all of them at once");
    // The same name again.
    let again = ["join", "--job", &job.name, "--name", "node3"];
    runner_in(&dir, &again).refused(2, "`node3` is a member already");
    let nobody = ["leave", "nobody", "--job", &job.name];
    runner_in(&dir, &nobody).refused(2, "no member is called `nobody`");
    // One goes by itself, one is sent away, one dies: each ends a generation in order.
    many[0].signal("-TERM");
    job.until_training(2);
    runner_in(&dir, &["leave", "node1", "--job", &job.name]).done();
    job.until_training(3);
    many[2].signal("-KILL");
    job.until_training(4);
    assert_eq!(generations(&job), [9, 8, 7, 6]);
    let mut many = many.into_iter();
    let codes: Vec<Option<i32>> = many.by_ref().take(3).map(Joined::code).collect();
    assert_eq!(codes, [Some(0), Some(0), None]);
    // Too few are left: it waits, and its state with it.
    drop(many);
    job.until_ended(4);
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(job.causes(), [Cause::Reconfigured; 4]);
}

#[test]
fn a_member_without_ranks_knows_it_and_may_leave() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-idle");
    write(&dir, "plan.json", two_by_two(20).to_json());
    // Three replicas do not divide the mini-batch.
    let args = ["--steps", "1000000", "--slots", "4", "--save-every", "1000000"];
    let mut job = Job::start(&dir, "out", &args, "");
    job.until_training(1);
    let mut more = Heard::new(&dir, &job.name, "more", 2);
    more.until("note: `more` is idle");
    runner_in(&dir, &["leave", "more", "--job", &job.name]).done();
    assert_eq!(more.ends(), Some(0));
    job.signal("-TERM");
    job.ends(0);
    assert_eq!(shapes(&job), [(4, 2)], "nothing began anew for it");
}

#[test]
fn members_hear_that_the_job_is_done() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-done");
    write(&dir, "plan.json", two_by_two(20).to_json());
    let args = ["--steps", "20", "--slots", "1", "--policy", "fixed-size:4"];
    let mut job = Job::start(&dir, "out", &args, "");
    job.until("wait", waits);
    let mut first = Heard::new(&dir, &job.name, "first", 1);
    first.until("joined as");
    // With these slots it begins.
    let mut second = Heard::new(&dir, &job.name, "second", 2);
    job.ends(0);
    for member in [&mut first, &mut second] {
        assert_eq!(member.ends(), Some(0), "{}", member.said());
        assert!(member.said().contains("the job is done"), "{}", member.said());
        assert!(!member.said().contains("lease"), "{}", member.said());
    }
}

/// A member whose words are kept.
struct Heard {
    child: Child,
    log: std::path::PathBuf,
}

impl Heard {
    fn new(dir: &Path, job: &str, name: &str, slots: u32) -> Self {
        let log = dir.join(format!("{name}.said"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(RUNNER);
        command.args(["join", "--job", job, "--name", name, "--slots", &slots.to_string()]);
        command.current_dir(dir).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    fn until(&mut self, words: &str) {
        while !self.said().contains(words) {
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
