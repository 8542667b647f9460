//! Machines to plan for: presets, files, flags that change one, and the page that describes the fields.

use crate::common::{runner_in, scratch, write};
use pipewright_core::cost::{CLUSTERS, Cluster};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/clusters.md");

#[test]
fn presets_are_listed_printed_and_planned_for() {
    let dir = scratch("clusters");
    let list = runner_in(&dir, &["cluster"]).done().stdout.clone();
    let page = std::fs::read_to_string(PAGE).unwrap();
    for name in CLUSTERS {
        assert!(list.lines().any(|line| line.split(' ').next() == Some(name)), "{name}: {list}");
        assert!(page.contains(&format!("`{name}`")), "{name} has no source in docs/clusters.md");
        let printed = runner_in(&dir, &["cluster", name]).done().stdout.clone();
        let cluster: Cluster = serde_json::from_str(&printed).unwrap();
        assert_eq!(cluster, Cluster::preset(name).unwrap());
        write(&dir, "mine.json", &printed);
        // Every device for itself: one plan to make, not a search.
        let given =
            ["--ranks", "1", "--stages", "1", "--schedule", "gpipe", "--micro-batches", "8"];
        let plan = |cluster: &str| {
            let args = ["plan", "--model", "gpt2", "--mini-batch", "8", "--cluster", cluster];
            runner_in(&dir, &[&args[..], &given].concat()).done().stdout.clone()
        };
        assert_eq!(plan(name), plan("mine.json"), "{name}");
    }
}

#[test]
fn flags_change_what_they_say() {
    let dir = scratch("cluster-flags");
    let flags = ["--nodes", "2", "--memory", "40GiB", "--network", "100Gbit/s"];
    let args = [&["cluster", "dgx-a100"], &flags[..], &["-o", "mine.json"]].concat();
    runner_in(&dir, &args).done();
    let mut wanted = Cluster::preset("dgx-a100").unwrap();
    (wanted.nodes, wanted.device.memory.0) = (2, 40 << 30);
    wanted.network.bytes_per_sec = 12.5e9;
    let text = std::fs::read_to_string(dir.join("mine.json")).unwrap();
    assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), wanted);
    // The same flags where a plan is made, and where forms are compared.
    let plan = ["plan", "--model", "mlp4", "--cluster", "dgx-a100", "--devices", "2"];
    let plan = runner_in(&dir, &[&plan[..], &flags].concat()).done().stdout.clone();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(serde_json::from_value::<Cluster>(plan["cluster"].clone()).unwrap(), wanted);
    let forms = |more: &[&str]| {
        let args = ["forms", "--model", "mlp4", "--devices", "4", "--cluster"];
        runner_in(&dir, &[&args[..], more].concat()).done().stdout.clone()
    };
    let slow = ["reedbush-l", "--network", "1Mbit/s"];
    assert_ne!(forms(&slow), forms(&slow[..1]), "the network is not priced");
    let small = forms(&["dgx-a100", "--memory", "1MiB"]);
    assert!(small.contains("; more memory than a device has"), "{small}");
    assert!(!forms(&["dgx-a100"]).contains("more memory than"), "it has 80 GiB");
    // What was measured for all-reduces goes with the network that it was measured on.
    wanted.network_collectives = Some(wanted.network);
    write(&dir, "measured.json", serde_json::to_string(&wanted).unwrap());
    let faster = runner_in(&dir, &["cluster", "measured.json", "--network", "2GB/s"]);
    let faster: Cluster = serde_json::from_str(&faster.done().stdout).unwrap();
    assert_eq!((faster.network_collectives, faster.network.bytes_per_sec), (None, 2e9));
}

#[test]
fn what_no_machine_has_is_refused_by_the_flags_name() {
    let dir = scratch("cluster-refused");
    for (flag, value) in [
        ("--nodes", "0"),
        ("--nodes", "-1"),
        ("--nodes", "4294967295"),
        ("--memory", "0"),
        ("--memory", "40G"),
        ("--network", "100"),
        ("--network", "100gb/s"),
        ("--network", "0GB/s"),
    ] {
        let given = format!("{flag}={value}");
        for command in [
            &["cluster", "dgx-a100"][..],
            &["plan", "--model", "mlp4"],
            &["forms", "--model", "mlp4"],
        ] {
            runner_in(&dir, &[command, &[&given]].concat()).refused(2, flag);
        }
    }
    runner_in(&dir, &["cluster", "--nodes", "2"]).refused(2, "name a cluster");
    runner_in(&dir, &["cluster", "cray-1"]).refused(2, "no cluster is called `cray-1`");
    runner_in(&dir, &["cluster", "laptop", "-o", "."]).refused(2, ".: ");
    // A folder called as a preset is hides it from nobody.
    std::fs::create_dir(dir.join("laptop")).unwrap();
    runner_in(&dir, &["cluster", "laptop"]).done();
}

/// The rows of the tables of fields, by what stands before each table: the field and whether it is needed.
fn tables(page: &str) -> BTreeMap<String, BTreeSet<(String, bool)>> {
    let (mut found, mut title) = (BTreeMap::<String, BTreeSet<_>>::new(), String::new());
    let mut inside = false;
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        match cells[..] {
            ["field", "unit", "needed", "meaning"] => inside = true,
            [name, _, needed, _] if inside && name.starts_with('`') => {
                let row = (name.trim_matches('`').to_owned(), needed == "yes");
                assert!(found.entry(title.clone()).or_default().insert(row), "{line} stands twice");
            }
            [text] if !text.is_empty() => (inside, title) = (false, text.to_owned()),
            _ => {}
        }
    }
    found
}

#[test]
fn the_page_has_the_fields_that_there_are() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let tables = tables(&page);
    let schema: Value =
        serde_json::from_str(&runner_in(&scratch("schema"), &["schema"]).done().stdout).unwrap();
    let of = |name: &str| -> BTreeSet<(String, bool)> {
        let object = &schema["$defs"][name];
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = object["properties"].as_object().unwrap_or_else(|| panic!("no {name}")).keys();
        fields.map(|field| (field.clone(), required.contains(&field.as_str()))).collect()
    };
    assert_eq!(tables.len(), 9, "{:?}", tables.keys());
    for (title, name) in [
        ("The cluster", "Cluster"),
        ("`device`:", "Device"),
        ("`device.efficiencies`", "Efficiencies"),
        ("`device.transformers`", "TransformerRates"),
        ("An entry of `tensor`", "TensorRates"),
        ("An entry of `attention`", "MeasuredAttention"),
        ("An entry of `layers`", "MeasuredLayer"),
        ("A link", "Link"),
        ("An entry of `codecs`", "CodecSpeed"),
    ] {
        let (_, rows) = tables.iter().find(|(line, _)| line.starts_with(title)).unwrap();
        assert_eq!(*rows, of(name), "{name}");
    }
    let example = page.split_once("```json").and_then(|(_, rest)| rest.split_once("```"));
    let cluster: Cluster = serde_json::from_str(example.unwrap().0).unwrap();
    cluster.check().unwrap();
}
