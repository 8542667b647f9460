//! No damage to a plan file makes a panic: it is refused in words, or it is another plan.

use pipewright_core::cost::{Cluster, MeasuredNode, Profile, Sample, SplitSample};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model, Plan, Sequence, training_graphs};
use pipewright_core::predict::predict;
use pipewright_core::units::Nanos;
use proptest::prelude::*;
use std::sync::LazyLock;

/// A preset by name, a graph in full, one with residual blocks and measured times, one that recomputes.
static PLANS: LazyLock<[String; 4]> = LazyLock::new(|| {
    let cluster = || Cluster::preset("laptop").unwrap();
    let text = |model, cluster, cuts| Draft::new(model, cluster, cuts).plan().unwrap().0.to_json();
    let full = Model::Graph(Preset::DigitsCnn.graph().unwrap());
    [
        text(Model::Preset(Preset::DigitsCnn), cluster(), vec![3, 7]),
        text(full, cluster(), vec![5]),
        text(Model::Preset(Preset::Resnet50), measured(cluster()), vec![40, 45]),
        recomputing(Draft::new(Model::Preset(Preset::DigitsCnn), cluster(), vec![3, 7])),
    ]
});

fn recomputing(draft: Draft) -> String {
    let mut plan = draft.plan().unwrap().0;
    let (graph, schedule) = plan.check().unwrap();
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    plan.recompute = graphs.iter().map(Sequence::full).collect();
    plan.to_json()
}

fn measured(mut cluster: Cluster) -> Cluster {
    let sample = |samples, ns| Sample {
        samples,
        forward_ns: Nanos(ns),
        input_gradient_ns: Nanos(ns),
        weight_gradient_ns: Nanos(2 * ns),
        sum_gradients_ns: Nanos(0),
        update_ns: Nanos(ns),
        split: Some(SplitSample { input_gradient_ns: Nanos(ns), weight_gradient_ns: Nanos(ns) }),
    };
    let node = |name: &str| MeasuredNode {
        node: name.into(),
        samples: vec![sample(4, 1000), sample(16, 3000)],
    };
    let nodes = vec![node("conv1"), node("layer1.0.conv1")];
    cluster.profile = Some(Profile { model: "resnet50".into(), nodes });
    cluster
}

/// Reads and predicts; what comes out does not matter as long as something does.
fn survive(bytes: &[u8]) {
    if let Ok(plan) = Plan::from_json(&String::from_utf8_lossy(bytes)) {
        let _ = predict(&plan);
    }
}

/// First byte and length of the numbers of a text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let digit = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'e' | b'+');
    let mut found: Vec<(usize, usize)> = vec![];
    for (at, byte) in text.bytes().enumerate().filter(|(_, byte)| digit(*byte)) {
        match found.last_mut() {
            Some((start, len)) if *start + *len == at && byte != b'-' => *len += 1,
            _ => found.push((at, 1)),
        }
    }
    found
}

/// What ends arithmetic that did not expect it.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "-1",
    "3",
    "0.5",
    "1e-300",
    "1e300",
    "65536",
    "4294967295",
    "4294967296",
    "1099511627776",
    "9223372036854775808",
    "18446744073709551615",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flipped_bits(which in 0usize..3, flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..6)) {
        let mut bytes = PLANS[which].clone().into_bytes();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        survive(&bytes);
    }

    #[test]
    fn deleted_and_doubled_spans(
        which in 0usize..3,
        at: prop::sample::Index,
        len in 1usize..80,
        double: bool,
    ) {
        let mut bytes = PLANS[which].clone().into_bytes();
        let start = at.index(bytes.len());
        let end = (start + len).min(bytes.len());
        let span = bytes[start..end].to_vec();
        bytes.splice(start..end, if double { [&span[..], &span].concat() } else { vec![] });
        survive(&bytes);
    }

    #[test]
    fn other_numbers(
        which in 0usize..3,
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&NUMBERS[..])), 1..4),
    ) {
        let mut text = PLANS[which].clone();
        for (at, number) in edits {
            let numbers = numbers(&text);
            let (start, len) = numbers[at.index(numbers.len())];
            text.replace_range(start..start + len, number);
        }
        survive(text.as_bytes());
    }
}

/// Each number of each plan, one after the other: what random edits may miss.
#[test]
fn every_number() {
    for text in PLANS.iter() {
        for (start, len) in numbers(text) {
            for number in NUMBERS {
                let mut edited = text.clone();
                edited.replace_range(start..start + len, number);
                survive(edited.as_bytes());
            }
        }
    }
}

#[test]
fn numbers_are_found() {
    assert_eq!(numbers("a 1, -2.5e3 [40]"), [(2, 1), (5, 6), (13, 2)]);
    for text in PLANS.iter() {
        assert!(Plan::from_json(text).is_ok());
    }
}
