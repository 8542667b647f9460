//! Impossible command lines are refused with one clear sentence and the exit code that `--help`
//! promises: 2 usage, 3 plan, 4 machine. No panic, no hang.

use crate::common::{Ended, RUNNER, draft, runner_in, scratch, small_plan, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::Model;
use serde_json::{Value, json};
use std::path::Path;

/// What every command that reads a plan says of a text that is none.
#[track_caller]
fn refused_plan(dir: &Path, text: impl AsRef<[u8]>, words: &str) {
    let plan = write(dir, "bad.json", text);
    runner_in(dir, &["check", plan]).refused(3, words);
}

/// The small plan with one field replaced; `path` as in RFC 6901.
fn edited(path: &str, value: Value) -> String {
    let mut plan: Value = serde_json::from_str(&small_plan().to_json()).unwrap();
    *plan.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
    plan.to_string()
}

#[test]
fn cut_off_plans() {
    let dir = scratch("cut-off");
    let text = small_plan().to_json();
    // The last byte is the end of the line, which a plan can do without.
    let positions = 40;
    for i in 0..positions {
        let end = i * (text.len() - 2) / (positions - 1);
        refused_plan(&dir, &text[..end], "bad.json: not a plan: ");
    }
}

#[test]
fn texts_that_are_no_plans() {
    let dir = scratch("no-plans");
    let garbage: Vec<u8> = (0..=255).rev().cycle().take(5000).collect();
    refused_plan(&dir, garbage, "not a plan: not text");
    for text in ["", "\0\0\0\0", "{}", "[]", "null", "7", "\"plan\"", "{\"name\": \"laptop\"}"] {
        refused_plan(&dir, text, "not a plan: ");
    }
    refused_plan(&dir, "[".repeat(100_000), "not a plan: ");
    let mut plan: Value = serde_json::from_str(&small_plan().to_json()).unwrap();
    plan["replicas"] = json!(2);
    refused_plan(&dir, plan.to_string(), "unknown field `replicas`");
    let missing = dir.join("missing.json");
    runner_in(&dir, &["check", missing.to_str().unwrap()]).refused(2, "No such file");
    runner_in(&dir, &["check", "."]).refused(2, ".: ");
}

#[test]
fn versions() {
    let dir = scratch("versions");
    refused_plan(&dir, edited("/version", json!(2)), "version 2, this program reads up to 1");
    refused_plan(&dir, edited("/version", json!(u64::MAX)), "use a newer one");
    refused_plan(&dir, edited("/version", json!("x")), "invalid type: string \"x\"");
    refused_plan(&dir, edited("/version", json!(null)), "missing field `version`");
    refused_plan(&dir, edited("/version", json!(0)), "version is 0, must be 1");
    refused_plan(&dir, edited("/version", json!(-1)), "not a plan: ");
    // A newer plan is told by its version even where nothing else of it can be read.
    refused_plan(&dir, "{\"version\": 9, \"stages\": []}", "version 9");
}

#[test]
fn cuts() {
    let dir = scratch("cuts");
    for (cuts, words) in [
        (json!([9, 3]), "cut 1 is at node 3; cuts ascend"),
        (json!([3, 3]), "cut 1 is at node 3; cuts ascend"),
        (json!([0]), "cut 0 is at node 0; cuts ascend and lie between nodes 1 and"),
        (json!([1000]), "cut 0 is at node 1000; cuts ascend"),
        (json!([u32::MAX]), "cut 0 is at node 4294967295"),
        (json!([]), "0 cuts make 1 stage, the schedule has 2"),
        (json!([2, 4]), "2 cuts make 3 stages, the schedule has 2"),
        (json!([-1]), "not a plan: "),
    ] {
        refused_plan(&dir, edited("/cuts", cuts), words);
    }
}

#[test]
fn schedules() {
    let dir = scratch("schedules");
    let plan = |lanes: [&str; 2]| edited("/schedule/lanes", json!(lanes));
    let fine = "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3";
    for (lanes, words) in [
        (["0F0 0F1 0F2 0F3 0B0 0B1 0B2", fine], "schedule: lane 0 lacks 0B3"),
        (["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3 0B3", fine], "lane 0: 0B3 would run a second time"),
        (["0B0 0F0 0F1 0F2 0F3 0B1 0B2 0B3", fine], "0B0 stands before 0F0, which it needs"),
        (
            ["0F0 0B1 0F1 0F2 0F3 0B0 0B2 0B3", fine],
            "lane 0: 0B1 stands before 0F1, which it needs",
        ),
        (
            ["0F0 0B0 0F1 0B1 0F2 0F3 0B2 0B3", "1F0 1F1 1B0 1B1 1F2 1B2 1F3 1B3"],
            "deadlock: lane 0 at 0B0 waits for 1B0; lane 1 at 1F1 waits for 0F1",
        ),
        (["0F0 0X0", fine], "lane 0, action 1: `0X0` is no action"),
        (["0F0 0B0", "1F0 1B0"], "the plan says 4 micro-batches, its schedule has 1"),
        (["0F0", "0B0"], "stage 0 has micro-batch 0 on lane 0 and on lane 1"),
        (["0F4000000000", fine], "is more than the 65536"),
        (["", ""], "the schedule has no actions"),
    ] {
        refused_plan(&dir, plan(lanes), words);
    }
}

#[test]
fn numbers() {
    let dir = scratch("numbers");
    for (path, value, words) in [
        ("/micro_batches", json!(5), "a mini-batch of 32 does not divide into 5"),
        ("/micro_batches", json!(0), "does not divide into 0"),
        ("/mini_batch", json!(0), "mini_batch is 0, must be between 1 and 2^32"),
        ("/mini_batch", json!(1u64 << 60), "mini_batch is 1152921504606846976, must be"),
        ("/optimizer/learning_rate", json!(-0.1), "optimizer.learning_rate is -0.1, must be"),
        ("/optimizer/learning_rate", json!(1e300), "optimizer.learning_rate is inf, must be"),
        ("/optimizer/momentum", json!(-1), "optimizer.momentum is -1, must be"),
        (
            "/optimizer/momentum",
            json!(2),
            "optimizer.momentum is 2, must be at least 0 and below 1",
        ),
        ("/cluster/local/bytes_per_sec", json!(0.0), "local.bytes_per_sec is 0, must be"),
        ("/cluster/network/bytes_per_sec", json!(-1.0), "network.bytes_per_sec is -1, must be"),
        ("/cluster/device/efficiency", json!(0.0), "device.efficiency is 0, must be"),
        ("/cluster/ranks_per_node", json!(0), "ranks_per_node is 0, must be"),
        ("/model", json!({"preset": "alexnet9"}), "no model is called `alexnet9`"),
    ] {
        refused_plan(&dir, edited(path, value), words);
    }
    let nan =
        small_plan().to_json().replacen("\"learning_rate\": 0.01", "\"learning_rate\": NaN", 1);
    assert!(nan.contains("NaN"));
    refused_plan(&dir, nan, "not a plan: ");
}

#[test]
fn networks_that_no_data_fits() {
    let dir = scratch("networks");
    let mut draft = draft(Preset::DigitsCnn, 1);
    let graph = draft.model.graph().unwrap();
    let nodes = graph.nodes().len();
    draft.model = Model::Graph(graph);
    let text = draft.plan().unwrap().0.to_json();
    write(&dir, "good.json", &text);
    runner_in(&dir, &["check", "good.json"]).done();
    let edited = |path: &str, value: Value| {
        let mut plan: Value = serde_json::from_str(&text).unwrap();
        *plan.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
        plan.to_string()
    };
    let target = format!("/model/graph/nodes/{}", nodes - 2);
    let more_classes = edited(&format!("{target}/op/classes"), json!(20));
    refused_plan(&dir, more_classes, "f32[10] cannot tell 20 classes apart");
    let huge = edited("/model/graph/nodes/0/op/shape", json!([1u64 << 40, 1u64 << 40, 8]));
    refused_plan(&dir, huge, "node `input` (input): a tensor of");
    let window = edited("/model/graph/nodes/1/op/padding", json!([u64::MAX, 1]));
    refused_plan(&dir, window, "is more than the 4096 that a window may have");
    let second_target = edited(
        &target,
        json!({"name": "t", "op": {"op": "input", "shape": [10]},
        "output": {"shape": [10], "dtype": "f32"}}),
    );
    refused_plan(&dir, second_target, "softmax_cross_entropy needs logits [classes] and a target");
}

#[test]
fn the_slowest_machine_and_the_largest_model_are_predicted() {
    let dir = scratch("slowest");
    let mut plan = draft(Preset::Fc32 { width: 65_536 }, 2);
    (plan.mini_batch, plan.micro_batches) = (1 << 32, 4);
    plan.cluster.device.flops_per_sec = 1.0;
    plan.cluster.device.memory_bytes_per_sec = 1.0;
    plan.cluster.local.bytes_per_sec = 1.0;
    plan.cluster.devices_per_node = 1;
    let text = plan.plan().unwrap().0.to_json();
    let plan = write(&dir, "slowest.json", text);
    runner_in(&dir, &["simulate", plan]).done();
    runner_in(&dir, &["check", plan]).done();
    runner_in(&dir, &["run", plan]).refused(4, "would need");
}

#[test]
fn a_model_larger_than_the_machine() {
    let dir = scratch("too-large");
    let plan = ["plan", "--model", "fc32:65536", "--stages", "2", "-o", "large.json"];
    runner_in(&dir, &plan).refused(4, "nothing fits");
    let given = ["--schedule", "1f1b", "--micro-batches", "4"];
    runner_in(&dir, &[&plan[..], &given].concat()).done();
    let run = runner_in(&dir, &["large.json", "--out", "out"]);
    run.refused(4, "all ranks together would need");
    assert!(!dir.join("out").exists(), "a refused run leaves nothing behind");
    let wrong = runner_in(&dir, &["check", "large.json", "--ranks", "3"]);
    wrong.refused(4, "the plan needs 2 lanes = 2 ranks, --ranks gave 3");
}

#[test]
fn making_a_plan() {
    let dir = scratch("making");
    let plan = |args: &[&str]| runner_in(&dir, &[&["plan"], args].concat());
    plan(&["--model", "alexnet9"]).refused(2, "known: mlp4, fc32:WIDTH, vgg16, resnet50");
    plan(&["--model", "mlp4", "--stages", "5"]).refused(2, "`mlp4` has 4; use at most 4 stages");
    plan(&["--model", "mlp4", "--stages", "0"]).refused(2, "0 is not in 1..");
    plan(&["--model", "mlp4", "--cuts", "fc2,fc9"]).refused(2, "no layer or node is called `fc9`");
    plan(&["--model", "mlp4", "--cuts", "fc3,fc2"]).refused(2, "cuts ascend");
    plan(&["--model", "mlp4", "--micro-batches", "5"]).refused(2, "does not divide into 5");
    plan(&["--model", "mlp4", "--micro-batches", "0"]).refused(2, "0 is not in 1..");
    plan(&["--model", "mlp4", "--learning-rate", "NaN"]).refused(2, "learning_rate is NaN");
    plan(&["--model", "mlp4", "--learning-rate=-1"]).refused(2, "learning_rate is -1");
    plan(&["--model", "mlp4", "--cluster", "cray-1"]).refused(2, "no cluster is called `cray-1`");
    plan(&["--model", "mlp4", "--mini-batch", "1152921504606846976"]).refused(2, "mini_batch is");
    plan(&["--model", "mlp4", "--schedule", "2f2b"]).refused(2, "no schedule is called `2f2b`");
    plan(&["--model", "mlp4", "--data", "imagenet"]).refused(2, "is no data set");
    plan(&[]).refused(2, "--model");
    plan(&["--model", "digits-cnn", "--micro-batches", "100000", "--mini-batch", "100000"])
        .refused(2, "65536");
}

#[test]
fn training_on_the_command_line() {
    let dir = scratch("training-flags");
    let plan = |args: &[&str]| {
        let fixed = ["plan", "--model", "digits-cnn", "--stages", "2", "--split", "uniform"];
        runner_in(&dir, &[&fixed, args].concat())
    };
    plan(&["--optimizer", "adagrad"]).refused(2, "there are sgd, adam, adamw, lars");
    plan(&["--optimizer", "adam:momentum=0.9"]).refused(2, "adam has no `momentum`");
    plan(&["--optimizer", "adam", "--momentum", "0.9"]).refused(2, "adam has no `momentum`");
    plan(&["--optimizer", "sgd:momentum=0,nesterov=true"]).refused(2, "above 0 with nesterov");
    plan(&["--rate", "linear"]).refused(2, "use constant");
    plan(&["--rate", "step:factor=0.5"]).refused(2, "needs every=STEPS");
    plan(&["--base-batch", "0"]).refused(2, "base_batch is 0, must be at least 1");
    plan(&["--clip-norm", "0"]).refused(2, "clip_norm is 0, must be a number above 0");
    plan(&["--label-smoothing", "1"]).refused(2, "must be at least 0 and below 1");
    plan(&["--dropout", "0.5"]).refused(2, "--dropout: digits-cnn has no operation that uses it");
    plan(&["--precision", "fp4"]).refused(2, "possible values: f32, tf32, bf16, f16, fp8");
    let all = "--optimizer adamw:lr=0.003,beta2=0.99 --weight-decay 0.1 --rate cosine:floor=0.0001 \
               --warmup 2 --base-batch 16 --clip-norm 1 --label-smoothing 0.1 --deferred-batch-norm \
               --precision bf16 --steps 4 -o all.json";
    let args: Vec<&str> = all.split_whitespace().collect();
    plan(&args).done();
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("all.json")).unwrap()).unwrap();
    let training = json!({
        "rate": {"decay": {"kind": "cosine", "floor": 0.0001}, "warmup": 2, "base_batch": 16},
        "clip_norm": 1.0,
        "batch_norm": "deferred",
        "precision": "bf16",
    });
    assert_eq!(written["training"], training);
    assert_eq!(written["optimizer"]["kind"], "adamw");
    assert_eq!(written["optimizer"]["weight_decay"], 0.1);
    runner_in(&dir, &["all.json", "--out", "run"]).done();
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn help() {
    let dir = scratch("help");
    let shown = |args: &[&str]| -> Ended { runner_in(&dir, args) };
    let help = shown(&["--help"]);
    assert!(help.done().stdout.contains("mpirun -n 4 runner plan.json"), "{help:#?}");
    assert!(help.stdout.contains("Exit codes: 0 done"), "{help:#?}");
    let commands = [
        "run",
        "plan",
        "check",
        "simulate",
        "show",
        "export",
        "forms",
        "calibrate",
        "profile",
        "schema",
    ];
    for command in commands {
        let help = shown(&[command, "--help"]);
        assert!(help.done().stdout.contains("Usage: runner"), "{command}: {help:#?}");
        assert!(help.stderr.is_empty(), "{command}: {help:#?}");
    }
    assert!(shown(&["--version"]).done().stdout.starts_with("runner "));
    shown(&["fly"]).refused(2, "unrecognized subcommand 'fly'");
    assert_eq!(shown(&[]).code, Some(2), "help in place of a command is a usage error");
    assert!(RUNNER.contains("runner"));
}
