//! Runs on several hosts, which are network namespaces of this machine. All of these tests are marked
//! `ignore`, for they need root or user namespaces. `make test` runs them; by hand:
//! `cargo test -p pipewright-runner --features etcd --test hosts -- --ignored --nocapture`.

#![cfg(feature = "mpi")]

#[path = "../common/mod.rs"]
mod common;
mod elastic;
mod exchange;
#[cfg(feature = "etcd")]
mod partition;
mod training;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Who measures how fast a network is shares the machine with no other test.
static MACHINE: RwLock<()> = RwLock::new(());

/// For tests that measure no times.
fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that do.
fn undisturbed() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
