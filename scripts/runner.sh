#!/usr/bin/env bash
# runner.sh [install]: the runner with the explorer's page in it, one file which needs nothing but MPI beside it, and
# a link to it by the name that people type. install: both into PREFIX/bin (/usr/local).
set -eu
. "$(dirname "$0")/lib.sh"

runner=${CARGO_TARGET_DIR:-target}/release/runner
if [ "${1:-}" = install ]; then
  [ -f "$runner" ] || give_up "There is no $runner:" "make runner"
  bin=${DESTDIR:-}${PREFIX:-/usr/local}/bin
  install -D -m 755 "$runner" "$bin/runner"
  ln -sf runner "$bin/pipewright"
  say "Installed $bin/pipewright, and $bin/runner, which is the same"
  exit 0
fi

scripts/setup.sh demo
. scripts/env.sh
say "Building the explorer (3 minutes the first time)"
cargo run --locked -p pipewright-web -- build
say "Building the runner (2 minutes the first time)"
cargo build --locked --release -p pipewright-runner
cargo run --quiet --locked -p pipewright-web -- embed "$runner"
ln -sf runner "${runner%/*}/pipewright"
say "Done: ${runner%/*}/pipewright explore"
