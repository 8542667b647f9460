//! Checkpoints that a run cannot go on from: damaged ones, and those of other training.

use crate::common::{losses, mpirun_in, runner_in, scratch, write};
use crate::run::{STEPS, at, checkpoints, plan, plan_file};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, Plan};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::checkpoint::Manifest;
use std::path::{Path, PathBuf};

/// A run with checkpoints of the steps 6 and 8.
fn ran(name: &str) -> (PathBuf, String) {
    let dir = scratch(name);
    let plan = plan_file(&dir, 2, ScheduleKind::OneFOneB);
    runner_in(&dir, &[&plan, "--out", "out", "--save-every", "6"]).done();
    assert_eq!(checkpoints(&dir.join("out")), [6, STEPS]);
    (dir, plan)
}

/// The last file of tensors in a checkpoint.
fn last_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).max().unwrap()
}

/// A way to damage a checkpoint, and what is said of it.
type Damage = (&'static str, fn(&Path), &'static str);

const DAMAGES: [Damage; 8] = [
    ("cut off", |folder| cut(&last_file(folder), 2), "damaged: it has"),
    ("empty", |folder| std::fs::write(last_file(folder), "").unwrap(), "damaged: it has 0 bytes"),
    ("one bit", |folder| flip(&last_file(folder)), "damaged: its checksum is"),
    ("gone", |folder| std::fs::remove_file(last_file(folder)).unwrap(), "No such file"),
    ("manifest cut off", |folder| cut(&folder.join("manifest.json"), 2), "manifest.json: damaged"),
    (
        "a number in it",
        |folder| another_loss(folder),
        "manifest.json: damaged: its checksum is not",
    ),
    ("manifest of nothing", |folder| empty(folder), "no tensor `conv1.weight`"),
    (
        "manifest of bytes",
        |folder| std::fs::write(folder.join("manifest.json"), [0xff, 0xfe]).unwrap(),
        "manifest.json: damaged: not text",
    ),
];

/// Keeps one part in `parts` of a file.
fn cut(path: &Path, parts: usize) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / parts]).unwrap();
}

/// Changes one bit of the last value.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// A manifest with another digit, which means something as well.
fn another_loss(folder: &Path) {
    let path = folder.join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("\"loss\": ").unwrap();
    std::fs::write(path, format!("{before}\"loss\": 1{after}")).unwrap();
}

/// A manifest without files.
fn empty(folder: &Path) {
    let mut manifest = Manifest::read(folder).unwrap();
    manifest.files.clear();
    std::fs::write(folder.join("manifest.json"), manifest.text()).unwrap();
}

#[test]
fn a_damaged_one_is_named_and_the_one_before_used() {
    let (dir, plan) = ran("damaged");
    let expected = losses(&dir.join("out"));
    for (name, damage, words) in DAMAGES {
        let out = dir.join(name.replace(' ', "-"));
        let mut copied = std::process::Command::new("cp");
        assert!(copied.arg("-r").arg(dir.join("out")).arg(&out).status().unwrap().success());
        damage(&at(&out, STEPS));
        let folder = at(&out, STEPS);
        let folder = folder.to_str().unwrap();
        runner_in(&dir, &[&plan, "--resume", folder]).refused(2, words);
        let out_name = out.to_str().unwrap();
        let run = runner_in(&dir, &[&plan, "--out", out_name, "--save-every", "1", "--resume"]);
        let warning = run.done().stderr.lines().find(|line| line.starts_with("warning: "));
        let warning = warning.unwrap_or_else(|| panic!("{name}: {run:#?}"));
        assert!(warning.contains(words) && warning.contains("step-8"), "{name}: {warning}");
        assert_eq!(losses(&out), expected, "{name}");
        assert_eq!(checkpoints(&out), [7, STEPS], "{name}");
    }
}

