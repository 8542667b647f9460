//! One bit and CNTK's steps against CNTK's own logic and DeepSpeed's, over steps with feedback.

use super::golden::{bits, file, hex, integers, large_file, list, numbers, same};
use pipewright_core::compress::feedback::ErrorFeedback;
use pipewright_core::compress::{Codec, CodecKind, Threshold};
use serde_json::Value;

#[test]
fn cntk_steps_bit_for_bit() {
    for case in list(&file("cntk_onebit.json")["cases"]) {
        let name = format!("{} with {} bits", case["name"], case["bits"]);
        let zero = case["zero_threshold_for_1bit"].as_bool().unwrap();
        let kind = match case["bits"].as_u64().unwrap() as u8 {
            1 if zero => CodecKind::OneBit { threshold: Threshold::Zero },
            1 => CodecKind::OneBit { threshold: Threshold::Mean },
            bits => CodecKind::CntkBits { bits },
        };
        let rows = case["rows"].as_u64().unwrap() as usize;
        let mut codec = ErrorFeedback::new(kind.build(rows).unwrap(), rows);
        for (step, golden) in list(&case["steps"]).iter().enumerate() {
            check_cntk_step(&mut codec, golden, &format!("{name}, step {step}"));
        }
    }
}

fn check_cntk_step(codec: &mut ErrorFeedback<Box<dyn Codec>>, golden: &Value, what: &str) {
    let gradient = bits(&golden["grad_bits"]);
    let (decoded, wire) = super::encode(codec, &gradient);
    let words: Vec<u32> =
        wire.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    let end = |key: &str| f32::from_bits(golden[key].as_u64().unwrap() as u32);
    same(f32::from_bits(words[0]), end("lower_bits"), &format!("{what}, lower"));
    same(f32::from_bits(words[1]), end("upper_bits"), &format!("{what}, upper"));
    assert_eq!(words[2..], integers(&golden["words"]), "{what}, words");
    for (i, expected) in bits(&golden["decoded_bits"]).into_iter().enumerate() {
        same(decoded[i], expected, &format!("{what}, decoded {i}"));
    }
    for (i, expected) in bits(&golden["residual_bits"]).into_iter().enumerate() {
        same(codec.residual()[i], expected, &format!("{what}, residual {i}"));
    }
}

#[track_caller]
fn near(got: f32, expected: f64, what: &str) {
    let off = (f64::from(got) - expected).abs();
    assert!(off <= 1e-6 * expected.abs().max(1e-6), "{what}: {got:e}, not {expected:e}");
}

/// As [`near`], with errors: differences of values of the size `size`.
#[track_caller]
fn near_to(size: f64, got: &[f32], expected: &[f64], what: &str) {
    for (got, expected) in got.iter().zip(expected) {
        let off = (f64::from(*got) - expected).abs();
        assert!(off <= 1e-6 * size.max(expected.abs()), "{what}: {got:e}, not {expected:e}");
    }
}

/// DeepSpeed's two-shot all-reduce of signs, with feedback on both sides.
#[test]
fn deepspeed_all_reduce() {
    let Some(golden) = large_file("deepspeed_onebit.json") else { return };
    for case in list(&golden["cases"]) {
        let size = |key: &str| case[key].as_u64().unwrap() as usize;
        let (world, padded) = (size("world"), size("padded_size"));
        let chunk = padded / world;
        let signs = |values| {
            let codec = move |_| CodecKind::SignNorm.build(values).unwrap();
            let codecs = (0..world).map(codec);
            codecs.map(|codec| ErrorFeedback::new(codec, values)).collect::<Vec<_>>()
        };
        let (mut workers, mut servers) = (signs(padded), signs(chunk));
        for step in list(&case["steps"]) {
            let sent: Vec<(Vec<f32>, Vec<u8>)> = (0..world)
                .map(|rank| {
                    let mut input = bits(&step["input_bits"][rank]);
                    input.resize(padded, 0.0);
                    let (decoded, wire) = super::encode(&mut workers[rank], &input);
                    check_worker(step, rank, chunk, &wire, workers[rank].residual());
                    (decoded, wire)
                })
                .collect();
            let mut result = Vec::new();
            for (rank, server) in servers.iter_mut().enumerate() {
                let mean = |i: usize| {
                    let sum: f64 = sent.iter().map(|(decoded, _)| f64::from(decoded[i])).sum();
                    (sum / world as f64) as f32
                };
                let mean: Vec<f32> = (rank * chunk..(rank + 1) * chunk).map(mean).collect();
                let (decoded, wire) = super::encode(server, &mean);
                check_server(step, rank, &wire, server.residual());
                result.extend(decoded);
            }
            for (got, expected) in result.iter().zip(numbers(&step["result"])) {
                near(*got, expected, "result");
            }
        }
    }
}

fn check_worker(step: &Value, rank: usize, chunk: usize, wire: &[u8], residual: &[f32]) {
    let size = f32::from_le_bytes(wire[..4].try_into().unwrap());
    near(size, step["worker_scale"][rank].as_f64().unwrap(), "worker's size");
    for (signs, expected) in wire[4..].chunks(chunk / 8).zip(list(&step["worker_packed_hex"][rank]))
    {
        assert_eq!(signs, hex(expected), "signs of worker {rank}");
    }
    near_to(size.into(), residual, &numbers(&step["worker_error"][rank]), "worker's error");
}

fn check_server(step: &Value, rank: usize, wire: &[u8], residual: &[f32]) {
    let size = f32::from_le_bytes(wire[..4].try_into().unwrap());
    near(size, step["server_scale"][rank].as_f64().unwrap(), "server's size");
    assert_eq!(wire[4..], hex(&step["server_packed_hex"][rank]), "signs of server {rank}");
    near_to(size.into(), residual, &numbers(&step["server_error"][rank]), "server's error");
}

#[test]
fn levels_of_large_tensors_are_the_means() {
    let values: Vec<f32> = (0..100_000).map(|i| ((i * 7919) % 10_007) as f32 - 4000.0).collect();
    let kind = CodecKind::OneBit { threshold: Threshold::Zero };
    let (decoded, wire) = super::pass(kind, &values);
    assert_eq!(wire.len(), 8 + 4 * 3125);
    for side in [true, false] {
        let of = |values: &[f32], at: &[f32]| {
            let side = values.iter().zip(at).filter(|(_, at)| (**at >= 0.0) == side);
            let side: Vec<f64> = side.map(|(v, _)| f64::from(*v)).collect();
            side.iter().sum::<f64>() / side.len() as f64
        };
        let (mean, level) = (of(&values, &values), of(&decoded, &values));
        assert!((mean - level).abs() < 1e-5 * mean.abs(), "{level}, not {mean}");
    }
    assert!(CodecKind::CntkBits { bits: 3 }.build(values.len()).is_err());
    assert_eq!(kind.build(32).unwrap().wire_bytes(32), 12);
}
