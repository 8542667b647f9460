#!/usr/bin/env bash
# soak.sh: tests of elastic jobs that take long (about half an hour); writes the end of docs/reliability.md.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh test
. scripts/env.sh
export PIPEWRIGHT_REQUIRE_ALL=1

log=$cache/soak.log
mkdir -p "$cache"
say "Kills for some half an hour; $log has what they say"
# The selection of test.sh, so that nothing is built twice.
cargo test --locked --workspace --exclude pipewright-app --exclude pipewright-worker \
  --features pipewright-runner/etcd --test elastic -- \
  --ignored --nocapture --test-threads 1 >"$log" 2>&1 || {
  tail -n 40 "$log" >&2
  exit 1
}
# What people wrote stands before the heading and stays.
kept=$(sed '/^## Soak$/,$d' docs/reliability.md)
{
  printf '%s\n' "$kept"
  cat <<'END'

## Soak

Written by `make soak`: a job of 2 stages x 2 replicas (digits-cnn, real processes, one machine) whose
ranks are killed (`kill -9`). After each series, the losses of all steps are compared with those of a run
without faults.

END
  printf 'Machine: %s, %s cores; %s; %s.\n\n' \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
    "$(mpirun --version | head -n 1)" "$(date -u +%Y-%m-%d)"
  printf '| what | figure |\n|---|---|\n'
  # The first figure of a test stands behind its name.
  sed -n 's/^.*reliability: //p' "$log"
} >"$cache/reliability.md"
mv "$cache/reliability.md" docs/reliability.md
say "docs/reliability.md"
cat docs/reliability.md
