#!/usr/bin/env bash
# bench.sh: how fast the planner is (docs/planning.md), then how well predictions made from costs profiled on this machine meet what is measured on
# it. Compute-bound plans; each line pair is one run. An otherwise idle machine is assumed.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh demo
. scripts/env.sh

target=${CARGO_TARGET_DIR:-target}
runner=$target/release/runner
work=$target/bench
cargo build --locked --release -p pipewright-runner
mkdir -p "$work"

# One plan: profile, plan again with the measured costs, run under MPI, print both sides.
compare() {
  name=$1
  ranks=$2
  shift 2
  say "$name"
  "$runner" plan --ranks "$ranks" --stages "$ranks" "$@" -o "$work/plan.json" 2>/dev/null
  "$runner" profile "$work/plan.json" -o "$work/cluster.json"
  "$runner" plan --ranks "$ranks" --stages "$ranks" "$@" --cluster "$work/cluster.json" -o "$work/plan.json" 2>/dev/null
  timeout -k 10 600 mpirun -n "$ranks" "$runner" "$work/plan.json" 2>/dev/null
}

say "Planner: schedules, partitions, automatic schedules, search"
for bench in schedules partition automatic search; do
  cargo bench --locked -q -p pipewright-core --features parallel --bench "$bench"
done

fc32=(--model fc32:512 --learning-rate 0.001 --steps 20)
compare "fc32:512, 2 ranks, 1F1B" 2 "${fc32[@]}" --mini-batch 1024 --micro-batches 8 --schedule 1f1b
compare "fc32:512, 2 ranks, GPipe" 2 "${fc32[@]}" --mini-batch 1024 --micro-batches 8 --schedule gpipe
compare "fc32:512, 2 ranks, 1F1B, 2 micro-batches" 2 "${fc32[@]}" --mini-batch 1024 --micro-batches 2 --schedule 1f1b
compare "fc32:512, 4 ranks (more than cores: they take turns)" 4 "${fc32[@]}" --mini-batch 1024 --micro-batches 8 --schedule 1f1b
