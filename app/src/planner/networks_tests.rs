//! Files of others, read and planned.

use super::*;
use crate::planner::engine::{Ground, solve};
use crate::planner::presets::first;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(path)
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut todo = vec![data(folder)];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { todo.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// What a future gives that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found,
        Poll::Pending => panic!("it waits"),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn networks_of_other_tools_are_recognised_and_planned() {
    let mut count = 0;
    for path in files("onnx").into_iter().filter(|p| p.extension().is_some_and(|e| e == "onnx")) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(is_onnx(&bytes), "{}", path.display());
        let Ok(found) = at_once(of_onnx(&name(&path), bytes, async || ())) else { continue };
        let inputs = with(&first(), found.part);
        solve(&inputs, &Ground::of(&inputs)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        count += 1;
    }
    assert!(count > 20, "{count} of the ONNX files were read");
}

#[test]
fn networks_of_one_module_and_of_both_exporters_can_be_cut_finely() {
    // Of two or three blocks each.
    let files = ["densenet", "densenet-dynamo", "vit", "vit-dynamo", "hf_llama", "hf_llama-dynamo"];
    for file in files {
        let bytes = std::fs::read(data(&format!("onnx/{file}.onnx"))).unwrap();
        let found = at_once(of_onnx(file, bytes, async || ())).unwrap();
        let Part::Network(graph, _) = found.part else { panic!("{file}") };
        assert!(graph.layers().len() >= 5, "{file}: {} layers", graph.layers().len());
    }
}

#[test]
fn newer_operator_sets_are_tried_and_older_ones_refused() {
    let mut bytes = std::fs::read(data("onnx/resnet.onnx")).unwrap();
    // The file ends with its version.
    assert_eq!(bytes.last(), Some(&17));
    *bytes.last_mut().unwrap() = 28;
    let found = at_once(of_onnx("new.onnx", bytes.clone(), async || ())).unwrap();
    assert!(
        found.said.ends_with(" operator set 28: 13 to 21 are those that imports are tested with."),
        "{}",
        found.said
    );
    *bytes.last_mut().unwrap() = 6;
    let why = at_once(of_onnx("old.onnx", bytes, async || ())).err().unwrap();
    assert!(why.contains("operator set 6 is before 7"), "{why}");
}

#[test]
fn profiles_bring_their_times() {
    let mut count = 0;
    for path in files("profiles") {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let Some(Ok(found)) = of_text(&name(&path), &text) else { continue };
        let inputs = with(&first(), found.part);
        assert!(inputs.cluster().profile.is_some(), "{}", path.display());
        solve(&inputs, &Ground::of(&inputs)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        count += 1;
    }
    assert!(count > 2, "{count} profiles were read");
}

#[test]
fn graphs_of_the_python_package_are_recognised() {
    for path in files("profiles/pytorch") {
        let found = of_text(&name(&path), &std::fs::read_to_string(&path).unwrap());
        let said = found.expect("it is a network").unwrap_or_else(|why| panic!("{why}")).said;
        assert!(said.contains("operations, with their times"), "{said}");
    }
}

#[test]
fn configurations_of_hugging_face_are_networks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/hf");
    let all = [
        ("gpt2", "gpt2"),
        ("llama3", "llama"),
        ("qwen3", "qwen3"),
        ("phi3", "phi3"),
        ("olmo2", "olmo2"),
        ("smollm3", "smollm3"),
    ];
    for (at, kind) in all {
        let text = std::fs::read_to_string(folder.join(at).join("config.json")).unwrap();
        let Some(Ok(found)) = of_text("config.json", &text) else { panic!("{kind}") };
        assert!(found.said.ends_with(" tokens."), "{}", found.said);
        let inputs = with(&first(), found.part);
        assert_eq!(inputs.model.name(), kind);
        solve(&inputs, &Ground::of(&inputs)).unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
    let mixture = r#"{"model_type": "deepseek_v3", "n_routed_experts": 8}"#;
    let Some(Err(why)) = of_text("config.json", mixture) else { panic!("a mixture of experts") };
    assert!(why.contains("mixtures of experts of this kind cannot be read"), "{why}");
}

#[test]
fn an_order_from_a_file_is_the_plan_s_and_goes_through_its_file() {
    let mut count = 0;
    // Beside the schedules stand a table of facts, and files that PyTorch itself wrote wrongly.
    let order = |p: &PathBuf| {
        let named = name(p);
        named.ends_with(".csv") && named != "expected.csv" && !named.starts_with("upstream-bug")
    };
    for path in files("schedules").into_iter().filter(order) {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = match of_text(&name(&path), &text) {
            Some(found) => found.unwrap_or_else(|why| panic!("{why}")),
            None => panic!("{} was not recognised", path.display()),
        };
        let mut inputs = with(&first(), found.part);
        inputs.mini_batch = u64::from(inputs.micro_batches) * 8;
        let ground = Ground::of(&inputs);
        // Layers are fewer than the stages of some.
        let Ok(solved) = solve(&inputs, &ground) else { continue };
        assert_eq!(solved.timeline.lanes.len(), inputs.lanes() as usize, "{}", path.display());
        let (plan, _) = inputs.plan().unwrap();
        let again = Inputs::of_plan(&plan).unwrap();
        assert_eq!(again.order().unwrap().lanes, inputs.order().unwrap().lanes);
        count += 1;
    }
    assert!(count > 3, "{count} schedules were read");
    let mut moved = with(&first(), of_text("a.csv", "0F0,0B0\n1F0,1B0\n").unwrap().unwrap().part);
    assert_eq!((moved.stages(), moved.micro_batches), (2, 1));
    moved.micro_batches = 4;
    let why = solve(&moved, &Ground::of(&moved)).unwrap_err();
    assert!(why.starts_with("a.csv orders 2 x 1 passes (stages x micro-batches)"), "{why}");
}

#[test]
fn machines_are_taken_and_bad_files_are_one_sentence() {
    let cluster = serde_json::to_string(&*first().cluster()).unwrap();
    let Some(Ok(found)) = of_text("here.json", &cluster) else { panic!("a cluster") };
    let inputs = with(&first(), found.part);
    assert_eq!(*inputs.cluster(), *first().cluster());
    let broken = cluster.replace("\"nodes\":", "\"nodes\":0,\"x\":");
    for (name, text) in [
        ("here.json", broken.as_str()),
        ("a.csv", "0F0,9Q\n"),
        ("a.csv", "0B0,0F0\n"),
        ("p.txt", "node1 -- Conv2d -- forward_compute_time=x\n"),
        ("p.json", "{\"nodes\": [], \"edges\": 3}"),
    ] {
        let Some(Err(why)) = of_text(name, text) else { panic!("{name}: {text} was taken") };
        assert!(why.starts_with(name) && !why.contains('\n'), "{why}");
    }
    assert!(of_text("x", "hello").is_none() && of_text("x", "{}").is_none());
    let why = at_once(of_onnx("x.onnx", vec![8, 7, 0x12, 200, 1], async || ())).err().unwrap();
    assert!(why.starts_with("x.onnx was read as ONNX: "), "{why}");
}
