//! Answers for programs and for nobody: `--json` and `--quiet`.

use crate::common::{Ended, runner_in, scratch, small_plan, write};
use serde_json::Value;
use std::path::Path;

const PLAN: [&str; 8] =
    ["plan", "--model", "mlp4", "--cluster", "dgx-a100", "--mini-batch", "64", "-o"];

/// The one object that a command prints, and nothing else.
#[track_caller]
fn object(ended: &Ended) -> Value {
    assert_eq!(ended.done().stderr, "", "{ended:#?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:#?}"))
}

/// The names of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Names that are promised: docs/json.md has each.
const OF_PLANS: [&str; 15] = [
    "bubble",
    "cluster",
    "device_memory_bytes",
    "lanes",
    "memory_bytes",
    "micro_batch_samples",
    "micro_batches",
    "mini_batch",
    "model",
    "ranks",
    "replicas",
    "schedule",
    "sent_bytes",
    "stages",
    "step_ns",
];

fn is_documented(value: &Value) {
    let text = include_str!("../../../docs/json.md");
    for key in keys(value) {
        assert!(text.contains(&format!("`{key}`")), "docs/json.md lacks `{key}`");
    }
}

#[test]
fn plans_as_json() {
    let dir = scratch("answers-plan");
    let made = object(&runner_in(&dir, &[&PLAN[..], &["plan.json", "--json"]].concat()));
    let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
    runner_in(&dir, &[&PLAN[..], &["same.json"]].concat()).done();
    assert_eq!(text, std::fs::read_to_string(dir.join("same.json")).unwrap());
    let plan: Value = serde_json::from_str(&text).unwrap();
    for key in ["step_ns", "bubble"] {
        assert_eq!(made[key], plan["prediction"][key]);
    }
    assert_eq!(made["micro_batches"], plan["micro_batches"]);
    assert_eq!(made["schedule"], plan["schedule"]["name"]);
    let (ranks, lanes) = (made["ranks"].as_u64().unwrap(), made["lanes"].as_u64().unwrap());
    assert_eq!(ranks, lanes * made["replicas"].as_u64().unwrap());
    let memory = made["memory_bytes"].as_array().unwrap();
    assert_eq!(memory.len() as u64, ranks);
    let arena = plan["prediction"]["arena"].as_array().unwrap();
    assert_eq!((&memory[0], memory.last()), (&arena[0], arena.last()));
    let rows = made["search"]["plans"].as_array().unwrap();
    assert_eq!(rows[0]["step_ns"], made["step_ns"]);
    assert!(rows.windows(2).all(|pair| pair[0]["step_ns"].as_u64() <= pair[1]["step_ns"].as_u64()));
    for value in [&made, &made["search"], &rows[0]] {
        is_documented(value);
    }
    let given = ["--stages", "4", "--schedule", "gpipe", "--micro-batches", "4"];
    let given = object(&runner_in(&dir, &[&PLAN[..], &["g.json", "--json"], &given].concat()));
    assert!(given["search"].is_null(), "nothing was searched");
    assert!(OF_PLANS.iter().all(|key| keys(&given).contains(key)), "{given}");
    runner_in(&dir, &["plan", "--model", "mlp4", "--json"]).refused(2, "name a file for the plan");
}

#[test]
fn what_plans_are_as_json() {
    let dir = scratch("answers-show");
    write(&dir, "plan.json", small_plan().to_json());
    let shown = object(&runner_in(&dir, &["show", "plan.json", "--json"]));
    let checked = object(&runner_in(&dir, &["check", "plan.json", "--json", "--programs"]));
    for value in [&shown, &checked] {
        assert!(OF_PLANS.iter().all(|key| keys(value).contains(key)), "{value}");
        is_documented(value);
    }
    is_documented(&shown["stage_list"][0]);
    is_documented(&checked["programs"][0]);
    let path = shown["critical_path"].as_array().unwrap();
    let sum: u64 = path.iter().map(|term| term["time_ns"].as_u64().unwrap()).sum();
    assert_eq!(sum, shown["step_ns"].as_u64().unwrap());
    assert_eq!(shown["stage_list"].as_array().unwrap().len(), 2);
    let program = &checked["programs"][1];
    assert_eq!((&program["lane"], &program["ranks"][0]), (&1.into(), &1.into()));
    let lines = program["program"].as_array().unwrap();
    assert_eq!(lines.len() as u64, program["instructions"].as_u64().unwrap());
    assert!(lines.iter().any(|line| line == "run 1F0 in slot 0"), "{lines:?}");
    let layers = object(&runner_in(&dir, &["show", "--layers", "digits-cnn", "--json"]));
    assert_eq!(layers["layers"][0]["name"], "conv1");
    is_documented(&layers["layers"][0]);
}

