//! Ends of runs: refused before they begin, failed, interrupted, done. The exit code says which,
//! `result.json` says so too, and no rank waits for one that will not come.

use crate::common::{
    RUNNER, digits, draft, few_samples, four_ranks, losses, mpirun_in, result, runner_in, scratch,
    small_plan, write,
};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, Optimizer, Plan};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_run_that_is_done() {
    let dir = scratch("done");
    let plan = write(&dir, "plan.json", small_plan().to_json());
    let run = runner_in(&dir, &[plan, "--out", "out"]);
    assert!(run.done().stdout.starts_with("done: 5 steps in "), "{run:#?}");
    assert!(run.stdout.contains("to the byte"), "{run:#?}");
    let record = result(&dir.join("out"));
    assert_eq!((&record["status"], &record["steps"]), (&"done".into(), &5.into()));
    assert_eq!(losses(&dir.join("out")).len(), 5);
    assert!(dir.join("out/rank-001.jsonl").exists() && dir.join("out/trace.json").exists());
}

#[test]
fn json_is_one_object_on_stdout() {
    let dir = scratch("json");
    let plan = write(&dir, "plan.json", small_plan().to_json());
    let run = runner_in(&dir, &[plan, "--json"]);
    let objects: Vec<serde_json::Value> = serde_json::Deserializer::from_str(&run.done().stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(objects.len(), 1, "{run:#?}");
    assert_eq!(objects[0]["status"], "done");
    assert_eq!(objects[0]["arena"].as_array().unwrap().len(), 2);
    let Some(run) = mpirun_in(&dir, 2, &[plan, "--json"]) else { return };
    let object: serde_json::Value = serde_json::from_str(&run.done().stdout).unwrap();
    assert_eq!(object["status"], "done");
}

/// The test at the end may be left out, or bounded.
#[test]
fn a_run_tests_as_much_as_it_is_asked_to() {
    let dir = scratch("eval-samples");
    write(&dir, "plan.json", small_plan().to_json());
    let run = |more: &[&str]| {
        let args = ["plan.json", "--out", "run", "--overwrite", "--steps", "2"];
        let said = runner_in(&dir, &[&args[..], more].concat()).done().stdout.clone();
        (said, result(&dir.join("run")))
    };
    let (said, all) = run(&[]);
    assert_eq!(all["test_samples"], 360);
    assert!(said.contains("on 360 samples"), "{said}");
    let (_, some) = run(&["--eval-samples", "33"]);
    assert_eq!(some["test_samples"], 33);
    assert_ne!(some["test_loss"], all["test_loss"]);
    let correct = some["test_accuracy"].as_f64().unwrap() * 33.0;
    assert!((correct - correct.round()).abs() < 1e-9, "{some}");
    let (said, none) = run(&["--no-eval"]);
    assert_eq!((&none["test_samples"], &none["test_loss"]), (&0.into(), &serde_json::Value::Null));
    assert!(!said.contains("test loss"), "{said}");
    runner_in(&dir, &["plan.json", "--no-eval", "--eval-every", "1"])
        .refused(2, "cannot be used with");
}

#[test]
fn an_earlier_run_stays() {
    let dir = scratch("earlier");
    let mut plan = four_ranks(3);
    write(&dir, "four.json", plan.to_json());
    runner_in(&dir, &["four.json", "--out", "out"]).done();
    let files = || -> Vec<(String, Vec<u8>)> {
        let entries = std::fs::read_dir(dir.join("out")).unwrap().map(|e| e.unwrap().path());
        let mut paths: Vec<_> = entries.collect();
        paths.sort();
        let read = |p: &std::path::PathBuf| (p.display().to_string(), std::fs::read(p).unwrap());
        paths.iter().map(read).collect()
    };
    let before = files();
    assert_eq!(before.len(), 6, "4 ranks, trace and result");
    plan = small_plan();
    write(&dir, "two.json", plan.to_json());
    let again = runner_in(&dir, &["two.json", "--out", "out"]);
    again.refused(2, "out holds an earlier run; choose another --out, or replace it with --over");
    assert!(files() == before, "a refused run touches nothing");
    if let Some(run) = mpirun_in(&dir, 2, &["two.json", "--out", "out"]) {
        run.refused(2, "holds an earlier run");
        assert!(files() == before, "a refused run touches nothing");
    }
    runner_in(&dir, &["two.json", "--out", "out", "--overwrite"]).done();
    assert_eq!(files().len(), 4, "nothing of the earlier run is left: {:?}", files());
    runner_in(&dir, &["two.json", "--overwrite"]).refused(2, "--out");
}

#[test]
fn a_wrong_number_of_ranks() {
    let dir = scratch("ranks");
    let plan = write(&dir, "four.json", four_ranks(3).to_json());
    for ranks in [2, 3] {
        let Some(run) = mpirun_in(&dir, ranks, &[plan, "--out", "out"]) else { return };
        let words = format!("the plan needs 4 lanes = 4 ranks, mpirun gave {ranks}. Use -n 4");
        run.refused(4, &words);
        assert!(!dir.join("out").exists());
    }
}

#[test]
fn transports() {
    let dir = scratch("transports");
    let plan = write(&dir, "four.json", four_ranks(3).to_json());
    let run = runner_in(&dir, &[plan, "--transport", "mpi"]);
    run.refused(2, "--transport mpi needs mpirun: mpirun -n RANKS runner four.json");
    let Some(run) = mpirun_in(&dir, 2, &[plan, "--transport", "local"]) else { return };
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.stderr.contains("--transport local runs all ranks in one process"), "{run:#?}");
}

