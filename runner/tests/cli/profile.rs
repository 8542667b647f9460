//! `runner profile`, by threads and by processes: a cluster file that plans can be made with.

use crate::common::{Ended, draft, mpirun_in, runner_in, scratch, write};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use std::path::Path;

fn check(dir: &Path, ended: &Ended) {
    ended.done();
    assert!(ended.stderr.contains("link: ") && ended.stderr.contains("all-reduce"), "{ended:#?}");
    let text = std::fs::read_to_string(dir.join("cluster.json")).unwrap();
    let cluster: Cluster = serde_json::from_str(&text).unwrap();
    cluster.check().unwrap();
    assert!(cluster.receivers_copy && cluster.collectives.is_some(), "{cluster:?}");
    assert_eq!(cluster.nodes, 1);
    let profile = cluster.profile.clone().unwrap();
    profile.check().unwrap();
    let of = |name: &str| profile.nodes.iter().find(|node| node.node == name).unwrap();
    let sizes: Vec<u64> = of("conv2").samples.iter().map(|sample| sample.samples).collect();
    assert_eq!(sizes, [2, 8], "the micro-batch and a quarter of it");
    for sample in &of("conv2").samples {
        let parts = [sample.forward_ns, sample.input_gradient_ns, sample.weight_gradient_ns];
        assert!(parts.iter().all(|time| time.0 > 0) && sample.update_ns.0 > 0, "{sample:?}");
    }
    assert!(profile.nodes.iter().all(|node| node.node != "flatten"), "views take no time");
    let args = ["--model", "digits-cnn", "--stages", "2", "--cluster", "cluster.json"];
    runner_in(dir, &[&["plan"], &args[..], &["-o", "planned.json"]].concat()).done();
}

/// A device is what a rank of a run computes with: its share of the cores.
#[test]
fn ranks_are_measured_with_as_many_threads_as_they_run_with() {
    let dir = scratch("profile-threads");
    let mut draft = draft(Preset::DigitsCnn, 1);
    (draft.mini_batch, draft.micro_batches) = (32, 4);
    write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let measured = |more: &[&str]| -> Cluster {
        let args =
            [&["profile", "plan.json", "-o", "cluster.json", "--repeats", "1"], more].concat();
        runner_in(&dir, &args).done();
        serde_json::from_str(&std::fs::read_to_string(dir.join("cluster.json")).unwrap()).unwrap()
    };
    let all = measured(&[]);
    assert_eq!(all.device.name, format!("{cores} of {cores} cores"));
    assert_eq!(all.devices_per_node, 1);
    let one = measured(&["--threads", "1"]);
    assert_eq!(
        (one.device.name.as_str(), one.devices_per_node),
        (&*format!("1 of {cores} cores"), cores)
    );
}

#[test]
fn threads_and_processes_measure_what_a_plan_needs() {
    let dir = scratch("profile");
    let mut draft = draft(Preset::DigitsCnn, 2);
    (draft.mini_batch, draft.micro_batches) = (32, 4);
    write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    let args = ["profile", "plan.json", "-o", "cluster.json", "--repeats", "2"];
    check(&dir, &runner_in(&dir, &args));
    for ranks in [2, 3] {
        if let Some(ended) = mpirun_in(&dir, ranks, &args) {
            check(&dir, &ended);
        }
    }
    if let Some(ended) = mpirun_in(&dir, 2, &["profile", "no.json", "-o", "cluster.json"]) {
        assert_ne!(ended.code, Some(0));
        assert_eq!(ended.errors().len(), 1, "{ended:#?}");
    }
}