#[test]
fn processes_agree_which_one_is_whole() {
    let (dir, plan) = ran("damaged-mpi");
    let expected = losses(&dir.join("out"));
    flip(&last_file(&at(&dir.join("out"), STEPS)));
    let folder = at(&dir.join("out"), STEPS);
    let Some(run) = mpirun_in(&dir, 2, &[&plan, "--resume", folder.to_str().unwrap()]) else {
        return;
    };
    run.refused(2, "damaged: its checksum is");
    let args = [&plan, "--out", "out", "--save-every", "0", "--resume"];
    let run = mpirun_in(&dir, 2, &args).unwrap();
    assert!(run.done().stderr.contains("damaged: its checksum is"), "{run:#?}");
    assert_eq!(losses(&dir.join("out")), expected);
    // With every one damaged there is nothing to go on from; beginning anew is not what was asked.
    for step in [6, STEPS] {
        flip(&last_file(&at(&dir.join("out"), step)));
    }
    let run = mpirun_in(&dir, 2, &args).unwrap();
    run.refused(2, "every checkpoint is damaged");
    runner_in(&dir, &args).refused(2, "every checkpoint is damaged");
}

#[test]
fn other_training() {
    let (dir, _) = ran("other");
    let same = || plan(2, ScheduleKind::OneFOneB);
    let momentum = "sgd:lr=0.01,momentum=0.5".parse().unwrap();
    let mut clipped = same();
    clipped.training.clip_norm = Some(0.5);
    let mut model = crate::common::draft(Preset::Fc32 { width: 64 }, 2).plan().unwrap().0;
    (model.seed, model.mini_batch) = (1, 32);
    let few = Data::Synthetic { train: 512, test: 8 };
    let twice = same().mini_batch * 2;
    let cases: [(Plan, &str); 6] = [
        (model, "the model is digits-cnn (10 parameters, fingerprint"),
        (Plan { optimizer: momentum, ..same() }, "optimizer is {\"kind\":\"sgd\""),
        (clipped, "training is null in the checkpoint, {\"clip_norm\":0.5} in the plan"),
        (Plan { seed: 2, ..same() }, "seed is 1 in the checkpoint, 2 in the plan"),
        (Plan { mini_batch: twice, ..same() }, "mini_batch is 32 in the checkpoint, 64 in the"),
        (Plan { data: few, ..same() }, "training samples is 1437 in the checkpoint, 512 in"),
    ];
    let before = std::fs::read(dir.join("out/result.json")).unwrap();
    for (plan, words) in cases {
        let plan = write(&dir, "other.json", plan.to_json());
        let args = [plan, "--out", "out", "--save-every", "1", "--resume"];
        runner_in(&dir, &args).refused(2, words);
        if let Some(run) = mpirun_in(&dir, 2, &args) {
            run.refused(2, words);
        }
    }
    assert_eq!(std::fs::read(dir.join("out/result.json")).unwrap(), before, "nothing is touched");
    assert_eq!(checkpoints(&dir.join("out")), [6, STEPS]);
}

#[test]
fn places_without_a_checkpoint() {
    let (dir, plan) = ran("places");
    let words = "no checkpoint: it holds neither manifest.json nor folders step-N";
    runner_in(&dir, &[&plan, "--resume", "nowhere"]).refused(2, words);
    runner_in(&dir, &[&plan, "--resume", "out/result.json"]).refused(2, "out/result.json");
    runner_in(&dir, &[&plan, "--resume"])
        .refused(2, "--resume latest looks into the folder of --out");
    runner_in(&dir, &[&plan, "--save-every", "2"]).refused(2, "--out");
    runner_in(&dir, &[&plan, "--keep", "0"]).refused(2, "--keep");
    let manifest = at(&dir.join("out"), STEPS).join("manifest.json");
    let newer =
        std::fs::read_to_string(&manifest).unwrap().replace("\"version\": 2", "\"version\": 9");
    std::fs::write(manifest, newer).unwrap();
    let run = runner_in(&dir, &[&plan, "--out", "out", "--resume"]);
    run.refused(2, "the checkpoint has version 9, this program reads up to 2; use a newer one");
}

#[test]
fn an_earlier_runs_checkpoints_stay() {
    let (dir, plan) = ran("stay");
    let out = dir.join("out");
    let again = || runner_in(&dir, &[&plan, "--out", "out", "--save-every", "5", "--steps", "5"]);
    again().refused(2, "out holds an earlier run; choose another --out");
    // Also when nothing else of it is left.
    std::fs::remove_file(out.join("result.json")).unwrap();
    again().refused(2, "out holds an earlier run; choose another --out");
    assert_eq!(checkpoints(&out), [6, STEPS]);
    let args = [&plan, "--out", "out", "--save-every", "5", "--steps", "5", "--overwrite"];
    runner_in(&dir, &args).done();
    assert_eq!(checkpoints(&out), [5], "what is replaced is replaced whole");
}
