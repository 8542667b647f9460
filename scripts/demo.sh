#!/usr/bin/env bash
# demo.sh: plan, run under MPI, compare, show. SERVE=0 stops before showing; PORT chooses the port.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh demo
. scripts/env.sh

target=${CARGO_TARGET_DIR:-target}
runner=$target/release/runner
options=(--model digits-cnn --stages 4 --schedule 1f1b --micro-batches 8 --mini-batch 384
  --data idx:tests/data/digits --steps 150 --learning-rate 0.05)

# Shows a command before running it, so that a reader can repeat it.
show() {
  printf '%s$ %s%s\n' "$dim" "$*" "$plain"
  "$@"
}

# The page is built with what processor time the rest leaves, in a process group that can be paused:
# nothing may compete with ranks whose times are compared with a prediction.
mkdir -p run
set -m
nice -n 19 cargo run --locked -p pipewright-web -- build --quick </dev/null >run/page.log 2>&1 &
page=$!
set +m
signal_page() { kill "-$1" -- "-$page" 2>/dev/null || true; }
trap 'signal_page CONT; signal_page TERM' EXIT

say "Building the runner (2 minutes the first time) and, behind it, the explorer (run/page.log)"
cargo build --locked --release -p pipewright-runner

say "Planning digits-cnn on 4 stages for a laptop as the text books have it"
show "$runner" plan "${options[@]}" --cluster laptop -o run/plan.json
say "Measuring this machine, and planning again with what it can do"
signal_page STOP
show "$runner" profile run/plan.json -o run/cluster.json
show "$runner" plan "${options[@]}" --cluster run/cluster.json -o run/plan.json

say "Training on 4 MPI ranks (half a minute); the end compares prediction and measurement"
# A rank that dies must not leave the others waiting for ever; --foreground lets Ctrl-C through.
show timeout --foreground -k 10 900 mpirun -n 4 "$runner" run/plan.json --out run/ --overwrite
signal_page CONT

say "Waiting for the explorer (5 more minutes the first time)"
wait "$page" || {
  tail -n 30 run/page.log >&2
  exit 1
}
trap - EXIT
mkdir -p dist/demo
cp run/plan.json run/trace.json dist/demo/
if [ "${SERVE:-1}" = 0 ]; then
  say "Done. make serve shows dist/; the plan and the trace of this run are in run/"
  exit 0
fi
say "The explorer, with this plan and this trace"
exec cargo run --quiet --locked -p pipewright-web -- serve ${PORT:+--port "$PORT"} \
  --fragment '#plan=demo/plan.json&trace=demo/trace.json'
