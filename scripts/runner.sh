#!/usr/bin/env bash
# runner.sh: the runner with the explorer's page in it. One file, which needs nothing but MPI beside it.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh demo
. scripts/env.sh

runner=${CARGO_TARGET_DIR:-target}/release/runner
say "Building the explorer (3 minutes the first time)"
cargo run --locked -p pipewright-web -- build
say "Building the runner (2 minutes the first time)"
cargo build --locked --release -p pipewright-runner
cargo run --quiet --locked -p pipewright-web -- embed "$runner"
say "Done: $runner explore"