/// A plan that reads its samples from `dir`.
fn reads(dir: &str) -> Plan {
    Plan { data: Data::Idx { dir: dir.into() }, ..small_plan() }
}

#[test]
fn samples_that_cannot_be_read() {
    let dir = scratch("samples");
    let missing = write(&dir, "missing.json", reads("nowhere").to_json());
    runner_in(&dir, &[missing]).refused(2, "data idx:nowhere: nowhere: not found");
    if let Some(run) = mpirun_in(&dir, 2, &[missing]) {
        run.refused(2, "not found");
    }
    let Data::Idx { dir: whole } = digits() else { unreachable!("digits are IDX files") };
    std::fs::create_dir(dir.join("broken")).unwrap();
    for entry in std::fs::read_dir(whole).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.join("broken").join(path.file_name().unwrap())).unwrap();
    }
    let broken = write(&dir, "broken.json", reads("broken").to_json());
    runner_in(&dir, &[broken, "--steps", "1"]).done();
    let images = dir.join("broken/train-images-idx3-ubyte");
    let good = std::fs::read(&images).unwrap();
    for (bytes, words) in [
        (good[..good.len() / 2].to_vec(), "found the end of the file after"),
        (good[..3].to_vec(), "expected the 4 bytes of the magic number"),
        (vec![0x1f; 4000], "expected the magic number 0x00000803"),
        (vec![], "found the end of the file"),
    ] {
        std::fs::write(&images, bytes).unwrap();
        runner_in(&dir, &[broken]).refused(2, words);
    }
    // Images of another shape than the model's.
    let other = Plan { data: digits(), ..draft(Preset::Mlp4, 1).plan().unwrap().0 };
    let other = write(&dir, "other.json", other.to_json());
    runner_in(&dir, &[other]).refused(2, "the model takes [3, 32, 32]");
}

#[test]
fn training_that_diverges() {
    let dir = scratch("diverges");
    let mut plan = four_ranks(500);
    let learning_rate = 1e9;
    plan.optimizer =
        Optimizer::Sgd { learning_rate, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    let plan = write(&dir, "plan.json", plan.to_json());
    let failed = |out: &Path| {
        let record = result(out);
        assert_eq!(record["status"], "failed", "{record}");
        assert!(record["error"].as_str().unwrap().contains("lower the learning rate"), "{record}");
    };
    // All ranks find it at the same moment, so several times.
    for _ in 0..5 {
        let run = runner_in(&dir, &[plan, "--out", "threads", "--overwrite"]);
        run.refused(1, "lower the learning rate (1000000000)");
        failed(&dir.join("threads"));
    }
    for _ in 0..3 {
        let Some(run) = mpirun_in(&dir, 4, &[plan, "--out", "mpi", "--overwrite"]) else { return };
        run.refused(1, "lower the learning rate (1000000000)");
        failed(&dir.join("mpi"));
    }
}

/// Interrupts `command` when it has trained a step; returns its exit code and the rest of stderr.
fn interrupt(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.starts_with("step 1/")), "no progress");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let rest: Vec<String> = lines.collect();
    (child.wait().unwrap().code(), rest.join("\n"))
}

#[test]
fn an_interrupted_run() {
    let dir = scratch("interrupted");
    let mut draft = draft(Preset::Fc32 { width: 64 }, 4);
    (draft.steps, draft.data) = (1_000_000, few_samples());
    let plan = write(&dir, "long.json", draft.plan().unwrap().0.to_json());
    let mut command = Command::new(RUNNER);
    command.args([plan, "--out", "out"]).current_dir(&dir);
    let (code, rest) = interrupt(command);
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("error: interrupted after step "), "{rest}");
    assert!(!rest.contains("panicked"), "{rest}");
    let record = result(&dir.join("out"));
    assert_eq!(record["status"], "interrupted");
    let steps = record["steps"].as_u64().unwrap();
    assert!((1..1_000_000).contains(&steps), "{steps}");
    assert_eq!(losses(&dir.join("out")).len() as u64, steps, "what was trained is recorded");
}
