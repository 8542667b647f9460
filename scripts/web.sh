#!/usr/bin/env bash
# web.sh build|serve: the explorer into dist/, and dist/ on a local address.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh web
. scripts/env.sh

say "Building the explorer (3 minutes the first time)"
cargo run --locked -p pipewright-web -- build
if [ "${1:-build}" = serve ]; then
  exec cargo run --quiet --locked -p pipewright-web -- serve ${PORT:+--port "$PORT"}
fi
