//! Imported profiles as models of plans: predicted times are those of the profile.

use pipewright_core::cost::import::read;
use pipewright_core::cost::{Cluster, Workload};
use pipewright_core::graph::{Graph, Precision};
use pipewright_core::partition;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

fn kept(name: &str) -> Workload {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/profiles");
    read(name, &std::fs::read_to_string(path.join(name)).unwrap()).unwrap()
}

/// A cluster whose links take no time worth the name.
fn cluster(work: &Workload) -> (Graph, Cluster) {
    let (graph, profile) = work.network().unwrap();
    let mut cluster = Cluster::preset("dgx-a100").unwrap();
    for link in [&mut cluster.local, &mut cluster.network] {
        link.latency_ns = Nanos(0);
        link.bytes_per_sec = 1e18;
    }
    cluster.profile = Some(profile);
    (graph, cluster)
}

/// GPipe with uneven stages: sum f + (m-1) max f + sum b + (m-1) max b.
fn gpipe(stages: &[(u64, u64)], m: u64) -> u64 {
    let part = |of: fn(&(u64, u64)) -> u64| {
        let times = stages.iter().map(of);
        times.clone().sum::<u64>() + (m - 1) * times.max().unwrap()
    };
    part(|s| s.0) + part(|s| s.1)
}

#[test]
fn a_plan_of_a_profile_predicts_the_profiles_times() {
    for name in
        ["pipedream/alexnet.graph.txt", "pipedream/gnmt.graph.txt", "dapple/bert-24-pbs-6.txt"]
    {
        let work = kept(name);
        let (graph, cluster) = cluster(&work);
        assert_eq!(graph.layers().len(), work.items.len());
        let samples = work.samples;
        for stages in [1, 2, 4] {
            let costs =
                pipewright_core::cost::Costs::new(&graph, &cluster, samples, Precision::F32);
            let cuts = partition::balanced(&graph, &costs, stages).unwrap();
            let mut draft = Draft::new(Model::Graph(graph.clone()), cluster.clone(), cuts.clone());
            draft.schedule = ScheduleKind::GPipe;
            (draft.mini_batch, draft.micro_batches) = (8 * samples, 8);
            let (plan, prediction) = draft.plan().unwrap();
            // Node 0 is the sample: item i is node i + 1.
            let mut bounds = vec![0];
            bounds.extend(cuts.iter().map(|c| *c as usize - 1));
            bounds.push(work.items.len());
            let of = |w: &[usize]| {
                let items = &work.items[w[0]..w[1]];
                let sum = |f: fn(&pipewright_core::cost::Item) -> Nanos| -> u64 {
                    items.iter().map(|i| f(i).0).sum()
                };
                (sum(|i| i.forward), sum(|i| i.backward()))
            };
            let times: Vec<(u64, u64)> = bounds.windows(2).map(of).collect();
            let expected = gpipe(&times, 8);
            let found = prediction.timeline.step.0;
            // Messages are not quite free: 1e18 bytes per second.
            assert!(found >= expected && found - expected < 1000, "{name}: {found} {expected}");
            assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
        }
    }
}

#[test]
fn parameters_are_the_profiles() {
    let work = kept("dapple/bert-24-pbs-6.txt");
    let (graph, _) = work.network().unwrap();
    assert_eq!(4 * graph.trainable_elements(), work.parameters().0);
}

#[test]
fn a_training_graph_of_operators_is_no_pipeline() {
    let work = kept("dnn-partitioning/LayerGraphs-bert24_training.json");
    let message = work.network().unwrap_err().to_string();
    assert!(message.starts_with("`33 node1grad` is a backward operation"), "{message}");
}

#[test]
fn every_preset_can_be_planned() {
    use pipewright_core::graph::presets::PRESETS;
    for preset in PRESETS {
        let graph = preset.graph().unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let costs = pipewright_core::cost::Costs::new(&graph, &cluster, 2, Precision::F32);
        let cuts = partition::balanced(&graph, &costs, 4).unwrap();
        let mut draft = Draft::new(Model::Preset(preset), cluster, cuts);
        (draft.mini_batch, draft.micro_batches) = (8, 4);
        let (plan, prediction) = draft.plan().unwrap_or_else(|e| panic!("{preset}: {e}"));
        assert_eq!(plan.ranks(), 4);
        assert!(prediction.timeline.step > Nanos(0), "{preset}");
    }
}
