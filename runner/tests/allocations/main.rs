//! Counts of allocations: memory is planned, not discovered. Tests that count what all threads do have
//! a process of their own each.

mod allocator;
mod arena;
mod between_steps;
#[path = "../common/mod.rs"]
mod common;
mod exchange_memory;
mod steady_state;
