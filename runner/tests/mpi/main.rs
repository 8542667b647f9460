//! Ranks as processes: this program runs itself under `mpirun`, so it has its own `main`.
//!
//! Without `mpirun` it says SKIPPED, or fails where PIPEWRIGHT_REQUIRE_ALL=1.

#[path = "../common/mod.rs"]
mod common;
mod exchange;
mod transport;

use std::process::ExitCode;

type Test = fn() -> ExitCode;

/// The tests by their names.
const TESTS: [(&str, Test); 2] =
    [("transport_mpi", transport::test), ("exchange_mpi", exchange::test)];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if transport::was_rank() || exchange::was_rank(&args) {
        return ExitCode::SUCCESS;
    }
    // `cargo test some_name` filters by name.
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| filter.is_none_or(|part| name.contains(part.as_str()));
    let ended = TESTS.iter().filter(|(name, _)| wanted(name)).map(|(_, test)| test());
    ended.fold(ExitCode::SUCCESS, |all, one| if one == ExitCode::SUCCESS { all } else { one })
}
