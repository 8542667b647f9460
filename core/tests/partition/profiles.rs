//! Reads the published profiles that the tables are about. Absent files are skipped visibly.

use pipewright_core::cost::{Edge, Item, Link, Rules, Workload};
use pipewright_core::units::{Bytes, Nanos};
use serde_json::Value;
use std::collections::BTreeMap;

/// Text of `../shared/profiles/<path>` beside the repository, if it is there.
pub fn text(path: &str) -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/profiles/");
    let found = std::fs::read_to_string(format!("{root}{path}"));
    if found.is_err() {
        println!("SKIPPED {path}: not beside the repository");
    }
    found.ok()
}

fn millis(text: &str) -> Nanos {
    Nanos((text.trim().parse::<f64>().expect("milliseconds") * 1e6).round() as u64)
}

fn bytes(text: &str) -> Bytes {
    let numbers = text.trim_matches(['[', ']']).split(';');
    Bytes(numbers.map(|n| n.trim().parse::<f64>().expect("bytes") as u64).sum())
}

/// A PipeDream profile, without what its optimizer removes: inputs, and parts of tuples that
/// nobody reads.
pub fn pipedream(name: &str) -> Option<Workload> {
    let text = text(&format!("pipedream/{name}.graph.txt"))?;
    let (mut items, mut edges) = (vec![], vec![]);
    for line in text.lines() {
        let parts: Vec<&str> = line.trim().split(" -- ").collect();
        if line.starts_with('\t') {
            edges.push((parts[0].to_owned(), parts[1].to_owned()));
            continue;
        }
        let field = |key: &str| {
            let from = line.find(key).expect("a field") + key.len() + 1;
            line[from..].split(", ").next().expect("a number")
        };
        let item = Item {
            name: parts[1].into(),
            forward: millis(field("forward_compute_time")),
            backward_input: millis(field("backward_compute_time")),
            output: bytes(field("activation_size")),
            parameters: bytes(field("parameter_size").split(" -- ").next().expect("a number")),
            ..Item::default()
        };
        items.push((parts[0].to_owned(), item));
    }
    let inputs: Vec<String> = without(&items, &edges, |edge| &edge.1, "Input");
    edges.retain(|edge| !inputs.contains(&edge.0));
    items.retain(|item| !inputs.contains(&item.0));
    let sinks = without(&items, &edges, |edge| &edge.0, "__getitem__");
    edges.retain(|edge| !sinks.contains(&edge.1));
    items.retain(|item| !sinks.contains(&item.0));
    let output = |items: &[(String, Item)], id: &str| {
        items.iter().find(|item| item.0 == id).expect("an item").1.output
    };
    let edges = edges.iter().map(|(a, b)| (a.clone(), b.clone(), output(&items, a))).collect();
    Some(workload(name, items, edges))
}

fn without(
    items: &[(String, Item)],
    edges: &[(String, String)],
    end: fn(&(String, String)) -> &String,
    prefix: &str,
) -> Vec<String> {
    let lonely = |id: &String| !edges.iter().any(|edge| end(edge) == id);
    let these = items.iter().filter(|(id, item)| item.name.starts_with(prefix) && lonely(id));
    these.map(|(id, _)| id.clone()).collect()
}

/// A dnn-partitioning graph; edges in nanoseconds at 1 GB/s. Sizes are parameters.
pub fn operators(name: &str) -> Option<Workload> {
    let json: Value =
        serde_json::from_str(&text(&format!("dnn-partitioning/{name}.json"))?).ok()?;
    let nanos = |value: &Value| Nanos((value.as_f64().unwrap_or(0.0) * 1e6).round() as u64);
    let item = |node: &Value| {
        let item = Item {
            name: node["name"].as_str().unwrap_or("").into(),
            forward: nanos(&node["fpgaLatency"]),
            parameters: Bytes(node["size"].as_f64().unwrap_or(0.0) as u64),
            rules: Rules {
                host: Some(nanos(&node["cpuLatency"])),
                host_only: node["supportedOnFpga"].as_i64() == Some(0),
                group: node["colorClass"].as_u64().map(|class| class as u32),
                backward: node["isBackwardNode"].as_i64() == Some(1),
            },
            ..Item::default()
        };
        (node["id"].to_string(), item)
    };
    let edge = |edge: &Value| {
        let cost = Bytes(nanos(&edge["cost"]).0);
        (edge["sourceId"].to_string(), edge["destId"].to_string(), cost)
    };
    let items = json["nodes"].as_array()?.iter().map(item).collect();
    let edges = json["edges"].as_array()?.iter().map(edge).collect();
    let mut work = workload(name, items, edges);
    work.memory = Some(Bytes(json["maxSizePerFPGA"].as_f64()? as u64));
    work.devices = Some(json["maxFPGAs"].as_u64()? as u32);
    work.link = Some(Link { latency_ns: Nanos(0), bytes_per_sec: 1e9 });
    Some(work)
}

/// In topological order.
fn workload(
    name: &str,
    items: Vec<(String, Item)>,
    edges: Vec<(String, String, Bytes)>,
) -> Workload {
    let mut number: BTreeMap<String, u32> = BTreeMap::new();
    while number.len() < items.len() {
        let ready = |id: &String| {
            let mut needs = edges.iter().filter(|edge| edge.1 == *id);
            needs.all(|edge| number.contains_key(&edge.0))
        };
        let next =
            items.iter().map(|item| &item.0).find(|id| !number.contains_key(*id) && ready(id));
        number.insert(next.expect("no cycle").clone(), number.len() as u32);
    }
    let mut sorted = vec![Item::default(); items.len()];
    for (id, item) in items {
        sorted[number[&id] as usize] = item;
    }
    let edge = |(from, to, bytes): &(String, String, Bytes)| Edge {
        to: number[to],
        from: number[from],
        bytes: *bytes,
    };
    let mut edges: Vec<Edge> = edges.iter().map(edge).collect();
    edges.sort_unstable();
    edges.dedup_by_key(|edge| (edge.to, edge.from));
    Workload { name: name.into(), samples: 1, items: sorted, edges, ..Workload::default() }
}
