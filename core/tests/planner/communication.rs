//! The planner's view of encoded gradients and edges: in steps, on slow and on fast machines.

use pipewright_core::compress::{CodecKind, Reduction, USUAL};
use pipewright_core::cost::memory::States;
use pipewright_core::cost::{Cluster, CodecSpeed, Costs, Link, Workload};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Communication, DataParallel, Draft, Edges, Model, Plan};
use pipewright_core::predict::search::{Encoding, Fixed, Search, Space, encodings};
use pipewright_core::predict::{Offer, Prediction, adaptive, offers, predict};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

/// Four hosts whose cores encode and decode 4 GB in a second.
fn hosts(ranks_per_node: u32, bytes_per_sec: f64) -> Cluster {
    let mut cluster = Cluster::preset("laptop").unwrap();
    (cluster.nodes, cluster.ranks_per_node) = (4, ranks_per_node);
    cluster.network = Link { latency_ns: Nanos(50_000), bytes_per_sec };
    let speed = |way: &Reduction| CodecSpeed {
        codec: way.method.codec,
        encode_bytes_per_sec: 4e9,
        decode_bytes_per_sec: 4e9,
    };
    cluster.codecs = USUAL.iter().map(speed).collect();
    cluster
}

/// AlexNet, whose parameters are many and whose computing is little.
fn replicas(cluster: Cluster, replicas: u32) -> (Plan, Prediction) {
    let mut draft = Draft::new(Model::Preset(Preset::Alexnet), cluster, vec![]);
    (draft.mini_batch, draft.micro_batches) = (u64::from(replicas), 1);
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.plan().unwrap()
}

fn all_offers(plan: &Plan, prediction: &Prediction, by_hosts: bool) -> Vec<Offer> {
    offers(plan, prediction, &USUAL.map(|way| (way, by_hosts))).unwrap()
}

#[test]
fn codecs_pay_on_slow_links_and_are_slower_on_fast_ones() {
    let (plan, prediction) = replicas(hosts(1, 30e6), 4);
    let slow = all_offers(&plan, &prediction, false);
    assert_eq!(slow.len(), 5);
    assert_eq!(slow[0].step, prediction.timeline.step);
    assert!(!slow[0].pays && slow[0].verdict.is_empty());
    for offer in &slow[1..] {
        assert!(offer.pays && offer.verdict.starts_with("pays: "), "{offer:?}");
        assert!(offer.step < slow[0].step && offer.exchange < slow[0].exchange);
    }
    assert!(slow.windows(2).all(|pair| pair[1].sent < pair[0].sent), "{slow:#?}");
    // fp8 sends a quarter, and here the wire is all there is.
    let times = slow[0].exchange.secs() / slow[2].exchange.secs();
    assert!((3.8..4.1).contains(&times), "{times}");
    let (plan, prediction) = replicas(hosts(1, 200e9), 4);
    for offer in &all_offers(&plan, &prediction, false)[1..] {
        assert!(!offer.pays && offer.verdict.contains("slower here"), "{offer:?}");
    }
    let mut memory = hosts(64, 30e6);
    (memory.nodes, memory.devices_per_node, memory.receivers_copy) = (1, 2, true);
    let (plan, prediction) = replicas(memory, 4);
    for offer in &all_offers(&plan, &prediction, false)[1..] {
        assert!(!offer.pays && offer.verdict.contains("slower here"), "{offer:?}");
    }
    let (plan, prediction) = replicas(hosts(1, 30e6), 1);
    assert!(all_offers(&plan, &prediction, false).is_empty(), "nobody sums");
}

#[test]
fn by_hosts_pays_where_hosts_have_several_ranks() {
    let (plan, prediction) = replicas(hosts(4, 30e6), 16);
    let (flat, by_hosts) =
        (all_offers(&plan, &prediction, false), all_offers(&plan, &prediction, true));
    for (flat, by_hosts) in flat.iter().zip(&by_hosts).skip(1) {
        assert!(2 * by_hosts.exchange.0 < flat.exchange.0, "{flat:?} {by_hosts:?}");
        assert!(by_hosts.step < flat.step && by_hosts.sent < flat.sent);
    }
    assert_eq!(flat[0], by_hosts[0]);
}

#[test]
fn an_offer_is_what_the_plan_then_predicts() {
    let (mut plan, prediction) = replicas(hosts(1, 125e6), 4);
    for offer in all_offers(&plan, &prediction, false) {
        plan.communication.gradients = offer.way;
        assert_eq!(predict(&plan).unwrap().timeline.step, offer.step, "{}", offer.way);
    }
}

/// Codecs take their time from computing where no core is spare.
#[test]
fn codecs_slow_computing_down_where_no_core_is_spare() {
    let way: Reduction = "bf16".parse().unwrap();
    let step = |cores: u32| {
        let mut cluster = hosts(1, 1e12);
        cluster.devices_per_node = cores;
        let (plan, prediction) = replicas(cluster, 4);
        let communication = Communication { gradients: way, ..Communication::default() };
        let encoded = Plan { communication, ..plan.clone() };
        let step = predict(&encoded).unwrap().timeline.step;
        let offer = all_offers(&plan, &prediction, false).swap_remove(1);
        assert_eq!(offer.step, step);
        (step, prediction.timeline.step)
    };
    let ((spare, plain), (shared, same)) = (step(2), step(1));
    assert_eq!(plain, same, "single precision needs no core");
    assert!(shared > spare && spare >= plain, "{shared} {spare} {plain}");
}

