//! Graphs to recompute: any bytes are a graph or a typed error, and a graph can be computed in its own order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_core::recompute::{file, without_recomputation};

fuzz_target!(|bytes: &[u8]| match file::read(bytes) {
    Ok(graph) => {
        assert_eq!(graph.labels.len(), graph.problem.len());
        assert_eq!(graph.problem.check(&without_recomputation(&graph.problem)), Ok(()));
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
