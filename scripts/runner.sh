#!/usr/bin/env bash
# runner.sh: the runner with the explorer's page in it. One file, which needs nothing but MPI beside it.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh demo
. scripts/env.sh

say "Building the explorer (3 minutes the first time)"
cargo run --locked -p pipewright-web -- build
say "Building the runner with it (2 minutes the first time)"
cargo build --locked --release -p pipewright-runner --features explorer
say "Done: ${CARGO_TARGET_DIR:-target}/release/runner explore"
