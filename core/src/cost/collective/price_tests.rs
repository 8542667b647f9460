//! Properties that prices have on every machine.

use super::*;
use crate::compress::{CodecKind, Reduction, USUAL};
use crate::cost::{Cluster, CodecSpeed, Link};
use crate::ids::LaneId;
use crate::units::Nanos;
use proptest::prelude::*;

const BUCKET: f64 = (64 << 20) as f64;

/// Hosts with so many bytes a second between them, whose cores encode 4 GB in a second.
fn hosts(ranks_per_node: u32, bytes_per_sec: f64) -> Cluster {
    let mut cluster = Cluster::preset("laptop").unwrap();
    cluster.nodes = 4;
    cluster.ranks_per_node = ranks_per_node;
    cluster.network = Link { latency_ns: Nanos(50_000), bytes_per_sec };
    let speed = |reduction: &Reduction| CodecSpeed {
        codec: reduction.method.codec,
        encode_bytes_per_sec: 4e9,
        decode_bytes_per_sec: 4e9,
    };
    cluster.codecs = USUAL.iter().map(speed).collect();
    cluster
}

fn all(cluster: &Cluster) -> Group {
    let ranks: Vec<LaneId> = (0..4 * cluster.ranks_per_node).map(LaneId).collect();
    Group::new(cluster, &ranks, ranks.len() as u32)
}

fn way(text: &str) -> Reduction {
    text.parse().unwrap()
}

#[test]
fn encoding_pays_on_slow_links() {
    let cluster = hosts(1, 30e6);
    let of = |text| price(&cluster, &all(&cluster), false, way(text), BUCKET);
    let (plain, fp8, one_bit) = (of("fp32"), of("fp8-e5m2"), of("one-bit"));
    // A quarter of the bytes, and a 32nd of them, over the same wire; at 30 MB/s codecs hide behind.
    let ring = 1.5 * BUCKET / 30e6;
    assert!((plain.seconds / ring - 1.0).abs() < 0.01, "{plain:?}");
    assert!((fp8.seconds / (ring / 4.0) - 1.0).abs() < 0.01, "{fp8:?}");
    assert!((one_bit.seconds / (ring / 32.0) - 1.0).abs() < 0.2, "{one_bit:?}");
    assert!((plain.sent - 1.5 * BUCKET).abs() < 1.0 && plain.sent > 31.0 * one_bit.sent);
}

#[test]
fn encoding_is_slower_on_fast_links_and_in_shared_memory() {
    let fast = hosts(1, 200e9);
    let mut memory = hosts(4, 30e6);
    (memory.nodes, memory.devices_per_node, memory.receivers_copy) = (1, 2, true);
    let ranks: Vec<LaneId> = (0..4).map(LaneId).collect();
    for cluster in [fast, memory] {
        let group = Group::new(&cluster, &ranks, 4);
        let of = |reduction| price(&cluster, &group, false, reduction, BUCKET);
        let plain = of(Reduction::default());
        for reduction in USUAL {
            let encoded = of(reduction);
            assert!(plain.seconds <= encoded.seconds, "{} {reduction}", cluster.name);
        }
    }
}

#[test]
fn ranks_of_a_node_share_its_link() {
    let cluster = hosts(4, 125e6);
    let group = all(&cluster);
    assert_eq!((group.ranks, group.nodes, group.most, group.least), (16, 4, 4, 4));
    let of = |text, by_hosts| price(&cluster, &group, by_hosts, way(text), BUCKET).seconds;
    // Flat, a node's four ranks each send 2 n/16 to twelve others; by hosts they send 2 (n/4)/4 to
    // three others. A ring crosses the node's border once.
    let link = BUCKET / 125e6;
    assert!((of("fp8-e5m2", false) / (link / 4.0 * 6.0) - 1.0).abs() < 0.05);
    assert!((of("fp8-e5m2", true) / (link / 4.0 * 1.5) - 1.0).abs() < 0.15);
    // The best plain one sums in the node first: each quarter once around the four nodes.
    assert!((of("fp32", false) / (link * 1.5) - 1.0).abs() < 0.15);
    assert_eq!(of("fp32", true), of("fp32", false), "single precision goes its own way");
    let mut adapters = cluster.clone();
    adapters.adapters = 4;
    let flat = price(&adapters, &group, false, way("fp8-e5m2"), BUCKET).seconds;
    assert!((flat / (link / 4.0 * 1.5) - 1.0).abs() < 0.1, "an adapter each");
}

