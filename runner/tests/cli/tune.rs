//! `runner tune`: what it measures, writes and says. Which plan is fastest is this machine's affair.

use crate::common::{
    Ended, RUNNER, digits, draft, mpirun_in, runner_in, scratch, small_plan, write,
};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Choose, DataParallel, Plan};
use pipewright_core::schedule::ScheduleKind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// GPipe on two ranks, most of the network in one stage.
fn given() -> Plan {
    let mut draft = draft(Preset::DigitsCnn, 2);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (ScheduleKind::GPipe, 32, 2);
    (draft.data, draft.cuts, draft.steps) = (digits(), vec![1], 123);
    draft.plan().unwrap().0
}

fn read(path: &Path) -> Plan {
    Plan::from_json(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The written plan is the best of the history, by the medians of its runs.
fn is_best_of(tuned: &Plan, history: &[Value]) {
    let mut by_plan: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for run in history {
        let step = run["measured_step_ns"].as_u64().unwrap();
        by_plan.entry(run["trial"].as_u64().unwrap()).or_default().push(step);
    }
    let median = |steps: &Vec<u64>| {
        let mut steps = steps.clone();
        steps.sort_unstable();
        steps[(steps.len() - 1) / 2].midpoint(steps[steps.len() / 2])
    };
    let measured = tuned.measured.unwrap();
    assert_eq!(measured.first_step_ns.0, median(&by_plan[&1]));
    assert_eq!(measured.step_ns.0, by_plan.values().map(median).min().unwrap());
    assert_eq!(measured.plans as usize, by_plan.len());
    let best = by_plan.iter().find(|(_, steps)| median(steps) == measured.step_ns.0).unwrap().0;
    let of_best = history.iter().find(|run| run["trial"].as_u64() == Some(*best)).unwrap();
    assert_eq!(of_best["schedule"], tuned.schedule.name);
    assert_eq!(of_best["micro_batches"], tuned.micro_batches);
    assert_eq!(of_best["memory_bytes"].as_array().unwrap().len(), 2);
}

/// What is the same however ranks are started.
fn check(dir: &Path, ended: &Ended) {
    let (given, tuned) = (given(), read(&dir.join("plan-tuned.json")));
    assert_eq!(read(&dir.join("plan.json")), given, "the given plan is left alone");
    assert_eq!((tuned.ranks(), tuned.mini_batch), (2, given.mini_batch));
    assert_eq!((tuned.steps, tuned.seed, &tuned.data), (given.steps, given.seed, &given.data));
    assert!(tuned.cluster.profile.is_some() && tuned.cluster.name.ends_with(", calibrated"));
    let history = lines(&dir.join("tune.jsonl"));
    assert_eq!((&history[0]["why"], &history[0]["trial"]), (&"the given plan".into(), &1.into()));
    let plans: BTreeSet<u64> = history.iter().map(|run| run["trial"].as_u64().unwrap()).collect();
    assert!((1..=3).contains(&plans.len()), "{history:#?}");
    assert!(history.iter().all(|run| run["steps"] == 7), "{history:#?}");
    is_best_of(&tuned, &history);
    // A row for each run, and a sentence.
    let rows = ended.stdout.lines().filter(|line| line.contains(" lane")).count();
    assert_eq!(rows, history.len() + 1, "{ended:#?}");
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.ends_with("; written to plan-tuned.json"), "{last}");
    let left: BTreeSet<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let known = ["plan-tuned.json", "plan.json", "tune.jsonl"];
    assert_eq!(left, known.map(String::from).into(), "nothing else is left");
}

const TUNE: [&str; 10] = [
    "tune",
    "plan.json",
    "--history",
    "tune.jsonl",
    "--trials",
    "3",
    "--steps",
    "7",
    "--repeats",
    "2",
];

#[test]
fn threads_are_tuned() {
    let dir = scratch("tune");
    write(&dir, "plan.json", given().to_json());
    check(&dir, runner_in(&dir, &TUNE).done());
    // What was tuned runs, and is tuned on from where it is.
    runner_in(&dir, &["plan-tuned.json", "--steps", "2"]).done();
    let again = ["tune", "plan-tuned.json", "--trials", "1", "--steps", "3", "--json"];
    let ended = runner_in(&dir, &again);
    assert!(!ended.done().stderr.contains("measuring the operations"), "it has a profile");
    let object: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&object["end"], &object["plans"]), (&"trials".into(), &1.into()));
    assert_eq!(object["output"], "plan-tuned-tuned.json");
    assert_eq!(object["step_ns"], object["first_step_ns"]);
    let text = include_str!("../../../docs/json.md");
    for key in
        object.as_object().unwrap().keys().chain(object["runs"][0].as_object().unwrap().keys())
    {
        assert!(text.contains(&format!("`{key}`")), "docs/json.md lacks `{key}`");
    }
}

