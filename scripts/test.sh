#!/usr/bin/env bash
# test.sh [quick]: every check and test there is, cheapest first; stops at the first that fails.
# quick is the inner loop: nothing for wasm, no browser, no programs of tests.
# Ends with what took longest, and adds it to target/test-times.tsv.
set -eu -o pipefail
. "$(dirname "$0")/lib.sh"

[ ! -t 1 ] || export CARGO_TERM_COLOR=always # what is printed goes through tee
target=${CARGO_TARGET_DIR:-target}
log=$target/test.log
times=$target/test-times.tsv
steps=()

step() {
  local name=$1 begin=$SECONDS
  shift
  say "$name"
  "$@" > >(tee -a "$log") 2>&1 || {
    local code=$?
    printf '\n%s failed: %s\n' "$name" "$*" >&2
    exit "$code"
  }
  steps+=("$((SECONDS - begin))"$'\t'"$name")
}

# Starts a function whose steps run behind the next ones: programs of tests wait as much as they compute,
# and the page's build uses one core for most of its time. What it says comes when it is waited for.
behind() {
  say "$1, behind the next steps"
  behind_log=$target/test-behind.log
  # A process group of its own, so that what it started goes when a step fails or somebody presses Ctrl-C.
  set -m
  (
    set +m
    steps=()
    log=$behind_log
    : >"$log"
    "$2"
    printf '%s\n' "${steps[@]}" >"$log.steps"
  ) </dev/null >/dev/null 2>>"$behind_log" &
  behind=$!
  set +m
  trap 'kill -TERM -- "-$behind" 2>/dev/null || true' EXIT
}

await() {
  local code=0
  wait "$behind" || code=$?
  trap - EXIT
  cat "$behind_log"
  [ "$code" = 0 ] || {
    printf '\nA step behind the others failed, see above.\n' >&2
    exit "$code"
  }
  mapfile -t -O "${#steps[@]}" steps <"$behind_log.steps"
}

# Compiles own crates with clippy's driver, which is rustc with more lints: what is linted is what is
# tested, and is compiled once. Without the MIR optimisations of rustc, which clippy wants to be off.
linted() { RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS='-D__CLIPPY_HACKERY__warnings' "$@"; }

# The programs of tests say how long each test took, an option that libtest keeps for nightly compilers.
# In the environment of cargo itself the variable would compile half of all dependencies again.
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
timed() {
  linted env "CARGO_TARGET_${host}_RUNNER=env RUSTC_BOOTSTRAP=1" cargo test "$@" -Zunstable-options --report-time
}

# One selection for all native steps: another one would give some dependency other features, and
# cargo would build it twice. What of the explorer needs a browser is behind features that are off.
native=(--locked --workspace)
# The quick one installs nothing, and etcd's client needs protoc to build.
if [ "${1:-}" != quick ] || have protoc; then native+=(--features pipewright-runner/etcd); fi

slowest() {
  local now
  now=$(date -u +%FT%TZ)
  say "All passed in $SECONDS s. Steps and tests that took longest (s):"
  {
    printf '%s\n' "${steps[@]}" | sort -rn | sed -n 1,10p
    # `test name ... ok <1.234s>`; output of a test may stand between.
    sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2\t\1/p' "$log" | sort -rn | sed -n 1,10p
  } | tee >(sed "s/^/$now\t/" >>"$times")
}

mkdir -p "$target"
: >"$log"

if [ "${1:-}" = quick ]; then
  step "Format" cargo fmt --all --check
  step "Lints, unit tests, house rules" timed "${native[@]}" --lib --bins --test tidy --
  slowest
  exit 0
fi

step "Set-up" scripts/setup.sh test
. scripts/env.sh
# From here on a missing tool is a failure and not a skipped test.
export PIPEWRIGHT_REQUIRE_ALL=1
# Nothing is compiled twice in here: what incremental builds write would never be read.
export CARGO_INCREMENTAL=0

wasm_lints() {
  # core also compiles natively, but the page runs the wasm one: code that only fits 64 bits, or a
  # dependency that has no wasm, must fail here. The profile is that of the page, so that the
  # macros compiled now serve the build later.
  if [ -z "${PIPEWRIGHT_WEB_CARGO:-}" ]; then # Debian's compiler for wasm has no clippy
    cargo clippy --locked --profile web --target wasm32-unknown-unknown -p pipewright-app \
      -p pipewright-worker -p pipewright-meter --features pipewright-app/page,pipewright-worker/worker -- -D warnings
  fi
}

explorer() {
  step "Lints, wasm32" wasm_lints
  step "Explorer for the browser" "$target/debug/pipewright-web" build
}

step "Format" cargo fmt --all --check
step "Lints and native build" linted cargo build "${native[@]}" --all-targets
behind "Lints for wasm32 and the explorer" explorer
step "Unit, property, golden and MPI tests" timed "${native[@]}" --lib --bins --tests --
step "Examples in documentation" linted cargo test "${native[@]}" --doc
# Marked `ignore` for want of root or user namespaces; a kernel that refuses them is said and passes.
step "Tests across hosts" timed "${native[@]}" --test 'hosts*' -- --ignored --nocapture
await
step "What is measured in the browser" "$target/debug/pipewright-web" meter
# The tests that need dist/ are marked `ignore`, so that plain `cargo test` works without it.
step "Browser tests" timed "${native[@]}" --test browser -- --ignored
if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
  step "Python package" scripts/python.sh
else
  say "Python package: skipped, ${PYTHON:-python3} has no torch"
fi
slowest