#[test]
fn edges_cost_and_save_what_their_codecs_do() {
    let step = |bytes_per_sec: f64, across: CodecKind| {
        let mut draft =
            Draft::new(Model::Preset(Preset::Vgg16), hosts(1, bytes_per_sec), vec![10, 20, 30]);
        (draft.mini_batch, draft.micro_batches) = (8, 4);
        draft.communication.edges = Edges { across, ..Edges::default() };
        draft.plan().unwrap().1.timeline.step
    };
    let bf16 = CodecKind::Bf16;
    assert!(step(1e6, bf16).0 * 10 < step(1e6, CodecKind::Fp32).0 * 6, "half the bytes");
    assert!(step(1e12, bf16) > step(1e12, CodecKind::Fp32), "only work");
}

#[test]
fn the_search_chooses_ways_when_asked_and_never_else() {
    let cluster = hosts(4, 30e6);
    let graph = Preset::Alexnet.graph().unwrap();
    let model =
        |samples| Workload::of(&graph, &Costs::new(&graph, &cluster, samples, Precision::F32));
    let gradients = ["fp32", "fp8-e5m2"].map(|way| way.parse().unwrap());
    let space = |way| Space {
        model: &model,
        blocks: graph.layers().iter().map(|layer| layer.first_node.0).collect(),
        cluster: cluster.clone(),
        devices: 16,
        memory: Bytes(64 << 30),
        mini_batch: 16,
        states: States::MOMENTUM,
        parameter_bytes: 4,
        fixed: Fixed { encoding: way, ..Fixed::default() }.plain(),
        encodings: encodings(&cluster, &gradients, &[CodecKind::Fp32, CodecKind::Bf16]),
        seed: 1,
    };
    let best = |way| {
        let space = space(way);
        let mut search = Search::new(&space).unwrap();
        search.advance(3000).unwrap();
        let best = search.front().fastest().unwrap();
        (best.step, best.choice.encoding.map_or(Encoding::default(), |way| space.encodings[way]))
    };
    let ((plain, none), (free, chosen)) = (best(Some(None)), best(None));
    assert_eq!(none, Encoding::default());
    assert!(free < plain && chosen != Encoding::default(), "{chosen}");
    let all = space(None).encodings;
    assert!(all.iter().any(|way| way.by_hosts) && !all.contains(&Encoding::default()));
    assert!(all.iter().all(|way| !(way.by_hosts && way.gradients.is_plain())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn adaptive_is_never_slower_than_one_way(
        exponent in 6.0..12.0f64, latency in 0u64..2_000_000, per_node in 1u32..5, bucket in 10u32..26,
        by_hosts in any::<bool>(),
    ) {
        let mut cluster = hosts(per_node, 10f64.powf(exponent));
        cluster.network.latency_ns = Nanos(latency);
        let mut draft = Draft::new(Model::Preset(Preset::DigitsCnn), cluster, vec![]);
        let count = 4 * per_node;
        (draft.mini_batch, draft.micro_batches) = (u64::from(count), 1);
        draft.data_parallel = DataParallel { bucket: Bytes(1 << bucket), ..DataParallel::ddp(count) };
        let (mut plan, prediction) = draft.plan().unwrap();
        let (chosen, step) = adaptive(&plan, &prediction, &USUAL, by_hosts).unwrap();
        for offer in all_offers(&plan, &prediction, by_hosts) {
            prop_assert!(step <= offer.step, "{} {} {}", step, offer.step, offer.way);
        }
        plan.communication = chosen;
        prop_assert_eq!(predict(&plan).unwrap().timeline.step, step);
    }

    #[test]
    fn slower_links_never_make_steps_shorter(exponent in 6.0..12.0f64, at in 0usize..4) {
        let step = |bytes_per_sec: f64| {
            let (mut plan, _) = replicas(hosts(1, bytes_per_sec), 4);
            plan.communication.gradients = USUAL[at];
            predict(&plan).unwrap().timeline.step
        };
        let speed = 10f64.powf(exponent);
        prop_assert!(step(speed) <= step(speed / 2.0));
    }
}

#[test]
fn traffic_counts_what_every_rank_sends() {
    let (plan, prediction) = replicas(hosts(1, 30e6), 4);
    let graph = plan.model.graph().unwrap();
    let gradients = 4.0 * graph.trainable_elements() as f64;
    // A ring: every rank sends (d - 1) / d of the gradients twice.
    let expected = 4.0 * 2.0 * 3.0 / 4.0 * gradients;
    let sent = prediction.timeline.traffic().0 as f64;
    assert!((sent / expected - 1.0).abs() < 1e-3, "{sent} {expected}");
    let mut encoded = plan.clone();
    encoded.communication.gradients = "fp8-e4m3".parse().unwrap();
    let less = predict(&encoded).unwrap().timeline.traffic().0 as f64;
    assert!((0.2..0.3).contains(&(less / sent)), "{less} {sent}");
    let pipeline = |replicas: u32, nodes: u32| {
        let mut cluster = hosts(1, 30e6);
        cluster.nodes = nodes;
        let mut draft = Draft::new(Model::Preset(Preset::Alexnet), cluster, vec![6]);
        (draft.mini_batch, draft.micro_batches) = (u64::from(4 * replicas), 4);
        draft.data_parallel = DataParallel::ddp(replicas);
        draft.plan().unwrap().1.timeline
    };
    let alone = pipeline(1, 8);
    assert_eq!((alone.elsewhere, alone.traffic() > Bytes::ZERO), (Bytes::ZERO, true));
    // Twice the messages and the sums, whether all ranks are drawn because they share devices or one replica.
    let (own, shared) = (pipeline(2, 8), pipeline(2, 1));
    assert!(own.traffic().0 > 2 * alone.traffic().0, "{} {}", own.traffic(), alone.traffic());
    assert_eq!(own.lanes.len(), 2);
    assert_eq!(shared.traffic(), own.traffic());
}
