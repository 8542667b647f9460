//! Broken files: whatever happens to a real file, the import answers, and what it lets through is a
//! graph.

use super::fixture;
use pipewright_core::onnx::{Options, read_with};
use proptest::prelude::*;

const FILES: [&str; 4] = ["batch_norm", "gqa", "hf_bert-dynamo", "mobilenet_v3-dynamo"];

fn bytes(file: usize) -> Vec<u8> {
    std::fs::read(fixture(&format!("{}.onnx", FILES[file]))).unwrap()
}

fn answers(bytes: Vec<u8>) {
    match read_with(bytes, &Options::default(), &|_| None) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(imported) => {
            assert_eq!(imported.weights.len(), imported.graph.params().len());
            assert!(imported.graph.loss().is_some());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(
        file in 0..FILES.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = bytes(file);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        answers(bytes);
    }

    #[test]
    fn files_cut_off(file in 0..FILES.len(), at in any::<prop::sample::Index>()) {
        let mut bytes = bytes(file);
        bytes.truncate(at.index(bytes.len()));
        answers(bytes);
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        answers(bytes);
    }
}