#[test]
fn whole_calls_that_were_measured_decide_what_plain_sums_take() {
    let mut cluster = hosts(1, 125e6);
    let group = all(&cluster);
    let fp8 = price(&cluster, &group, false, way("fp8-e5m2"), BUCKET);
    cluster.network_collectives = Some(Link { latency_ns: Nanos(50_000), bytes_per_sec: 50e6 });
    let plain = price(&cluster, &group, false, way("fp32"), BUCKET);
    assert!((plain.seconds / (1.5 * BUCKET / 50e6) - 1.0).abs() < 0.01);
    // They went both ways at once, as encoded sums do: what these lack of the link, those lack.
    let both_ways = price(&cluster, &group, false, way("fp8-e5m2"), BUCKET);
    assert!((both_ways.seconds / fp8.seconds - 2.5).abs() < 0.05, "{both_ways:?}");
    assert_eq!(both_ways.sent, fp8.sent);
    // A faster figure than the link's own changes nothing.
    cluster.network_collectives = Some(Link { latency_ns: Nanos(50_000), bytes_per_sec: 900e6 });
    assert_eq!(price(&cluster, &group, false, way("fp8-e5m2"), BUCKET), fp8);
}

#[test]
fn feedback_and_the_operator_cost_what_they_do() {
    let cluster = hosts(1, 125e6);
    let of = |text| price(&cluster, &all(&cluster), false, way(text), BUCKET);
    assert!(of("one-bit+feedback").codec > 1.3 * of("one-bit").codec);
    assert_eq!(of("one-bit+feedback").sent, of("one-bit").sent);
    // Nothing overlaps, and every step of the ring decodes and encodes.
    let (operator, two_shots) = (of("fp8-e5m2+operator"), of("fp8-e5m2"));
    assert!(operator.seconds > two_shots.seconds);
    assert!((operator.sent / two_shots.sent - 1.0).abs() < 1e-3);
}

#[test]
fn ranks_that_share_devices_encode_more_slowly() {
    let mut cluster = hosts(4, 10e9);
    cluster.devices_per_node = 2;
    let share = all(&cluster).share;
    assert_eq!(share, 0.5);
    let seconds =
        |cluster: &Cluster| price(cluster, &all(cluster), false, way("one-bit"), BUCKET).seconds;
    let shared = seconds(&cluster);
    cluster.devices_per_node = 4;
    assert!(shared > 1.8 * seconds(&cluster));
}

proptest! {
    #[test]
    fn prices_grow_with_bytes_and_with_slower_links_and_codecs(
        n in 1.0..1e9f64, more in 0.0..1e9f64, speed in 1e6..1e12f64, per_node in 1u32..9,
        at in 0usize..4, by_hosts in any::<bool>(), receivers_copy in any::<bool>(),
    ) {
        let mut cluster = hosts(per_node, speed);
        cluster.receivers_copy = receivers_copy;
        let group = all(&cluster);
        for reduction in [Reduction::default(), USUAL[at], way("fp8-e5m2+operator")] {
            let base = price(&cluster, &group, by_hosts, reduction, n);
            prop_assert!(base.seconds > 0.0 && base.seconds.is_finite());
            prop_assert!(base.seconds <= price(&cluster, &group, by_hosts, reduction, n + more).seconds);
            let mut slower = cluster.clone();
            slower.network.bytes_per_sec /= 2.0;
            prop_assert!(base.seconds <= price(&slower, &group, by_hosts, reduction, n).seconds);
            slower = cluster.clone();
            for codec in &mut slower.codecs {
                codec.encode_bytes_per_sec /= 3.0;
                codec.decode_bytes_per_sec /= 3.0;
            }
            prop_assert!(base.seconds <= price(&slower, &group, by_hosts, reduction, n).seconds);
            let alone = Group { ranks: 1, nodes: 1, most: 1, least: 1, ..group };
            prop_assert_eq!(price(&cluster, &alone, by_hosts, reduction, n), Price::default());
        }
    }
}

#[test]
fn a_kind_without_measurement_has_the_speed_of_memory() {
    let mut cluster = hosts(1, 125e6);
    let measured = price(&cluster, &all(&cluster), false, way("int8"), BUCKET);
    cluster.device.memory_bytes_per_sec *= 4.0;
    assert!(price(&cluster, &all(&cluster), false, way("int8"), BUCKET).codec < measured.codec);
    assert!(cluster.codecs.iter().all(|speed| speed.codec != CodecKind::Int8 { block: None }));
}

#[test]
fn all_to_alls_share_adapters_between_nodes_and_a_link_within() {
    let cluster = hosts(4, 1e9);
    // Twelve of sixteen parts leave the node, and its four ranks have one adapter.
    let between = all_to_all(&cluster, &all(&cluster), BUCKET);
    let expected = 12.0 * 50e-6 + BUCKET * 12.0 / 16.0 * 4.0 / 1e9;
    assert!((between.seconds / expected - 1.0).abs() < 1e-9, "{between:?}, {expected}");
    assert!((between.sent / (BUCKET * 15.0 / 16.0) - 1.0).abs() < 1e-9);
    let ranks: Vec<LaneId> = (0..4).map(LaneId).collect();
    let group = Group::new(&cluster, &ranks, 16);
    let within = all_to_all(&cluster, &group, BUCKET).seconds;
    assert_eq!(within, time(Collective::AllToAll, 4, BUCKET, cluster.link_of(group.level)));
    assert!(within > 0.0 && within < between.seconds);
    assert_eq!(all_to_all(&cluster, &Group::even(1, 4), BUCKET), Price::default());
}
