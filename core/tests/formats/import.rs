//! Importers against every file of the collections they read.

use pipewright_core::cost::import::{ImportError, dnn_partitioning, pipedream, piper, read};
use pipewright_core::cost::{Item, Workload};
use pipewright_core::units::{Bytes, Nanos};
use std::path::{Path, PathBuf};

/// The files of a collection.
fn collection(folder: &str) -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/profiles");
    let entries = std::fs::read_dir(data.join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn import(path: &Path) -> Workload {
    let text = std::fs::read_to_string(path).unwrap();
    let work = read(&path.display().to_string(), &text)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    check(&work);
    work
}

fn kept(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/profiles").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// What every reader relies on.
fn check(work: &Workload) {
    assert!(work.edges.iter().all(|e| e.from < e.to && (e.to as usize) < work.items.len()));
    assert!(work.edges.windows(2).all(|w| (w[0].to, w[0].from) < (w[1].to, w[1].from)));
    let mut names: Vec<&str> = work.items.iter().map(|i| i.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "{}", work.name);
}

fn item<'a>(work: &'a Workload, id: &str) -> &'a Item {
    work.items.iter().find(|i| i.name.split(' ').next() == Some(id)).unwrap()
}

#[test]
fn totals_are_the_published_ones() {
    // Profiles by PipeDream: total ms of forward and backward without input.
    let totals = [
        ("alexnet", 85.3, 22),
        ("densenet121", 326.2, 428),
        ("gnmt", 89.4, 37),
        ("resnet18", 259.7, 70),
        ("resnet50", 443.4, 176),
        ("squeezenet1_0", 285.4, 67),
        ("vgg16", 672.5, 40),
    ];
    for path in collection("pipedream") {
        let work = import(&path);
        let (_, total, items) = totals.iter().find(|t| t.0 == work.name).unwrap();
        let ms = work.time().0 as f64 / 1e6;
        assert!((ms - total).abs() <= 0.05 + 1e-9, "{}: {ms} ms, not {total}", work.name);
        assert_eq!(work.items.len(), *items, "{}", work.name);
    }
    assert_eq!(
        pipedream::read(&kept("pipedream/alexnet.graph.txt")).unwrap().time(),
        Nanos(85_321_000)
    );
}

#[test]
fn chains_of_the_same_profiles_have_the_same_sums() {
    for path in collection("pipedream-chains") {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let column = |row: &str, i: usize| row.split(',').nth(i).unwrap().parse::<f64>().unwrap();
        let sum = |i| text.lines().skip(1).map(|row| column(row, i)).sum::<f64>();
        let graph = path.parent().unwrap().join(format!("../pipedream/{name}.graph.txt"));
        let work = import(&graph);
        let total = |of: fn(&Item) -> u64| work.items.iter().map(of).sum::<u64>() as f64;
        assert!((total(|i| i.forward.0) / 1e6 - sum(2)).abs() < 1e-6, "{name}");
        assert!((total(|i| i.backward_input.0) / 1e6 - sum(3)).abs() < 1e-6, "{name}");
        assert!((total(|i| i.parameters.0) - sum(6)).abs() < 1.0, "{name}");
    }
}

#[test]
fn dapple_files_say_their_batch_in_their_name() {
    for path in collection("dapple") {
        let work = import(&path);
        let expected = match work.name.rsplit_once("pbs-") {
            Some((_, samples)) => samples.parse().unwrap(),
            None => 1,
        };
        assert_eq!(work.samples, expected, "{}", work.name);
        assert!(work.time() > Nanos(0));
    }
    let work = read("dapple/bert-24-pbs-6.txt", &kept("dapple/bert-24-pbs-6.txt")).unwrap();
    check(&work);
    assert_eq!(work.samples, 6);
    // 24 layers of 8.07 + 13.4 ms, 0.01 + 0.011 + 0.056 ms before them.
    assert_eq!(work.time(), Nanos(24 * 21_470_000 + 77_000));
}

#[test]
fn a_value_of_several_tensors_is_their_sum() {
    let work = read("dapple/amoeba-18-pbs-8.txt", &kept("dapple/amoeba-18-pbs-8.txt")).unwrap();
    assert_eq!(item(&work, "node2").output, Bytes(37_850_112 + 12_616_704));
    let work = pipedream::read(&kept("pipedream/gnmt.graph.txt")).unwrap();
    let lstm = item(&work, "node7");
    assert_eq!(lstm.output, Bytes(6_291_456 + 2 * 131_072));
    assert_eq!((lstm.forward, lstm.backward()), (Nanos(3_190_000), Nanos(5_348_000)));
    assert_eq!((lstm.parameters, lstm.name.as_str()), (Bytes(50_364_416), "node7 LSTM"));
}

