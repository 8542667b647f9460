//! Faults in JSON files are told with their key, and those of a network's size with its size.

use crate::common::{runner_in, scratch, small_plan, write};
use pipewright_core::cost::Cluster;
use serde_json::{Value, json};

/// The small plan, changed.
fn plan(change: impl Fn(&mut Value)) -> String {
    let mut plan: Value = serde_json::from_str(&small_plan().to_json()).unwrap();
    change(&mut plan);
    plan.to_string()
}

#[test]
fn faults_of_plans_name_the_key() {
    let dir = scratch("json-plans");
    let set = |path: &'static str, value: Value| {
        plan(move |plan| *plan.pointer_mut(path).unwrap() = value.clone())
    };
    let with =
        |path: &'static str| plan(move |plan| plan.pointer_mut(path).unwrap()["x"] = json!(1));
    for (text, words) in [
        (
            set("/micro_batches", json!(-4)),
            "not a plan: micro_batches: invalid value: integer `-4`, expected u32 at line 1",
        ),
        (
            set("/cluster/device/memory", json!("2GiB")),
            "not a plan: cluster.device.memory: invalid type: string \"2GiB\", expected u64",
        ),
        (set("/cuts", json!([3, -1])), "not a plan: cuts[1]: invalid value: integer `-1`"),
        (set("/schedule/lanes", json!(["0F0", 7])), "not a plan: schedule.lanes[1]: invalid type"),
        (with("/cluster/device"), "not a plan: cluster.device.x: unknown field `x`"),
        (with(""), "not a plan: x: unknown field `x`"),
        (
            plan(|plan| drop(plan["cluster"].as_object_mut().unwrap().remove("device"))),
            "not a plan: cluster: missing field `device`",
        ),
        (
            plan(|plan| drop(plan.as_object_mut().unwrap().remove("cuts"))),
            "not a plan: missing field `cuts`",
        ),
        (
            set("/model", json!({ "preset": "vgg16:33" })),
            "model.preset: `vgg16:33`: the size of images is `33`, must be a multiple of 32 up to 4096 at",
        ),
        (
            set("/model", json!({ "preset": "vgg17" })),
            "model.preset: no model is called `vgg17`; known: ",
        ),
    ] {
        runner_in(&dir, &["check", write(&dir, "bad.json", text)]).refused(3, words);
    }
}

#[test]
fn faults_of_clusters_name_the_key() {
    let dir = scratch("json-clusters");
    let cluster = |path: &str, value: Value| {
        let preset = Cluster::preset("dgx-a100").unwrap();
        let mut cluster: Value = serde_json::to_value(preset).unwrap();
        *cluster.pointer_mut(path).unwrap() = value;
        cluster.to_string()
    };
    for (text, words) in [
        (cluster("/nodes", json!("two")), "not a cluster: nodes: invalid type: string \"two\""),
        (
            cluster("/device/flops_per_sec", json!([1])),
            "not a cluster: device.flops_per_sec: invalid type: sequence, expected f64",
        ),
        (cluster("/local", json!({})), "not a cluster: local: missing field `latency_ns`"),
    ] {
        let file = write(&dir, "bad.json", text);
        let plan = ["plan", "--model", "mlp4", "--cluster", file];
        runner_in(&dir, &plan).refused(2, words);
        runner_in(&dir, &["cluster", file]).refused(2, words);
    }
}

#[test]
fn sizes_of_known_networks_are_told_from_unknown_names() {
    let dir = scratch("json-sizes");
    for (model, words) in [
        ("vgg16:33", "error: `vgg16:33`: the size of images is `33`, must be a multiple of 32"),
        ("fc32:0", "error: `fc32:0`: the width is `0`, must be a number from 1 to 65536"),
        ("transformer:layers=2", "hidden=NUMBER is missing"),
        ("alexnet9", "no model is called `alexnet9`"),
    ] {
        runner_in(&dir, &["plan", "--model", model]).refused(2, words);
    }
}