#[test]
fn other_figures_as_json() {
    let dir = scratch("answers-others");
    write(&dir, "plan.json", small_plan().to_json());
    let forms = object(&runner_in(&dir, &["forms", "--model", "mlp4", "--json"]));
    assert_eq!(forms["forms"].as_array().unwrap().len(), 9);
    is_documented(&forms["forms"][0]);
    let clusters = object(&runner_in(&dir, &["cluster", "--json"]));
    let names = clusters["clusters"].as_array().unwrap();
    assert!(names.iter().any(|cluster| cluster["name"] == "dgx-a100"), "{clusters}");
    is_documented(&names[0]);
    let points = "m,d,seconds\n1,1,1\n5,2,0.746\n5,4,0.518\n20,8,0.370\n20,16,0.287\n20,32,0.269\n";
    write(&dir, "points.csv", points);
    let fit = object(&runner_in(&dir, &["calibrate", "points.csv", "--layers", "32", "--json"]));
    assert_eq!(keys(&fit["parameters"]), ["k", "t0", "t_comp", "transfer"]);
    assert_eq!(fit["points"].as_array().unwrap().len(), 6);
    is_documented(&fit);
    runner_in(&dir, &["plan.json", "--out", "run", "-q"]).done();
    let trace = object(&runner_in(&dir, &["calibrate", "run/trace.json", "--json"]));
    is_documented(&trace["stages"][0]);
    let file = ["export", "plan.json", "--format", "split-points"];
    runner_in(&dir, &[&file[..], &["--json"]].concat()).refused(2, "name a file");
    let written = object(&runner_in(&dir, &[&file[..], &["--json", "-o", "split.txt"]].concat()));
    assert_eq!((&written["what"], &written["file"]), (&"split-points".into(), &"split.txt".into()));
    is_documented(&written);
}

/// What is asked for is done, and nothing is said of it.
#[test]
fn quiet_commands_say_nothing() {
    let dir = scratch("answers-quiet");
    let quiet = |dir: &Path, args: &[&str]| {
        let ended = runner_in(dir, args);
        let said = (ended.done().stdout.as_str(), ended.stderr.as_str());
        assert_eq!(said, ("", ""), "{args:?}");
    };
    quiet(&dir, &[&PLAN[..], &["plan.json", "--quiet", "--steps", "2"]].concat());
    quiet(&dir, &["-q", "check", "plan.json"]);
    write(&dir, "small.json", small_plan().to_json());
    quiet(&dir, &["run", "small.json", "--out", "run", "--quiet"]);
    quiet(&dir, &["small.json", "--out", "run", "--overwrite", "--quiet", "--save-every", "0"]);
    quiet(&dir, &["export", "run", "--weights", "w.safetensors", "-q"]);
    quiet(&dir, &["profile", "small.json", "--repeats", "1", "-o", "here.json", "-q"]);
    for file in ["plan.json", "run/trace.json", "w.safetensors", "here.json"] {
        assert!(dir.join(file).exists(), "{file}");
    }
    // Results, warnings and errors stay.
    let layers = runner_in(&dir, &["show", "small.json", "-q"]);
    assert!(layers.done().stdout.contains("predicted step"), "{layers:#?}");
    let more = ["p.json", "-q", "--data", "npy:/nonexistent"];
    let warned = runner_in(&dir, &[&PLAN[..], &more].concat());
    let lines: Vec<&str> = warned.done().stderr.lines().collect();
    assert_eq!(lines, ["warning: --data: /nonexistent is not here; the plan runs where it is"]);
    runner_in(&dir, &["check", "none.json", "-q"]).refused(2, "none.json: No such file");
}

