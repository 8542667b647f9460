//! Sums have the bits of the runner's.

use super::*;
use crate::screens::playground::model::network::Activation;

// What the runner's own exchange is held to, bit by bit.
#[allow(dead_code)]
#[path = "../../../../../runner/tests/common/exchange_suite/reference.rs"]
mod reference;

fn gradients(ranks: usize, step: u64, len: usize) -> Vec<Vec<f32>> {
    let of = |rank: usize| {
        let mut dice = super::super::dice::Dice::new(step, rank as u64);
        (0..len).map(|_| (0.1 * dice.normal()) as f32).collect()
    };
    (0..ranks).map(of).collect()
}

#[test]
fn sums_have_the_bits_of_the_runner_s_reference() {
    let network = Network::new(&[16, 16], Activation::Tanh);
    let len = network.parameters();
    let mut tried = 0;
    for codec in super::super::choice::CODECS {
        for text in [codec.to_string(), format!("{codec}+feedback")] {
            let way: Reduction = text.parse().unwrap();
            for ranks in [2, 5, 16] {
                let Ok(mut sums) = Sums::new(way, &network, ranks) else { continue };
                let mut carried = reference::Carried::nothing(ranks, len);
                for step in 0..3 {
                    let values = gradients(ranks, step, len);
                    let mut found = vec![0.0; len];
                    for (layer, tensors) in sums.tensors.clone().iter().enumerate() {
                        sums.add(layer, &values, &mut found).unwrap();
                        let expected = match way.is_plain() {
                            true => continue,
                            false => reference::sum(way, tensors, &values, &mut carried),
                        };
                        let differ = reference::differences(tensors, &found, &expected);
                        assert_eq!(differ, 0, "{way}, {ranks} ranks, layer {layer}");
                    }
                    if way.method.feedback {
                        let all = carried.worker.iter().chain([&carried.server]).flatten();
                        let norm = all.map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
                        assert_eq!(sums.carried(), norm, "{way}");
                    }
                    tried += usize::from(!way.is_plain());
                }
                assert!(sums.sent() > 0.0, "{way}");
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn bytes_are_those_of_the_division() {
    let network = Network::new(&[16, 16], Activation::Tanh);
    for (text, ranks) in [("fp8-e5m2", 4), ("one-bit", 16), ("table:2", 2), ("fp32", 8)] {
        let way: Reduction = text.parse().unwrap();
        let mut sums = Sums::new(way, &network, ranks).unwrap();
        let values = gradients(ranks, 1, network.parameters());
        let mut out = vec![0.0; network.parameters()];
        let mut expected = 0.0;
        for layer in 0..network.layers.len() {
            sums.add(layer, &values, &mut out).unwrap();
            let division = Division::new(&sums.tensors[layer], ranks as u32);
            let sent = (0..ranks).map(|part| division.sent_bytes(part, way.method.codec));
            expected += sent.sum::<u64>() as f64 / ranks as f64;
        }
        let off = (sums.sent() / expected - 1.0).abs();
        assert!(off < 1e-9, "{text}: {} and {expected}", sums.sent());
    }
}

#[test]
fn what_an_exchange_cannot_do_is_refused() {
    let network = Network::new(&[4], Activation::Tanh);
    for text in ["power-sgd:2", "top-k:10:0.9", "fp32+feedback", "bf16+operator"] {
        assert!(Sums::new(text.parse().unwrap(), &network, 2).is_err(), "{text}");
    }
}