#[test]
fn inputs_and_unread_elements_are_no_items() {
    let work = pipedream::read(&kept("pipedream/gnmt.graph.txt")).unwrap();
    let has = |id: &str| work.items.iter().any(|i| i.name.split(' ').next() == Some(id));
    assert!(!has("node1") && !has("node2") && !has("node3"), "inputs");
    assert!(!has("node46"), "a __getitem__ that nobody reads");
    assert!(has("node45") && has("node20"));
}

#[test]
fn stage_numbers_are_kept() {
    let line = "node1 -- Relu -- forward_compute_time=1.5, backward_compute_time=2, \
                activation_size=8, parameter_size=0 -- stage_id=3";
    let work = pipedream::read(line).unwrap();
    assert_eq!((work.items[0].stage, work.items[0].forward), (Some(3), Nanos(1_500_000)));
}

#[test]
fn dnn_partitionings_inputs_keep_their_rules_and_transfer_times() {
    let work =
        dnn_partitioning::read(&kept("dnn-partitioning/LayerGraphs-bert24_training.json")).unwrap();
    check(&work);
    assert_eq!((work.items.len(), work.edges.len()), (64, 110));
    assert_eq!((work.devices, work.hosts), (Some(6), 1));
    assert_eq!(work.memory, Some(Bytes(17_185_374_208)));
    // One accelerator takes 217.813 ms.
    assert_eq!(work.time(), Nanos(217_813_000));
    let (layer, gradient) = (item(&work, "3"), item(&work, "34"));
    assert_eq!((layer.forward, layer.backward()), (Nanos(696_000), Nanos(0)));
    assert_eq!((gradient.forward, gradient.backward()), (Nanos(0), Nanos(4_778_000)));
    assert_eq!(layer.rules.host, Some(Nanos(6_960_000)));
    assert_eq!(layer.rules.group, gradient.rules.group);
    assert!(gradient.rules.backward && !layer.rules.backward && !layer.rules.host_only);
    let link = work.link.unwrap();
    let slowest = work.edges.iter().map(|e| link.time(e.bytes)).max().unwrap();
    assert_eq!(slowest, Nanos(58_216), "0.05821610242128372 ms");
}

#[test]
fn all_of_dnn_partitioning() {
    // File, nodes, edges, ms on one accelerator (PLANNING's table, from the published code).
    let expected = [
        ("LayerGraphs-bert24_training", 64, 110, 217.813),
        ("LayerGraphs-gnmt_inference", 96, 122, 182.563),
        ("LayerGraphs-resnet50_training", 354, 386, 462.381),
        ("OperatorGraphs-bert_l-3_inference", 235, 250, 49.353),
        ("OperatorGraphs-bert_l-3_training", 600, 817, 122.987),
        ("OperatorGraphs-resnet50_inference", 604, 619, 325.132),
    ];
    let mut seen = 0;
    for path in collection("dnn-partitioning") {
        if path.display().to_string().ends_with("_expert.json") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(read("expert", &text), Err(ImportError::Placement));
            continue;
        }
        let work = import(&path);
        let (_, nodes, edges, ms) = expected.iter().find(|e| e.0 == work.name).unwrap();
        assert_eq!((work.items.len(), work.edges.len()), (*nodes, *edges), "{}", work.name);
        assert!((work.time().0 as f64 / 1e6 - ms).abs() < 6e-4, "{}", work.name);
        seen += 1;
    }
    assert_eq!(seen, expected.len());
}

#[test]
fn pipers_ways_become_shards() {
    let work = import(&collection("piper")[0]);
    assert_eq!((work.items.len(), work.edges.len()), (37, 67));
    assert_eq!((work.memory, work.devices), (Some(Bytes(80_000_000_000)), Some(10)));
    assert_eq!((work.micro_batches, work.link.unwrap().bytes_per_sec), (Some(1920), 25e9));
    let layer = item(&work, "3");
    assert_eq!(layer.time(), Nanos(30_492_000));
    assert_eq!((layer.stash, layer.state), (Bytes(606_478_336), Bytes(353_994_240)));
    assert_eq!((layer.parameters, layer.syncs.len()), (Bytes(176_997_120), 0));
    let ways: Vec<(u32, bool)> = layer.shards.iter().map(|s| (s.degree, s.recompute)).collect();
    let (no, yes) = (false, true);
    assert_eq!(ways, [(1, yes), (2, no), (2, yes), (4, no), (4, yes), (8, no), (8, yes)]);
    let halves = &layer.shards[1];
    assert_eq!(halves.forward + halves.backward, Nanos(18_696_000));
    let named: Vec<(&str, u64)> = halves
        .syncs
        .iter()
        .map(|s| (work.items[s.other as usize].name.as_str(), s.bytes.0))
        .collect();
    let next = "5 ParallelTransformerLayer";
    let mut expected = [("1 Embedding", 31_457_280), ("4 tensor", 16_777_216), (next, 31_457_280)];
    let mut named = named;
    expected.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, expected);
}

