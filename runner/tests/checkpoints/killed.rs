//! Runs that are killed: nothing can be said any more, and nothing may be lost but the steps since
//! the last checkpoint.

use crate::common::{RUNNER, draft, losses, runner_in, scratch, write};
use crate::run::{at, checkpoints, plan_file, saved, tensors, until};
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Starts a run that saves after every step and has no end in sight.
fn start(dir: &Path, program: &mut Command, plan: &str) -> Child {
    program
        .args([plan, "--out", "out", "--save-every", "1", "--resume", "--steps", "1000000"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// After `kills` ends of a run, going on gives what an uninterrupted run gives.
fn goes_on(dir: &Path, plan: &str) {
    let out = dir.join("out");
    // Whatever was under way when the process died, the newest checkpoint is whole.
    let resumed = ["--out", "out", "--save-every", "1", "--resume"];
    let newest = |out: &Path| -> u64 {
        let entries = std::fs::read_dir(out.join("checkpoints")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max().unwrap()
    };
    let steps = (newest(&out) + 2).to_string();
    let run = runner_in(dir, &[&[plan, "--steps", &steps][..], &resumed].concat());
    assert!(!run.done().stderr.contains("warning"), "{run:#?}");
    let whole = ["--out", "whole", "--save-every", "0", "--overwrite"];
    runner_in(dir, &[&[plan, "--steps", &steps][..], &whole].concat()).done();
    assert_eq!(losses(&out), losses(&dir.join("whole")));
    let step = steps.parse().unwrap();
    assert!(tensors(&at(&out, step)) == tensors(&at(&dir.join("whole"), step)));
    assert_eq!(checkpoints(&out), [step - 1, step], "and what was begun is gone");
}

#[test]
fn a_run_of_threads_that_is_killed_again_and_again() {
    let dir = scratch("killed-threads");
    let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
    // It saves most of the time, so most of these end it between two files.
    for kill in 1..=6 {
        let mut run = start(&dir, &mut Command::new(RUNNER), &plan);
        until("a checkpoint more", || saved(&dir.join("out"), 3 * kill));
        run.kill().unwrap();
        run.wait().unwrap();
    }
    goes_on(&dir, &plan);
}

/// The processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// The parent of a process that lives; a zombie only waits to be counted.
fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name stands in parentheses and may hold spaces.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}

/// The MPI rank that a process is.
fn rank_of(id: u32) -> Option<u32> {
    let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
    let variables = environment.split(|byte| *byte == 0);
    let value = variables.filter_map(|v| v.strip_prefix(b"OMPI_COMM_WORLD_RANK=")).next()?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Runs a plan of four ranks and kills one of them after a step, for each of `victims`, which are ranks and steps: all
/// others end, and mpirun says who died. False where there is no mpirun.
fn killed(dir: &Path, plan: &str, victims: [(u32, u64); 2]) -> bool {
    let Some(mpirun) = pipewright::tools::find("MPIRUN", &["mpirun"]) else {
        pipewright::tools::skip("mpirun");
        return false;
    };
    let stderr = std::fs::File::create(dir.join("stderr")).unwrap();
    for (victim, step) in victims {
        let mut program = Command::new(&mpirun);
        program.args(["-n", "4", RUNNER]).envs(pipewright::mpirun::environment());
        let endless = ["--save-every", "1", "--resume", "--steps", "1000000"];
        program.args([plan, "--out", "out"]).args(endless);
        program.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        let mut run = program.stderr(stderr.try_clone().unwrap()).spawn().unwrap();
        until("a checkpoint", || saved(&dir.join("out"), step));
        let ranks = children(run.id());
        assert_eq!(ranks.len(), 4, "{ranks:?}");
        let victim_id = ranks.iter().find(|id| rank_of(**id) == Some(victim)).unwrap();
        let begin = Instant::now();
        let killed = Command::new("kill").args(["-KILL", &victim_id.to_string()]).status();
        assert!(killed.unwrap().success());
        let status = run.wait().unwrap();
        until("all ranks gone", || ranks.iter().all(|id| parent_of(*id).is_none()).then_some(()));
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "rank {victim} killed: all ranks gone after {seconds:.2} s, mpirun ended with {status}"
        );
        assert!(seconds < 30.0, "all ranks gone after {seconds:.1} s");
        assert_ne!(status.code(), Some(0));
        let said = std::fs::read_to_string(dir.join("stderr")).unwrap();
        assert!(said.contains(&format!("process rank {victim} ")), "mpirun names it: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    true
}

#[test]
fn a_rank_that_is_killed_takes_the_others_with_it() {
    let dir = scratch("killed-rank");
    let plan = plan_file(&dir, 4, ScheduleKind::GPipe);
    if killed(&dir, &plan, [(1, 2), (0, 6)]) {
        goes_on(&dir, &plan);
    }
}

/// The first of the group gathers what is saved, the others are asked for theirs. What four ranks of a group saved
/// goes on with one, on two stages.
#[test]
fn a_rank_of_a_tensor_group_that_is_killed_takes_the_others_with_it() {
    let dir = scratch("killed-tensor-rank");
    let file = |tensor: u32, stages: u32| {
        let preset = "transformer:layers=2,hidden=32,heads=4,sequence=8,vocabulary=31,tied";
        let mut draft = draft(preset.parse().unwrap(), stages);
        (draft.mini_batch, draft.micro_batches) = (8, 2);
        (draft.tensor, draft.sequence_parallel) = (tensor, tensor > 1);
        let name = format!("t{tensor}.json");
        write(&dir, &name, draft.plan().unwrap().0.to_json());
        name
    };
    let (group, lone) = (file(4, 1), file(1, 2));
    if !killed(&dir, &group, [(2, 2), (0, 6)]) {
        return;
    }
    let out = dir.join("out");
    let newest = std::fs::read_dir(out.join("checkpoints")).unwrap().filter_map(|entry| {
        entry.unwrap().file_name().to_str()?.strip_prefix("step-")?.parse::<u64>().ok()
    });
    let steps = (newest.max().unwrap() + 3).to_string();
    let save = ["--steps", &steps, "--save-every", "1", "--out"];
    runner_in(&dir, &[&[lone.as_str()][..], &save, &["out", "--resume"]].concat()).done();
    runner_in(&dir, &[&[lone.as_str()][..], &save, &["whole"]].concat()).done();
    let [found, expected] = ["out", "whole"].map(|run| losses(&dir.join(run)));
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let [found, expected] = [found, expected].map(|loss| loss.parse::<f64>().unwrap());
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-5, "step {step}: {found} instead of {expected}");
    }
}