/// Plans of the same degree, with the optimizer's state divided as it was.
#[test]
fn groups_and_divided_updates_are_tuned() {
    let dir = scratch("tune-groups");
    let preset = "transformer:layers=4,hidden=32,heads=4,sequence=8,vocabulary=53";
    let mut draft = draft(preset.parse().unwrap(), 2);
    (draft.tensor, draft.mini_batch, draft.micro_batches) = (2, 16, 2);
    let groups = draft.clone();
    (draft.tensor, draft.data_parallel) = (1, DataParallel { zero: 1, ..DataParallel::ddp(2) });
    for (name, draft, ranks) in [("groups", groups, 4), ("zero", draft, 4)] {
        let plan = draft.plan().unwrap().0;
        write(&dir, "plan.json", plan.to_json());
        let args = ["tune", "plan.json", "-o", "tuned.json", "--trials", "3", "--steps", "3"];
        let ended = runner_in(&dir, &args);
        let says = ended.done().stdout.contains(" x 2 tensor-parallel, ");
        assert_eq!(says, plan.tensor == 2, "{ended:?}");
        let tuned = read(&dir.join("tuned.json"));
        assert_eq!((tuned.tensor, tuned.ranks()), (plan.tensor, ranks), "{name}");
        assert_eq!(tuned.data_parallel.zero, plan.data_parallel.zero, "{name}");
        assert!(tuned.measured.unwrap().plans >= 1, "{name}");
    }
}

#[test]
fn processes_are_tuned() {
    let dir = scratch("tune-mpi");
    write(&dir, "plan.json", given().to_json());
    let Some(ended) = mpirun_in(&dir, 2, &TUNE) else { return };
    check(&dir, ended.done());
    let Some(ended) = mpirun_in(&dir, 3, &TUNE) else { return };
    ended.refused(4, "needs 2");
}

#[test]
fn a_used_up_budget_leaves_the_given_plan() {
    let dir = scratch("tune-budget");
    write(&dir, "plan.json", given().to_json());
    let args = ["tune", "plan.json", "--budget", "0.001s", "--steps", "2", "--repeats", "1"];
    let ended = runner_in(&dir, &[&args[..], &["-o", "best/best.json"]].concat());
    assert!(ended.done().stdout.contains("the time of --budget is used up (1 plan "), "{ended:#?}");
    let tuned = read(&dir.join("best/best.json"));
    assert_eq!((&tuned.cuts, &tuned.schedule), (&given().cuts, &given().schedule));
}

#[test]
fn an_interrupt_leaves_the_best_plan_so_far() {
    let dir = scratch("tune-interrupted");
    write(&dir, "plan.json", given().to_json());
    let mut command = Command::new(RUNNER);
    command.args(["tune", "plan.json", "--repeats", "1", "--steps", "100"]).current_dir(&dir);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(rows.by_ref().any(|row| row.contains("the given plan")), "nothing was measured");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    rows.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains("error: interrupted; plan-tuned.json has the best plan so far"),
        "{said}"
    );
    assert!(read(&dir.join("plan-tuned.json")).measured.is_some());
}

#[test]
fn what_cannot_be_tuned() {
    let dir = scratch("tune-refused");
    write(&dir, "plan.json", small_plan().to_json());
    let refused = |more: &[&str], code, words: &str| {
        runner_in(&dir, &[&["tune"], more].concat()).refused(code, words);
    };
    refused(&["none.json"], 2, "none.json: No such file");
    refused(&["plan.json", "--device", "model"], 2, "nothing would be measured");
    refused(&["plan.json", "-o", "-"], 2, "name a file");
    refused(&["plan.json", "-o", "plan.json/x"], 2, "is a file, not a folder");
    refused(&["plan.json", "--history", "plan.json"], 2, "that is a plan's file");
    refused(&["plan.json", "--budget", "soon"], 2, "give a time like 60s");
    refused(&["plan.json", "--trials", "0"], 2, "0 is not in 1..");
    let mut chooses = small_plan();
    chooses.communication.choose = Some(Choose {
        every: 10,
        trial: 2,
        candidates: ["fp32", "fp8-e5m2"].map(|way| way.parse().unwrap()).into(),
    });
    write(&dir, "chooses.json", chooses.to_json());
    refused(&["chooses.json"], 2, "how its gradients are encoded depends on its stages");
    // The plan itself does not run.
    let mut away = small_plan();
    away.weights = Some("away.safetensors".into());
    write(&dir, "away.json", away.to_json());
    refused(&["away.json", "--repeats", "1"], 2, "away.safetensors");
    assert!(!dir.join("away-tuned.json").exists());
}
