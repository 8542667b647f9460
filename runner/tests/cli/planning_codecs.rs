//! `runner plan --codec`: what is asked for, chosen, refused and said.

use crate::common::{Ended, runner_in, scratch, write};
use pipewright_core::compress::CodecKind;
use pipewright_core::cost::Cluster;
use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;
use std::path::{Path, PathBuf};

/// Four hosts behind a link of so many bytes a second.
fn hosts(dir: &Path, ranks_per_node: u32, bytes_per_sec: f64) -> &'static str {
    let mut cluster = Cluster::preset("laptop").unwrap();
    (cluster.nodes, cluster.ranks_per_node) = (4, ranks_per_node);
    cluster.network.bytes_per_sec = bytes_per_sec;
    write(dir, "hosts.json", serde_json::to_string(&cluster).unwrap());
    "hosts.json"
}

/// Plans replicas of AlexNet, to whose gradients its computing is little.
fn plan(dir: &Path, replicas: &str, more: &[&str]) -> Ended {
    let given =
        ["plan", "--model", "alexnet", "--stages", "1", "--schedule", "1f1b", "-o", "p.json"];
    let sizes = ["--micro-batches", "1", "--mini-batch", replicas, "--replicas", replicas];
    runner_in(dir, &[&given[..], &sizes, &["--cluster", "hosts.json"], more].concat())
}

fn read(dir: &Path) -> Plan {
    Plan::from_json(&std::fs::read_to_string(dir.join("p.json")).unwrap()).unwrap()
}

fn slow(name: &str) -> PathBuf {
    let dir = scratch(name);
    hosts(&dir, 1, 30e6);
    dir
}

#[test]
fn nothing_is_encoded_unless_asked_for_but_what_would_pay_is_said() {
    let dir = slow("codec-note");
    let ended = plan(&dir, "4", &[]);
    assert!(ended.done().stderr.contains("x as fast: --codec one-bit+feedback"), "{ended:#?}");
    assert_eq!(read(&dir).communication, Default::default());
    hosts(&dir, 1, 200e9);
    let ended = plan(&dir, "4", &[]);
    assert!(!ended.done().stderr.contains("--codec"), "{ended:#?}");
    let ended = plan(&dir, "1", &["--codec", "auto"]);
    assert!(ended.done().stderr.contains("nothing to encode"), "{ended:#?}");
}

#[test]
fn auto_takes_the_fastest_of_those_that_are_allowed() {
    let dir = slow("codec-auto");
    let ended = plan(&dir, "4", &["--codec", "auto", "--codecs", "bf16,fp8-e5m2"]);
    for row in ["fp32 ", "bf16 ", "fp8-e5m2 ", "pays: steps "] {
        assert!(ended.done().stderr.contains(row), "{row} {ended:#?}");
    }
    let found = read(&dir);
    assert_eq!(found.communication.gradients.to_string(), "fp8-e5m2");
    assert_eq!(predict(&found).unwrap().timeline.step, found.prediction.step_ns);
    let shown = runner_in(&dir, &["show", "p.json"]);
    assert!(shown.done().stdout.contains("gradients: fp8-e5m2; pays: "), "{shown:#?}");
    plan(&dir, "4", &["--codec", "auto", "--codecs", "bf16", "--feedback"]).done();
    assert_eq!(read(&dir).communication.gradients.to_string(), "bf16+feedback");
    hosts(&dir, 1, 200e9);
    let ended = plan(&dir, "4", &["--codec", "auto"]);
    assert!(ended.done().stderr.contains("would be slower here"), "{ended:#?}");
    assert!(read(&dir).communication.gradients.is_plain());
}

#[test]
fn ways_are_taken_as_they_are_asked_for() {
    let dir = slow("codec-asked");
    let asked = ["--codec", "table:2+feedback", "--hierarchical", "--edge-codec", "bf16"];
    plan(&dir, "4", &asked).done();
    let found = read(&dir).communication;
    assert_eq!(found.gradients.to_string(), "table:2+feedback");
    assert!(found.hierarchical && found.edges.across == CodecKind::Bf16);
    hosts(&dir, 4, 30e6);
    plan(&dir, "16", &["--codec", "auto", "--codecs", "fp8-e5m2"]).done();
    assert!(read(&dir).communication.hierarchical, "each host's four ranks share its link");
    plan(&dir, "16", &["--codec", "adaptive", "--hierarchical"]).done();
    let adaptive = read(&dir);
    assert!(adaptive.communication.gradients.is_plain());
    assert!(adaptive.communication.buckets[0].iter().all(|way| !way.is_plain()));
    assert_eq!(predict(&adaptive).unwrap().timeline.step, adaptive.prediction.step_ns);
    let shown = runner_in(&dir, &["show", "p.json"]);
    assert!(shown.done().stdout.contains("each bucket its own way, between hosts"), "{shown:#?}");
}

#[test]
fn the_search_takes_codecs_along() {
    let dir = slow("codec-search");
    let given = ["plan", "--model", "alexnet", "--mini-batch", "16", "--cluster", "hosts.json"];
    let given = [&given[..], &["--budget", "2000", "-o", "p.json"]].concat();
    let search = |more: &[&str]| {
        runner_in(&dir, &[&given[..], more].concat()).done();
        read(&dir)
    };
    let (plain, free) = (search(&[]), search(&["--codec", "search"]));
    assert_eq!(plain.communication, Default::default());
    assert_ne!(free.communication, Default::default());
    assert!(free.prediction.step_ns < plain.prediction.step_ns);
    let fixed = search(&["--codec", "fp8-e5m2"]);
    assert_eq!(fixed.communication.gradients.to_string(), "fp8-e5m2");
}

#[test]
fn what_no_codec_is_called_is_refused() {
    let dir = slow("codec-refused");
    plan(&dir, "4", &["--codec", "fp7"]).refused(2, "no codec is called `fp7`");
    plan(&dir, "4", &["--codec", "fp32+feedback"]).refused(2, "loses nothing");
    plan(&dir, "4", &["--codec", "bf16+operator"]).refused(2, "fp8-e5m2");
    plan(&dir, "4", &["--codecs", "bf16"]).refused(2, "--codec");
    plan(&dir, "4", &["--edge-codec", "power-sgd:2"]).refused(2, "keeps nothing");
    plan(&dir, "4", &["--codec", "auto", "--codecs", "power-sgd:2"]).refused(2, "keeps a state");
}
