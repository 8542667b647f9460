//! Numbers and files without measure: each is refused at once, with what may stand there.

use crate::common::{RUNNER, runner_in, scratch, small_plan, write};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// A command line, its exit code, and what it says.
struct Row {
    args: &'static [&'static str],
    code: i32,
    says: &'static str,
}

const fn row(args: &'static [&'static str], code: i32, says: &'static str) -> Row {
    Row { args, code, says }
}

const PLAN: [&str; 5] = ["plan", "--model", "mlp4", "--ranks", "1"];

/// As the trial of the command line had them: these hung, took all memory or panicked.
const REFUSED: [Row; 31] = [
    row(&["run", "plan.json", "--steps", "10000000000000"], 2, "--steps"),
    row(&["run", "plan.json", "--steps", "18446744073709551616"], 2, "--steps"),
    row(&["elastic", "plan.json", "--out", "e", "--steps", "10000000000000"], 2, "--steps"),
    row(&["run", "plan.json", "--threads", "20000"], 2, "--threads 20000: with"),
    row(&["run", "plan.json", "--threads", "18446744073709551615"], 2, "--threads"),
    row(&["run", "long.json"], 3, "steps is 1099511627777, must be at most 2^40"),
    row(&["check", "long.json"], 3, "steps is 1099511627777, must be at most 2^40"),
    row(&["check", "no-memory.json"], 3, "device.memory is 0, must be at least 1 byte"),
    row(&["profile", "plan.json", "--repeats", "0"], 2, "--repeats"),
    row(&["profile", "plan.json", "--threads", "9999"], 2, "--threads 9999"),
    row(&["forms", "--model", "vgg16", "--devices", "0"], 2, "--devices"),
    row(&["forms", "--model", "vgg16", "--replicas", "0"], 2, "--replicas"),
    row(&["forms", "--model", "vgg16", "--mini-batch", "0"], 2, "--mini-batch"),
    row(&["check", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
    row(&["run", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
    row(&["simulate", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
    row(&["cluster", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
    row(&["calibrate", "/dev/zero", "--layers", "3"], 2, "/dev/zero: a device, not a file"),
    row(&["plan", "--model", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
    row(&["check", "huge.json"], 2, "huge.json: longer than 512 MiB"),
    row(&["plan", "--model", "huge.json"], 2, "huge.json: longer than 512 MiB"),
    row(&["plan", "--model", "huge.onnx"], 2, "huge.onnx: longer than 2 GiB"),
    row(&["bench", "allreduce", "--max", "1TiB"], 4, "would take"),
    row(&["calibrate", "empty.csv", "--layers", "3"], 2, "empty.csv: no measurements"),
    row(&["calibrate", "head.csv", "--layers", "3"], 2, "head.csv: no measurements"),
    row(&["calibrate", "head.csv", "--layers", "0"], 2, "--layers"),
    row(&["plan", "--model", "net.pt"], 2, "net.pt: weights without their network; export"),
    row(&["plan", "--model", "photo"], 2, "photo: no text, so no profile; export the module"),
    row(&["plan", "--model", "config.json"], 2, "--model hf:config.json makes its network"),
    row(&["plan", "--model", "meta-llama/Llama-3"], 2, "models are not fetched from anywhere"),
    row(&["plan", "--model", "half.txt"], 2, "line 2: an edge of `node2` (is the file whole?)"),
];

#[test]
fn what_has_no_measure_is_refused_at_once() {
    let dir = scratch("bounds");
    let plan = small_plan().to_json();
    write(&dir, "plan.json", &plan);
    let edited = |path: &str, value: Value| {
        let mut plan: Value = serde_json::from_str(&plan).unwrap();
        *plan.pointer_mut(path).unwrap() = value;
        plan.to_string()
    };
    write(&dir, "long.json", edited("/steps", json!((1u64 << 40) + 1)));
    write(&dir, "no-memory.json", edited("/cluster/device/memory", json!(0)));
    for (name, bytes) in [("huge.json", 513u64 << 20), ("huge.onnx", (2 << 30) + 1)] {
        std::fs::File::create(dir.join(name)).unwrap().set_len(bytes).unwrap();
    }
    write(&dir, "empty.csv", "");
    write(&dir, "head.csv", "m,d,seconds\n");
    write(&dir, "config.json", "{\"architectures\": [], \"model_type\": \"llama\"}");
    for name in ["net.pt", "photo"] {
        write(&dir, name, [0x80, 0x02, 0xff, 0xfe]);
    }
    let node = |id| {
        format!(
            "node{id} -- layer -- forward_compute_time=1, backward_compute_time=1, \
             activation_size=8, parameter_size=8\n"
        )
    };
    write(&dir, "half.txt", format!("{}{}{}\tnode1 -- node3\n", node(1), node(2), node(3)));
    for Row { args, code, says } in REFUSED {
        runner_in(&dir, args).refused(code, says);
    }
    assert!(!dir.join("e").exists(), "nothing was begun");
}

/// Steps are many, and memory is not asked for all of them: it trains until it is told to end.
#[test]
fn as_many_steps_as_there_may_be_begin() {
    let dir = scratch("bounds-steps");
    write(&dir, "plan.json", small_plan().to_json());
    let steps = (1u64 << 40).to_string();
    let args = ["plan.json", "--out", "run", "--save-every", "0", "--steps", &steps];
    // Whoever runs the tests may ignore the end of terminals.
    let mut child = Command::new("env")
        .args(["--default-signal=HUP", RUNNER])
        .args(args)
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let metrics = dir.join("run/rank-000.jsonl");
    while std::fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let signal = Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    assert!(signal.success());
    assert_eq!(
        child.wait().unwrap().code(),
        Some(130),
        "the end of the terminal is an interruption"
    );
    assert!(dir.join("run/checkpoints").read_dir().unwrap().count() > 0, "it is saved");
}

/// What a run needs may be elsewhere: a plan is made, and says so.
#[test]
fn what_is_not_here_is_a_warning_of_the_plan() {
    let dir = scratch("bounds-absent");
    let more = ["--data", "npy:/nonexistent", "--weights", "nope.safetensors", "-o", "p.json"];
    let told = runner_in(&dir, &[&PLAN[..], &more].concat()).done().stderr.clone();
    assert!(told.contains("warning: --data: /nonexistent is not here"), "{told}");
    assert!(told.contains("warning: --weights: nope.safetensors is not here"), "{told}");
    runner_in(&dir, &[&PLAN[..], &["--budget", "18446744073709551615"]].concat()).done();
    runner_in(&dir, &[&PLAN[..], &["--budget", "0"]].concat()).refused(2, "--budget");
}

#[test]
fn who_ignores_the_end_of_the_terminal_goes_on() {
    let dir = scratch("bounds-nohup");
    let mut plan = small_plan();
    plan.steps = 300;
    write(&dir, "plan.json", plan.to_json());
    let script = "trap '' HUP; \"$RUNNER\" plan.json --out run > /dev/null 2>&1 & job=$!; \
                  while [ ! -s run/rank-000.jsonl ]; do sleep 0.01; done; \
                  kill -HUP $job; wait $job";
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", script]).env("RUNNER", RUNNER).current_dir(&dir);
    assert_eq!(command.stdin(Stdio::null()).status().unwrap().code(), Some(0));
    assert_eq!(crate::common::losses(&dir.join("run")).len(), 300);
}