#[test]
fn exports_say_what_they_wrote_and_who_refuses_it() {
    let dir = scratch("answers-exports");
    write(&dir, "small.json", small_plan().to_json());
    runner_in(&dir, &["small.json", "--out", "run", "--save-every", "0"]).done();
    for (args, words) in [
        (
            &["export", "small.json", "--format", "pytorch-csv", "-o", "a.csv"][..],
            "wrote pytorch-csv to a.csv\n",
        ),
        (&["export", "run", "--csv", "b.csv"], "wrote metrics to b.csv\n"),
        (&["export", "run", "--weights", "c.safetensors"], "wrote weights to c.safetensors\n"),
        (&["export", "--weights", "run", "d.safetensors"], "wrote weights to d.safetensors\n"),
        (
            &["export", "run", "--tensorboard", "logs"],
            "wrote metrics for TensorBoard to logs/events",
        ),
    ] {
        let ended = runner_in(&dir, args);
        assert!(ended.done().stderr.starts_with(words) && ended.stdout.is_empty(), "{ended:#?}");
    }
    let [c, d] =
        ["c", "d"].map(|name| std::fs::read(dir.join(format!("{name}.safetensors"))).unwrap());
    assert_eq!(c, d);
    runner_in(&dir, &["export", "--weights", "x"]).refused(2, "whose weights?");
    for (schedule, words) in [
        ("1f1b", ""),
        ("chimera", "warning: PyTorch refuses this schedule: stage 0 is on ranks 0 and 3"),
        ("dualpipe", "warning: PyTorch refuses this schedule: stage 0 is on ranks 0 and 3"),
    ] {
        let args =
            ["--model", "mlp4", "--stages", "4", "--micro-batches", "8", "--schedule", schedule];
        runner_in(&dir, &[&["plan", "-o", "p.json"], &args[..]].concat()).done();
        let ended = runner_in(&dir, &["export", "p.json", "--format", "pytorch-csv"]);
        let said = ended.done().stderr.trim_end();
        assert!(
            said.starts_with(words) && said.is_empty() == words.is_empty(),
            "{schedule}: {said}"
        );
    }
}

/// The reason for what the search cannot have is that of what was asked for.
#[test]
fn the_search_names_the_reason() {
    let dir = scratch("answers-search");
    for (args, words) in [
        (
            ["--schedule", "dualpipe", "--ranks", "3"],
            "dualpipe cannot have 3 stages: it needs an even number",
        ),
        (
            ["--schedule", "hanayo:2", "--ranks", "3"],
            "hanayo:2 on 3 lanes has 12 stages, the network has 4 layers",
        ),
        (["--schedule", "zb-v", "--stages", "3"], "zb-v cannot have 3 stages: every lane has 2"),
    ] {
        runner_in(&dir, &[&["plan", "--model", "mlp4"], &args[..]].concat()).refused(2, words);
    }
}

#[test]
fn what_is_said_is_in_words() {
    let dir = scratch("answers-words");
    let told = runner_in(&dir, &[&PLAN[..], &["plan.json", "--replicas", "2"]].concat());
    let told = &told.done().stderr;
    assert!(told.contains(" x 2 replicas, ") && !told.contains("t 1 x d"), "{told}");
    let lanes = |args: &[&str], words: &str| {
        let shown = runner_in(&dir, args);
        assert!(shown.done().stdout.contains(words), "{words}: {shown:#?}");
    };
    let sizes = ["--micro-batches", "1", "--stages", "1", "--schedule", "1f1b", "--replicas", "4"];
    runner_in(&dir, &[&PLAN[..], &["one.json"], &sizes].concat()).done();
    // One lane on four ranks, by the same words everywhere.
    for args in [&["check", "one.json"][..], &["show", "one.json"], &["simulate", "one.json"]] {
        lanes(args, "1 lane x 4 replicas = 4 ranks");
    }
    lanes(&["show", "one.json"], "mini-batch 64 = 4 replicas x 1 micro-batch x 16 samples");
    lanes(&["check", "one.json"], "\n   0     0-3       0");
    lanes(&["simulate", "one.json"], "\n   0     0-3 ");
    lanes(&["check", "one.json", "--programs"], "run 0F0 in slot 0\n");
    lanes(&["check", "one.json", "--programs"], "update the parameters of stage 0\n");
    let forms = runner_in(&dir, &["forms", "--model", "vgg16"]).done().stdout.clone();
    let unit = |line: &str| line.split(" ms ").count() + line.split(" s ").count();
    assert!(forms.lines().skip(2).all(|line| unit(line) > 2) && !forms.contains(" us "), "{forms}");
    let help = runner_in(&dir, &["plan", "--help"]).done().stdout.clone();
    assert!(help.contains("default: the fastest") && !help.contains("open:"), "{help}");
}
