//! Graphs of the Python package: what they carry into a plan, and what is refused.

use pipewright_core::cost::import::read;
use pipewright_core::cost::{Cluster, Keeps, Workload};
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Draft, Model};
use pipewright_core::units::{Bytes, Nanos};
use serde_json::{Value, json};

/// Two layers and a skip, of 4 samples; `keeps` is what the last one keeps.
fn graph(keeps: Value) -> Value {
    let node = |name: &str, inputs: &[&str], keeps: Value| {
        json!({
            "name": name, "op": "aten.linear.default", "module": name, "inputs": inputs,
            "output_bytes": 4096, "forward_ns": 1000, "input_gradient_ns": 900, "weight_gradient_ns": 800,
            "parameters": [{ "name": format!("{name}.weight"), "bytes": 400 }],
            "keeps": keeps, "saved_bytes": 64,
        })
    };
    json!({
        "format": "pipewright-graph/1", "name": "skip", "samples": 4, "nodes": [
            node("a", &[], json!([])),
            node("b.0", &["a"], json!(["a", "b.0"])),
            node("c", &["b.0", "a"], keeps),
        ],
    })
}

fn imported(value: &Value) -> Workload {
    read("skip.graph.json", &value.to_string()).unwrap()
}

#[test]
fn times_bytes_and_names_are_the_files() {
    let work = imported(&graph(json!(["a"])));
    assert_eq!((work.name.as_str(), work.samples), ("skip", 4));
    let edges: Vec<(u32, u32)> = work.edges.iter().map(|edge| (edge.from, edge.to)).collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 2)]);
    let [_, b, c] = &work.items[..] else { panic!("{:?}", work.items) };
    assert_eq!((b.name.as_str(), b.forward), ("b.0", Nanos(1000)));
    assert_eq!((b.backward_input, b.backward_weight), (Nanos(900), Nanos(800)));
    assert_eq!((b.output, b.parameters, b.state), (Bytes(4096), Bytes(400), Bytes(800)));
    assert_eq!(c.keeps, Some(Keeps { values: vec![0], saved: Bytes(64) }));
    // A value is kept once, whoever reads it; c's by nobody.
    let stash: Vec<u64> = work.items.iter().map(|item| item.stash.0).collect();
    assert_eq!(stash, [4096 + 64, 4096 + 64, 64]);
    let mut unknown = graph(json!(["a"]));
    unknown["nodes"][1].as_object_mut().unwrap().remove("keeps");
    assert!(imported(&unknown).items.iter().all(|item| item.stash.0 >= 4096));
}

/// The peak of a plan on one device.
fn peak(keeps: Value) -> u64 {
    let (graph, profile) = imported(&graph(keeps)).network().unwrap();
    let mut cluster = Cluster::preset("laptop").unwrap();
    cluster.profile = Some(profile);
    let mut draft = Draft::new(Model::Graph(graph), cluster, vec![]);
    (draft.mini_batch, draft.micro_batches) = (4, 1);
    let (plan, prediction) = draft.plan().unwrap();
    assert_eq!(pipewright_core::plan::Plan::from_json(&plan.to_json()).unwrap(), plan);
    prediction.timeline.lanes[0].arena.0
}

#[test]
fn what_is_not_kept_takes_no_memory() {
    let none = peak(json!([]));
    let own = peak(json!(["c"]));
    let unknown = peak(Value::Null);
    assert!(none < own && none < unknown, "{none} {own} {unknown}");
    assert_eq!(peak(json!(["a"])), none, "b.0 keeps it already");
}

#[test]
fn a_plan_that_keeps_what_is_not_there_is_refused() {
    let (graph, _) = imported(&graph(json!(["a"]))).network().unwrap();
    let text = serde_json::to_string(&graph).unwrap();
    // Node 3 is c, which reads a and b.0.
    let kept = r#""kept":{"inputs":[0],"saved":16}"#;
    assert!(text.contains(kept), "{text}");
    for (change, words) in [
        (r#""kept":{"inputs":[2],"saved":16}"#, "keeps inputs [2] of 2"),
        (r#""kept":{"inputs":[1,0],"saved":16}"#, "keeps inputs [1, 0] of 2"),
        (r#""kept":{"saved":18446744073709551615}"#, "more than 2^38"),
    ] {
        let error = serde_json::from_str::<Graph>(&text.replacen(kept, change, 1)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 8] = [
        ("format is \"pipewright-graph/2\"", |v| v["format"] = json!("pipewright-graph/2")),
        ("samples is 0, must be from 1 to 2^32", |v| v["samples"] = json!(0)),
        ("nodes[1].inputs[0]: there is no node `c`", |v| v["nodes"][1]["inputs"] = json!(["c"])),
        ("nodes[2]: node `a` was there before", |v| v["nodes"][2]["name"] = json!("a")),
        ("nodes[1].forward_ns is -1", |v| v["nodes"][1]["forward_ns"] = json!(-1)),
        ("nodes[1]: output_bytes is missing", |v| v["nodes"][1]["output_bytes"] = Value::Null),
        ("nodes[1].keeps is a list of 1, must be names of its inputs", |v| {
            v["nodes"][2] = v["nodes"][1].clone();
            v["nodes"][2]["name"] = json!("d");
            v["nodes"][1]["keeps"] = json!(["a"]);
            v["nodes"][1]["inputs"] = json!([]);
        }),
        ("the profile has no node with work", |v| v["nodes"] = json!([])),
    ];
    for (words, change) in cases {
        let mut value = graph(json!([]));
        change(&mut value);
        let error = read("x", &value.to_string()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}
