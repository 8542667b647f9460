//! What is allocated, counted: memory is planned, not discovered. Tests that count what all threads do have
//! a process of their own each.

mod allocator;
mod arena;
mod between_steps;
#[path = "../kernels/case.rs"]
mod case;
#[path = "../common/mod.rs"]
mod common;
mod exchange_memory;
mod kernels;
#[path = "../kernels/nodes.rs"]
mod nodes;
mod steady_state;
