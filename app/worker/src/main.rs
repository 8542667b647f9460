//! The worker's program: what `worker.js` calls.

mod door;

fn main() {}
