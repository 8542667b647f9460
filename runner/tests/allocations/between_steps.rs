//! Training steps allocate nothing: all their memory is planned.

use crate::allocator::{allocations, largest_allocation};
use crate::common::{digits, scratch};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Init, Param};
use pipewright_core::plan::{Data, Source};
use pipewright_runner::data::{Load, Order, Reader, Sequence, open};
use pipewright_runner::init::init_param;
use pipewright_runner::transport::local::{LocalTransport, local};
use pipewright_runner::transport::{ReduceOp, Transport};

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1]))), 1);
}

#[test]
fn samples_and_their_order() {
    for data in [Data::default(), digits()] {
        let sample = Preset::DigitsCnn.graph().unwrap().sample().unwrap();
        let train = open(&data, &sample, 1).unwrap().train;
        let sequence = Sequence::Shuffled { seed: 1 };
        let order = Order::new(sequence, train.len(), 4);
        let reader = Reader::new(train, order);
        let (mut input, mut target) = ([0; 256], [0; 4]);
        let count = allocations(|| {
            for step in 0..100 {
                let load = |source, words| Load { source, first: 0, words };
                reader.read(step, load(Source::Input, 256), &mut input).unwrap();
                reader.read(step, load(Source::Target, 4), &mut target).unwrap();
            }
        });
        assert_eq!(count, 0, "{data}");
    }
}

/// Files that a careless reader panics at or allocates gigabytes for; none of them holds samples.
#[test]
fn hostile_files_are_refused_in_little_memory() {
    let text = include_str!("../data/hostile/safetensors.json");
    let cases: serde_json::Value = serde_json::from_str(text).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 38);
    let sample = Preset::DigitsCnn.graph().unwrap().sample().unwrap();
    let file = scratch("hostile").join("data.safetensors");
    let data = Data::Safetensors { file: file.to_str().unwrap().into() };
    for case in cases {
        let (name, hex) = (&case["name"], case["bytes_hex"].as_str().unwrap());
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        std::fs::write(&file, bytes).unwrap();
        let mut error = String::new();
        let largest = largest_allocation(|| {
            error = open(&data, &sample, 1).unwrap_err().to_string();
        });
        assert!(largest < 1 << 20, "{name}: {largest} bytes");
        assert!(error.contains("data.safetensors"), "{name}: {error}");
        let is_file = !error.contains("not a safetensors file");
        assert_eq!(is_file, case["reference_accepts"].as_bool().unwrap(), "{name}: {error}");
    }
}

#[test]
fn first_weights() {
    let init = Init::HeUniform { fan_in: 3 };
    let param = Param { name: "w".into(), shape: vec![1000], init, trainable: true };
    let mut out = vec![0.0; 1000];
    assert_eq!(allocations(|| init_param(&param, 1, &mut out)), 0);
}

fn steps(t: &mut LocalTransport, bytes: &[u8], into: &mut [u8]) {
    let (rank, ranks) = (t.rank(), t.ranks());
    for step in 0..50 {
        for slot in 0..4 {
            // SAFETY: `bytes` outlives this function, which waits for all slots; an error before
            // that frees them.
            unsafe { t.start_send((rank + 1) % ranks, step, bytes, slot) }.unwrap();
        }
        (0..4).for_each(|_| t.recv((rank + ranks - 1) % ranks, step, into).unwrap());
        (0..4).for_each(|slot| t.wait_send(slot).unwrap());
        t.all_reduce(&mut [1.0, 2.0], ReduceOp::Sum).unwrap();
        t.barrier().unwrap();
    }
}

#[test]
fn messages_between_threads() {
    let mut threads = vec![];
    for mut t in local(3, 4) {
        threads.push(std::thread::spawn(move || {
            let (bytes, mut into) = (vec![1; 10_000], vec![0; 10_000]);
            allocations(|| steps(&mut t, &bytes, &mut into))
        }));
    }
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 0);
    }
}
