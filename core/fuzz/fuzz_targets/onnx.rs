//! ONNX files: any bytes are a network or a typed error, and a network knows where its weights are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_core::onnx::{Options, read_with};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(imported) = read_with(bytes.to_vec(), &Options::default(), &|_| None) {
        assert_eq!(imported.weights.len(), imported.graph.params().len());
        assert!(imported.graph.loss().is_some());
    }
});