#[test]
fn errors_name_the_line_or_the_path() {
    let refused = |text: &str| read("x", text).unwrap_err().to_string();
    let node = |id: &str, forward: &str| {
        format!(
            "{id} -- Relu -- forward_compute_time={forward}, backward_compute_time=1, \
             activation_size=1, parameter_size=0\n"
        )
    };
    let nodes = [node("node1", "1"), node("node2", "1")].concat();
    let cases = [
        (String::new(), "the profile has no node with work"),
        ("hello".into(), "not a profile: neither lines"),
        (node("node1", "-1"), "line 1, forward_compute_time is -1, must be a time from 0"),
        (node("node1", "NaN"), "line 1, forward_compute_time is NaN, must be a time from 0"),
        (node("node1", "1e300"), "line 1, forward_compute_time is 1"),
        (node("node1", "abc"), "line 1, forward_compute_time is `abc`, must be a number"),
        (
            [node("node1", "1"), node("node1", "1")].concat(),
            "line 2: node `node1` was there before",
        ),
        (nodes.clone() + "\tnode1 -- node7\n", "line 3: there is no node `node7`"),
        (nodes.clone() + "\tnode1 node2\n", "line 3 is `node1 node2`, must be an edge"),
        (
            nodes.clone() + "\tnode1 -- node2\n\tnode2 -- node1\n",
            "the nodes node1 Relu -> node2 Relu -> node1 Relu wait for each other in a circle",
        ),
        (nodes.clone() + "\tnode1 -- node1\n", "the nodes node1 Relu -> node1 Relu wait"),
        ("{".into(), "not JSON: EOF while parsing an object at line 1"),
        ("{}".into(), "not a profile"),
        (r#"{"nodes": 3}"#.into(), "nodes is 3, must be a list"),
        (r#"{"nodes": [{"id": 1}]}"#.into(), "nodes[0]: size is missing"),
        (r#"{"nodes": [{"id": 1.5}]}"#.into(), "nodes[0].id is 1.5, must be a whole number"),
    ];
    for (text, expected) in cases {
        let message = refused(&text);
        assert!(message.starts_with(expected), "{message}\nnot: {expected}");
    }
}

#[test]
fn broken_json_profiles_name_the_field() {
    let good = kept("dnn-partitioning/LayerGraphs-bert24_training.json");
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        dnn_partitioning::read(&good.replacen(from, to, 1)).unwrap_err().to_string()
    };
    assert_eq!(
        broken("\"fpgaLatency\": 0.696", "\"fpgaLatency\": -1"),
        "nodes[2].fpgaLatency is -1, must be a time from 0 to 10^6 seconds"
    );
    assert_eq!(broken("\"id\": 33", "\"id\": 1"), "nodes[1]: node `1` was there before");
    assert!(broken("\"sourceId\": 1,", "\"sourceId\": 999,").ends_with("no node `999`"));
    assert_eq!(
        broken("\"supportedOnFpga\": 1", "\"supportedOnFpga\": \"yes\""),
        "nodes[0].supportedOnFpga is \"yes\", must be true, false, 1 or 0"
    );
    assert!(piper::read(&good).unwrap_err().to_string().contains("maxMemoryPerDevice is missing"));
}

#[test]
fn the_largest_profile_is_read_and_a_larger_one_refused() {
    let line = |i: usize| {
        format!(
            "node{i} -- Relu -- forward_compute_time=1, backward_compute_time=1, \
             activation_size=1, parameter_size=0\n"
        )
    };
    let mut text: String = (1..=1 << 18).map(line).collect();
    text.extend((2..=1 << 18).map(|i| format!("\tnode{} -- node{i}\n", i - 1)));
    let work = pipedream::read(&text).unwrap();
    assert_eq!((work.items.len(), work.edges.len()), (1 << 18, (1 << 18) - 1));
    text.insert_str(0, &line((1 << 18) + 1));
    let error = pipedream::read(&text).unwrap_err().to_string();
    assert_eq!(error, "more than 262144 nodes");
}
