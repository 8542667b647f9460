//! Piper's JSON: any text is a workload or a typed error, and a workload becomes a network or says why not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_core::cost::import::piper;

fuzz_target!(|text: &str| {
    if let Ok(work) = piper::read(text) {
        assert!(work.edges.iter().all(|edge| edge.from < edge.to));
        let _ = work.network();
    }
});
